//! Backing images: what is stored comes back, blocks are shared, and writers and deleters keep apart.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backupstore::delete::{Collected, DeleteOptions, Outcome};
use backupstore::format::parse_backing_image;
use backupstore::verify::{Depth, VerifyOptions, VerifyReport};
use backupstore::{
    BackingImageRequest, BackupStore, Compression, Control, Error, FileSource, ImageRestoreOptions,
    Shown, Source, StoredImage, Subject,
};
use blobs::wrap::{Fault, Faults, Faulty};
use blobs::{Key, Store, get_limited};

use crate::world::{copy_of, drop_locks, keys, name, over};

const BLOCK: u64 = 2 << 20;
/// By the checksum of its name.
const LOCKS: &str = "backupstore/volumes/22/fc/BACKINGIMAGE/locks";

struct Place {
    dir: tempfile::TempDir,
    clean: Arc<dyn Store>,
    store: BackupStore,
}

impl Place {
    fn new() -> Self {
        let clean = blobs::memory();
        let store = over(Arc::clone(&clean));
        Self { dir: tempfile::tempdir().unwrap(), clean, store }
    }

    /// A sparse file with a block of each letter at its place, and a short last block.
    fn image(&self, file: &str, letters: &[(u64, u8)], tail: usize) -> PathBuf {
        let path = self.dir.path().join(file);
        let image = File::create(&path).unwrap();
        let end = letters.iter().map(|(block, _)| block + 2).max().unwrap_or(0) * BLOCK;
        image.set_len(end + tail as u64).unwrap();
        for (block, letter) in letters {
            image.write_all_at(&vec![*letter; BLOCK as usize], block * BLOCK).unwrap();
        }
        image.write_all_at(&vec![b'!'; tail], end).unwrap();
        path
    }

    async fn restored(&self, image: &str) -> Result<Vec<u8>, Error> {
        let to = self.dir.path().join("restored");
        let options = ImageRestoreOptions { lock_timeout: Duration::ZERO, ..Default::default() };
        let control = Control::default();
        self.store.restore_backing_image(&name(image), &to, &options, &control).await?;
        Ok(fs::read(&to).unwrap())
    }

    async fn delete(&self, image: &str) -> Result<(), Error> {
        let options = DeleteOptions::default();
        self.store.delete_backing_image(&name(image), &options, &Control::default()).await
    }
}

fn request(image: &str) -> BackingImageRequest {
    BackingImageRequest { lock_timeout: Duration::ZERO, ..BackingImageRequest::new(name(image)) }
}

async fn put(
    store: &BackupStore,
    request: &BackingImageRequest,
    file: &Path,
) -> Result<StoredImage, Error> {
    let source: Arc<dyn Source> = Arc::new(FileSource::open(file).unwrap());
    store.create_backing_image(request, source, &Control::default()).await
}

#[tokio::test]
async fn images_come_back_and_share_their_blocks() {
    let place = Place::new();
    let one = place.image("one", &[(0, b'a'), (3, b'b'), (4, b'a')], 700);
    let two = place.image("two", &[(1, b'a'), (2, b'c')], 0);
    let stored = put(&place.store, &request("image-one"), &one).await.unwrap();
    assert_eq!(stored.new_blocks, 3, "equal blocks and holes cost nothing");
    assert_eq!(stored.checksum.len(), 128);
    let stored = put(&place.store, &request("image-two"), &two).await.unwrap();
    assert_eq!(stored.new_blocks, 1, "the other is that of the first image");
    assert_eq!(keys(&place.clean, "/backing-images/blocks/").await.len(), 4);
    for (image, file) in [("image-one", &one), ("image-two", &two)] {
        assert!(place.restored(image).await.unwrap() == fs::read(file).unwrap(), "{image}");
    }
    // Storing it again finds it; another under its name is refused.
    let again = put(&place.store, &request("image-one"), &one).await.unwrap();
    assert_eq!(again.new_blocks, 0);
    let refused = put(&place.store, &request("image-one"), &two).await.unwrap_err();
    assert_eq!(refused.to_string(), "backing image image-one already exists");
    let info = place.store.inspect_backing_image(&name("image-one")).await.unwrap();
    assert_eq!((info.size, info.checksum.len()), (fs::metadata(&one).unwrap().len(), 128));
    // Blocks go with the last that needs them.
    place.delete("image-one").await.unwrap();
    assert_eq!(keys(&place.clean, "/backing-images/blocks/").await.len(), 2);
    assert!(place.restored("image-two").await.unwrap() == fs::read(&two).unwrap());
    place.delete("image-two").await.unwrap();
    assert_eq!(keys(&place.clean, "").await, []);
}

