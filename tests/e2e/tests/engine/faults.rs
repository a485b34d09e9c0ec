//! Replicas that misbehave: they alone are dropped, the rest serves.

use e2e::engine::{Engine, Replica, Setup, TIMEOUT, Volume, signal};
use rustix::process::Signal;
use testkit::process::poll_until;

use crate::liar::{Liar, Lie};
use crate::{pattern, put};

/// A volume whose last replica is reached through a liar; the liar's address stands for it.
fn with_liar(replicas: usize) -> (Volume, Liar) {
    let mut volume = Volume::prepare(Setup { replicas, replica_timeout: 8, ..Setup::default() });
    for replica in &mut volume.replicas {
        replica.start();
    }
    let liar = Liar::before(volume.replicas.last().unwrap());
    let mut addresses: Vec<String> = volume.replicas.iter().map(Replica::address).collect();
    *addresses.last_mut().unwrap() = liar.address();
    let arguments = volume.engine_arguments_for(&addresses);
    volume.engine = Some(Engine::start(volume.scratch(), &volume.name, &arguments));
    (volume, liar)
}

fn modes(volume: &Volume) -> Vec<String> {
    volume.cli().modes().into_iter().map(|(_, mode)| mode).collect()
}

async fn is_dropped_alone(lie: Lie) {
    let (volume, liar) = with_liar(3);
    let nbd = volume.nbd().await;
    put(&nbd, 0, 64, 1).await;
    assert_eq!(modes(&volume), ["RW", "RW", "RW"]);
    liar.tell(lie);
    // Reads go round, so some reach the liar; none may fail or return anything else.
    for number in 0..12 {
        let sector = number % 64;
        let found = nbd.read(sector * 4096, 4096).await.unwrap();
        assert_eq!(found, pattern(64, 1)[sector as usize * 4096..][..4096], "{lie:?}");
    }
    put(&nbd, 32, 64, 2).await;
    let dropped = poll_until(TIMEOUT, || {
        let modes = modes(&volume);
        (modes.iter().filter(|mode| *mode == "ERR").count() == 1).then_some(())
    });
    assert!(dropped.is_some(), "{lie:?}: {:?}", modes(&volume));
    let liars = volume.cli().modes().into_iter().find(|(address, _)| *address == liar.address());
    assert_eq!(liars.map(|(_, mode)| mode).as_deref(), Some("ERR"), "{lie:?}");
    assert_eq!(nbd.read(32 * 4096, 64 * 4096).await.unwrap(), pattern(64, 2), "{lie:?}");
    put(&nbd, 0, 64, 3).await;
    let size = volume.setup.size_bytes;
    assert!(volume.replicas[0].contents(size) == volume.replicas[1].contents(size));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_speaks_rubbish_is_dropped_alone() {
    for lie in [Lie::BadMagic, Lie::WrongSequence, Lie::BadType] {
        is_dropped_alone(lie).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_sends_too_little_or_too_much_is_dropped_alone() {
    for lie in [Lie::Short, Lie::Long, Lie::HalfRead] {
        is_dropped_alone(lie).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_io_errors_is_dropped_alone() {
    is_dropped_alone(Lie::Error).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_stalls_is_dropped_alone() {
    is_dropped_alone(Lie::Silence).await;
}

/// Slow is not dead: the last replica is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_replica_may_stall_and_go_on() {
    let volume = Volume::start(Setup { replicas: 1, replica_timeout: 8, ..Setup::default() });
    let nbd = std::sync::Arc::new(volume.nbd().await);
    put(&nbd, 0, 16, 1).await;
    let process = volume.replicas[0].process.as_ref().unwrap();
    signal(process, Signal::STOP);
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn({
        let nbd = nbd.clone();
        async move { nbd.write(0, pattern(16, 2)).await }
    });
    // Longer than the timeout of a replica that is not the last.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    signal(process, Signal::CONT);
    writing.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(volume.modes(), ["RW"]);
    assert_eq!(nbd.read(0, 16 * 4096).await.unwrap(), pattern(16, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_disk_is_full_is_dropped_alone() {
    let mut volume = Volume::prepare(Setup { replicas: 3, ..Setup::default() });
    let small = volume.replicas[2].dir.clone();
    let Some(_disk) = e2e::engine::SmallDisk::mount(&small, 8) else {
        return e2e::skip("disk of a replica full: a small tmpfs can be mounted by root only");
    };
    volume.replicas[2].dir = small.join("replica");
    for replica in &mut volume.replicas {
        replica.start();
    }
    volume.start_engine();
    let nbd = volume.nbd().await;
    for megabyte in 0..24 {
        put(&nbd, megabyte * 256, 256, 5).await;
    }
    volume.wait_for_mode(2, "ERR");
    assert_eq!(volume.modes(), ["RW", "RW", "ERR"]);
    assert_eq!(nbd.read(23 << 20, 1 << 20).await.unwrap(), pattern(256, 5));
}

/// If all are full, none is to blame: the client is told, and space helps.
#[tokio::test(flavor = "multi_thread")]
async fn full_everywhere_is_an_error_to_the_client_alone() {
    let mut volume = Volume::prepare(Setup { replicas: 2, ..Setup::default() });
    let mut disks = Vec::new();
    for index in 0..2 {
        let at = volume.replicas[index].dir.clone();
        let Some(disk) = e2e::engine::SmallDisk::mount(&at, 8) else {
            return e2e::skip("all disks full: a small tmpfs can be mounted by root only");
        };
        disks.push(disk);
        volume.replicas[index].dir = at.join("replica");
        volume.replicas[index].start();
    }
    volume.start_engine();
    let nbd = volume.nbd().await;
    let mut refused = 0;
    for megabyte in 0..16 {
        let written = nbd.write(megabyte << 20, pattern(256, 5)).await;
        match written {
            Ok(()) => {}
            Err(e2e::engine::NbdError::Refused(errno, _)) => {
                assert_eq!(errno, wire::nbd::Errno::NoSpc);
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(refused > 0);
    let modes = volume.modes();
    assert!(modes.iter().any(|mode| mode == "RW"), "{modes:?}");
    assert_eq!(nbd.read(0, 1 << 20).await.unwrap(), pattern(256, 5));
}
