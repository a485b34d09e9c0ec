//! What a lock says, and which of two locks goes first.

use jiff::{SignedDuration, Timestamp};

use super::holder::Holder;

/// A lock that was not written anew for longer is nobody's.
pub(crate) const EXPIRY: SignedDuration = SignedDuration::from_secs(150);

/// What a lock is for. Locks of one kind do not exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Creating and restoring backups.
    Use,
    Delete,
}

impl LockKind {
    pub fn number(self) -> u64 {
        match self {
            Self::Use => 1,
            Self::Delete => 2,
        }
    }

    /// As errors name it.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Use => "create/restore",
            Self::Delete => "delete",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    pub name: String,
    pub kind: LockKind,
    pub acquired: bool,
    /// The process that wrote it, if it says so.
    pub holder: Option<Holder>,
}

/// A lock as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenLock {
    pub(crate) record: LockRecord,
    /// When it was last written, by the clock of the store.
    pub(crate) written: Timestamp,
}

impl SeenLock {
    /// When it ends at the latest unless it is renewed, seen at `now`: nobody has written it in the
    /// future, whatever the store says.
    pub(crate) fn expires_from(&self, now: Timestamp) -> Timestamp {
        self.written.min(now).saturating_add(EXPIRY).unwrap_or(Timestamp::MAX)
    }

    /// Held before wanted, then the older, then the smaller name.
    pub(crate) fn goes_before(&self, ours: &Self) -> bool {
        let rank = |lock: &Self| !lock.record.acquired;
        rank(self)
            .cmp(&rank(ours))
            .then(self.written.cmp(&ours.written))
            .then_with(|| self.record.name.cmp(&ours.record.name))
            .is_lt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, kind: LockKind, acquired: bool, second: i64) -> SeenLock {
        let record = LockRecord { name: name.to_owned(), kind, acquired, holder: None };
        SeenLock { record, written: Timestamp::from_second(second).unwrap() }
    }

    #[test]
    fn priority_is_held_then_age_then_name() {
        use LockKind::{Delete, Use};
        let ours = lock("lock-b", Delete, false, 1000);
        for (other, is_first) in [
            (lock("lock-z", Use, true, 1005), true),
            (lock("lock-z", Use, false, 999), true),
            (lock("lock-a", Use, false, 1000), true),
            (lock("lock-c", Use, false, 1000), false),
            (lock("lock-a", Use, false, 1001), false),
        ] {
            assert_eq!(other.goes_before(&ours), is_first, "{other:?}");
        }
    }
}
