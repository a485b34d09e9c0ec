//! Object stores: the one door to them.
//!
//! Owns: the port [`Store`] (thirteen methods), keys and errors; the stores behind it (a directory,
//! memory, S3, Google Cloud Storage, Azure, Swift), opened by URL ([`open`]); and the wrappers for limits,
//! retries, faults and metrics ([`wrap`]). Never: the layout of what is stored, encryption, or a
//! type of the library underneath in a signature.
//!
//! Puts are conditional: they create, or replace exactly the version that was read. The one that is
//! not, [`Store::put`], is for objects that are the same whoever writes them.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cut;
mod error;
mod google;
pub mod holds;
mod key;
mod local;
mod open;
mod rejection;
mod remote;
mod store;
mod stream;
mod swift;
mod timeouts;
mod trust;
mod wire;
pub mod wrap;

pub use durable::Retry;
pub use error::Error;
pub use key::{Key, KeyError, Prefix};
pub use local::LocalStore;
pub use open::{Credentials, Network, OpenError, open, open_held, open_over, signed_get};
pub use rejection::Rejection;
pub use remote::memory;
pub use store::{
    Batch, Blob, Capabilities, LIST_PAGE_MAX, Level, Listing, Meta, Page, Permit, Store, Times,
    Version, Waiting, delete_all, get_limited, list_all,
};
pub use stream::{Body, Parts, Pieces, read_stream};
pub use swift::SwiftIdentity;
