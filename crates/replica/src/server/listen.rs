//! The places a replica listens at, found from its control address: data at the next port or on a
//! unix socket, and for engines on this machine on an abstract socket beside the port.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rpc::Address;
use rustix::net::sockopt;

/// Where the host's file system is seen, in a container.
const HOST_PREFIX: &str = "/host";
const CONTROL_PATH: &str = "/var/lib/longhorn";
const SOCKET_DIR: &str = "unix-domain-socket";

/// Binds a port. Of a name with several addresses an IPv4 one is preferred, as peers do.
pub(crate) fn bind(address: &Address) -> io::Result<TcpListener> {
    let mut found: Vec<SocketAddr> = (address.host(), address.port()).to_socket_addrs()?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    let listener = TcpListener::bind(found.as_slice())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether engines on this machine reach a listener at this address by the loopback address.
pub(crate) fn is_local(listener: &TcpListener) -> bool {
    let ip = listener.local_addr().map(|address| address.ip());
    ip.is_ok_and(|ip: IpAddr| ip.is_loopback() || ip.is_unspecified())
}

/// How long the machine of a peer may be gone before its connections end: the first probe after
/// the idle time, then so many, so far apart.
const IDLE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Lets the kernel end connections from machines that are gone, which would otherwise last for
/// ever. Where it cannot, they do no harm but for the memory they take.
pub(crate) fn keep_alive(stream: &impl AsFd) {
    let set = || {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, IDLE)?;
        sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
        sockopt::set_tcp_keepcnt(stream, PROBES)
    };
    if let Err(error) = set() {
        tracing::warn!(%error, "a data connection is not watched for the death of its peer");
    }
}

/// The abstract socket beside a data port; it vanishes with the process.
pub(crate) fn bind_local(data_port: u16) -> io::Result<UnixListener> {
    let address = UnixAddr::from_abstract_name(rpc::local_data_socket(data_port))?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A socket file that is there already is one of a process that has gone.
pub(crate) fn bind_file(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Where data is served with `--data-server-protocol unix`. `control_path` is the value of
/// `LONGHORN_CONTROL_PATH`.
pub fn data_socket_file(control_path: Option<&str>, volume: &str) -> PathBuf {
    let given = control_path.unwrap_or_default().trim_end_matches('/');
    let is_usable = given.starts_with('/') && given != "/dev" && !given.starts_with("/dev/");
    let control = if is_usable { given } else { CONTROL_PATH };
    PathBuf::from(format!("{HOST_PREFIX}{control}/{SOCKET_DIR}/{volume}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_file_follows_the_control_path_where_that_is_usable() {
        let usual = "/host/var/lib/longhorn/unix-domain-socket/v.sock";
        for useless in [None, Some(""), Some("/"), Some("relative"), Some("/dev"), Some("/dev/x")] {
            assert_eq!(data_socket_file(useless, "v"), Path::new(usual), "{useless:?}");
        }
        let given = data_socket_file(Some("/data/"), "v");
        assert_eq!(given, Path::new("/host/data/unix-domain-socket/v.sock"));
    }

    #[test]
    fn a_socket_file_left_behind_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sockets/v.sock");
        drop(bind_file(&path).unwrap());
        assert!(path.exists());
        bind_file(&path).unwrap();
    }
}
