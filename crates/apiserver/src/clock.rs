//! The one place where the server asks what time it is.

use jiff::Timestamp;

pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// RFC 3339 in whole seconds, as `metadata` writes times.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
