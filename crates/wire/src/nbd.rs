//! The NBD protocol: fixed newstyle negotiation and transmission, the server's side of it.
//!
//! Owns: the bytes, the order of the negotiation, and which requests a session may be sent.
//! Never: reads or writes a volume, or waits; the connection's owner moves the bytes.
//! Start reading at [`Negotiation`], whose end is a [`Session`]; then [`decode_request`],
//! [`Session::check`] and the replies of [`Session`]. `docs/protocols/nbd.md` says what is spoken.
//! [`client`] is the other end, as far as tests need it.

pub mod client;
mod errno;
mod export;
mod extent;
mod flags;
mod negotiation;
mod numbers;
mod options;
mod reply;
mod request;
mod session;

pub use errno::Errno;
pub use export::{BlockSize, Export, ExportError, check_range};
pub use extent::{Extent, ExtentFlags, MAX_EXTENTS, shape};
pub use flags::{CommandFlags, TransmissionFlags};
pub use negotiation::{CloseReason, Exports, MAX_OPTIONS, Negotiation, Policy, Step, Tls};
pub use numbers::{DEFAULT_PORT, MAX_OPTION_LEN, MAX_PAYLOAD, MAX_STRING_LEN};
pub use reply::{Chunk, Frame, Head, ReplyError, encode_chunk, encode_simple};
pub use request::{
    Command, REQUEST_LEN, Request, RequestError, RequestHead, decode_request, encode_request,
};
pub use session::{Context, Session};
