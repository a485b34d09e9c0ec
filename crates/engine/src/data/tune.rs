//! Socket options that the defaults of the kernel do not give.

use std::os::fd::AsFd;

use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

/// A large request in one go, instead of a switch to the reader for every fifth of it.
const SEND_BUFFER: usize = 1 << 20;

/// Makes room in a unix socket, as far as this process may. TCP does so by itself.
pub(crate) fn widen(socket: &impl AsFd) {
    if set_socket_send_buffer_size_force(socket, SEND_BUFFER).is_err()
        && let Err(error) = set_socket_send_buffer_size(socket, SEND_BUFFER)
    {
        tracing::debug!(%error, "send buffer left as it is");
    }
}
