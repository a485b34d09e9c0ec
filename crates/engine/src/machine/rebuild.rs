//! A copy that lacks what the others have, made whole: it joins to be written to, what was there before
//! is copied to it, and it is read from once it has all of it.
//!
//! [`Rebuild`] is the whole of it, [`Join`] and [`Verify`] its first and its last part, which callers of
//! the dialect also ask for one by one.

use crate::core::{Hold, ReplicaId};

use super::outcome::{Asked, Outcome, settle};

/// Changes are kept out, and what was acknowledged is on disk.
const HOLD: Hold = Hold::Changes { flush: true };

/// The parts of a rebuild, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Join,
    /// What the others do not have goes away from it.
    Prepare,
    Copy,
    /// It takes what was copied for its own.
    Reload,
    Verify,
    /// It is no use; what it was to be is begun anew.
    GiveUp(String),
    End(Result<(), String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Joining,
    Preparing,
    Copying,
    Reloading,
    Verifying,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuild(Stage);

impl Rebuild {
    pub fn begin() -> (Self, Step) {
        (Self(Stage::Joining), Step::Join)
    }

    /// What follows from how the last step ended; nothing once it is over.
    pub fn on(&mut self, ended: Result<(), String>) -> Vec<Step> {
        let (next, step) = match (self.0, ended) {
            (Stage::Over, _) => return vec![],
            // Nothing has joined.
            (Stage::Joining, Err(why)) => (Stage::Over, Step::End(Err(why))),
            (_, Err(why)) => {
                self.0 = Stage::Over;
                return vec![Step::GiveUp(why.clone()), Step::End(Err(why))];
            }
            (Stage::Joining, Ok(())) => (Stage::Preparing, Step::Prepare),
            (Stage::Preparing, Ok(())) => (Stage::Copying, Step::Copy),
            (Stage::Copying, Ok(())) => (Stage::Reloading, Step::Reload),
            (Stage::Reloading, Ok(())) => (Stage::Verifying, Step::Verify),
            (Stage::Verifying, Ok(())) => (Stage::Over, Step::End(Ok(()))),
        };
        self.0 = next;
        vec![step]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinStep {
    /// Answered by [`JoinEvent::Held`] or [`JoinEvent::Busy`].
    Hold(Hold),
    /// The copy that joins takes a snapshot; answered by [`JoinEvent::NewAnswered`].
    AskNew,
    /// Each is answered by [`JoinEvent::Answered`].
    Ask(ReplicaId),
    Fail(ReplicaId, String),
    /// Whatever finds it half filled knows that it is; answered by [`JoinEvent::Disqualified`].
    Disqualify,
    /// Answered by [`JoinEvent::Attached`].
    Attach,
    Release,
    End(Result<(), NotJoined>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinEvent {
    Held(Vec<Asked>),
    Busy(String),
    NewAnswered(Outcome),
    Answered(ReplicaId, Outcome),
    Disqualified(Result<(), String>),
    Attached(Result<(), String>),
}

/// It is no member, and nothing passes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotJoined {
    Busy(String),
    /// It did not take the snapshot from which on it is written to.
    New(String),
    /// The others did not.
    Others(String),
    Disqualify(String),
    Attach(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Joining {
    Holding,
    /// The one that joins is asked first: if it cannot, nobody did.
    AskingNew {
        members: Vec<Asked>,
    },
    Asking {
        waiting: Vec<Asked>,
        taken: Vec<(Asked, Outcome)>,
    },
    Disqualifying,
    Attaching,
    Over,
}

/// One snapshot on all copies and on the one that joins: what comes after it goes to its head, what came
/// before is copied to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join(Joining);

impl Join {
    pub fn begin() -> (Self, JoinStep) {
        (Self(Joining::Holding), JoinStep::Hold(HOLD))
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: JoinEvent) -> Vec<JoinStep> {
        use JoinEvent as Event;
        let (next, steps) = match (std::mem::replace(&mut self.0, Joining::Over), event) {
            (Joining::Holding, Event::Held(members)) => {
                (Joining::AskingNew { members }, vec![JoinStep::AskNew])
            }
            (Joining::Holding, Event::Busy(why)) => {
                (Joining::Over, vec![JoinStep::End(Err(NotJoined::Busy(why)))])
            }
            (Joining::AskingNew { members }, Event::NewAnswered(Outcome::Done)) => {
                let steps = members.iter().map(|asked| JoinStep::Ask(asked.id)).collect();
                settled(Joining::Asking { waiting: members, taken: vec![] }, steps)
            }
            (Joining::AskingNew { .. }, Event::NewAnswered(outcome)) => {
                let why = outcome.text().unwrap_or_default().to_owned();
                (Joining::Over, not_joined(NotJoined::New(why)))
            }
            (Joining::Asking { mut waiting, mut taken }, Event::Answered(id, outcome)) => {
                if let Some(at) = waiting.iter().position(|asked| asked.id == id) {
                    taken.push((waiting.remove(at), outcome));
                }
                settled(Joining::Asking { waiting, taken }, vec![])
            }
            (Joining::Disqualifying, Event::Disqualified(Ok(()))) => {
                (Joining::Attaching, vec![JoinStep::Attach])
            }
            (Joining::Disqualifying, Event::Disqualified(Err(why))) => {
                (Joining::Over, not_joined(NotJoined::Disqualify(why)))
            }
            (Joining::Attaching, Event::Attached(Ok(()))) => {
                (Joining::Over, vec![JoinStep::Release, JoinStep::End(Ok(()))])
            }
            (Joining::Attaching, Event::Attached(Err(why))) => {
                (Joining::Over, not_joined(NotJoined::Attach(why)))
            }
            (stage, _) => (stage, vec![]),
        };
        self.0 = next;
        steps
    }
}

fn not_joined(why: NotJoined) -> Vec<JoinStep> {
    vec![JoinStep::Release, JoinStep::End(Err(why))]
}

/// What follows once all have answered, else `steps`.
fn settled(stage: Joining, steps: Vec<JoinStep>) -> (Joining, Vec<JoinStep>) {
    let Joining::Asking { waiting, taken } = &stage else { return (stage, steps) };
    if !waiting.is_empty() {
        return (stage, steps);
    }
    let settled = settle(taken);
    // The first of a volume has nobody to follow.
    let failure = settled.failure().filter(|_| !taken.is_empty());
    let fail = settled.out.into_iter().map(|(id, why)| JoinStep::Fail(id, why));
    match failure {
        Some(texts) => {
            let end = not_joined(NotJoined::Others(texts));
            (Joining::Over, fail.chain(end).collect())
        }
        None => (Joining::Disqualifying, fail.chain([JoinStep::Disqualify]).collect()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyStep {
    /// No change may come between comparing the copies and reading from the new one. Answered by
    /// [`VerifyEvent::Held`] or [`VerifyEvent::Busy`].
    Hold(Hold),
    /// Whether it has what one has that can be read, which count of changes it then is given; answered
    /// by [`VerifyEvent::Compared`].
    Compare,
    /// It says no longer that it is being rebuilt. Before it is read from: else it could be the last that
    /// has all of the volume, and not be used by the next start. Answered by [`VerifyEvent::Unmarked`] or
    /// [`VerifyEvent::NotUnmarked`].
    Unmark,
    /// It is no use.
    Fail,
    MakeReadable,
    Release,
    /// From now on it is known to be complete; answered by [`VerifyEvent::Recorded`].
    Record,
    End(Verified),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyEvent {
    Held,
    Busy,
    Compared(Compared),
    Unmarked,
    NotUnmarked,
    Recorded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    Alike,
    Differs,
    /// Nothing can be said of it now.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    Whole,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verifying {
    Holding,
    Comparing,
    Unmarking,
    Recording,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verify {
    /// Who asks does not do it himself afterwards, as callers of the dialect do.
    unmarks: bool,
    stage: Verifying,
}

impl Verify {
    pub fn begin(unmarks: bool) -> (Self, VerifyStep) {
        (Self { unmarks, stage: Verifying::Holding }, VerifyStep::Hold(HOLD))
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: VerifyEvent) -> Vec<VerifyStep> {
        use VerifyStep::{End, Fail, MakeReadable, Record, Release};
        let (next, steps) = match (self.stage, event) {
            (Verifying::Holding, VerifyEvent::Held) => {
                (Verifying::Comparing, vec![VerifyStep::Compare])
            }
            (Verifying::Holding, VerifyEvent::Busy) => (Verifying::Over, vec![End(Verified::Not)]),
            (Verifying::Comparing, VerifyEvent::Compared(Compared::Alike)) if self.unmarks => {
                (Verifying::Unmarking, vec![VerifyStep::Unmark])
            }
            (Verifying::Comparing, VerifyEvent::Compared(Compared::Alike))
            | (Verifying::Unmarking, VerifyEvent::Unmarked) => {
                (Verifying::Recording, vec![MakeReadable, Release, Record])
            }
            (Verifying::Unmarking, VerifyEvent::NotUnmarked) => {
                (Verifying::Over, vec![Fail, Release, End(Verified::Not)])
            }
            (Verifying::Comparing, VerifyEvent::Compared(Compared::Differs)) => {
                (Verifying::Over, vec![Fail, Release, End(Verified::Not)])
            }
            (Verifying::Comparing, VerifyEvent::Compared(Compared::Unknown)) => {
                (Verifying::Over, vec![Release, End(Verified::Not)])
            }
            (Verifying::Recording, VerifyEvent::Recorded) => {
                (Verifying::Over, vec![End(Verified::Whole)])
            }
            (stage, _) => (stage, vec![]),
        };
        self.stage = next;
        steps
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Mode;

    use super::*;

    fn member(id: u32) -> Asked {
        Asked { id: ReplicaId(id), mode: Mode::Rw, address: format!("r{id}") }
    }

    #[test]
    fn each_part_follows_the_one_before() {
        let (mut machine, first) = Rebuild::begin();
        assert_eq!(first, Step::Join);
        for step in [Step::Prepare, Step::Copy, Step::Reload, Step::Verify] {
            assert_eq!(machine.on(Ok(())), [step]);
        }
        assert_eq!(machine.on(Ok(())), [Step::End(Ok(()))]);
        assert_eq!(machine.on(Ok(())), []);
    }

    #[test]
    fn whatever_fails_once_it_has_joined_gives_it_up() {
        let why = || Err("full".to_owned());
        let (mut machine, _) = Rebuild::begin();
        assert_eq!(machine.on(why()), [Step::End(why())], "nothing has joined");
        for done in 1..5 {
            let (mut machine, _) = Rebuild::begin();
            for _ in 0..done {
                machine.on(Ok(()));
            }
            assert_eq!(machine.on(why()), [Step::GiveUp("full".to_owned()), Step::End(why())]);
        }
    }

    #[test]
    fn the_one_that_joins_is_asked_first_and_disqualified_before_anything_is_written_to_it() {
        let (mut machine, first) = Join::begin();
        assert_eq!(first, JoinStep::Hold(HOLD));
        assert_eq!(machine.on(JoinEvent::Held(vec![member(1), member(2)])), [JoinStep::AskNew]);
        let ask = [JoinStep::Ask(ReplicaId(1)), JoinStep::Ask(ReplicaId(2))];
        assert_eq!(machine.on(JoinEvent::NewAnswered(Outcome::Done)), ask);
        assert_eq!(machine.on(JoinEvent::Answered(ReplicaId(1), Outcome::Done)), []);
        let late = Outcome::Lost("late".into());
        let steps = machine.on(JoinEvent::Answered(ReplicaId(2), late));
        assert_eq!(steps, [JoinStep::Fail(ReplicaId(2), "late".into()), JoinStep::Disqualify]);
        assert_eq!(machine.on(JoinEvent::Disqualified(Ok(()))), [JoinStep::Attach]);
        let end = [JoinStep::Release, JoinStep::End(Ok(()))];
        assert_eq!(machine.on(JoinEvent::Attached(Ok(()))), end);
    }

    #[test]
    fn who_does_not_join_leaves_nothing_kept_out() {
        let end = |why| [JoinStep::Release, JoinStep::End(Err(why))];
        let full = || Outcome::Refused("full".into());
        let (mut machine, _) = Join::begin();
        machine.on(JoinEvent::Held(vec![member(1)]));
        let steps = machine.on(JoinEvent::NewAnswered(full()));
        assert_eq!(steps, end(NotJoined::New("full".into())));
        let (mut machine, _) = Join::begin();
        machine.on(JoinEvent::Held(vec![member(1)]));
        machine.on(JoinEvent::NewAnswered(Outcome::Done));
        let steps = machine.on(JoinEvent::Answered(ReplicaId(1), full()));
        assert_eq!(steps, end(NotJoined::Others("r1: full".into())));
        for is_attaching in [false, true] {
            let (mut machine, _) = Join::begin();
            machine.on(JoinEvent::Held(vec![member(1)]));
            machine.on(JoinEvent::NewAnswered(Outcome::Done));
            machine.on(JoinEvent::Answered(ReplicaId(1), Outcome::Done));
            if is_attaching {
                machine.on(JoinEvent::Disqualified(Ok(())));
                let steps = machine.on(JoinEvent::Attached(Err("gone".into())));
                assert_eq!(steps, end(NotJoined::Attach("gone".into())));
            } else {
                let steps = machine.on(JoinEvent::Disqualified(Err("gone".into())));
                assert_eq!(steps, end(NotJoined::Disqualify("gone".into())));
            }
        }
        let (mut machine, _) = Join::begin();
        machine.on(JoinEvent::Held(vec![]));
        let steps = machine.on(JoinEvent::NewAnswered(Outcome::Done));
        assert_eq!(steps, [JoinStep::Disqualify], "there are no others");
        let (mut machine, _) = Join::begin();
        let busy = JoinStep::End(Err(NotJoined::Busy("slow".into())));
        assert_eq!(machine.on(JoinEvent::Busy("slow".into())), [busy]);
    }

    #[test]
    fn only_one_that_is_alike_is_read_from() {
        use VerifyStep::{Compare, End, Fail, MakeReadable, Record, Release};
        let held = |unmarks| {
            let (mut machine, first) = Verify::begin(unmarks);
            assert_eq!(first, VerifyStep::Hold(HOLD));
            assert_eq!(machine.on(VerifyEvent::Held), [Compare]);
            machine
        };
        let mut machine = held(false);
        let steps = machine.on(VerifyEvent::Compared(Compared::Alike));
        assert_eq!(steps, [MakeReadable, Release, Record]);
        assert_eq!(machine.on(VerifyEvent::Recorded), [End(Verified::Whole)]);
        let steps = held(true).on(VerifyEvent::Compared(Compared::Differs));
        assert_eq!(steps, [Fail, Release, End(Verified::Not)]);
        let steps = held(true).on(VerifyEvent::Compared(Compared::Unknown));
        assert_eq!(steps, [Release, End(Verified::Not)]);
        let (mut machine, _) = Verify::begin(true);
        assert_eq!(machine.on(VerifyEvent::Busy), [End(Verified::Not)]);
    }

    #[test]
    fn what_is_marked_as_being_rebuilt_is_not_read_from() {
        use VerifyStep::{End, Fail, MakeReadable, Record, Release, Unmark};
        let alike = || {
            let (mut machine, _) = Verify::begin(true);
            machine.on(VerifyEvent::Held);
            assert_eq!(machine.on(VerifyEvent::Compared(Compared::Alike)), [Unmark]);
            machine
        };
        assert_eq!(alike().on(VerifyEvent::Unmarked), [MakeReadable, Release, Record]);
        assert_eq!(alike().on(VerifyEvent::NotUnmarked), [Fail, Release, End(Verified::Not)]);
    }
}
