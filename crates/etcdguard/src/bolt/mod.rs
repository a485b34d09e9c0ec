//! Files of bbolt, the page store under an etcd: read, checked and written without an etcd.
//!
//! Owns: the format (pages, metas, trees of buckets). Never: what etcd keeps in the buckets (that
//! is `datadir`), and it never maps a file into memory: a file somebody else cuts short is an
//! error, not a signal.
//!
//! Every length in a file is checked before it is used or allocated; no walk recurses, and none
//! takes longer than the file is big. Start at [`Bolt`] to read, [`Writer`] to write a new file,
//! [`Editor`] to add to one.

mod check;
mod edit;
mod error;
mod format;
mod page;
mod read;
mod tree;
mod write;

pub use check::{Checked, Finding, check, check_rows};
pub use edit::Editor;
pub use error::{BoltError, Fault, WriteError};
pub use format::{DEFAULT_PAGE_SIZE, Meta};
pub use read::{Bolt, Bucket, Row, Rows};
pub use write::{Writer, Written};

#[cfg(test)]
mod tests;
