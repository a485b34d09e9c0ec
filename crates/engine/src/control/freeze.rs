//! Brings what the host still keeps in memory for the volume's device onto it before a snapshot.
//!
//! Only frontend `tgt-blockdev` has a device on this host. A filesystem on it is frozen while the
//! snapshot is taken, if that was asked for; otherwise the host is told to write out what it has.
//! Clients of the other frontends are elsewhere, and the flush of the snapshot's hold is all that
//! can be done for them. Never fails the snapshot: one that is only crash-consistent is better
//! than none.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::process::Command;

use crate::frontend::{FrontendState, FrontendStatus};

use super::paths;

/// A filesystem that cannot write out what it holds in this time is not waited for.
const TIMEOUT: Duration = Duration::from_mins(1);

const DEVICE_FRONTEND: &str = "tgt-blockdev";

/// Undoes what [`quiesce`] did.
#[must_use = "a frozen filesystem must be thawed"]
#[derive(Debug)]
pub(super) enum Frozen {
    Nothing,
    /// The handle keeps the filesystem mounted, and names it even if its place in the tree moves.
    Filesystem {
        root: File,
        place: PathBuf,
    },
}

/// What to do for the volume behind a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nothing,
    Sync,
    Freeze,
}

fn decide(frontend: &FrontendStatus, freeze: bool) -> Way {
    match frontend.state {
        FrontendState::Up if frontend.name == DEVICE_FRONTEND && freeze => Way::Freeze,
        FrontendState::Up if frontend.name == DEVICE_FRONTEND => Way::Sync,
        FrontendState::Up | FrontendState::Down | FrontendState::None => Way::Nothing,
    }
}

pub(super) async fn quiesce(frontend: FrontendStatus, freeze: bool) -> Frozen {
    match decide(&frontend, freeze) {
        Way::Nothing => Frozen::Nothing,
        Way::Sync => {
            sync_host().await;
            Frozen::Nothing
        }
        Way::Freeze => {
            if let Some(frozen) = freeze_mount_of(&frontend.endpoint).await {
                return frozen;
            }
            sync_host().await;
            Frozen::Nothing
        }
    }
}

/// Has the kernel write out every filesystem: it knows no way to name one by its device. It may
/// take as long as the slowest disk of the host does, which is not waited for.
async fn sync_host() {
    let sync = tokio::task::spawn_blocking(rustix::fs::sync);
    if tokio::time::timeout(TIMEOUT, sync).await.is_err() {
        tracing::warn!("the host did not write out its filesystems in time; not waiting for it");
    }
}

async fn freeze_mount_of(device: &str) -> Option<Frozen> {
    let number = rustix::fs::stat(device).ok()?.st_rdev;
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let table = tokio::fs::read_to_string(paths::mount_table()).await.ok()?;
    let place = mounted_at(&table, &number)?;
    let inside = paths::host_root().join(place.strip_prefix("/").ok()?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = File::from(rustix::fs::open(&inside, flags, Mode::empty()).ok()?);
    tracing::info!(path = %place.display(), "Freezing filesystem mounted at {}", place.display());
    let frozen = Frozen::Filesystem { root, place };
    match frozen.fsfreeze("--freeze").await {
        Ok(()) => Some(frozen),
        Err(error) => {
            tracing::warn!(error, "cannot freeze the filesystem; taking the snapshot without");
            // It may have been frozen after all, and only the answer came late.
            frozen.end().await;
            None
        }
    }
}

impl Frozen {
    pub(super) async fn end(self) {
        let Self::Filesystem { place, .. } = &self else { return };
        tracing::info!(path = %place.display(), "Unfreezing filesystem mounted at {}", place.display());
        if let Err(error) = self.fsfreeze("--unfreeze").await {
            tracing::error!(error, path = %place.display(), "cannot unfreeze the filesystem");
        }
    }

    async fn fsfreeze(&self, verb: &str) -> Result<(), String> {
        let Self::Filesystem { root, .. } = self else { return Ok(()) };
        let target = format!("/proc/{}/fd/{}", std::process::id(), root.as_raw_fd());
        let run = Command::new("fsfreeze").arg(verb).arg(target).kill_on_drop(true).output();
        match tokio::time::timeout(TIMEOUT, run).await {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Ok(Err(error)) => Err(format!("cannot run fsfreeze: {error}")),
            Err(_) => Err("fsfreeze did not end in time".to_owned()),
        }
    }
}

/// Where the mount table says that the device `number` (`major:minor`) is mounted first.
fn mounted_at(table: &str, number: &str) -> Option<PathBuf> {
    table.lines().find_map(|line| {
        // Identifier, parent, major:minor, root within the filesystem, mount point.
        let mut fields = line.split(' ').skip(2);
        let (device, _root, place) = (fields.next()?, fields.next()?, fields.next()?);
        (device == number).then(|| Path::new(&unescaped(place)).to_owned())
    })
}

/// Undoes the octal escapes of blanks and backslashes in the mount table.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, letter)| text.replace(escape, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_of_this_host_is_quiesced() {
        let frontend = |name: &str, state| FrontendStatus {
            name: name.into(),
            endpoint: String::new(),
            state,
        };
        assert_eq!(decide(&frontend("tgt-blockdev", FrontendState::Up), true), Way::Freeze);
        assert_eq!(decide(&frontend("tgt-blockdev", FrontendState::Up), false), Way::Sync);
        assert_eq!(decide(&frontend("tgt-blockdev", FrontendState::Down), true), Way::Nothing);
        assert_eq!(decide(&frontend("nbd", FrontendState::Up), true), Way::Nothing);
    }

    #[test]
    fn the_mount_of_a_device_is_found_by_its_number() {
        let table = "21 1 0:20 / /proc rw - proc proc rw\n\
                     30 1 8:16 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/sdb rw\n";
        assert_eq!(mounted_at(table, "8:16"), Some(PathBuf::from("/mnt/a b")));
        assert_eq!(mounted_at(table, "8:1"), None);
        assert_eq!(mounted_at("broken", "8:1"), None);
    }
}
