//! Files that nobody else sees.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file in `dir` that has no name: gone with its last handle, so that a crash leaves nothing, and no
/// two who work in one directory meet.
pub(crate) fn nameless(dir: &Path) -> io::Result<File> {
    durable::create_dir_private(dir).map_err(io::Error::other)?;
    let path = dir.join(format!("guard-{:016x}.tmp", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
