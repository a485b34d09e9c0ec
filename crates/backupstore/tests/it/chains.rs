//! Random volumes: any chain of full and incremental backups restores to the model, whatever is
//! deleted in between.

use std::sync::Arc;

use backupstore::restore::Sink;
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{Control, Shown};
use proptest::prelude::*;

use crate::world::{
    MemorySink, Volume, back_up, check_all, delete, name, over, restore_request, run_restore,
    volume,
};

const BLOCKS: u64 = 6;
const PAGES: usize = 12;

/// What is written before one snapshot; seed 0 writes zeros, equal seeds write equal pages.
fn writes() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((0..PAGES, 0_u64..4), 0..6)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_backup_restores_to_its_snapshot(
        states in prop::collection::vec((writes(), any::<bool>()), 1..6),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        run(async {
            let mut of = Volume::new(BLOCKS);
            let clean = blobs::memory();
            let store = over(Arc::clone(&clean));
            let mut made: Vec<String> = vec![];
            for (pages, backs_up) in &states {
                for (page, seed) in pages {
                    of.write(*page, *seed);
                }
                let index = of.snapshots.len() - 1;
                if *backs_up {
                    let backup = format!("backup-{index}");
                    back_up(&store, &of, index, &backup).await.unwrap();
                    made.push(backup);
                }
                of.snapshot();
            }
            if made.is_empty() {
                return;
            }
            assert_eq!(check_all(&store, &of).await, made.len());
            between_any_two(&store, &of, &made).await;
            for index in gone {
                if made.is_empty() {
                    break;
                }
                let backup = made.remove(index.index(made.len()));
                assert!(delete(&store, &backup).await.unwrap().existed);
                assert_eq!(check_all(&store, &of).await, made.len());
            }
            let options = VerifyOptions::new(Depth::Deep);
            let report = store.verify(&volume(), &options, &Control::default()).await.unwrap();
            assert!(report.is_healthy(), "{report:?}");
            assert_eq!(report.orphan_blocks, 0);
            let count = store.inspect_volume(&volume()).await.unwrap().data_stored / (2 << 20);
            assert_eq!(count, report.blocks);
            let listed = store.list(Shown::Backups).await.unwrap();
            assert_eq!(listed["vol-1"].backups.len(), made.len());
        });
    }
}

/// From the contents of one backup to those of another, forwards and backwards.
async fn between_any_two(store: &backupstore::BackupStore, of: &Volume, made: &[String]) {
    let snapshot = |backup: &str| backup.replace("backup", "snap");
    for (from, to) in made.iter().zip(made.iter().skip(1)).flat_map(|(a, b)| [(a, b), (b, a)]) {
        let sink = MemorySink::holding(of.data_of(&snapshot(from)).to_vec());
        let mut request = restore_request(to);
        request.previous = Some(name(from));
        run_restore(store, request, Arc::clone(&sink) as Arc<dyn Sink>).await.unwrap();
        assert!(sink.data() == of.data_of(&snapshot(to)), "{from} to {to}");
    }
}
