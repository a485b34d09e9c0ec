//! What becomes of replicas that did not do what all were asked to do.
//!
//! One rule for snapshot, revert and settings: replicas stay in the set while they agree with each
//! other. One that did not follow those that did is out; when none did, nothing has changed and
//! nobody is out, but for those of which that is not certain.

use crate::core::Mode;

use super::link::CallError;

/// How one replica took a request that went to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It has such a snapshot already, and nothing was changed.
    Exists(String),
    /// It answered with an error: nothing was changed there.
    Refused(String),
    /// It did not answer: it may have done it or not.
    Lost(String),
}

impl Outcome {
    pub(super) fn of<T>(result: Result<T, CallError>) -> Self {
        let Err(error) = result else { return Self::Done };
        let text = error.to_string();
        match error {
            CallError::Refused(_) if says_existing(&text) => Self::Exists(text),
            CallError::Refused(_) | CallError::RawFile { .. } | CallError::File { .. } => {
                Self::Refused(text)
            }
            CallError::Unreachable(_)
            | CallError::TimedOut(_)
            | CallError::Broken(_)
            | CallError::Empty(_) => Self::Lost(text),
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Exists(text) | Self::Refused(text) | Self::Lost(text) => Some(text),
        }
    }
}

/// The text by which a replica says that it has a snapshot of that name:
/// `snapshot X is already existing`.
fn says_existing(text: &str) -> bool {
    text.find("snapshot ")
        .is_some_and(|at| text.get(at..).is_some_and(|rest| rest.contains(" is already existing")))
}

/// Which replicas are to be failed; `true` at the place of each.
pub(super) fn to_fail(outcomes: &[(Mode, Outcome)]) -> Vec<bool> {
    let rw_done =
        outcomes.iter().any(|(mode, outcome)| *mode == Mode::Rw && *outcome == Outcome::Done);
    let rw_sure = outcomes
        .iter()
        .any(|(mode, outcome)| *mode == Mode::Rw && !matches!(outcome, Outcome::Lost(_)));
    // Copies that may disagree are worse than fewer copies: of those that are all silent, one stays.
    let kept = outcomes.iter().position(|(mode, _)| *mode == Mode::Rw).filter(|_| !rw_sure);
    let fails = |(at, (mode, outcome)): (usize, &(Mode, Outcome))| match (mode, outcome) {
        (Mode::Err, _) | (_, Outcome::Exists(_)) => false,
        (Mode::Rw, Outcome::Done) => false,
        // It went ahead of those that are read from.
        (Mode::Wo, Outcome::Done) => !rw_done,
        (Mode::Rw | Mode::Wo, Outcome::Refused(_)) => rw_done,
        (Mode::Wo, Outcome::Lost(_)) => true,
        (Mode::Rw, Outcome::Lost(_)) => kept != Some(at),
    };
    outcomes.iter().enumerate().map(fails).collect()
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Done, Exists, Lost, Refused};
    use super::*;

    fn refused() -> Outcome {
        Refused("r".into())
    }

    fn lost() -> Outcome {
        Lost("l".into())
    }

    #[test]
    fn those_that_did_not_follow_are_out() {
        let seen = [(Mode::Rw, Done), (Mode::Rw, refused()), (Mode::Wo, lost()), (Mode::Wo, Done)];
        assert_eq!(to_fail(&seen), [false, true, true, false]);
    }

    #[test]
    fn a_rejection_by_all_changes_nothing() {
        assert_eq!(to_fail(&[(Mode::Rw, refused()), (Mode::Rw, refused())]), [false, false]);
        assert_eq!(to_fail(&[(Mode::Rw, refused()), (Mode::Wo, Done)]), [false, true]);
    }

    #[test]
    fn silence_is_failed_but_one_copy_always_stays() {
        assert_eq!(to_fail(&[(Mode::Rw, refused()), (Mode::Rw, lost())]), [false, true]);
        assert_eq!(to_fail(&[(Mode::Rw, lost()), (Mode::Rw, lost())]), [false, true]);
        assert_eq!(to_fail(&[(Mode::Rw, lost())]), [false]);
    }

    #[test]
    fn one_that_has_it_already_is_kept() {
        let exists = Exists("snapshot volume-snap-a.img is already existing".into());
        assert_eq!(to_fail(&[(Mode::Rw, Done), (Mode::Rw, exists)]), [false, false]);
    }

    #[test]
    fn the_text_of_an_existing_snapshot_is_known_in_any_wrapping() {
        assert!(says_existing("failed: snapshot volume-snap-a.img is already existing"));
        assert!(!says_existing("snapshot a is gone"));
        assert!(!says_existing("it is already existing"));
    }
}
