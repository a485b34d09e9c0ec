//! Where the dialect keeps its sockets and finds the host it runs on.

use std::path::{Path, PathBuf};

/// The unix socket on which the replica of `volume` takes data, as the environment says.
pub(super) fn data_socket(volume: &str) -> PathBuf {
    let control = std::env::var("LONGHORN_CONTROL_PATH").ok();
    replica::server::data_socket_file(control.as_deref(), volume)
}

/// Below this path the files of process 1 of the host are found: in a container that was given the
/// host's `/proc` they are not ours.
pub(super) fn host_root() -> PathBuf {
    let host = Path::new("/host/proc/1/root");
    if host.exists() { host.to_owned() } else { PathBuf::from("/") }
}

/// The mount table that belongs to [`host_root`].
pub(super) fn mount_table() -> &'static Path {
    let host = Path::new("/host/proc/1/mountinfo");
    if host.exists() { host } else { Path::new("/proc/self/mountinfo") }
}
