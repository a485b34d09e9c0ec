//! Snapshots and what becomes of them, through the control service.

use std::collections::HashMap;

use rpc::ptypes;
use wire::frame::Outcome;

use crate::control::{get, text};
use crate::running::{NOW, Running, data};

pub(crate) fn snapshot(name: &str) -> ptypes::ReplicaSnapshotRequest {
    ptypes::ReplicaSnapshotRequest {
        name: name.to_owned(),
        user_created: true,
        created: NOW.to_owned(),
        labels: HashMap::new(),
    }
}

pub(crate) fn removed(name: &str) -> ptypes::DiskMarkAsRemovedRequest {
    ptypes::DiskMarkAsRemovedRequest { name: name.to_owned() }
}

fn revert(name: &str, created: &str) -> ptypes::ReplicaRevertRequest {
    ptypes::ReplicaRevertRequest { name: name.to_owned(), created: created.to_owned() }
}

fn remove(name: &str, force: bool) -> ptypes::DiskRemoveRequest {
    ptypes::DiskRemoveRequest { name: name.to_owned(), force }
}

fn prepare(name: &str) -> ptypes::DiskPrepareRemoveRequest {
    ptypes::DiskPrepareRemoveRequest { name: name.to_owned() }
}

#[tokio::test]
async fn a_disk_with_one_child_is_removed_and_one_with_more_only_by_force() {
    let running = Running::opened().await;
    let mut client = running.client();
    for name in ["a", "b", "c"] {
        client.replica_snapshot(snapshot(name)).await.unwrap();
    }
    client.disk_remove(remove("volume-snap-b.img", false)).await.unwrap();
    let seen = get(&mut client).await;
    assert_eq!(seen.disks["volume-snap-c.img"].parent, "volume-snap-a.img");
    assert!(!seen.disks.contains_key("volume-snap-b.img"));
    client.replica_revert(revert("volume-snap-a.img", NOW)).await.unwrap();
    assert_eq!(
        text(client.disk_remove(remove("volume-snap-a.img", false)).await),
        "cannot remove snapshot volume-snap-a.img with 2 children"
    );
    client.disk_remove(remove("volume-snap-a.img", true)).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_keeps_what_was_and_a_revert_brings_it_back() {
    let running = Running::opened().await;
    let (mut client, mut port) = (running.client(), running.local());
    port.write(0, &[1; 4096]).await;
    let mut request = snapshot("one");
    request.labels.insert("key".into(), "value".into());
    let state = client.replica_snapshot(request).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(state.chain, ["volume-head-001.img", "volume-snap-one.img"]);
    assert_eq!(
        (state.head.as_str(), state.parent.as_str()),
        ("volume-head-001.img", "volume-snap-one.img")
    );
    let disk = &state.disks["volume-snap-one.img"];
    assert_eq!((disk.size.as_str(), disk.created.as_str()), ("4096", NOW));
    assert!(disk.user_created && !disk.removed && disk.children["volume-head-001.img"]);
    assert_eq!(disk.labels["key"], "value");
    assert_eq!((state.snapshot_count_usage, state.snapshot_size_usage), (1, 4096));
    port.write(0, &[2; 4096]).await;
    assert_eq!(
        text(client.replica_snapshot(snapshot("one")).await),
        "snapshot volume-snap-one.img is already existing"
    );
    assert_eq!(
        text(client.replica_snapshot(snapshot("")).await),
        "cannot accept empty snapshot name"
    );
    let timeless = ptypes::ReplicaSnapshotRequest { created: String::new(), ..snapshot("two") };
    assert_eq!(text(client.replica_snapshot(timeless).await), "need to specific created time");
    assert_eq!(
        text(client.replica_revert(revert("volume-snap-none.img", NOW)).await),
        "cannot revert to disk file volume-snap-none.img since it's not in the disk chain"
    );
    assert!(client.replica_revert(revert("", NOW)).await.is_err());
    assert!(client.replica_revert(revert("volume-snap-one.img", "")).await.is_err());
    client.replica_revert(revert("volume-snap-one.img", NOW)).await.unwrap();
    assert_eq!(port.read(0, 4096).await, data(&[1; 4096]));
    client.disk_mark_as_removed(removed("one")).await.unwrap();
    assert_eq!(
        text(client.replica_revert(revert("volume-snap-one.img", NOW)).await),
        "cannot revert to disk file volume-snap-one.img since it's already marked as removed"
    );
    client.replica_close(()).await.unwrap();
    client.replica_snapshot(snapshot("three")).await.unwrap();
    assert_eq!(get(&mut client).await.snapshot_count_total, 2, "silently nothing when closed");
}

#[tokio::test]
async fn a_removed_snapshot_goes_the_way_it_is_told() {
    let running = Running::opened().await;
    let (mut client, mut port) = (running.client(), running.local());
    for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
        port.write(index as i64 * 4096, &[index as u8 + 1; 4096]).await;
        client.replica_snapshot(snapshot(name)).await.unwrap();
    }
    let head = "volume-head-003.img";
    let delete = "cannot delete the active differencing disk";
    assert_eq!(text(client.disk_remove(remove(head, false)).await), delete);
    assert_eq!(text(client.disk_prepare_remove(prepare(head)).await), delete);
    assert_eq!(
        text(client.disk_mark_as_removed(removed(head)).await),
        "cannot mark the active differencing disk as removed"
    );
    assert_eq!(
        text(client.disk_prepare_remove(prepare("a")).await),
        "disk volume-snap-a.img hasn't been marked as removed"
    );
    let replace = |target: &str, source: &str| ptypes::DiskReplaceRequest {
        target: target.to_owned(),
        source: source.to_owned(),
    };
    assert_eq!(
        text(client.disk_replace(replace(head, "volume-snap-c.img")).await),
        "cannot replace the active differencing disk"
    );
    client.disk_mark_as_removed(removed("not there")).await.unwrap();
    assert!(
        client
            .disk_prepare_remove(prepare("not there"))
            .await
            .unwrap()
            .into_inner()
            .operations
            .is_empty()
    );
    client.disk_mark_as_removed(removed("volume-snap-a.img")).await.unwrap();
    client.disk_mark_as_removed(removed("c")).await.unwrap();
    let words = |reply: ptypes::DiskPrepareRemoveResponse| {
        let word =
            |action: ptypes::PrepareRemoveAction| (action.action, action.source, action.target);
        reply.operations.into_iter().map(word).collect::<Vec<_>>()
    };
    let (a, b, c) = ("volume-snap-a.img", "volume-snap-b.img", "volume-snap-c.img");
    let of = |action: &str, source: &str, target: &str| {
        (action.to_owned(), source.to_owned(), target.to_owned())
    };
    let told = words(client.disk_prepare_remove(prepare("a")).await.unwrap().into_inner());
    assert_eq!(told, [of("coalesce", a, b), of("replace", a, b)]);
    let told = words(client.disk_prepare_remove(prepare("c")).await.unwrap().into_inner());
    assert_eq!(told, [of("prune", c, head)]);
    // The sync agent copies, then the replica swaps the names.
    let parse = |name| replica::DiskName::parse(name).unwrap();
    let mut work = replica::Coalesce::new(&running.options.dir, &parse(a), &parse(b)).unwrap();
    while work.step(1 << 20).unwrap() != replica::Progress::Done {}
    let state = client.disk_replace(replace(b, a)).await.unwrap().into_inner().replica.unwrap();
    assert_eq!(state.chain, [head, b]);
    assert!(!state.disks.contains_key(a));
    for (index, offset) in [0, 4096, 8192].into_iter().enumerate() {
        assert_eq!(port.read(offset, 4096).await, data(&[index as u8 + 1; 4096]));
    }
    // By force the head loses what it stood on.
    client.disk_remove(remove(c, true)).await.unwrap();
    assert_eq!(port.read(8192, 4096).await, data(&[0; 4096]));
    assert_eq!(port.read(0, 4096).await, data(&[1; 4096]));
}

