//! `backup create`, `status`, `restore` and `restore-status`: whom they ask for what, and in which
//! words they refuse. Stores are directories.

use rpc::ptypes::{
    BackupCreateResponse, BackupStatusResponse, DiskInfo, Replica, ReplicaMode,
    RestoreStatusResponse, SnapshotPurgeStatusResponse, Volume,
};

use rpc::volume::{ReplicaError, RestoreReply};
use tonic::Status;

use crate::store::Store;
use crate::world::{World, fatal, run};

fn replica(disks: &[&str]) -> Replica {
    let disk = |name: &&str| ((*name).to_owned(), DiskInfo::default());
    let parent = disks.get(1).copied().unwrap_or_default().to_owned();
    Replica { disks: disks.iter().map(disk).collect(), parent, ..Replica::default() }
}

#[test]
fn the_first_healthy_replica_makes_the_backup() {
    let world = World::new(&[ReplicaMode::Err, ReplicaMode::Rw, ReplicaMode::Rw]);
    world.replicas[1].is(replica(&["volume-head-001.img", "volume-snap-s.img"]));
    let reply = BackupCreateResponse { backup: "backup-1".into(), is_incremental: true };
    world.replicas[1].agent.on("backup_create", reply);
    let line = "backup create s --dest \"vfs:///t\" --label a=b --backup-block-size 16";
    let wanted = "{\"backupID\":\"backup-1\",\"isIncremental\":true,\"replicaAddress\":\"{1}\"}\n";
    assert_eq!(world.ok(line), world.fill(wanted));
    let request = &world.calls_of("backup_create")[0].request;
    for part in [
        "snapshot_file_name: \"s\"",
        "backup_target: \"vfs:///t\"",
        "volume_name: \"vol\"",
        "labels: [\"a=b\"]",
        "compression_method: \"lz4\"",
        "storage_class_name: \"0\"",
        "\"backup-block-size\": \"16777216\"",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
    world.ok("backup create s --dest vfs:///t --backup-mode full");
    let request = &world.calls_of("backup_create")[1].request;
    assert!(request.contains("\"backup-mode\": \"full\""), "{request}");
    world.error("backup create s --dest vfs:///t --backup-mode half");
    let missing = world.error("backup create x --dest vfs:///t");
    assert_eq!(missing, world.fill("snapshot disk volume-snap-x.img not found on replica {1}"));
}

#[test]
fn credentials_come_from_a_secret_and_are_never_shown() {
    let place = tempfile::tempdir().unwrap();
    let manifest = place.path().join("secret.yaml");
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  \
                AWS_ACCESS_KEY_ID: the-id\n  AWS_SECRET_ACCESS_KEY: the-key\n  x: y\n";
    durable::replace(&manifest, text.as_bytes()).unwrap();
    let world = World::healthy(1);
    world.replicas[0].is(replica(&["volume-head-001.img", "volume-snap-s.img"]));
    world.replicas[0].agent.on("backup_create", BackupCreateResponse::default());
    let line = "backup create s --dest s3://b@r/x --credential-file";
    world.ok(&format!("{line} {}", manifest.display()));
    let request = &world.calls_of("backup_create")[0].request;
    for part in ["\"AWS_ACCESS_KEY_ID\": \"the-id\"", "\"AWS_SECRET_ACCESS_KEY\": \"the-key\""] {
        assert!(request.contains(part), "{request}");
    }
    let half = text.replace("  AWS_ACCESS_KEY_ID: the-id\n", "").replace("the-key", "' the-key'");
    durable::replace(&manifest, half.as_bytes()).unwrap();
    let refused = run(&format!("backup ls s3://b@r/x --credential-file {}", manifest.display()));
    let wanted = "credential validation error(s): invalid leading whitespace in \
                  AWS_SECRET_ACCESS_KEY\n";
    assert_eq!((refused.exit_code, refused.out.as_str()), (1, wanted));
    assert!(!refused.err.contains("the-key"), "{}", refused.err);
    let missing =
        run(&format!("backup ls s3://b@r/x --credential-file {}/no", place.path().display()));
    assert!(missing.out.contains("cannot be read: No such file"), "{}", missing.out);
}

#[test]
fn the_status_is_one_line_without_what_is_empty() {
    let world = World::healthy(1);
    let status = BackupStatusResponse {
        progress: 100,
        backup_url: "vfs:///t?backup=b&volume=v".into(),
        snapshot_name: "s".into(),
        state: "complete".into(),
        ..BackupStatusResponse::default()
    };
    world.replicas[0].agent.on("backup_status", status);
    let wanted = "{\"progress\":100,\"backupURL\":\"vfs:///t?backup=b\\u0026volume=v\",\
                  \"snapshotName\":\"s\",\"state\":\"complete\",\"replicaAddress\":\"{0}\"}\n";
    assert_eq!(world.ok("backup status b"), world.fill(wanted));
    let text = "failed to get backup status on tcp://x:1 for b: unknown replica";
    assert_eq!(world.error("backup status b --replica tcp://x:1"), text);
}

#[test]
fn a_restore_is_refused_before_anything_is_touched() {
    let world = World::healthy(1);
    world.replicas[0].is(replica(&["volume-head-001.img"]));
    let refused = |world: &World| {
        let outcome = world.run("backup restore vfs:///nowhere?backup=bb&volume=vv");
        assert_eq!(outcome.exit_code, 1);
        assert!(!fatal(&outcome.err).is_empty());
        outcome.out
    };
    let wanted = "{\n\t\"ReplicaErrors\": [\n\t\t{\n\t\t\t\"Address\": \"{0}\",\n\t\t\t\"Message\": \
                  \"failed to get the current restoring backup info: cannot find ";
    let out = refused(&world);
    assert!(out.starts_with(&world.fill(wanted)), "{out}");
    let three = replica(&["volume-head-001.img", "volume-snap-b.img", "volume-snap-a.img"]);
    world.replicas[0].is(three);
    let text = "found more than 1 snapshot in the replicas, hence started to purge snapshots \
                before the restore\n";
    assert_eq!(refused(&world), text);
    assert_eq!(world.calls_of("snapshot_purge").len(), 1);
    let purging = SnapshotPurgeStatusResponse { is_purging: true, ..Default::default() };
    world.replicas[0].agent.on("snapshot_purge_status", purging);
    let text = "cannot do restore now since replicas are purging snapshots\n";
    assert_eq!(refused(&world), text);
    world.replicas[0].is(Replica { rebuilding: true, ..Replica::default() });
    assert!(refused(&world).contains("cannot do restore for normal rebuilding replica"));
    let up = Volume { frontend_state: "up".into(), ..Volume::default() };
    world.controller.on("volume_get", up);
    assert_eq!(refused(&world), "volume frontend enabled, cannot perform restore\n");
    assert!(world.calls_of("backup_restore").is_empty());
}

/// Killed anywhere, the command leaves nothing half begun.
#[test]
fn a_controller_of_ours_is_asked_once_and_asks_the_replicas_itself() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::at(&place.path().join("store"));
    let image = place.path().join("image");
    durable::replace(&image, &vec![1; 4 << 20]).unwrap();
    store.back_up("vv", "bb", &image);
    let world = World::ours(2);
    let line = format!("backup restore {} --concurrent-limit 3", store.url("vv", "bb"));
    assert_eq!(world.ok(&line), "");
    assert_eq!(world.called(), ["controller.volume_get", "controller.restore"]);
    let request = &world.calls_of("restore")[0].request;
    for part in [
        "backup_name: \"bb\"",
        "backup_volume: \"vv\"",
        "backup_bytes: 4194304",
        "concurrent_limit: 3",
        "go_on: false",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
    let error = ReplicaError { address: "tcp://a".into(), message: "no space".into() };
    world.controller.on("restore", RestoreReply { errors: vec![error] });
    let outcome = world.run(&line);
    let wanted = "{\n\t\"ReplicaErrors\": [\n\t\t{\n\t\t\t\"Address\": \"tcp://a\",\n\t\t\t\"Message\": \
                  \"no space\"\n\t\t}\n\t]\n}\n";
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, wanted));
    assert_eq!(fatal(&outcome.err), "tcp://a: no space");
    world.controller.refuse::<RestoreReply>("restore", Status::unknown("not now"));
    let outcome = world.run(&line);
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, "not now\n"));
    assert!(world.calls_of("backup_restore").is_empty());
}

