//! What becomes of replicas that did not do what all were asked to do.
//!
//! One rule for snapshot, revert, expansion and settings: replicas stay in the set while they agree with
//! each other. One that did not follow those that did is out; when none did, nothing has changed and
//! nobody is out, but for those of which that is not certain.

use crate::core::{Mode, ReplicaId};

/// How one replica took a request that went to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It has such a snapshot already, and nothing was changed.
    Exists(String),
    /// It answered with an error: nothing was changed there.
    Refused(String),
    /// It did not answer: it may have done it or not.
    Lost(String),
    /// It is neither what it was nor what it should be.
    Broken(String),
}

impl Outcome {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Exists(text) | Self::Refused(text) | Self::Lost(text) | Self::Broken(text) => {
                Some(text)
            }
        }
    }
}

/// A replica that is asked, as it was when it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub id: ReplicaId,
    pub mode: Mode,
    pub address: String,
}

/// One that did not begin what it was asked for, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub address: String,
    pub message: String,
}

/// What came of asking all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Who is out, and why.
    pub out: Vec<(ReplicaId, String)>,
    /// One that can be read did it, so the volume has done it.
    pub is_done: bool,
    /// One says that it has this already.
    pub exists: bool,
    /// What those say that did not do it, with their addresses; empty if all did.
    pub texts: String,
}

impl Settled {
    /// Why the whole is no success, if it is not.
    pub fn failure(&self) -> Option<String> {
        if self.is_done && !self.exists {
            return None;
        }
        let nobody = "no replica that can be read did it";
        let texts = if self.texts.is_empty() { nobody } else { &self.texts };
        Some(texts.to_owned())
    }
}

pub fn settle(taken: &[(Asked, Outcome)]) -> Settled {
    let modes: Vec<_> = taken.iter().map(|(asked, outcome)| (asked.mode, outcome)).collect();
    let out = taken.iter().zip(to_fail(&modes)).filter(|(_, fails)| *fails);
    let why =
        |outcome: &Outcome| outcome.text().unwrap_or("it went ahead of the others").to_owned();
    let texts: Vec<String> = taken
        .iter()
        .filter_map(|(asked, outcome)| Some(format!("{}: {}", asked.address, outcome.text()?)))
        .collect();
    Settled {
        out: out.map(|((asked, outcome), _)| (asked.id, why(outcome))).collect(),
        is_done: modes.iter().any(|(mode, it)| *mode == Mode::Rw && **it == Outcome::Done),
        exists: modes.iter().any(|(_, it)| matches!(it, Outcome::Exists(_))),
        texts: texts.join("; "),
    }
}

/// Which replicas are to be failed; `true` at the place of each.
fn to_fail(outcomes: &[(Mode, &Outcome)]) -> Vec<bool> {
    let of_rw = |wanted: fn(&Outcome) -> bool| {
        outcomes.iter().any(|(mode, outcome)| *mode == Mode::Rw && wanted(outcome))
    };
    let rw_done = of_rw(|outcome| *outcome == Outcome::Done);
    let rw_sure = of_rw(|outcome| !matches!(outcome, Outcome::Lost(_) | Outcome::Broken(_)));
    // Copies that may disagree are worse than fewer copies: of those that are all silent, one stays.
    let is_silent = |(mode, outcome): &(Mode, &Outcome)| {
        *mode == Mode::Rw && matches!(outcome, Outcome::Lost(_))
    };
    let kept = outcomes.iter().position(is_silent).filter(|_| !rw_sure);
    let fails = |(at, (mode, outcome)): (usize, &(Mode, &Outcome))| match (mode, outcome) {
        (Mode::Err, _) | (_, Outcome::Exists(_)) => false,
        (_, Outcome::Broken(_)) => true,
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
    use super::Outcome::{Broken, Done, Exists, Lost, Refused};
    use super::*;

    fn refused() -> Outcome {
        Refused("r".into())
    }

    fn lost() -> Outcome {
        Lost("l".into())
    }

    fn broken() -> Outcome {
        Broken("b".into())
    }

    fn fails(seen: &[(Mode, Outcome)]) -> Vec<bool> {
        let seen: Vec<_> = seen.iter().map(|(mode, outcome)| (*mode, outcome)).collect();
        to_fail(&seen)
    }

    #[test]
    fn those_that_did_not_follow_are_out() {
        let seen = [(Mode::Rw, Done), (Mode::Rw, refused()), (Mode::Wo, lost()), (Mode::Wo, Done)];
        assert_eq!(fails(&seen), [false, true, true, false]);
    }

    #[test]
    fn a_rejection_by_all_changes_nothing() {
        assert_eq!(fails(&[(Mode::Rw, refused()), (Mode::Rw, refused())]), [false, false]);
        assert_eq!(fails(&[(Mode::Rw, refused()), (Mode::Wo, Done)]), [false, true]);
    }

    #[test]
    fn silence_is_failed_but_one_copy_always_stays() {
        assert_eq!(fails(&[(Mode::Rw, refused()), (Mode::Rw, lost())]), [false, true]);
        assert_eq!(fails(&[(Mode::Rw, lost()), (Mode::Rw, lost())]), [false, true]);
        assert_eq!(fails(&[(Mode::Rw, lost())]), [false]);
    }

    #[test]
    fn what_is_broken_is_out_and_one_of_which_nothing_is_known_stays_for_it() {
        let seen = [(Mode::Rw, refused()), (Mode::Rw, broken()), (Mode::Rw, lost())];
        assert_eq!(fails(&seen), [false, true, true]);
        assert_eq!(fails(&[(Mode::Rw, broken()), (Mode::Rw, lost())]), [true, false]);
        assert_eq!(fails(&[(Mode::Rw, Done), (Mode::Wo, broken())]), [false, true]);
    }

    #[test]
    fn one_that_has_it_already_is_kept() {
        let exists = Exists("snapshot volume-snap-a.img is already existing".into());
        assert_eq!(fails(&[(Mode::Rw, Done), (Mode::Rw, exists)]), [false, false]);
    }

    #[test]
    fn the_whole_is_done_when_one_that_can_be_read_did_it_and_none_had_it_before() {
        let asked = |id, mode| Asked { id: ReplicaId(id), mode, address: format!("r{id}") };
        let (one, two) = (asked(1, Mode::Rw), asked(2, Mode::Rw));
        let settled = settle(&[(one.clone(), Done), (two.clone(), refused())]);
        assert_eq!((settled.failure(), settled.texts.as_str()), (None, "r2: r"));
        assert_eq!(settled.out, [(ReplicaId(2), "r".to_owned())]);
        let settled = settle(&[(one.clone(), Done), (two.clone(), Exists("e".into()))]);
        assert_eq!(settled.failure().as_deref(), Some("r2: e"));
        let settled = settle(&[(asked(1, Mode::Wo), Done)]);
        assert_eq!(settled.failure().as_deref(), Some("no replica that can be read did it"));
        assert_eq!(settled.out, [(ReplicaId(1), "it went ahead of the others".to_owned())]);
        assert_eq!(
            settle(&[(one, refused()), (two, lost())]).failure().as_deref(),
            Some("r1: r; r2: l")
        );
    }
}
