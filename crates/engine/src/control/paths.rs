//! Where the dialect keeps its sockets and finds the host it runs on.

use std::path::{Path, PathBuf};

const DEFAULT_CONTROL: &str = "/var/lib/longhorn";
const HOST_PREFIX: &str = "/host";

/// The unix socket on which the replica of `volume` takes data, as the environment says.
pub(super) fn data_socket(volume: &str) -> PathBuf {
    let control = control_dir(std::env::var("LONGHORN_CONTROL_PATH").ok().as_deref());
    PathBuf::from(format!("{HOST_PREFIX}{}/unix-domain-socket/{volume}.sock", control.display()))
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

/// A value that would put sockets in the root, among the devices or anywhere at all is passed over.
fn control_dir(wanted: Option<&str>) -> PathBuf {
    let fallback = || PathBuf::from(DEFAULT_CONTROL);
    let Some(wanted) = wanted.filter(|text| text.starts_with('/')) else { return fallback() };
    let clean: PathBuf = Path::new(wanted).components().collect();
    if clean == Path::new("/") || clean.starts_with("/dev") {
        return fallback();
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sane_absolute_control_path_counts() {
        for wanted in [None, Some(""), Some("/"), Some("/dev"), Some("/dev/x"), Some("rel/x")] {
            assert_eq!(control_dir(wanted), Path::new(DEFAULT_CONTROL), "{wanted:?}");
        }
        assert_eq!(control_dir(Some("/data//lh/")), Path::new("/data/lh"));
    }
}
