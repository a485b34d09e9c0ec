//! Resources as people read them and ask for them: sizes and ages, states with how far, reasons, a
//! summary of all. What the commands and the dashboard say is said here, so that they say the same.
//!
//! Pure: what was read comes in, words and new objects go out.
#![forbid(unsafe_code)]

pub mod backup;
pub mod cron;
pub mod node;
pub mod redact;
pub mod snapshot;
pub mod standby;
pub mod summary;
pub mod target;
pub mod tenant;
pub mod units;
pub mod volume;

/// Where volumes and their backups live.
pub const NAMESPACE: &str = "longhorn-system";

/// A word, or a dash where there is none.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// When an object was made.
pub fn made<K: kube_core::Resource>(object: &K) -> Option<jiff::Timestamp> {
    object.meta().creation_timestamp.as_ref().map(|it| it.0)
}

/// How long ago that was, or a dash.
pub fn age<K: kube_core::Resource>(object: &K, now: jiff::Timestamp) -> String {
    made(object).map_or_else(|| "-".to_owned(), |at| units::age(at, now))
}