#[tokio::test]
async fn images_that_are_packed_differently_share_blocks_all_the_same() {
    let place = Place::new();
    let file = place.image("one", &[(0, b'a'), (2, b'b')], 0);
    let methods = [Compression::Gzip, Compression::Lz4, Compression::None, Compression::Gzip];
    for (index, compression) in methods.into_iter().enumerate() {
        let wanted = BackingImageRequest { compression, ..request(&format!("image-{index}")) };
        put(&place.store, &wanted, &file).await.unwrap();
        for older in 0..=index {
            let found = place.restored(&format!("image-{older}")).await.unwrap();
            assert!(found == fs::read(&file).unwrap(), "{older} after {compression}");
        }
    }
}

#[tokio::test]
async fn a_checksum_that_is_not_met_publishes_nothing() {
    let place = Place::new();
    let file = place.image("one", &[(0, b'a')], 5);
    let wanted = BackingImageRequest { checksum: "0".repeat(128), ..request("image-1") };
    let refused = put(&place.store, &wanted, &file).await.unwrap_err();
    assert!(matches!(refused, Error::ImageChecksum { .. }), "{refused:?}");
    let in_progress = place.store.inspect_backing_image(&name("image-1")).await.unwrap_err();
    assert!(in_progress.to_string().contains("in progress"), "{in_progress}");
    assert!(matches!(place.restored("image-1").await, Err(Error::InProgress { .. })));
    put(&place.store, &request("image-1"), &file).await.unwrap();
    assert!(place.restored("image-1").await.unwrap() == fs::read(&file).unwrap());
}

#[tokio::test]
async fn a_writer_that_dies_anywhere_harms_nobody() {
    let start = Place::new();
    let (kept, file) = (start.image("kept", &[], 9), start.image("one", &[], 3));
    let plain = |image| BackingImageRequest { compression: Compression::None, ..request(image) };
    put(&start.store, &plain("kept"), &kept).await.unwrap();
    let mut points = 0;
    for (fault, nth) in every_call() {
        let clean = copy_of(&start.clean).await;
        let faults = Faults::default();
        let store = over(Faulty::around(Arc::clone(&clean), faults.clone()));
        faults.plan(nth, fault);
        let tried = put(&store, &plain("image-1"), &file).await;
        if faults.waiting() > 0 {
            assert!(tried.is_ok());
            continue;
        }
        points += 1;
        drop_locks(&clean).await;
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir, store: over(Arc::clone(&clean)), clean };
        // A deletion of another removes what the dead one left, and nothing else.
        place.delete("nobody").await.unwrap();
        assert!(place.restored("kept").await.unwrap() == fs::read(&kept).unwrap());
        put(&place.store, &plain("image-1"), &file).await.unwrap();
        assert!(place.restored("image-1").await.unwrap() == fs::read(&file).unwrap());
    }
    println!("a writer of a backing image died at {points} points");
    assert!((10..38).contains(&points));
}

/// More calls than there are.
fn every_call() -> impl Iterator<Item = (Fault, u64)> {
    [Fault::Before, Fault::After].into_iter().flat_map(|fault| (1..20).map(move |nth| (fault, nth)))
}

