//! Files that nobody else sees.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A file in `dir` that has no name: gone with its last handle, so that a crash leaves nothing, and no
/// two who work in one directory meet.
pub(crate) fn nameless(dir: &Path) -> io::Result<File> {
    durable::create_dir_private(dir).map_err(io::Error::other)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        // Not every file system has such files from the beginning.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => unnamed(dir),
        Err(error) => Err(error.into()),
    }
}

/// The same of a file that had a name for a moment.
fn unnamed(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!("guard-{:016x}.tmp", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    #[test]
    fn nobody_sees_it_and_what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for make in [nameless as fn(&Path) -> io::Result<File>, unnamed] {
            let mut file = make(dir.path()).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            file.write_all(b"rows").unwrap();
            let mut again = file.try_clone().unwrap();
            again.rewind().unwrap();
            let mut read = String::new();
            again.read_to_string(&mut read).unwrap();
            assert_eq!(read, "rows");
        }
    }
}
