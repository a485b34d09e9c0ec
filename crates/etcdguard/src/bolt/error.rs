//! What can be wrong with a file of pages, by name.

use std::io;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    #[error("cannot {what} the database")]
    Io { what: &'static str, source: io::Error },
    #[error("not a database: neither of its first two pages is a valid header")]
    NoMeta,
    #[error("the database is cut short: {length} bytes, its header speaks of {expected}")]
    Short { length: u64, expected: u64 },
    #[error("page {page}: {fault}")]
    Page { page: u64, fault: Fault },
}

impl BoltError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    pub(super) const fn page(page: u64, fault: Fault) -> Self {
        Self::Page { page, fault }
    }
}

/// What is wrong with one page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("is not below the number of pages in use, {limit}")]
    AboveHighWater { limit: u64 },
    #[error("runs over {pages} pages, more than a page of its kind can")]
    TooLong { pages: u64 },
    #[error("calls itself page {found}")]
    WrongId { found: u64 },
    #[error("has the kind {flags:#x}, which is not of a tree")]
    WrongKind { flags: u16 },
    #[error("is empty")]
    Empty,
    #[error("lies deeper than {limit} levels")]
    TooDeep { limit: usize },
    #[error("element {index} points outside the page")]
    Element { index: usize },
    #[error("element {index} is not above the one before it")]
    KeyOrder { index: usize },
    #[error("element {index} is below the key its parent has for this page")]
    BelowParent { index: usize },
    #[error("element {index} is not below the key its parent has for the next page")]
    AboveParent { index: usize },
    #[error("element {index} is a plain key where only buckets may be")]
    NotABucket { index: usize },
    #[error("element {index} is a bucket inside a bucket")]
    Nested { index: usize },
    #[error("element {index} is a bucket whose header is damaged")]
    BucketHeader { index: usize },
    #[error("is used twice")]
    UsedTwice,
    #[error("is both used and free")]
    UsedAndFree,
    #[error("is on the list of free pages twice")]
    FreedTwice,
    #[error("is neither used nor free")]
    Lost,
    #[error("the list of free pages is damaged")]
    Freelist,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot {what} the database")]
    Io { what: &'static str, source: io::Error },
    #[error("keys do not ascend")]
    Order,
    #[error("a key of {length} bytes; at most {limit} are possible")]
    KeyTooLong { length: usize, limit: usize },
    #[error("a value of {length} bytes; at most {limit} are possible")]
    ValueTooLong { length: usize, limit: usize },
    #[error("there is no bucket {0:?}")]
    NoBucket(String),
    #[error(transparent)]
    Read(#[from] BoltError),
}

impl WriteError {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
