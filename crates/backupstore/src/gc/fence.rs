//! Records in progress under our delete lock: whose writers are gone for sure, and which may still finish.

use jiff::{SignedDuration, Timestamp};

use super::references::InProgress;
use crate::error::Error;
use crate::lock::Lease;
use crate::name::Name;
use crate::repository::Found;
use crate::store::{Abilities, BackupStore};
use crate::subject::Subject;

/// A writer that nobody can keep from finishing is gone when its record is older.
pub(crate) const GONE_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Where what others do is seen late, a block that no record names may be of one that is not seen yet.
const GRACE: SignedDuration = SignedDuration::from_hours(1);

/// A record in progress names no blocks, and is not longer.
const BEGUN_MAX_BYTES: u64 = 64 << 10;

/// What a record in progress means for the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// It cannot publish once its record was replaced.
    CanBeFenced,
    /// It publishes whatever lies there, and may be at work: nothing it could need is removed.
    MayFinish,
}

/// Seen at `now`, by the store's clock.
pub(crate) fn writer_of(record: &InProgress, now: Timestamp, abilities: Abilities) -> Writer {
    let is_fenced = record.is_fenceable && abilities.conditional_put;
    if is_fenced || now.duration_since(record.begun) > GONE_AFTER {
        Writer::CanBeFenced
    } else {
        Writer::MayFinish
    }
}

/// How old a block that no record names must be to be removed.
pub(crate) fn grace(abilities: Abilities) -> SignedDuration {
    if abilities.is_strong() { SignedDuration::ZERO } else { GRACE }
}

impl BackupStore {
    /// Whether this is a record in progress, or one that ours completed for another, whose writer may
    /// still finish it.
    pub(crate) async fn may_finish(
        &self,
        of: &Subject,
        name: &Name,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let found = match self.repository.record_within(of, name, BEGUN_MAX_BYTES).await {
            Err(Error::Store(blobs::Error::TooLong { .. })) => {
                self.repository.record(of, name).await?
            }
            found => found?,
        };
        match found {
            Found::Readable(record, stored) if record.is_in_progress || record.is_successor => {
                let record = InProgress::new(name.clone(), &record, stored);
                Ok(writer_of(&record, lease.store_time(), self.abilities()) == Writer::MayFinish)
            }
            Found::Missing => self.repository.is_listed(of, name).await,
            Found::Readable(..) | Found::Unreadable { .. } => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use blobs::{Listing, Times, Version};

    use super::*;

    #[test]
    fn only_writers_that_can_be_fenced_or_are_long_gone_are_taken_for_dead() {
        let strong =
            Abilities { conditional_put: true, listing: Listing::AtOnce, times: Times::OfStore };
        let weak = Abilities { conditional_put: false, ..strong };
        let day = 24 * 60 * 60;
        for (is_fenceable, abilities, age, expected) in [
            (true, strong, 0, Writer::CanBeFenced),
            (false, strong, 0, Writer::MayFinish),
            (true, weak, 0, Writer::MayFinish),
            (false, strong, day, Writer::MayFinish),
            (false, strong, day + 1, Writer::CanBeFenced),
            (true, weak, day + 1, Writer::CanBeFenced),
        ] {
            let record = InProgress {
                name: Name::parse("backup-1").unwrap(),
                version: Version::tagged("x"),
                begun: Timestamp::from_second(1_000_000).unwrap(),
                is_fenceable,
            };
            let now = Timestamp::from_second(1_000_000 + age).unwrap();
            assert_eq!(writer_of(&record, now, abilities), expected, "{is_fenceable} {age}");
        }
        assert!(grace(strong).is_zero() && !grace(weak).is_zero());
    }
}
