//! The executor of Velero's resources, driven by kubectl against `up` on its own directory.

use std::io::{Read, Write as _};

use e2e::velero::{ENDED, NAMESPACE, World};
use serde_json::{Value, json};

fn unpacked(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_namespace_comes_back_as_it_was_and_under_another_name() {
    let world = World::start();
    world.shop("shop");
    world.backup("b1", &json!({"includedNamespaces": ["shop"]}));
    let status = world.ended("backup", "b1");
    assert_eq!(status["phase"], "Completed", "{status}");
    assert_eq!(status["progress"]["totalItems"], status["progress"]["itemsBackedUp"]);
    let before = world.get("configmap", "shop", "cm-1").unwrap();
    world.kubectl(&["delete", "namespace", "shop", "--wait=true", "--timeout=60s"]);
    world.restore("r1", &json!({"backupName": "b1"}));
    let status = world.ended("restore", "r1");
    assert_eq!(status["phase"], "Completed", "{status}");
    let after = world.get("configmap", "shop", "cm-1").unwrap();
    assert_eq!(after["data"], before["data"]);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"]["velero.io/restore-name"], "r1");
    let namespace = world.get("namespace", "", "shop").unwrap();
    assert_eq!(namespace["metadata"]["labels"]["team"], "shop");
    assert!(world.get("deployment", "shop", "web").is_some());
    assert!(world.get("service", "shop", "web").is_some());
    world.restore(
        "r2",
        &json!({"backupName": "b1", "namespaceMapping": {"shop": "copy"},
        "labelSelector": {"matchLabels": {"n": "2"}}}),
    );
    let status = world.ended("restore", "r2");
    assert_eq!(status["phase"], "Completed", "{status}");
    assert!(world.get("configmap", "copy", "cm-2").is_some());
    assert!(world.get("configmap", "copy", "cm-1").is_none());
}

#[test]
fn what_is_there_stays_or_is_updated_as_the_policy_says() {
    let world = World::start();
    world.shop("shop");
    world.backup("b1", &json!({"includedNamespaces": ["shop"]}));
    assert_eq!(world.ended("backup", "b1")["phase"], "Completed");
    let patch = r#"{"data":{"key":"changed"}}"#;
    world.kubectl(&["patch", "configmap", "-n", "shop", "cm-0", "--type=merge", "-p", patch]);
    world.restore("keep", &json!({"backupName": "b1"}));
    let status = world.ended("restore", "keep");
    assert_eq!(status["phase"], "Completed", "{status}");
    assert!(status["warnings"].as_i64().unwrap_or_default() >= 1, "{status}");
    assert_eq!(world.get("configmap", "shop", "cm-0").unwrap()["data"]["key"], "changed");
    world.restore("update", &json!({"backupName": "b1", "existingResourcePolicy": "update"}));
    assert_eq!(world.ended("restore", "update")["phase"], "Completed");
    assert_eq!(world.get("configmap", "shop", "cm-0").unwrap()["data"]["key"], "value 0");
}

#[test]
fn files_are_where_clients_look_and_can_be_fetched() {
    let world = World::start();
    world.shop("shop");
    world.backup("b1", &json!({"includedNamespaces": ["shop"]}));
    assert_eq!(world.ended("backup", "b1")["phase"], "Completed");
    for file in [
        "velero-backup.json",
        "b1.tar.gz",
        "b1-logs.gz",
        "b1-results.gz",
        "b1-resource-list.json.gz",
        "b1-volumesnapshots.json.gz",
        "b1-podvolumebackups.json.gz",
        "b1-itemoperations.json.gz",
        "b1-volumeinfo.json.gz",
    ] {
        assert!(world.folder("b1").join(file).is_file(), "{file}");
    }
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "DownloadRequest",
        "metadata": {"name": "d1", "namespace": NAMESPACE},
        "spec": {"target": {"kind": "BackupResourceList", "name": "b1"}}}));
    world.wait("an address", || world.status("downloadrequest", "d1")["downloadURL"].is_string());
    let url = world.status("downloadrequest", "d1")["downloadURL"].as_str().unwrap().to_owned();
    let list: Value = serde_json::from_str(&unpacked(&fetch(&url).1)).unwrap();
    let maps = list["v1/ConfigMap"].as_array().unwrap();
    assert!(maps.contains(&json!("shop/cm-1")), "{list}");
    let (code, _) = fetch(&url.replace("resource-list.json", "logs"));
    assert_eq!(code, 403);
}

