//! Object stores: the one door to them.
//!
//! Owns: the port [`Store`] (seven methods), keys and errors; the stores behind it (a directory,
//! memory, S3, Google Cloud Storage, Azure), opened by URL ([`open`]); and the wrappers for limits,
//! retries, faults and metrics ([`wrap`]). Never: the layout of what is stored, encryption, or a
//! type of the library underneath in a signature.
//!
//! A put is conditional, always: it creates, or it replaces exactly the version that was read.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod key;
mod local;
mod open;
mod remote;
mod store;
pub mod wrap;

pub use durable::Retry;
pub use error::Error;
pub use key::{Key, KeyError, Prefix};
pub use local::LocalStore;
pub use open::{Credentials, OpenError, open};
pub use remote::memory;
pub use store::{
    Blob, Capabilities, LIST_PAGE_MAX, Meta, Page, Store, Version, delete_all, get_limited,
    list_all,
};
