//! The frontend `socket`, and data over unix sockets.

use std::path::PathBuf;

use bytes::Bytes;
use e2e::engine::{Frames, Frontend, Setup, Volume, skip_unless_root};
use wire::frame::Outcome;

use crate::pattern;

fn socket_of(volume: &Volume) -> PathBuf {
    let info = volume.cli().json(&["info"]);
    let path: PathBuf = info["endpoint"].as_str().unwrap().into();
    assert!(path.ends_with(format!("longhorn-{}.sock", volume.name)), "{}", path.display());
    path
}

#[test]
fn frames_are_served_on_a_unix_socket() {
    if skip_unless_root("the frontend socket lies where only root may write") {
        return;
    }
    let volume = Volume::start(Setup { frontend: Frontend::Socket, ..Setup::default() });
    let path = socket_of(&volume);
    let mut frames = Frames::unix(&path);
    assert_eq!(frames.ping().unwrap(), Outcome::Count(0));
    assert_eq!(frames.write(8192, pattern(4, 1)).unwrap(), Outcome::Count(16384));
    assert_eq!(frames.read(8192, 16384).unwrap(), Outcome::Data(pattern(4, 1)));
    // Not aligned to anything.
    assert_eq!(frames.write(8192 + 512, Bytes::from(vec![9; 512])).unwrap(), Outcome::Count(512));
    let Outcome::Data(sector) = frames.read(8192, 4096).unwrap() else { panic!() };
    assert_eq!(sector[512..1024], [9; 512]);
    assert_eq!(sector[1024..], pattern(4, 1)[1024..4096]);
    assert_eq!(frames.unmap(8192, 16384).unwrap(), Outcome::Count(16384));

    let size = i64::try_from(volume.setup.size_bytes).unwrap();
    for (outcome, verb) in [
        (frames.read(size, 512), "EOF: Read of 512 bytes at offset"),
        (frames.write(size, Bytes::from(vec![1; 512])), "EOF: Write of 512 bytes at offset"),
        (frames.unmap(size, 512), "EOF: unmap of 512 bytes at offset"),
    ] {
        let Outcome::Error(text) = outcome.unwrap() else { panic!("{verb}") };
        assert!(text.starts_with(verb) && text.contains("is beyond volume size"), "{text}");
    }
    assert_eq!(Frames::unix(&path).ping().unwrap(), Outcome::Count(0));
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_reached_over_unix_sockets() {
    if skip_unless_root("unix data sockets lie where only root may write") {
        return;
    }
    let flag = ["--data-server-protocol".to_owned(), "unix".to_owned()];
    let mut volume = Volume::prepare(Setup {
        replicas: 1,
        engine: flag.to_vec(),
        replica: flag.to_vec(),
        ..Setup::default()
    });
    volume.replicas[0].start();
    volume.start_engine();
    let nbd = volume.nbd().await;
    crate::put(&nbd, 3, 5, 1).await;
    assert_eq!(nbd.read(3 * 4096, 5 * 4096).await.unwrap(), pattern(5, 1));
    let socket = format!("/host/var/lib/longhorn/unix-domain-socket/{}.sock", volume.name);
    let mut frames = Frames::unix(&PathBuf::from(&socket));
    assert_eq!(frames.read(3 * 4096, 5 * 4096).unwrap(), Outcome::Data(pattern(5, 1)));
    drop(volume);
    let _ = std::fs::remove_file(socket);
}

/// One request after another, counters and space as scripts count them.
#[test]
fn small_writes_cost_what_scripts_expect() {
    if skip_unless_root("the frontend socket lies where only root may write") {
        return;
    }
    let volume =
        Volume::start(Setup { frontend: Frontend::Socket, replicas: 2, ..Setup::default() });
    let mut frames = Frames::unix(&socket_of(&volume));
    let counter = |index: usize| -> u64 {
        let text = std::fs::read_to_string(volume.replicas[index].dir.join("revision.counter"));
        text.unwrap().trim_end_matches('\0').trim().parse().unwrap()
    };
    let before = counter(0);
    for number in 0..10 {
        frames.write(number * 512, Bytes::from(vec![1; 512])).unwrap();
    }
    assert_eq!((counter(0), counter(1)), (before + 10, before + 10));
    let head = volume.cli().json(&["snapshot", "info"])["volume-head"]["size"].clone();
    assert_eq!(head, "8192");
}
