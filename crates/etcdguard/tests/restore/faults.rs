//! Damaged objects, restores that were cut off, and directories that must not be touched.

use std::fs;
use std::io::Write;
use std::path::Path;

use etcdguard::datadir;
use etcdguard::restore::{self, Existing, Progress, Restoration, RestoreError, Target};
use sha2::{Digest, Sha256};

use crate::support::{World, events, hash_of};

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
}

async fn three() -> (World, [etcdguard::store::Snapshot; 3]) {
    let world = World::new();
    let full = world.full(3, &events(2..=3), 0).await;
    let one = world.delta(&events(4..=40), 10).await;
    let two = world.delta(&events(41..=80), 11).await;
    (world, [full, one, two])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_object_is_named_and_nothing_is_put_in_place() {
    let (world, snapshots) = three().await;
    for snapshot in &snapshots {
        let path = world.object(snapshot);
        let good = fs::read(&path).unwrap();
        let mut changed = good.clone();
        changed[good.len() / 2] ^= 1;
        let cut = good[..good.len() - 100].to_vec();
        for bad in [changed, cut, Vec::new()] {
            overwrite(&path, &bad);
            let error = world.restore(Target::Newest).await.unwrap_err();
            assert!(error.to_string().contains(&snapshot.snap_name), "{error}");
            assert!(restore::dry_run(&world.store, Target::Newest).await.is_err());
            assert!(!world.data_dir().exists());
        }
        overwrite(&path, &good);
    }
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=80)));
}

/// Half a base is of use to nobody, and lies on the disk that may be full of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_did_not_come_whole_leaves_nothing() {
    let (world, snapshots) = three().await;
    let full = world.object(&snapshots[0]);
    let packed = full.with_file_name(format!("{}.gz", snapshots[0].snap_name));
    fs::rename(&full, &packed).unwrap();
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(error.to_string().contains("cannot be fetched"), "{error}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

/// A database whose checksum is right and whose pages are not.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_with_broken_pages_is_found_before_the_swap() {
    let (world, snapshots) = three().await;
    let path = world.object(&snapshots[0]);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 32);
    bytes[2 * 4096] ^= 0xFF;
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    overwrite(&path, &bytes);
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(matches!(error, RestoreError::Damaged(_) | RestoreError::Database(_)), "{error}");
    assert!(!world.data_dir().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_cut_off_goes_on_without_its_base() {
    let (world, snapshots) = three().await;
    let last = world.object(&snapshots[2]);
    let good = fs::read(&last).unwrap();
    overwrite(&last, b"nonsense");
    world.restore(Target::Newest).await.unwrap_err();
    assert!(world.prepared().is_dir());
    overwrite(&last, &good);
    // The base is not read again: its contents could be anything now, but not its name.
    let base = world.object(&snapshots[0]);
    overwrite(&base, b"nonsense");
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=80)));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_for_another_target_is_not_taken_up() {
    let (world, snapshots) = three().await;
    let last = world.object(&snapshots[2]);
    let good = fs::read(&last).unwrap();
    overwrite(&last, b"nonsense");
    world.restore(Target::Newest).await.unwrap_err();
    overwrite(&last, &good);
    assert_eq!(world.hash_at(Target::Revision(20)).await, hash_of(&events(2..=20)));
}

/// What was prepared holds a delta that somebody has taken out of the store since, or marked to be left
/// out: it must not come back with it.
#[tokio::test(flavor = "multi_thread")]
async fn work_with_other_deltas_is_not_taken_up() {
    let (world, snapshots) = three().await;
    // All is folded, and cannot be put in place.
    fs::create_dir_all(world.data_dir().join("lost+found")).unwrap();
    world.restore(Target::Newest).await.unwrap_err();
    assert!(world.prepared().join("state.json").exists());
    fs::remove_dir_all(world.data_dir()).unwrap();
    fs::remove_file(world.object(&snapshots[2])).unwrap();
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=40)));
}

/// People call a directory so too, before they mend something by hand.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_put_beside_it_is_theirs() {
    let (world, _) = three().await;
    let beside = |name: &str| world.home.path().join(name);
    for name in ["data.etcd.old", "data.etcd.part"] {
        fs::create_dir_all(beside(name).join("member/snap")).unwrap();
        overwrite(&beside(name).join(datadir::DATABASE), b"theirs");
    }
    let is_theirs =
        |name: &str| fs::read(beside(name).join(datadir::DATABASE)).unwrap() == b"theirs";
    restore::forget(&world.data_dir()).unwrap();
    assert!(is_theirs("data.etcd.part"), "it is not swept");
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(error.to_string().contains("data.etcd.part"), "{error}");
    assert!(is_theirs("data.etcd.part"), "and nobody works in it");
    fs::remove_dir_all(beside("data.etcd.part")).unwrap();

    let how = Restoration { existing: Existing::SetAside, ..world.how() };
    let mut olds = Vec::new();
    for round in [&b"first"[..], b"second"] {
        overwrite(&made(&world.data_dir()), round);
        let restored = restore::restore(&world.store, &how, Target::Newest, &PROGRESS).await;
        let old = restored.unwrap().old.unwrap();
        assert_eq!(fs::read(old.join(datadir::DATABASE)).unwrap(), round);
        olds.push(old);
    }
    assert!(is_theirs("data.etcd.old"));
    assert_eq!(olds[0], olds[1], "of what we set aside there is one");
}