/// Status code and body of a plain GET.
fn fetch(url: &str) -> (u16, Vec<u8>) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let code = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (code, answer[end + 4..].to_vec())
}

#[test]
fn backups_are_deleted_on_request_and_when_they_expire() {
    let world = World::start();
    world.shop("shop");
    world.backup("asked", &json!({"includedNamespaces": ["shop"]}));
    world.backup("short", &json!({"includedNamespaces": ["shop"], "ttl": "3s"}));
    assert_eq!(world.ended("backup", "asked")["phase"], "Completed");
    world.restore("r1", &json!({"backupName": "asked"}));
    world.ended("restore", "r1");
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
        "metadata": {"generateName": "asked-", "namespace": NAMESPACE},
        "spec": {"backupName": "asked"}}));
    for name in ["asked", "short"] {
        world.wait(&format!("the end of {name}"), || {
            world.get("backup.velero.io", NAMESPACE, name).is_none()
        });
        assert!(!world.folder(name).join("velero-backup.json").exists(), "{name}");
    }
    assert!(world.get("restore.velero.io", NAMESPACE, "r1").is_none());
    // With a backup go the requests to delete it, so the next one comes after them.
    world.wait("the requests to be gone", || {
        world.kubectl(&["get", "deletebackuprequest", "-n", NAMESPACE, "-o", "name"]).is_empty()
    });
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
        "metadata": {"name": "again", "namespace": NAMESPACE}, "spec": {"backupName": "asked"}}));
    world
        .wait("an answer", || world.status("deletebackuprequest", "again")["phase"] == "Processed");
    let errors = world.status("deletebackuprequest", "again")["errors"].clone();
    assert_eq!(errors, json!(["backup not found"]));
}

#[test]
fn backups_come_back_from_the_store_and_go_with_it() {
    let world = World::start();
    world.shop("shop");
    let patch = r#"{"spec":{"backupSyncPeriod":"1s"}}"#;
    world.kubectl(&["patch", "bsl", "-n", NAMESPACE, "default", "--type=merge", "-p", patch]);
    world.backup("b1", &json!({"includedNamespaces": ["shop"]}));
    assert_eq!(world.ended("backup", "b1")["phase"], "Completed");
    let uid = world.get("backup.velero.io", NAMESPACE, "b1").unwrap()["metadata"]["uid"].clone();
    world.kubectl(&["delete", "backup.velero.io", "-n", NAMESPACE, "b1"]);
    world.wait("the backup to be found", || {
        world
            .get("backup.velero.io", NAMESPACE, "b1")
            .is_some_and(|it| it["metadata"]["uid"] != uid)
    });
    world.restore("r1", &json!({"backupName": "b1"}));
    assert_eq!(world.ended("restore", "r1")["phase"], "Completed");
    std::fs::remove_dir_all(world.folder("b1")).unwrap();
    world.wait("the backup to be forgotten", || {
        world.get("backup.velero.io", NAMESPACE, "b1").is_none()
    });
}