/// The lock of all images lies under a volume that no list shows.
#[tokio::test]
async fn a_deletion_waits_for_writers_and_the_other_way_round() {
    let place = Place::new();
    let file = place.image("one", &[(0, b'a')], 0);
    put(&place.store, &request("image-1"), &file).await.unwrap();
    let lock = async |kind: u8| {
        let key = Key::parse(&format!("{LOCKS}/lock-other.lck")).unwrap();
        let text = format!(r#"{{"Name":"lock-other","Type":{kind},"Acquired":true}}"#);
        place.clean.put(&key, text.into()).await.unwrap();
        key
    };
    let held = lock(1).await;
    let refused = place.delete("image-1").await.unwrap_err();
    assert!(refused.to_string().starts_with("failed lock backupstore/volumes/"), "{refused}");
    assert!(place.store.list(Shown::Backups).await.unwrap().is_empty());
    lock(2).await;
    assert!(matches!(place.restored("image-1").await, Err(Error::Locked(_))));
    let refused = put(&place.store, &request("image-2"), &file).await.unwrap_err();
    assert!(matches!(refused, Error::Locked(_)), "{refused:?}");
    place.clean.delete(&held).await.unwrap();
    place.delete("image-1").await.unwrap();
    assert_eq!(keys(&place.clean, "").await, []);
}

#[tokio::test]
async fn a_damaged_block_and_a_lying_record_are_refused() {
    let place = Place::new();
    let file = place.image("one", &[(0, b'a')], 10);
    put(&place.store, &request("image-1"), &file).await.unwrap();
    let key = keys(&place.clean, "backing-image.cfg").await.remove(0);
    let text = get_limited(place.clean.as_ref(), &key, 1 << 20).await.unwrap().bytes;
    let cfg = parse_backing_image(&text).unwrap();
    let lie = |from: &str, to: &str| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    };
    for (lied, part) in [
        (lie(&format!("\"Size\":\"{}\"", cfg.size), "\"Size\":\"5\""), "past the end"),
        (lie(&cfg.checksum, &"0".repeat(128)), "is another: SHA-512"),
    ] {
        place.clean.put(&key, lied.into()).await.unwrap();
        let refused = place.restored("image-1").await.unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    place.clean.put(&key, text.clone()).await.unwrap();
    let block = keys(&place.clean, ".blk").await.remove(0);
    place.clean.put(&block, "damage".into()).await.unwrap();
    let refused = place.restored("image-1").await.unwrap_err();
    let Error::Damaged(damaged) = &refused else { panic!("{refused:?}") };
    assert_eq!((damaged.count, damaged.blocks[0].path.as_str()), (1, block.as_str()));
}

fn deep() -> VerifyOptions {
    let mut options = VerifyOptions::new(Depth::Deep);
    options.fetch.pauses.clear();
    options
}

impl Place {
    async fn verified(&self, options: &VerifyOptions) -> VerifyReport {
        self.store.verify_of(&Subject::BackingImages, options, &Control::default()).await.unwrap()
    }

    async fn garbage(&self) -> Collected {
        self.store.report_garbage_of(&Subject::BackingImages, &Control::default()).await.unwrap()
    }

    async fn collected(&self) -> Result<Collected, Error> {
        let (of, options) = (Subject::BackingImages, DeleteOptions::default());
        self.store.collect_garbage_of(&of, &options, &Control::default()).await
    }
}

#[tokio::test]
async fn a_check_finds_what_is_missing_cut_and_wrong() {
    let place = Place::new();
    assert!(place.verified(&deep()).await.is_healthy(), "a target without images");
    assert!(place.store.subjects().await.unwrap().is_empty());
    let one = place.image("one", &[(0, b'a'), (3, b'b')], 700);
    let two = place.image("two", &[(1, b'a'), (2, b'c')], 0);
    put(&place.store, &request("image-one"), &one).await.unwrap();
    put(&place.store, &request("image-two"), &two).await.unwrap();
    assert_eq!(place.store.subjects().await.unwrap(), [Subject::BackingImages]);
    let report = place.verified(&deep()).await;
    assert_eq!(report.healthy, ["image-one", "image-two"]);
    assert_eq!((report.blocks, report.checked_blocks, report.orphan_blocks), (4, 4, 0));
    let shown = serde_json::to_value(&report).unwrap();
    assert_eq!((&shown["kind"], shown.get("volume")), (&"backingImages".into(), None));
    // Wrong, with a length that it can have: only a deep look shows it, of all that share it.
    let shared = place.blocks_of("image-two").await.remove(0);
    let whole = get_limited(place.clean.as_ref(), &shared, BLOCK).await.unwrap().bytes;
    place.clean.put(&shared, "damage".into()).await.unwrap();
    assert!(place.verified(&VerifyOptions::new(Depth::Quick)).await.is_healthy());
    let report = place.verified(&deep()).await;
    let damaged: Vec<_> =
        report.damaged.iter().map(|it| (it.name.as_str(), it.places[0].offset)).collect();
    assert_eq!(damaged, [("image-one", 0), ("image-two", BLOCK)]);
    assert_eq!(report.damaged[0].places[0].path, shared.as_str());
    // Cut to nothing, and gone: a quick look is enough.
    let quick = VerifyOptions::new(Depth::Quick);
    place.clean.put(&shared, "".into()).await.unwrap();
    assert_eq!(place.verified(&quick).await.damaged.len(), 2);
    place.clean.delete(&shared).await.unwrap();
    let report = place.verified(&quick).await;
    assert_eq!(report.damaged[1].places[0].damage, "no such file or directory");
    assert!(!report.is_healthy());
    place.clean.put(&shared, whole).await.unwrap();
    assert!(place.verified(&deep()).await.is_healthy());
    assert_eq!(keys(&place.clean, ".lck").await, [], "no lock was taken");
}

#[tokio::test]
async fn a_check_finds_records_that_cannot_be_restored() {
    let place = Place::new();
    let file = place.image("one", &[(0, b'a')], 10);
    for image in ["image-1", "image-2", "image-3"] {
        put(&place.store, &request(image), &file).await.unwrap();
    }
    let size = format!("\"Size\":\"{}\"", fs::metadata(&file).unwrap().len());
    place.change("image-1", |text| text.replace(&size, "\"Size\":\"5\"")).await;
    place.change("image-2", |_| "noise".to_owned()).await;
    place.change("image-3", |text| text.replace("image-3", "image-4")).await;
    let report = place.verified(&VerifyOptions::new(Depth::Quick)).await;
    let place_of = &report.damaged[0].places[0];
    assert!(place_of.damage.contains("past its end at 5"), "{place_of:?}");
    assert!(place_of.path.ends_with("/image-1/backing-image.cfg"), "{place_of:?}");
    let unreadable: Vec<&str> = report.unreadable.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((unreadable, report.healthy), (vec!["image-2", "image-3"], vec![]));
    assert!(matches!(place.restored("image-3").await, Err(Error::Unreadable { .. })));
}

#[tokio::test]
async fn only_what_no_image_can_need_is_garbage() {
    let place = Place::new();
    let (one, two) = (place.image("one", &[(0, b'a')], 0), place.image("two", &[(0, b'b')], 0));
    put(&place.store, &request("image-1"), &one).await.unwrap();
    put(&place.store, &request("image-2"), &two).await.unwrap();
    let records = keys(&place.clean, "/image-2/backing-image.cfg").await;
    let record = get_limited(place.clean.as_ref(), &records[0], 1 << 20).await.unwrap().bytes;
    // It was removed by hand: its block is nobody's.
    place.clean.delete(&records[0]).await.unwrap();
    let report = place.verified(&deep()).await;
    assert_eq!((report.orphan_blocks, report.blocks, report.is_healthy()), (1, 1, true));
    let found = place.garbage().await;
    assert_eq!((found.outcome, found.orphan_blocks), (Outcome::Reported, 1));
    assert!(found.orphan_bytes > 0);
    // It cannot be read: every block may be its own.
    place.clean.put(&records[0], "noise".into()).await.unwrap();
    let found = place.collected().await.unwrap();
    assert_eq!((found.outcome, found.removed_blocks), (Outcome::KeptForUnreadable, 0));
    assert_eq!(found.unreadable[0].name, "image-2");
    place.clean.put(&records[0], record.clone()).await.unwrap();
    assert!(place.restored("image-2").await.unwrap() == fs::read(&two).unwrap());
    // Somebody writes: garbage waits for the lock.
    let lock = Key::parse(&format!("{LOCKS}/lock-other.lck")).unwrap();
    let held = r#"{"Name":"lock-other","Type":1,"Acquired":true}"#;
    place.clean.put(&lock, held.into()).await.unwrap();
    assert!(matches!(place.collected().await, Err(Error::Locked(_))));
    place.clean.delete(&lock).await.unwrap();
    // In progress and nobody holds a lock: its writer died.
    let begun = String::from_utf8(record.to_vec()).unwrap();
    let begun = begun_of(&begun);
    place.clean.put(&records[0], begun.clone().into()).await.unwrap();
    // A folder without a record keeps nothing.
    let stray = records[0].as_str().replace("image-2", "image-9").replace(".cfg", ".txt");
    place.clean.put(&Key::parse(&stray).unwrap(), "x".into()).await.unwrap();
    assert_eq!(place.garbage().await.in_progress, ["image-2"]);
    // One of another kind may publish whatever lies there, and keeps all for a day.
    let found = place.collected().await.unwrap();
    assert_eq!((found.outcome, found.removed_blocks), (Outcome::KeptForInProgress, 0));
    let begun = begun.replacen('{', r#"{"Writer":"one of ours","#, 1);
    place.clean.put(&records[0], begun.into()).await.unwrap();
    let found = place.collected().await.unwrap();
    assert_eq!((found.outcome, found.removed_blocks), (Outcome::Removed, 1));
    assert_eq!(keys(&place.clean, "/image-2/").await, []);
    assert!(place.restored("image-1").await.unwrap() == fs::read(&one).unwrap());
    assert_eq!(place.garbage().await.orphan_blocks, 0);
}

/// The record as it is before the image is complete.
fn begun_of(record: &str) -> String {
    let mut fields: serde_json::Value = serde_json::from_str(record).unwrap();
    fields["CompleteTime"] = "".into();
    fields["Blocks"] = serde_json::json!([]);
    fields.to_string()
}

impl Place {
    async fn blocks_of(&self, image: &str) -> Vec<Key> {
        let key = keys(&self.clean, &format!("/{image}/backing-image.cfg")).await.remove(0);
        let text = get_limited(self.clean.as_ref(), &key, 1 << 20).await.unwrap().bytes;
        let sums = parse_backing_image(&text).unwrap().blocks;
        let all = keys(&self.clean, ".blk").await;
        let of = |sum: &str| all.iter().find(|key| key.as_str().contains(sum)).unwrap().clone();
        sums.iter().map(|block| of(&block.checksum.to_string())).collect()
    }

    async fn change(&self, image: &str, change: impl Fn(String) -> String) {
        let key = keys(&self.clean, &format!("/{image}/backing-image.cfg")).await.remove(0);
        let text = get_limited(self.clean.as_ref(), &key, 1 << 20).await.unwrap().bytes;
        let text = change(String::from_utf8(text.to_vec()).unwrap());
        self.clean.put(&key, text.into()).await.unwrap();
    }
}
