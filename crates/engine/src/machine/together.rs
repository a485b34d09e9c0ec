//! What all copies do at one point in the stream of changes: a snapshot, a revert, an expansion.
//!
//! Requests are kept out, all are asked, those that did not follow are failed before anything passes
//! again, and it is on the disks of the others who holds the volume before anybody is told that it is
//! done: else the next start could believe one that lacks it. That may also be one that failed before it
//! was asked: while requests are kept out nothing is recorded.

use std::collections::BTreeMap;

use crate::core::{Hold, Mode, ReplicaId};

use super::outcome::{Asked, Outcome, settle};

/// What is to be done by all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub hold: Hold,
    /// Also those that are being filled.
    pub filling_too: bool,
    /// The size that the volume has afterwards, if that changes.
    pub size: Option<u64>,
}

/// To be done next, in the order in which they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Answered by [`Event::Held`] or [`Event::Busy`].
    Hold(Hold),
    /// Each is answered by [`Event::Answered`].
    Ask(ReplicaId),
    Fail(ReplicaId, String),
    Release,
    /// Answered by [`Event::Resized`].
    Resize(u64),
    /// Answered by [`Event::Recorded`].
    Record,
    End(Result<Done, Undone>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Requests are kept out; these replicas are in use.
    Held(Vec<Asked>),
    /// Requests under way do not end.
    Busy(String),
    Answered(ReplicaId, Outcome),
    Resized(Result<(), String>),
    Recorded(Result<(), String>),
}

/// The volume has done it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What those said that did not, and are out.
    pub left: Option<String>,
}

/// Nobody may believe that it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    Busy(String),
    /// By none that can be read, or one had it before.
    Replicas(String),
    Size(String),
    Record(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Holding,
    Asking { waiting: Vec<Asked>, taken: BTreeMap<ReplicaId, (Asked, Outcome)> },
    Resizing { done: Done },
    Recording { done: Done },
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    order: Order,
    stage: Stage,
}

impl Together {
    pub fn begin(order: Order) -> (Self, Step) {
        (Self { order, stage: Stage::Holding }, Step::Hold(order.hold))
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: Event) -> Vec<Step> {
        match (std::mem::replace(&mut self.stage, Stage::Over), event) {
            (Stage::Holding, Event::Held(members)) => self.ask(members),
            (Stage::Holding, Event::Busy(why)) => vec![Step::End(Err(Undone::Busy(why)))],
            (Stage::Asking { mut waiting, mut taken }, Event::Answered(id, outcome)) => {
                if let Some(at) = waiting.iter().position(|asked| asked.id == id) {
                    taken.insert(id, (waiting.remove(at), outcome));
                }
                self.stage = Stage::Asking { waiting, taken };
                self.settle_if_all_answered()
            }
            (Stage::Resizing { done }, Event::Resized(Ok(()))) => {
                self.stage = Stage::Recording { done };
                vec![Step::Record]
            }
            (Stage::Resizing { .. }, Event::Resized(Err(why))) => {
                vec![Step::End(Err(Undone::Size(why)))]
            }
            (Stage::Recording { done }, Event::Recorded(Ok(()))) => vec![Step::End(Ok(done))],
            (Stage::Recording { .. }, Event::Recorded(Err(why))) => {
                vec![Step::End(Err(Undone::Record(why)))]
            }
            (stage, _) => {
                self.stage = stage;
                vec![]
            }
        }
    }

    fn ask(&mut self, members: Vec<Asked>) -> Vec<Step> {
        let follows = |asked: &Asked| match asked.mode {
            Mode::Rw => true,
            Mode::Wo => self.order.filling_too,
            Mode::Err => false,
        };
        let waiting: Vec<Asked> = members.into_iter().filter(follows).collect();
        let steps = waiting.iter().map(|asked| Step::Ask(asked.id)).collect();
        self.stage = Stage::Asking { waiting, taken: BTreeMap::new() };
        let settled = self.settle_if_all_answered();
        if settled.is_empty() { steps } else { settled }
    }

