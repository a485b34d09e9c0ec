//! Socket options that the defaults of the kernel do not give.

use std::os::fd::AsFd;

use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_send_buffer_size, set_socket_send_buffer_size_force,
    set_tcp_keepidle,
};

/// A large request in one go, instead of a switch to the reader for every fifth of it.
const SEND_BUFFER: usize = 1 << 20;

/// Silence after which the kernel asks whether the other machine is still there.
const KEEP_IDLE: Duration = Duration::from_mins(1);

/// Lets the kernel notice a peer that is gone without a word, so that its place becomes free.
pub(crate) fn keep_alive(socket: &impl AsFd) {
    let set = set_socket_keepalive(socket, true).and_then(|()| set_tcp_keepidle(socket, KEEP_IDLE));
    if let Err(error) = set {
        tracing::debug!(%error, "no keep-alive");
    }
}

/// Makes room in a unix socket, as far as this process may. TCP does so by itself.
pub(crate) fn widen(socket: &impl AsFd) {
    if set_socket_send_buffer_size_force(socket, SEND_BUFFER).is_err()
        && let Err(error) = set_socket_send_buffer_size(socket, SEND_BUFFER)
    {
        tracing::debug!(%error, "send buffer left as it is");
    }
}
