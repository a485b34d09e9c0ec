//! The data directory of an earlier release, taken over by this program.
//!
//! `golden/data-0.1.0.tar.gz` was written by Holdfast 0.1.0 and stopped cleanly: a volume with a
//! snapshot, its backup, a tenant's backup and a volume of Block Storage. Keys and certificates are not
//! in it. Paths are absolute in such a directory, so it is unpacked where it was made.

use std::fs::{File, TryLockError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::Server;
use e2e::engine::{Endpoint, Nbd, blocking};
use testkit::process::Scratch;

use crate::shell::{Shell, text};

const PLACE: &str = "/tmp/holdfast-0.1.0";
const MIB: u64 = 1 << 20;

/// The place while this test has it.
struct Place {
    folder: PathBuf,
    _lock: File,
}

impl Place {
    /// None where somebody else has it.
    fn take() -> Option<Self> {
        let lock = File::create(format!("{PLACE}.lock")).ok()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Error(error)) => panic!("{error}"),
        }
        let folder = PathBuf::from(PLACE);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).ok()?;
        }
        std::fs::create_dir(&folder).ok()?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        Some(Self { folder, _lock: lock })
    }

    fn unpack(&self) {
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/data-0.1.0.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(archive).arg("-C").arg(&self.folder).arg("--no-same-owner");
        let out = tar.output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(format!("{PLACE}.lock"));
    }
}

fn byte(endpoint: &Endpoint) -> u8 {
    let read = blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        nbd.read(MIB, 65536).await.unwrap()
    });
    assert!(read.iter().all(|it| *it == read[0]), "it is not one byte all over");
    read[0]
}

#[test]
fn the_data_of_the_release_before_is_served_by_this_one() {
    let Some(place) = Place::take() else {
        return e2e::skip("somebody else has /tmp/holdfast-0.1.0");
    };
    place.unpack();
    let scratch = Scratch::new().unwrap();
    let data = place.folder.join("data");
    let mut server = Server::start_on(scratch, data, &["--node-name", "fixture"]);
    let blocks = server.block_url();
    let shell = Shell::ready(server);
    // What was written last, and what was backed up before that.
    assert_eq!(byte(&shell.attach("kept")), 9);
    let listed = shell.run(&["backup", "ls", "kept"]);
    assert!(listed.contains("of-old") && listed.contains("completed"), "{listed}");
    shell.run(&["restore", "of-old", "back", "--replicas", "1", "--wait"]);
    assert_eq!(byte(&shell.attach("back")), 7);
    // The next backup goes on from the one before.
    let more = ["backup", "create", "kept", "--name", "of-new", "--wait"];
    shell.run(&more);
    let tenants = shell.run(&["tenant", "ls", "-n", "team-a"]);
    assert!(tenants.contains("of-tenant") && tenants.contains("Completed"), "{tenants}");
    let url = format!("{blocks}/v3/volumes/detail");
    let asked = ["-sf", "-H", "x-auth-token: old:old", &url];
    let rows = text(&Command::new("curl").args(asked).output().unwrap().stdout);
    assert!(rows.contains("of-cinder") && rows.contains("available"), "{rows}");
    shell.run(&["status", "--check"]);
    drop(shell);
}
