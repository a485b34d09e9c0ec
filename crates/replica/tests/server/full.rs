//! A disk that is full: the text engines search for, nothing acknowledged is lost, and it goes on
//! when there is room again.

use std::path::Path;
use std::process::Command;

use wire::frame::{NO_SPACE_TEXT, Outcome};

use crate::running::{Running, data};

/// A small file system of its own; needs the right to mount.
struct Small(tempfile::TempDir);

impl Small {
    fn mounted() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mount = |dir: &Path| {
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "none"]).arg(dir).status()
        };
        let is_mounted = mount(place.path()).is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: this user may not mount a file system");
        }
        is_mounted.then_some(Self(place))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let Some(small) = Small::mounted() else { return };
    let running = Running::with(|options| {
        options.dir = small.0.path().join("replica");
        options.size_bytes = Some(64 << 20);
    })
    .await;
    running.open().await;
    let mut port = running.local();
    port.flush().await;
    let mut acknowledged = Vec::new();
    let text = loop {
        let offset = acknowledged.len() as i64 * 65_536;
        match port.write(offset, &[acknowledged.len() as u8 + 1; 65_536]).await {
            Outcome::Count(65_536) => acknowledged.push(offset),
            Outcome::Error(text) => break text,
            other => panic!("{other:?}"),
        }
    };
    assert!(text.contains(NO_SPACE_TEXT), "{text}");
    assert!(acknowledged.len() > 50);
    // What is there can be written over, flushed and read; the replica is not given up.
    assert_eq!(port.write(0, &[1; 65_536]).await, Outcome::Count(65_536));
    assert_eq!(port.flush().await, Outcome::Count(0));
    assert_eq!(port.ping().await, Outcome::Count(0));
    for (index, offset) in acknowledged.iter().enumerate() {
        let expected = data(&vec![index as u8 + 1; 65_536]);
        assert_eq!(port.read(*offset, 65_536).await, expected, "{offset}");
    }
    // A snapshot has no room either, and leaves all as it was.
    let failed = running.client().replica_snapshot(crate::disks::snapshot("s")).await;
    if let Err(status) = failed {
        assert!(status.message().contains(NO_SPACE_TEXT), "{status:?}");
    }
    // Room again.
    let unmap = |sequence| wire::frame::Request::Unmap { sequence, offset: 0, size: 1 << 20 };
    assert!(matches!(port.ask(unmap).await, Outcome::Count(_)));
    let next = acknowledged.len() as i64 * 65_536;
    let again = port.write(next, &[7; 65_536]).await;
    assert_eq!(again, Outcome::Count(65_536));
    assert_eq!(port.read(next, 65_536).await, data(&[7; 65_536]));
}