#[test]
fn nothing_is_stuck_after_kill_9() {
    let mut world = World::start();
    world.shop("shop");
    for round in 0..3 {
        let (backup, restore) = (format!("b{round}"), format!("r{round}"));
        world.backup(&backup, &json!({"includedNamespaces": ["shop"]}));
        world.backup(&format!("{backup}-next"), &json!({"includedNamespaces": ["shop"]}));
        if round > 0 {
            world.restore(&restore, &json!({"backupName": "b0"}));
        }
        // At once, when it was seen, and when it was begun.
        world.wait("a moment to kill at", || {
            let phase = world.status("backup", &backup)["phase"].clone();
            match round {
                0 => true,
                1 => phase.is_string(),
                _ => !["Queued", "ReadyToStart"].contains(&phase.as_str().unwrap_or("Queued")),
            }
        });
        world.server.kill();
        world.server.start_again().unwrap();
        for name in [backup.clone(), format!("{backup}-next")] {
            let status = world.ended("backup", &name);
            if status["phase"] == "Failed" {
                let reason = status["failureReason"].as_str().unwrap();
                assert!(reason.starts_with("found a backup with status"), "{status}");
                assert!(!world.folder(&name).join("velero-backup.json").exists());
            } else {
                assert_eq!(status["phase"], "Completed", "{status}");
                assert!(world.folder(&name).join("velero-backup.json").exists());
            }
        }
        if round > 0 {
            world.ended("restore", &restore);
        }
    }
    // One that another process was working on.
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": {"name": "left", "namespace": NAMESPACE},
        "spec": {"storageLocation": "default"}, "status": {"phase": "InProgress"}}));
    let status = world.ended("backup", "left");
    assert_eq!(
        status["failureReason"],
        "found a backup with status \"InProgress\" during the server starting, mark it as \"Failed\""
    );
}

#[test]
fn a_schedule_makes_backups_and_a_question_is_answered() {
    let world = World::start();
    world.shop("shop");
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": {"name": "often", "namespace": NAMESPACE},
        "spec": {"schedule": "@every 1s", "template": {"includedNamespaces": ["shop"]}}}));
    let made = || {
        let selector = "velero.io/schedule-name=often";
        world.kubectl(&["get", "backup.velero.io", "-n", NAMESPACE, "-l", selector, "-o", "name"])
    };
    world.wait("a backup of the schedule", || !made().is_empty());
    assert_eq!(world.status("schedule", "often")["phase"], "Enabled");
    world.kubectl(&["delete", "schedule.velero.io", "-n", NAMESPACE, "often"]);
    world.apply(&json!({"apiVersion": "velero.io/v1", "kind": "ServerStatusRequest",
        "metadata": {"name": "q", "namespace": NAMESPACE}, "spec": {}}));
    world.wait("an answer", || world.status("serverstatusrequest", "q")["phase"] == "Processed");
    let version = world.status("serverstatusrequest", "q")["serverVersion"].clone();
    assert!(version.as_str().unwrap().contains("holdfast"), "{version}");
}

