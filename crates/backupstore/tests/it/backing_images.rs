//! Backing images: what is stored comes back, blocks are shared, and writers and deleters keep apart.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backupstore::delete::DeleteOptions;
use backupstore::format::parse_backing_image;
use backupstore::{
    BackingImageRequest, BackupStore, Compression, Control, Error, FileSource, ImageRestoreOptions,
    Shown, Source, StoredImage,
};
use blobs::wrap::{Fault, Faults, Faulty};
use blobs::{Key, Store};

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
        let options = ImageRestoreOptions { patience: Duration::ZERO, ..Default::default() };
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
    BackingImageRequest { patience: Duration::ZERO, ..BackingImageRequest::new(name(image)) }
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
    let text = blobs::get_limited(place.clean.as_ref(), &key, 1 << 20).await.unwrap().bytes;
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