#[tokio::test]
async fn more_disks_than_a_chain_may_have_are_refused() {
    let running = Running::opened().await;
    let mut client = running.client();
    running.local().flush().await;
    for index in 0..249 {
        client.replica_snapshot(snapshot(&index.to_string())).await.unwrap();
    }
    assert_eq!(text(client.replica_snapshot(snapshot("last")).await), "too many active disks: 251");
    let state = get(&mut client).await;
    assert_eq!((state.chain.len(), state.remain_snapshots), (250, 0));
}

#[tokio::test]
async fn a_chain_that_is_broken_or_too_long_does_not_open() {
    let running = Running::new().await;
    let mut client = running.client();
    let head = running.options.dir.join("volume-head-000.img.meta");
    let text_before = std::fs::read_to_string(&head).unwrap();
    let lost = text_before.replace(r#""Parent":"""#, r#""Parent":"volume-snap-lost.img""#);
    durable::replace(&head, lost.as_bytes()).unwrap();
    let open = ptypes::ReplicaOpenRequest::default();
    let found = text(client.replica_open(open.clone()).await);
    assert_eq!(found, "failed to find metadata for volume-snap-lost.img");
    let mut parent = String::new();
    for index in 0..250 {
        let name = format!("volume-snap-{index}.img");
        let meta = format!(r#"{{"Parent":"{parent}"}}"#);
        durable::replace(running.options.dir.join(format!("{name}.meta")), meta.as_bytes())
            .unwrap();
        std::fs::File::create(running.options.dir.join(&name)).unwrap();
        parent = name;
    }
    let long = text_before.replace(r#""Parent":"""#, &format!(r#""Parent":"{parent}""#));
    durable::replace(&head, long.as_bytes()).unwrap();
    assert_eq!(text(client.replica_open(open).await), "live chain is too long: 251");
    assert!(matches!(running.tcp().await.ping().await, Outcome::Error(_)));
}

#[tokio::test]
async fn a_reload_sees_what_others_changed_in_the_directory() {
    let running = Running::opened().await;
    let (mut client, mut port) = (running.client(), running.local());
    port.write(0, &[1; 4096]).await;
    client.replica_snapshot(snapshot("one")).await.unwrap();
    // As a rebuild does: the image and its metadata come from elsewhere.
    let image = running.options.dir.join("volume-snap-one.img");
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[5; 4096], 8192).unwrap();
    let reloaded = client.replica_reload(()).await.unwrap().into_inner().replica.unwrap();
    assert!(reloaded.dirty);
    assert_eq!(port.read(8192, 4096).await, data(&[5; 4096]));
}
