//! All copies begin to merge removed snapshots away, or none is asked: while one is rebuilt, what the
//! others would lose is what it is filled with.
//!
//! What a volume shows does not change by it, so nobody is out who does not purge: he has more layers than
//! the others, until the next purge. Each copy then goes on by itself.

use std::collections::BTreeMap;

use crate::core::ReplicaId;

use super::outcome::{Asked, Left};

/// What a copy is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    pub is_rebuilding: bool,
    pub is_purging: bool,
}

/// To be done next, in the order in which they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Each is answered by [`Event::Looked`].
    Look(ReplicaId),
    /// Each is answered by [`Event::Answered`].
    Ask(ReplicaId),
    /// Whether one purges that has not said that it began; each is answered by [`Event::LookedAgain`].
    LookAgain(ReplicaId),
    /// Those that have not begun, or why nobody was asked.
    End(Result<Vec<Left>, String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Looked(ReplicaId, Result<View, String>),
    Answered(ReplicaId, Result<(), String>),
    LookedAgain(ReplicaId, bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Looking(BTreeMap<ReplicaId, Result<View, String>>),
    Asking(BTreeMap<ReplicaId, Taken>),
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Taken {
    Begun,
    /// It did not say that it began, and is looked at.
    Unclear(String),
    Not(String),
}

/// The same on all copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// That one purges already is as good.
    skips: bool,
    /// All that are in use.
    members: Vec<Asked>,
    stage: Stage,
}

impl Purge {
    pub fn begin(skips: bool, members: Vec<Asked>) -> (Self, Vec<Step>) {
        let steps: Vec<Step> = members.iter().map(|asked| Step::Look(asked.id)).collect();
        let mut machine = Self { skips, members, stage: Stage::Looking(BTreeMap::new()) };
        let steps = if steps.is_empty() { machine.end(Ok(vec![])) } else { steps };
        (machine, steps)
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: Event) -> Vec<Step> {
        match (&mut self.stage, event) {
            (Stage::Looking(seen), Event::Looked(id, view)) => {
                seen.entry(id).or_insert(view);
                self.seen()
            }
            (Stage::Asking(taken), Event::Answered(id, answer)) if !taken.contains_key(&id) => {
                match answer {
                    Ok(()) => {
                        taken.insert(id, Taken::Begun);
                        self.settle()
                    }
                    Err(why) => {
                        taken.insert(id, Taken::Unclear(why));
                        vec![Step::LookAgain(id)]
                    }
                }
            }
            (Stage::Asking(taken), Event::LookedAgain(id, is_purging)) => {
                if let Some(Taken::Unclear(why)) = taken.get(&id) {
                    let known = if is_purging { Taken::Begun } else { Taken::Not(why.clone()) };
                    taken.insert(id, known);
                }
                self.settle()
            }
            (_, _) => vec![],
        }
    }

    fn end(&mut self, ended: Result<Vec<Left>, String>) -> Vec<Step> {
        self.stage = Stage::Over;
        vec![Step::End(ended)]
    }

    /// What follows once all were looked at.
    fn seen(&mut self) -> Vec<Step> {
        let Stage::Looking(seen) = &self.stage else { return vec![] };
        if seen.len() < self.members.len() {
            return vec![];
        }
        for Asked { id, address, .. } in &self.members {
            let why = match seen.get(id) {
                Some(Ok(View { is_rebuilding: true, .. })) => {
                    format!("cannot purge snapshots because replica {address} is rebuilding")
                }
                Some(Ok(View { is_purging: true, .. })) if self.skips => {
                    return self.end(Ok(vec![]));
                }
                Some(Ok(View { is_purging: true, .. })) => {
                    format!("replica {address} is already purging snapshots")
                }
                Some(Ok(View { is_rebuilding: false, is_purging: false })) | None => continue,
                Some(Err(why)) => why.clone(),
            };
            return self.end(Err(why));
        }
        self.stage = Stage::Asking(BTreeMap::new());
        self.members.iter().map(|asked| Step::Ask(asked.id)).collect()
    }

    /// What follows once it is known of all of them whether they have begun.
    fn settle(&mut self) -> Vec<Step> {
        let Stage::Asking(taken) = &self.stage else { return vec![] };
        let mut left = vec![];
        for Asked { id, address, .. } in &self.members {
            match taken.get(id) {
                None | Some(Taken::Unclear(_)) => return vec![],
                Some(Taken::Begun) => {}
                Some(Taken::Not(why)) => {
                    left.push(Left { address: address.clone(), message: why.clone() });
                }
            }
        }
        self.end(Ok(left))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::Mode;

    use super::*;

    const ONE: ReplicaId = ReplicaId(1);
    const TWO: ReplicaId = ReplicaId(2);
    const IDLE: View = View { is_rebuilding: false, is_purging: false };

    fn looked(skips: bool, one: View) -> (Purge, Vec<Step>) {
        let asked = |id: ReplicaId, mode| Asked { id, mode, address: format!("r{}", id.0) };
        let members = vec![asked(ONE, Mode::Rw), asked(TWO, Mode::Wo)];
        let (mut machine, first) = Purge::begin(skips, members);
        assert_eq!(first, [Step::Look(ONE), Step::Look(TWO)]);
        assert_eq!(machine.on(Event::Looked(TWO, Ok(IDLE))), []);
        let steps = machine.on(Event::Looked(ONE, Ok(one)));
        (machine, steps)
    }

    #[test]
    fn all_are_asked_once_it_is_sure_that_none_is_rebuilt_or_purges() {
        let (mut machine, steps) = looked(false, IDLE);
        assert_eq!(steps, [Step::Ask(ONE), Step::Ask(TWO)]);
        assert_eq!(machine.on(Event::Answered(TWO, Ok(()))), []);
        assert_eq!(machine.on(Event::Answered(ONE, Ok(()))), [Step::End(Ok(vec![]))]);
        let (_, steps) = looked(true, View { is_rebuilding: true, ..IDLE });
        let text = "cannot purge snapshots because replica r1 is rebuilding";
        assert_eq!(steps, [Step::End(Err(text.into()))]);
        let purges = View { is_purging: true, ..IDLE };
        let text = "replica r1 is already purging snapshots";
        assert_eq!(looked(false, purges).1, [Step::End(Err(text.into()))]);
        assert_eq!(looked(true, purges).1, [Step::End(Ok(vec![]))]);
        assert_eq!(Purge::begin(false, vec![]).1, [Step::End(Ok(vec![]))]);
    }

    #[test]
    fn one_whose_answer_was_lost_has_begun_if_it_says_so_and_nobody_is_out() {
        for (is_purging, left) in
            [(true, vec![]), (false, vec![Left { address: "r2".into(), message: "late".into() }])]
        {
            let (mut machine, _) = looked(false, IDLE);
            let again = machine.on(Event::Answered(TWO, Err("late".into())));
            assert_eq!(again, [Step::LookAgain(TWO)]);
            assert_eq!(machine.on(Event::Answered(ONE, Ok(()))), []);
            assert_eq!(machine.on(Event::LookedAgain(TWO, is_purging)), [Step::End(Ok(left))]);
        }
    }
}
