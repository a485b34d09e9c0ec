//! Stores that lie: everything is refused with words, and nothing is lost by it.

use std::sync::Arc;

use backupstore::delete::Outcome;
use backupstore::format::{Checksum, Compression, pack};
use backupstore::restore::Sink;
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{BackupStore, Control, Error, Shown};
use blobs::{Key, Store, get_limited};
use bytes::Bytes;
use proptest::prelude::*;

use crate::world::{
    BLOCK, MemorySink, Volume, back_up, contents, delete, keys, over, restore_request, run_restore,
    volume,
};

async fn one_backup() -> (Volume, BackupStore, Arc<dyn Store>) {
    let mut of = Volume::new(4);
    of.write(0, 1);
    of.write(4, 2);
    let clean = blobs::memory();
    let store = over(Arc::clone(&clean));
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    (of, store, clean)
}

async fn change(store: &Arc<dyn Store>, part: &str, change: impl Fn(String) -> String) {
    let key = keys(store, part).await.remove(0);
    let bytes = get_limited(store.as_ref(), &key, 1 << 20).await.unwrap().bytes;
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    store.put(&key, change(text).into()).await.unwrap();
}

#[tokio::test]
async fn records_that_lie_are_refused() {
    type Change = fn(String) -> String;
    let cases: [(&str, Change, &str); 10] = [
        (
            "backup_backup-1.cfg",
            |it| it.replace("\"Offset\":0", "\"Offset\":9007199254740992"),
            "out of order",
        ),
        (
            "backup_backup-1.cfg",
            |it| it.replace("\"Offset\":16384", "\"Offset\":163840"),
            "past the end of the volume",
        ),
        ("backup_backup-1.cfg", |it| it.replace("\"Blocks\"", "\"Clocks\""), "are not its size"),
        (
            "backup_backup-1.cfg",
            |it| it.replace("CreatedTime", "AreatedTime"),
            "neither begun nor complete",
        ),
        ("backup_backup-1.cfg", |it| it.replace("8192", "999999999999"), "size of blocks"),
        ("backup_backup-1.cfg", |it| it.replace("backup-1", "backup-7"), "it describes"),
        ("backup_backup-1.cfg", |it| it.replace("vol-1", "../../x"), "it describes"),
        ("backup_backup-1.cfg", |_| "\0".repeat(100), "cannot be read"),
        ("volume.cfg", |it| it.replace("32768", "0"), "not a positive multiple"),
        ("volume.cfg", |it| it.replace("32768", "32769"), "not a positive multiple"),
    ];
    for (part, lie, expected) in cases {
        let (_, store, clean) = one_backup().await;
        change(&clean, part, lie).await;
        let refused =
            run_restore(&store, restore_request("backup-1"), MemorySink::empty(32768)).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}, not {expected}");
    }
}

#[tokio::test]
async fn a_record_that_is_too_long_is_not_read() {
    #[derive(Debug)]
    struct Long(Arc<dyn Store>);

    #[async_trait::async_trait]
    impl Store for Long {
        async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<blobs::Version, blobs::Error> {
            self.0.put_new(key, bytes).await
        }
        async fn put_if_match(
            &self,
            key: &Key,
            bytes: Bytes,
            version: &blobs::Version,
        ) -> Result<blobs::Version, blobs::Error> {
            self.0.put_if_match(key, bytes, version).await
        }
        async fn put(&self, key: &Key, bytes: Bytes) -> Result<blobs::Version, blobs::Error> {
            self.0.put(key, bytes).await
        }
        async fn put_stream(
            &self,
            key: &Key,
            body: blobs::Body,
            parts: &blobs::Parts,
        ) -> Result<blobs::Version, blobs::Error> {
            self.0.put_stream(key, body, parts).await
        }
        async fn get_range(
            &self,
            key: &Key,
            range: std::ops::Range<u64>,
        ) -> Result<blobs::Blob, blobs::Error> {
            let mut blob = self.0.get_range(key, range).await?;
            if key.as_str().ends_with("backup_backup-1.cfg") {
                blob.meta.len_bytes = 1 << 50;
            }
            Ok(blob)
        }
        async fn get_stream(&self, key: &Key) -> Result<(blobs::Meta, blobs::Body), blobs::Error> {
            self.0.get_stream(key).await
        }
        async fn head(&self, key: &Key) -> Result<blobs::Meta, blobs::Error> {
            self.0.head(key).await
        }
        async fn list(
            &self,
            prefix: &blobs::Prefix,
            after: Option<&Key>,
        ) -> Result<blobs::Page, blobs::Error> {
            self.0.list(prefix, after).await
        }
        async fn list_level(&self, prefix: &blobs::Prefix) -> Result<blobs::Level, blobs::Error> {
            self.0.list_level(prefix).await
        }
        async fn delete(&self, key: &Key) -> Result<(), blobs::Error> {
            self.0.delete(key).await
        }
        fn capabilities(&self) -> blobs::Capabilities {
            self.0.capabilities()
        }
    }

    let (_, _, clean) = one_backup().await;
    let store = over(Arc::new(Long(clean)));
    let text = contents(&store, "backup-1").await.unwrap_err().to_string();
    assert!(text.contains("1125899906842624 bytes"), "{text}");
}

