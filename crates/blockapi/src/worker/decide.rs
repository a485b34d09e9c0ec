//! What is to be done about a backup, from what is seen of it: pure.

use super::backend::{Progress, Saved, Stored, too_small};

/// A backup that is being made, as seen in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The copy it reads exists: a moment of the volume that nothing changes any more.
    pub(crate) is_copied: bool,
    /// It was started before, as far as its record says.
    pub(crate) was_started: bool,
    /// What the backend has of it.
    pub(crate) found: Option<Progress<Saved>>,
}

/// The one thing to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    TakeCopy,
    Start,
    Wait,
    Finish(Saved),
    Fail(String),
    /// Whoever made it is gone, and so is what was made: nobody knows why.
    Lose,
}

/// What is said of a backup that a lost worker left behind and the backend knows nothing of.
pub(crate) const LOST: &str = "incomplete backup reset on manager restart";

/// Everything that was lost is told from what is there, never from who was there.
pub(crate) fn backup(seen: Seen) -> Step {
    match (seen.is_copied, seen.found, seen.was_started) {
        (_, Some(Progress::Done(saved)), _) => Step::Finish(saved),
        (_, Some(Progress::Failed(why)), _) => Step::Fail(why),
        (_, Some(Progress::Running), _) => Step::Wait,
        (_, None, true) => Step::Lose,
        (false, None, false) => Step::TakeCopy,
        (true, None, false) => Step::Start,
    }
}

/// What to do about a restore for which nothing was made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begin {
    Wait,
    Make,
    Fail(String),
}

/// What is said of a stored backup that is not found for a while.
pub(crate) const NOT_THERE: &str = "the stored backup is not there";
/// What is said of one whose store does not answer for a while.
const NOT_READ: &str =
    "the stored backup is not read: its backup target does not say how large it is";

/// Nothing is made, and nothing is read from a store, that would be larger than its row. What is not
/// there is waited for as long as work may be that is done at once: the store may be read meanwhile.
pub(crate) fn restore(stored: Option<Stored>, gib: i64, is_late: bool) -> Begin {
    match stored.map(|it| it.gib) {
        Some(Some(needed)) if needed > gib => Begin::Fail(too_small(needed)),
        Some(Some(_)) => Begin::Make,
        None if is_late => Begin::Fail(NOT_THERE.to_owned()),
        Some(None) if is_late => Begin::Fail(NOT_READ.to_owned()),
        Some(None) | None => Begin::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_that_would_be_larger_than_its_row() {
        let stored = |gib| Some(Stored { gib });
        let said = "the source has 40 GiB now; restore into a volume of 40 GiB".to_owned();
        assert_eq!(restore(stored(Some(40)), 1, false), Begin::Fail(said));
        assert_eq!(restore(stored(Some(40)), 40, true), Begin::Make);
        // Its size is not read yet.
        assert_eq!(restore(stored(None), 40, false), Begin::Wait);
    }

    #[test]
    fn what_is_not_there_is_not_waited_for_without_end() {
        assert_eq!(restore(None, 1, false), Begin::Wait);
        assert_eq!(restore(None, 1, true), Begin::Fail(NOT_THERE.to_owned()));
        let unread = Some(Stored { gib: None });
        assert_eq!(restore(unread, 1, true), Begin::Fail(NOT_READ.to_owned()));
    }

    fn seen(is_copied: bool, was_started: bool, found: Option<Progress<Saved>>) -> Step {
        backup(Seen { is_copied, was_started, found })
    }

    #[test]
    fn the_copy_comes_before_the_backup() {
        assert_eq!(seen(false, false, None), Step::TakeCopy);
        assert_eq!(seen(true, false, None), Step::Start);
        assert_eq!(seen(true, true, Some(Progress::Running)), Step::Wait);
    }

    #[test]
    fn a_backup_that_vanished_is_lost_and_not_made_again() {
        // Made again it would be of another moment than was promised.
        assert_eq!(seen(true, true, None), Step::Lose);
    }

    #[test]
    fn what_a_lost_worker_started_is_finished() {
        let saved = Saved { handle: "h".to_owned(), container: None, objects: 1 };
        // It died between the start and the note of it.
        assert_eq!(seen(true, false, Some(Progress::Done(saved.clone()))), Step::Finish(saved));
        let failed = Some(Progress::Failed("full".to_owned()));
        assert_eq!(seen(true, true, failed), Step::Fail("full".to_owned()));
    }
}
