//! Makes copies equal again that may differ after an unclean end.
//!
//! All reads go to one of them until every place that may differ has been copied from it to the others.
//! Another takes its part only if it is gone.

use crate::core::ReplicaId;

/// To be done next, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reads go to this one alone; to all of them if it is none.
    ReadFrom(Option<ReplicaId>),
    /// Which places may differ; answered by [`Event::Looked`] or [`Event::Failed`].
    Look,
    /// The next of them; answered by [`Event::Copied`], [`Event::Failed`], or [`Event::Covered`] if none
    /// is left.
    Copy,
    /// Answered by [`Event::Paused`].
    Pause,
    /// Answered by [`Event::Flushed`], however it ended.
    Flush,
    /// Answered by [`Event::Recorded`], however it ended.
    Record,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Looked,
    /// These can be read.
    Copied(Vec<ReplicaId>),
    /// These can be read.
    Failed(Vec<ReplicaId>),
    Covered,
    Paused,
    Flushed,
    Recorded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Looking,
    Copying,
    Pausing,
    Flushing,
    Recording,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    reader: ReplicaId,
    stage: Stage,
}

impl Mend {
    pub fn begin(reader: ReplicaId) -> (Self, Vec<Step>) {
        let machine = Self { reader, stage: Stage::Looking };
        (machine, vec![Step::ReadFrom(Some(reader)), Step::Look])
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: Event) -> Vec<Step> {
        let (next, steps) = match (self.stage, event) {
            (Stage::Looking, Event::Looked) => (Stage::Copying, vec![Step::Copy]),
            (Stage::Copying, Event::Copied(readable)) if readable.contains(&self.reader) => {
                (Stage::Copying, vec![Step::Copy])
            }
            (Stage::Copying, Event::Copied(readable) | Event::Failed(readable))
            | (Stage::Looking, Event::Failed(readable)) => self.go_on(&readable),
            (Stage::Copying, Event::Covered) => spread(),
            (Stage::Pausing, Event::Paused) => (Stage::Looking, vec![Step::Look]),
            // What is not on all disks, or not recorded, is mended again by the next engine. That does
            // no harm, but for the work.
            (Stage::Flushing, Event::Flushed) => (Stage::Recording, vec![Step::Record]),
            (Stage::Recording, Event::Recorded) => (Stage::Over, vec![Step::End]),
            (stage, _) => (stage, vec![]),
        };
        self.stage = next;
        steps
    }

    /// What is left of the set decides.
    fn go_on(&mut self, readable: &[ReplicaId]) -> (Stage, Vec<Step>) {
        match readable {
            [] | [_] => spread(),
            [_, _, ..] if readable.contains(&self.reader) => (Stage::Pausing, vec![Step::Pause]),
            [next, _, ..] => {
                self.reader = *next;
                (Stage::Looking, vec![Step::ReadFrom(Some(*next)), Step::Look])
            }
        }
    }
}

/// Nothing differs any more.
fn spread() -> (Stage, Vec<Step>) {
    (Stage::Flushing, vec![Step::ReadFrom(None), Step::Flush])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ReplicaId = ReplicaId(1);
    const TWO: ReplicaId = ReplicaId(2);
    const THREE: ReplicaId = ReplicaId(3);

    fn copying() -> Mend {
        let (mut machine, first) = Mend::begin(ONE);
        assert_eq!(first, [Step::ReadFrom(Some(ONE)), Step::Look]);
        assert_eq!(machine.on(Event::Looked), [Step::Copy]);
        machine
    }

    #[test]
    fn reads_stick_to_one_until_all_is_covered() {
        let mut machine = copying();
        assert_eq!(machine.on(Event::Copied(vec![ONE, TWO])), [Step::Copy]);
        assert_eq!(machine.on(Event::Covered), [Step::ReadFrom(None), Step::Flush]);
        assert_eq!(machine.on(Event::Flushed), [Step::Record]);
        assert_eq!(machine.on(Event::Recorded), [Step::End]);
        assert_eq!(machine.on(Event::Recorded), []);
    }

    #[test]
    fn another_is_read_from_only_if_the_first_is_gone_and_all_is_looked_at_again() {
        let again = [Step::ReadFrom(Some(TWO)), Step::Look];
        assert_eq!(copying().on(Event::Copied(vec![TWO, THREE])), again);
        assert_eq!(copying().on(Event::Failed(vec![TWO, THREE])), again);
        let (mut machine, _) = Mend::begin(ONE);
        assert_eq!(machine.on(Event::Failed(vec![TWO, THREE])), again);
        let mut machine = copying();
        assert_eq!(machine.on(Event::Failed(vec![ONE, TWO])), [Step::Pause]);
        assert_eq!(machine.on(Event::Paused), [Step::Look]);
    }

    #[test]
    fn one_alone_has_nothing_to_be_equal_to() {
        let end = [Step::ReadFrom(None), Step::Flush];
        assert_eq!(copying().on(Event::Copied(vec![TWO])), end);
        assert_eq!(copying().on(Event::Failed(vec![])), end);
    }
}