    fn settle_if_all_answered(&mut self) -> Vec<Step> {
        let Stage::Asking { waiting, taken } = &self.stage else { return vec![] };
        if !waiting.is_empty() {
            return vec![];
        }
        let taken: Vec<_> = taken.values().cloned().collect();
        let settled = settle(&taken);
        let failure = settled.failure();
        let fail = settled.out.into_iter().map(|(id, why)| Step::Fail(id, why));
        let mut steps: Vec<Step> = fail.chain([Step::Release]).collect();
        let done = Done { left: Some(settled.texts).filter(|texts| !texts.is_empty()) };
        let (stage, next) = match (failure, self.order.size) {
            (Some(texts), _) => (Stage::Over, Step::End(Err(Undone::Replicas(texts)))),
            (None, Some(size)) => (Stage::Resizing { done }, Step::Resize(size)),
            (None, None) => (Stage::Recording { done }, Step::Record),
        };
        self.stage = stage;
        steps.push(next);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order =
        Order { hold: Hold::Changes { flush: true }, filling_too: false, size: None };

    fn member(id: u32, mode: Mode) -> Asked {
        Asked { id: ReplicaId(id), mode, address: format!("r{id}") }
    }

    /// One that holds the volume with three, of which one is being filled.
    fn held(order: Order) -> (Together, Vec<Step>) {
        let (mut machine, first) = Together::begin(order);
        assert_eq!(first, Step::Hold(order.hold));
        let members = vec![member(1, Mode::Rw), member(2, Mode::Rw), member(3, Mode::Wo)];
        let steps = machine.on(Event::Held(members));
        (machine, steps)
    }

    fn answer(machine: &mut Together, id: u32, outcome: Outcome) -> Vec<Step> {
        machine.on(Event::Answered(ReplicaId(id), outcome))
    }

    #[test]
    fn all_that_can_be_read_are_asked_and_nothing_passes_before_the_last_answer() {
        let (mut machine, steps) = held(ORDER);
        assert_eq!(steps, [Step::Ask(ReplicaId(1)), Step::Ask(ReplicaId(2))]);
        assert_eq!(answer(&mut machine, 2, Outcome::Done), []);
        assert_eq!(answer(&mut machine, 2, Outcome::Done), [], "the same again");
        assert_eq!(answer(&mut machine, 1, Outcome::Done), [Step::Release, Step::Record]);
        let end = Step::End(Ok(Done { left: None }));
        assert_eq!(machine.on(Event::Recorded(Ok(()))), [end]);
        let (_, steps) = held(Order { filling_too: true, ..ORDER });
        assert_eq!(steps.len(), 3);
    }

    #[test]
    fn who_did_not_follow_is_failed_before_anything_passes_and_recorded_before_it_is_told() {
        let (mut machine, _) = held(Order { size: Some(8192), ..ORDER });
        answer(&mut machine, 1, Outcome::Refused("full".into()));
        let steps = answer(&mut machine, 2, Outcome::Done);
        let fail = Step::Fail(ReplicaId(1), "full".into());
        assert_eq!(steps, [fail, Step::Release, Step::Resize(8192)]);
        assert_eq!(machine.on(Event::Resized(Ok(()))), [Step::Record]);
        let left = Some("r1: full".to_owned());
        assert_eq!(machine.on(Event::Recorded(Ok(()))), [Step::End(Ok(Done { left }))]);
    }

    #[test]
    fn what_cannot_be_recorded_is_not_told_to_be_done() {
        let (mut machine, _) = held(ORDER);
        answer(&mut machine, 1, Outcome::Done);
        answer(&mut machine, 2, Outcome::Done);
        let end = Step::End(Err(Undone::Record("gone".into())));
        assert_eq!(machine.on(Event::Recorded(Err("gone".into()))), [end]);
    }

    #[test]
    fn what_none_did_is_not_done_and_requests_pass_again() {
        let (mut machine, _) = held(Order { size: Some(8192), ..ORDER });
        answer(&mut machine, 1, Outcome::Refused("a".into()));
        let steps = answer(&mut machine, 2, Outcome::Refused("b".into()));
        let end = Step::End(Err(Undone::Replicas("r1: a; r2: b".into())));
        assert_eq!(steps, [Step::Release, end]);
        let (mut machine, _) = Together::begin(ORDER);
        let end = Step::End(Err(Undone::Busy("slow".into())));
        assert_eq!(machine.on(Event::Busy("slow".into())), [end]);
        let (mut machine, _) = Together::begin(ORDER);
        let nobody = "no replica that can be read did it".to_owned();
        let end = Step::End(Err(Undone::Replicas(nobody)));
        assert_eq!(machine.on(Event::Held(vec![])), [Step::Release, end]);
    }
}