/// A database in a directory that may not be there yet.
fn made(data_dir: &Path) -> std::path::PathBuf {
    fs::create_dir_all(data_dir.join("member/snap")).unwrap();
    data_dir.join(datadir::DATABASE)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_data_is_refused_or_set_aside() {
    let (world, _) = three().await;
    fs::create_dir_all(world.data_dir().join("member/snap")).unwrap();
    overwrite(&world.data_dir().join(datadir::DATABASE), b"precious");
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(matches!(error, RestoreError::NotEmpty(_)), "{error}");

    let how = Restoration { existing: Existing::SetAside, ..world.how() };
    let held = fs::File::open(world.data_dir().join(datadir::DATABASE)).unwrap();
    held.lock().unwrap();
    let restoring = || restore::restore(&world.store, &how, Target::Newest, &PROGRESS);
    let error = restoring().await.unwrap_err();
    assert!(matches!(error, RestoreError::InUse(_)), "{error}");
    drop(held);

    let restored = restoring().await.unwrap();
    assert_eq!(world.hash(), hash_of(&events(2..=80)));
    let old = restored.old.unwrap();
    assert_eq!(old, world.home.path().join("data.etcd.old"));
    assert_eq!(fs::read(old.join(datadir::DATABASE)).unwrap(), b"precious");
    assert_eq!(world.leftovers(), ["data.etcd", "data.etcd.aside", "data.etcd.old"]);
}

/// Of two who write one database neither gets what it wrote, and the slower one would go on writing to
/// what the other has put in place.
#[tokio::test(flavor = "multi_thread")]
async fn two_restores_into_one_directory_do_not_meet() {
    let (world, snapshots) = three().await;
    // One that was cut off, so that there is something to go on with.
    let last = world.object(&snapshots[2]);
    let good = fs::read(&last).unwrap();
    overwrite(&last, b"nonsense");
    world.restore(Target::Newest).await.unwrap_err();
    overwrite(&last, &good);
    // Somebody works there.
    let lock = fs::File::options().append(true).create(true).open(world.prepared().join("lock"));
    let held = lock.unwrap();
    held.lock().unwrap();
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert!(error.to_string().contains("another restore is at work"), "{error}");
    restore::forget(&world.data_dir()).unwrap();
    assert!(world.prepared().join("state.json").exists(), "nor is it swept");
    drop(held);
    assert_eq!(world.hash_at(Target::Newest).await, hash_of(&events(2..=80)));
}

/// Whoever restores has a relative directory for what is on its way, which others use as well.
#[tokio::test(flavor = "multi_thread")]
async fn restores_share_a_directory_for_deltas() {
    let (world, _) = three().await;
    let temp = world.how().temp_dir;
    fs::create_dir_all(temp.join("deltas")).unwrap();
    overwrite(&temp.join("deltas/0"), b"of somebody else");
    assert_eq!(world.restore(Target::Newest).await.unwrap().revision, 80);
    assert_eq!(fs::read(temp.join("deltas/0")).unwrap(), b"of somebody else");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 1, "and nothing of ours is left");
}

static PROGRESS: std::sync::LazyLock<Progress> = std::sync::LazyLock::new(Progress::default);

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_store_and_a_wrong_identity_are_said() {
    let world = World::new();
    let error = world.restore(Target::Newest).await.unwrap_err();
    assert_eq!(error.to_string(), "there are no snapshots in the store");
    let mut how = world.how();
    how.identity.name = "other".to_owned();
    let error = restore::restore(&world.store, &how, Target::Newest, &PROGRESS).await.unwrap_err();
    assert!(matches!(error, RestoreError::Identity(_)), "{error}");
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

/// Somebody puts a file there that is called a full snapshot, of a revision that is yet to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_snapshot_that_is_none_is_told_with_what_can_be_had_without_it() {
    let world = World::new();
    world.full(10, &events(2..=10), 10).await;
    world.delta(&events(11..=20), 20).await;
    let junk = world.full(900, &events(2..=10), 900).await;
    durable::replace(world.object(&junk), b"not a snapshot").unwrap();
    let refused = world.restore(Target::Newest).await.unwrap_err();
    let text = telemetry::Chain(&refused).to_string();
    assert!(text.contains("--to-revision 20"), "{text}");
    assert!(text.contains(&junk.snap_name), "{text}");
    assert_eq!(world.restore(Target::Revision(20)).await.unwrap().revision, 20);
}
