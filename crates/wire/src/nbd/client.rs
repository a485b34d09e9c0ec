//! The client's side of the protocol, as far as tests and tools of ours need it.
//!
//! Owns: a negotiation that asks for what it is told to, and the decoder of replies; requests are
//! encoded by [`encode_request`](super::encode_request).
//! Never: touches a socket, retries, or speaks TLS.

mod dial;
mod replies;
#[cfg(test)]
mod tests;

pub use dial::{Agreed, Dial, DialError, Dialing, Method};
pub use replies::{Reply, ReplyDecodeError, decode_reply};