#[test]
fn the_status_of_a_restore_is_one_line() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Err]);
    let status = RestoreStatusResponse {
        is_restoring: true,
        progress: 7,
        dest_file_name: "volume-snap-a.img".into(),
        state: "in_progress".into(),
        current_restoring_backup: "b".into(),
        ..RestoreStatusResponse::default()
    };
    world.replicas[0].agent.on("restore_status", status);
    let wanted = "{\"{0}\":{\"isRestoring\":true,\"progress\":7,\"filename\":\"volume-snap-a.img\",\
                  \"state\":\"in_progress\",\"backupURL\":\"\",\"lastRestored\":\"\",\
                  \"currentRestoringBackup\":\"b\"}}\n";
    assert_eq!(world.ok("backup restore-status"), world.fill(wanted));
}

#[test]
fn what_a_store_lacks_is_told_on_standard_output() {
    let place = tempfile::tempdir().unwrap();
    let target = format!("vfs://{}", place.path().display());
    let outcome = run(&format!("backup ls {target}"));
    assert_eq!((outcome.exit_code, outcome.out.as_str()), (0, "{}\n"));
    assert_eq!(outcome.err, "");
    let missing = run(&format!("backup ls {target}/unmounted"));
    assert_eq!((missing.exit_code, missing.out.as_str()), (0, "{}\n"));
    assert!(missing.err.contains("does not exist, and is listed as empty"), "{}", missing.err);
    for (line, wanted) in [
        (
            "backup ls backups".to_owned(),
            "\"backups\" cannot be used as a backup target: it has no",
        ),
        (format!("backup inspect {target}"), "\"vfs://"),
        (
            format!("backup inspect {target}?backup=bb&volume=vv"),
            "cannot find backupstore/volumes/",
        ),
        (format!("backup inspect-volume {target}?volume=vv"), "cannot find backupstore/volumes/"),
        (format!("backup head {target}?volume=vv"), "cannot find backupstore/volumes/"),
        ("backup ls ftp://x".to_owned(), "driver ftp is not supported"),
        ("backup inspect".to_owned(), "URL is required"),
    ] {
        let outcome = run(&line);
        assert_eq!(outcome.exit_code, 1, "{line}");
        assert!(outcome.out.starts_with(wanted), "{line}: {}", outcome.out);
        assert_eq!(format!("{}\n", fatal(&outcome.err)), outcome.out);
    }
}

