//! Small file systems, to see them full.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory; taken away with the test.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None if this user may not mount.
    pub fn mount(at: &Path, mebibytes: u32) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that still runs holds it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Some paths of the engine's dialect are root's; others are told what they miss.
pub fn skip_unless_root(why: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        crate::skip(why);
    }
    !root
}

/// Writes a file a test needs. It need not outlive a crash.
pub fn write_file(path: &Path, contents: &[u8]) {
    use std::io::Write as _;
    std::fs::File::create(path).unwrap().write_all(contents).unwrap();
}