/// Every two bytes of it would cost what a value costs in memory.
fn many_values() -> String {
    format!(r#"{{"New":[{}0],"#, "0,".repeat(600 << 10))
}

#[tokio::test]
async fn what_a_record_has_beside_its_blocks_is_bounded() {
    let (_, store, clean) = one_backup().await;
    change(&clean, "backup_backup-1.cfg", |it| it.replacen('{', &many_values(), 1)).await;
    let report =
        store.verify(&volume(), &VerifyOptions::new(Depth::Quick), &Control::default()).await;
    let unreadable = report.unwrap().unreadable;
    assert_eq!(unreadable.len(), 1);
    assert!(unreadable[0].why.contains("beside its blocks"), "{}", unreadable[0].why);
    let (_, store, clean) = one_backup().await;
    change(&clean, "volume.cfg", |it| it.replacen('{', &many_values(), 1)).await;
    let text = store.inspect_volume(&volume()).await.unwrap_err().to_string();
    assert!(text.contains("1048576 are allowed"), "{text}");
}

#[tokio::test]
async fn a_lock_is_the_one_that_its_key_names() {
    let (of, store, clean) = one_backup().await;
    let folder = keys(&clean, "volume.cfg").await.remove(0).to_string();
    let folder = folder.strip_suffix("/volume.cfg").unwrap();
    let key = Key::parse(&format!("{folder}/locks/lock-aaaa.lck")).unwrap();
    let other = r"\u001b[2J".repeat(5000);
    let text = format!(r#"{{"Name":"{other}","Type":2,"Acquired":true}}"#);
    clean.put(&key, text.into()).await.unwrap();
    let refused = back_up(&store, &of, 0, "backup-2").await.unwrap_err();
    let Error::Locked(locked) = &refused else { panic!("{refused:?}") };
    assert_eq!(locked.holder, "lock-aaaa");
}

#[tokio::test]
async fn bombs_and_wrong_lengths_are_told_and_stopped() {
    let (of, store, clean) = one_backup().await;
    let sum = Checksum::of(&of.data_of("snap-0")[..BLOCK as usize]).to_string();
    let key = keys(&clean, &sum).await.remove(0);
    let bomb = pack(Compression::Lz4, &vec![0; 8 << 20]).unwrap();
    let long = vec![1; 1 << 20];
    let short = pack(Compression::Lz4, &[1; 100]).unwrap();
    for object in [bomb, long, short, vec![], b"garbage".to_vec()] {
        clean.put(&key, object.into()).await.unwrap();
        let sink = MemorySink::empty(of.data_of("snap-0").len());
        let failed =
            run_restore(&store, restore_request("backup-1"), Arc::clone(&sink) as Arc<dyn Sink>);
        let failed = failed.await.unwrap_err();
        let Error::Damaged(damaged) = failed else { panic!("{failed:?}") };
        assert_eq!((damaged.count, damaged.blocks[0].path.as_str()), (1, key.as_str()));
        assert!(sink.data()[BLOCK as usize..] == of.data_of("snap-0")[BLOCK as usize..]);
        let options = VerifyOptions::new(Depth::Deep);
        let report = store.verify(&volume(), &options, &Control::default()).await.unwrap();
        assert_eq!(
            (report.damaged[0].name.as_str(), report.damaged[0].damaged_places),
            ("backup-1", 1)
        );
        assert_eq!(report.damaged[0].places[0].path, key.as_str());
    }
}

#[tokio::test]
async fn names_that_are_none_are_left_alone() {
    let (of, store, clean) = one_backup().await;
    let folder = keys(&clean, "volume.cfg").await.remove(0).to_string();
    let folder = folder.strip_suffix("/volume.cfg").unwrap();
    for odd in [
        format!("{folder}/backups/backup_.cfg"),
        format!("{folder}/backups/backup_a b.cfg"),
        format!("{folder}/backups/other"),
        format!("{folder}/blocks/zz/yy/notes.txt"),
        format!("{folder}/locks/x.lck.tmp"),
        "backupstore/volumes/aa/bb/-bad/volume.cfg".to_owned(),
        "backupstore/volumes/aa/bb/misplaced/volume.cfg".to_owned(),
    ] {
        clean.put_new(&Key::parse(&odd).unwrap(), "x".into()).await.unwrap();
    }
    let listed = store.list(Shown::Backups).await.unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["vol-1"]);
    assert_eq!(listed["vol-1"].backups.keys().collect::<Vec<_>>(), ["backup-1"]);
    assert_eq!(contents(&store, "backup-1").await.unwrap(), of.data_of("snap-0"));
    let deleted = delete(&store, "backup-1").await.unwrap();
    assert_eq!((deleted.blocks.outcome, deleted.blocks.removed_blocks), (Outcome::Removed, 2));
    assert_eq!(keys(&clean, "notes.txt").await.len(), 1, "what is no block is not removed as one");
}

#[tokio::test]
async fn a_volume_without_its_record_is_listed_as_such() {
    let (_, store, clean) = one_backup().await;
    let cfg = keys(&clean, "volume.cfg").await.remove(0);
    clean.delete(&cfg).await.unwrap();
    let listed = store.list(Shown::VolumesOnly).await.unwrap();
    assert_eq!(listed["vol-1"].messages["error"], format!("cannot find {cfg} in backupstore"));
    assert!(listed["vol-1"].backups.is_empty());
    assert!(store.inspect_volume(&volume()).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn the_backups_of_a_volume_without_its_record_can_be_deleted_to_the_last_block() {
    let (_, store, clean) = one_backup().await;
    let cfg = keys(&clean, "volume.cfg").await.remove(0);
    clean.delete(&cfg).await.unwrap();
    let backups = store.list_volume(&volume(), Shown::Backups).await.unwrap().backups;
    for backup in backups.keys() {
        assert_eq!(delete(&store, backup).await.unwrap().blocks.outcome, Outcome::Removed);
    }
    assert_eq!(keys(&clean, ".blk").await.len(), 0);
    assert_eq!(keys(&clean, "backup_").await.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// One bit, or the tail, of any object but the locks: a restore says so or is right.
    #[test]
    fn no_damage_is_restored_in_silence(
        which: prop::sample::Index,
        at: prop::sample::Index,
        flip in 1_u8..,
        cuts: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (of, store, clean) = one_backup().await;
            let all = keys(&clean, "").await;
            let key = &all[which.index(all.len())];
            let mut bytes = get_limited(clean.as_ref(), key, 1 << 20).await.unwrap().bytes.to_vec();
            let place = at.index(bytes.len());
            if cuts {
                bytes.truncate(place);
            } else {
                bytes[place] ^= flip;
            }
            clean.put(key, bytes.into()).await.unwrap();
            let sink = MemorySink::empty(of.data_of("snap-0").len());
            let restored =
                run_restore(&store, restore_request("backup-1"), Arc::clone(&sink) as Arc<dyn Sink>).await;
            // The list of blocks itself has no checksum: an offset can be wrong and still be one.
            if restored.is_ok() && !key.as_str().ends_with(".cfg") {
                assert!(sink.data() == of.data_of("snap-0"), "{key} at {place}");
            }
            // Nothing of it may end a deletion with a panic, or remove what another needs.
            let _ = delete(&store, "backup-none").await;
            let _ = store.list(Shown::Backups).await.unwrap();
        });
    }
}