#[test]
fn what_a_target_can_do_is_shown_and_can_be_said() {
    let place = tempfile::tempdir().unwrap();
    let target = format!("vfs://{}", place.path().display());
    let shown = |line: &str| -> serde_json::Value {
        let outcome = run(line);
        assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{line}: {}", outcome.out);
        serde_json::from_str(&outcome.out).unwrap()
    };
    let before = shown(&format!("backup target inspect {target}"));
    assert_eq!(before["url"], target);
    assert_eq!(before["set"], serde_json::json!({}));
    assert_eq!(before["used"], before["found"], "nothing else was said");
    assert!(before["used"]["conditionalWrites"].is_boolean(), "{before}");
    // Said once, for all who use it; what is found stays to be seen.
    let set = shown(&format!("backup target set {target} --listings-at-once no"));
    let after = shown(&format!("backup target inspect {target}"));
    assert_eq!(set, after);
    assert_eq!(after["set"], serde_json::json!({"listingsAtOnce": false}));
    assert_eq!(after["used"]["listingsAtOnce"], false);
    assert_eq!(after["found"], before["found"]);
    let again = shown(&format!("backup target set {target}"));
    assert_eq!(again["used"], before["used"], "as found");
    let refused = run(&format!("backup target set {target} --one-clock perhaps"));
    assert_eq!(refused.exit_code, 1);
    assert!(refused.out.contains("perhaps"), "{}", refused.out);
}

#[test]
fn system_backups_come_back_as_they_were() {
    let place = tempfile::tempdir().unwrap();
    let (archive, back) = (place.path().join("a.zip"), place.path().join("b.zip"));
    durable::replace(&archive, b"archive").unwrap();
    let target = format!("vfs://{}/store", place.path().display());
    let url = format!("{target}/backupstore/system-backups/v1.2.3/nightly");
    let ok = |line: &str| {
        let outcome = run(line);
        assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{line}: {}", outcome.out);
        outcome.out
    };
    ok(&format!("system-backup upload {} {url} --git-commit abc", archive.display()));
    let again = run(&format!("system-backup upload {} {url}", archive.display()));
    assert!(again.out.contains("already exists"), "{}", again.out);
    let wanted = "{\n\t\"nightly\": \"backupstore/system-backups/v1.2.3/nightly\"\n}\n";
    assert_eq!(ok(&format!("system-backup list {target}")), wanted);
    assert!(ok(&format!("system-backup get-config {url}")).contains("\"abc\""));
    ok(&format!("system-backup download {url} {}", back.display()));
    assert_eq!(std::fs::read(&back).unwrap(), b"archive");
    ok(&format!("system-backup delete {url}"));
    assert_eq!(ok(&format!("system-backup list {target}")), "{}\n");
}