#[test]
fn what_a_tenant_asked_for_ends_with_its_namespace() {
    let world = World::start();
    world.shop("shop");
    let uid = |name: &str| {
        world.get("namespace", "", name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let asked = |kind: &str, name: &str, namespace_uid: &str, spec: Value| {
        let short = if kind == "Backup" { "nab" } else { "nar" };
        let notes = json!({format!("openshift.io/oadp-{short}-origin-namespace"): "shop",
            "holdfast.io/namespace-uid": namespace_uid,
            "holdfast.io/cluster-uid": uid("kube-system")});
        world.apply(&json!({"apiVersion": "velero.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes}}));
        world.ended(&kind.to_lowercase(), name)
    };
    let former = "00000000-0000-4000-8000-000000000000";
    let of_shop = json!({"includedNamespaces": ["shop"]});
    // The namespace of that name is another's by now: nothing of it is for who asked.
    let status = asked("Backup", "former", former, of_shop.clone());
    assert_eq!(status["phase"], "FailedValidation", "{status}");
    let said = status["validationErrors"][0].as_str().unwrap();
    assert!(said.contains("another has its name now"), "{said}");
    assert!(!world.folder("former").exists());
    let status = asked("Backup", "present", &uid("shop"), of_shop);
    assert_eq!(status["phase"], "Completed", "{status}");
    world.kubectl(&["delete", "configmap", "cm-1", "-n", "shop"]);
    let from = json!({"backupName": "present"});
    let status = asked("Restore", "former", former, from.clone());
    assert_eq!(status["phase"], "FailedValidation", "{status}");
    assert!(world.get("configmap", "shop", "cm-1").is_none());
    let status = asked("Restore", "present", &uid("shop"), from);
    assert_eq!(status["phase"], "Completed", "{status}");
    assert!(world.get("configmap", "shop", "cm-1").is_some());
}

/// A restore of a tenant, to its end.
fn restored(world: &World, kubeconfig: &std::path::Path, restore: &Value) -> Value {
    world.create(kubeconfig, restore);
    let name = restore["metadata"]["name"].as_str().unwrap();
    let ended = || {
        let found = world.get("nonadminrestore", "team-a", name)?;
        let status = found["status"]["veleroRestore"]["status"].clone();
        ENDED.contains(&status["phase"].as_str()?).then_some(status)
    };
    world.wait(&format!("the end of restore {name}"), || ended().is_some());
    ended().unwrap()
}

#[test]
fn a_restore_has_the_rights_of_who_asks_for_it() {
    let world = World::start();
    world.kubectl(&["create", "namespace", "team-a"]);
    world.kubectl(&["create", "configmap", "plain", "-n", "team-a", "--from-literal=a=b"]);
    world.kubectl(&["create", "secret", "generic", "key", "-n", "team-a", "--from-literal=a=b"]);
    let role = ["--verb=get", "--resource=secrets", "-n", "team-a"];
    world.kubectl(&[&["create", "role", "reader"], role.as_slice()].concat());
    // Somebody who may back up and restore, and nothing of Secrets and Roles.
    world.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "few"}, "rules": [
            {"apiGroups": ["oadp.openshift.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["configmaps", "serviceaccounts"], "verbs": ["*"]}]}));
    let made = world.server.holdfast(&[
        "kubeconfig",
        "--user",
        "carol",
        "--namespace",
        "team-a",
        "--role",
        "few",
    ]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let carol = world.server.scratch().join("carol.kubeconfig");
    e2e::write(&carol, &String::from_utf8(made.stdout).unwrap());
    let kind = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "team-a"}, "spec": spec})
    };
    world.create(&carol, &kind("NonAdminBackup", "all", json!({"backupSpec": {}})));
    world.wait("the backup", || {
        let found = world.get("nonadminbackup", "team-a", "all").unwrap_or_default();
        found["status"]["veleroBackup"]["status"]["phase"] == "Completed"
    });
    for gone in ["configmap/plain", "secret/key", "role/reader"] {
        world.kubectl(&["delete", "-n", "team-a", gone]);
    }

    // What she may make comes back; what she may not, does not, whoever she says she is.
    let asked = json!({"restoreSpec": {"backupName": "all"}});
    let mut forged = kind("NonAdminRestore", "forged", asked.clone());
    forged["metadata"]["annotations"] = json!({
        "holdfast.io/asked-by": r#"{"username":"admin","groups":["system:masters"]}"#,
        "holdfast.io/run-as": r#"{"user":"admin","groups":["system:masters"]}"#});
    let status = restored(&world, &carol, &forged);
    assert_eq!(status["phase"], "PartiallyFailed", "{status}");
    assert!(world.get("configmap", "team-a", "plain").is_some());
    assert!(world.get("secret", "team-a", "key").is_none());
    assert!(world.get("role", "team-a", "reader").is_none());
    let stored = world.get("nonadminrestore", "team-a", "forged").unwrap();
    let by = stored["metadata"]["annotations"]["holdfast.io/asked-by"].as_str().unwrap();
    assert!(by.contains("carol") && !by.contains("masters"), "{by}");

    // One that an administrator asked for and she edits is hers.
    let admin = world.server.kubeconfig();
    world.create(&admin, &kind("NonAdminRestore", "edited", json!({"restoreSpec": {}})));
    let patch = json!({"spec": asked}).to_string();
    let edit = ["patch", "nonadminrestore", "edited", "--type=merge", "-p", &patch];
    let edited = world.command_as(&carol, &edit).output().unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    world.wait("the end of the edited restore", || {
        let found = world.get("nonadminrestore", "team-a", "edited").unwrap_or_default();
        let phase = found["status"]["veleroRestore"]["status"]["phase"].clone();
        phase.as_str().is_some_and(|it| ENDED.contains(&it))
    });
    assert!(world.get("secret", "team-a", "key").is_none());

    // An administrator may, also what gives rights.
    let status = restored(&world, &admin, &kind("NonAdminRestore", "by-admin", asked));
    assert_eq!(status["phase"], "Completed", "{status}");
    assert!(world.get("secret", "team-a", "key").is_some());
    assert!(world.get("role", "team-a", "reader").is_some());
}
