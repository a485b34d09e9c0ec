//! Replicas fail and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use e2e::engine::{Nbd, SECTOR, Setup, TIMEOUT, Volume};
use testkit::process::poll_until;

use crate::{pattern, put};

/// Writes one sector after the other until told to stop; each must succeed.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    task: tokio::task::JoinSet<()>,
}

impl Writer {
    pub(crate) fn start(nbd: Arc<Nbd>) -> Self {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), written.clone());
        let sectors = nbd.size_bytes() / SECTOR;
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let next = count.load(Ordering::Relaxed);
                nbd.write(next % sectors * SECTOR, pattern(1, seed(next))).await.unwrap();
                if next % 8 == 7 {
                    nbd.flush().await.unwrap();
                }
                count.store(next + 1, Ordering::Relaxed);
            }
        });
        Self { stop, written, task }
    }

    pub(crate) fn wait_for(&self, more: u64) {
        let until = self.written.load(Ordering::Relaxed) + more;
        let reached =
            poll_until(TIMEOUT, || (self.written.load(Ordering::Relaxed) >= until).then_some(()));
        assert!(reached.is_some(), "writes do not go on");
    }

    pub(crate) async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.join_next().await.unwrap().unwrap();
        self.written.load(Ordering::Relaxed)
    }
}

pub(crate) fn seed(number: u64) -> u8 {
    u8::try_from(number % 250).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_without_a_replica_and_it_is_rebuilt() {
    let mut volume = Volume::start(Setup::default());
    let nbd = Arc::new(volume.nbd().await);
    put(&nbd, 4096, 1024, 9).await;
    let writer = Writer::start(nbd.clone());
    writer.wait_for(50);
    volume.replicas[1].kill();
    writer.wait_for(50);
    volume.wait_for_mode(1, "ERR");
    assert_eq!(volume.modes(), ["RW", "ERR", "RW"]);
    volume.rebuild(1);
    writer.wait_for(50);
    // Once more, with nothing left of it.
    volume.replicas[2].kill();
    volume.replicas[2].wipe();
    writer.wait_for(50);
    volume.rebuild(2);
    let written = writer.stop().await;
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
    let contents = volume.assert_equal();
    let last = (written - 1) % (nbd.size_bytes() / SECTOR) * SECTOR;
    let at = usize::try_from(last).unwrap();
    assert_eq!(contents[at..at + 4096], pattern(1, seed(written - 1)));
    assert_eq!(contents[4096 * 4096..5120 * 4096], pattern(1024, 9));
    assert_eq!(nbd.read_all().await.unwrap(), contents);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_is_cut_off_can_be_tried_again() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let nbd = volume.nbd().await;
    put(&nbd, 0, 2048, 3).await;
    volume.cli().run(&["snapshot", "create", "before"]);
    put(&nbd, 1024, 2048, 4).await;
    volume.replicas[1].kill();
    volume.replicas[1].wipe();
    volume.wait_for_mode(1, "ERR");
    volume.cli().run(&["rm-replica", &volume.replicas[1].address()]);
    volume.replicas[1].start();
    let (cli, address) = (volume.cli(), volume.replicas[1].address());
    let size = volume.setup.size_bytes.to_string();
    let adding = std::thread::spawn(move || {
        cli.call(&["add-replica", &address, "--size", &size, "--current-size", &size])
    });
    // It may be over already on a fast machine; then this is another failure after a rebuild.
    poll_until(TIMEOUT, || volume.mode(1));
    volume.replicas[1].kill();
    let ran = adding.join().unwrap();
    println!("the interrupted rebuild ended with {:?}: {}", ran.code, ran.stderr);
    put(&nbd, 0, 16, 5).await;
    volume.rebuild(1);
    assert_eq!(volume.modes(), ["RW", "RW"]);
    volume.assert_equal();
    let (left, right) = (volume.replicas[0].layers(), volume.replicas[1].layers());
    assert!(left.states() == right.states(), "{:?}, {:?}", left.chain(), right.chain());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_copy_is_added_to_a_volume_of_one() {
    let mut volume = Volume::start(Setup { replicas: 1, ..Setup::default() });
    let nbd = volume.nbd().await;
    put(&nbd, 10, 100, 1).await;
    let new = volume.add_process();
    volume.replicas[new].start();
    volume.add(new);
    put(&nbd, 50, 100, 2).await;
    volume.assert_equal();
    assert_eq!(volume.cli().json(&["info"])["replicaCount"], 2);
    // The first can go now.
    volume.cli().run(&["rm-replica", &volume.replicas[0].address()]);
    assert_eq!(volume.modes(), ["-", "RW"]);
    put(&nbd, 0, 1, 3).await;
    assert_eq!(nbd.read(0, 4096).await.unwrap(), pattern(1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_added_is_refused_and_harms_nothing() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let size = volume.setup.size_bytes.to_string();
    let sizes = ["--size", size.as_str(), "--current-size", size.as_str()];
    let open = volume.replicas[0].address();
    let again = [&["add-replica", &open][..], &sizes].concat();
    // One that is part of the volume is not touched.
    volume.cli().call(&again);
    assert_eq!(volume.modes(), ["RW", "RW"]);
    let meta = std::fs::read(volume.replicas[0].dir.join("volume.meta")).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    assert_eq!(meta["Rebuilding"], false, "{meta}");
    let new = volume.add_process();
    volume.replicas[new].setup.size_bytes *= 2;
    volume.replicas[new].start();
    let address = volume.replicas[new].address();
    let larger = [&["add-replica", &address][..], &sizes].concat();
    volume.cli().refused(&larger, "cannot add new replica larger than size");
    assert_eq!(volume.modes()[..2], ["RW", "RW"]);
}
