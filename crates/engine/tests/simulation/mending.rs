//! Copies are made equal in the simulation after a start: takes the steps that the engine's own machine
//! gives.

use std::collections::{BTreeSet, VecDeque};

use engine::core::{Command, ReplicaId, Token};
use engine::machine::mend::{Event, Mend, Step};
use testkit::sim::Context;

use crate::engine::Engine;
use crate::party::Party;
use crate::store::SECTOR;

/// Sectors made alike at a time.
const RUN: usize = 4;

/// How far the copies were made alike after a start.
#[derive(Debug)]
pub(crate) enum Mending {
    No,
    Running(Box<Run>),
    Done,
}

#[derive(Debug)]
pub(crate) struct Run {
    machine: Mend,
    begin: u64,
    /// Sectors in which copies may differ, and how many of them are done.
    to_mend: Vec<usize>,
    place: usize,
    awaits: Option<(Token, Awaits)>,
    is_pausing: bool,
    is_flushed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Awaits {
    /// From there on it goes on.
    Copy(usize),
    Flush,
    Record,
}

impl Engine {
    pub(crate) fn is_mended(&self) -> bool {
        matches!(self.mending, Mending::Done)
    }

    fn run(&mut self) -> Option<&mut Run> {
        match &mut self.mending {
            Mending::Running(run) => Some(run),
            Mending::No | Mending::Done => None,
        }
    }

    pub(crate) fn begin_mending(&mut self, reader: ReplicaId, context: &Context<'_, Party>) {
        let begin = self.shared.oracle.borrow_mut().moment();
        let (machine, steps) = Mend::begin(reader);
        self.mending = Mending::Running(Box::new(Run {
            machine,
            begin,
            to_mend: vec![],
            place: 0,
            awaits: None,
            is_pausing: false,
            is_flushed: false,
        }));
        self.take_mend_steps(steps, context);
    }

    fn on_mend(&mut self, event: Event, context: &Context<'_, Party>) {
        if let Some(run) = self.run() {
            let steps = run.machine.on(event);
            self.take_mend_steps(steps, context);
        }
    }

    pub(crate) fn tick_mending(&mut self, context: &Context<'_, Party>) {
        if self.run().is_some_and(|run| std::mem::take(&mut run.is_pausing)) {
            self.on_mend(Event::Paused, context);
        }
    }

    /// A request ended, perhaps one of these.
    pub(crate) fn mend_completed(
        &mut self,
        token: Token,
        is_ok: bool,
        context: &Context<'_, Party>,
    ) {
        let readable: Vec<ReplicaId> =
            self.readable().into_iter().filter_map(|peer| self.peers[peer].id).collect();
        let Some(run) = self.run() else { return };
        let Some((_, awaits)) = run.awaits.take_if(|(own, _)| *own == token) else { return };
        let event = match awaits {
            Awaits::Copy(next) if is_ok => {
                run.place = next;
                Event::Copied(readable)
            }
            Awaits::Copy(_) => Event::Failed(readable),
            Awaits::Flush => {
                run.is_flushed = is_ok;
                Event::Flushed
            }
            Awaits::Record => Event::Recorded,
        };
        self.on_mend(event, context);
    }

    fn take_mend_steps(&mut self, steps: Vec<Step>, context: &Context<'_, Party>) {
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            let event = match step {
                Step::ReadFrom(reader) => {
                    self.core.set_reader(reader);
                    continue;
                }
                Step::Look => {
                    let to_mend = self.places_to_mend();
                    let Some(run) = self.run() else { return };
                    (run.to_mend, run.place) = (to_mend, 0);
                    Event::Looked
                }
                Step::Copy => match self.next_run() {
                    Some((first, count, next)) => {
                        let offset = (first * SECTOR) as u64;
                        let len = u32::try_from(count * SECTOR).unwrap();
                        let command = Command::Mend { offset, len };
                        self.mend_by(command, Awaits::Copy(next), context);
                        continue;
                    }
                    None => Event::Covered,
                },
                Step::Pause => {
                    if let Some(run) = self.run() {
                        run.is_pausing = true;
                    }
                    continue;
                }
                Step::Flush => {
                    self.mend_by(Command::Flush, Awaits::Flush, context);
                    continue;
                }
                Step::Record => {
                    self.mend_by(Command::Record, Awaits::Record, context);
                    continue;
                }
                Step::End => return self.end_mending(),
            };
            let Some(run) = self.run() else { return };
            steps.extend(run.machine.on(event));
        }
    }

    fn mend_by(&mut self, command: Command, awaits: Awaits, context: &Context<'_, Party>) {
        self.submit(command, context, |engine, token| {
            if let Some(run) = engine.run() {
                run.awaits = Some((token, awaits));
            }
        });
    }

    fn places_to_mend(&self) -> Vec<usize> {
        let mut sectors = BTreeSet::new();
        for peer in self.readable() {
            let store = self.shared.stores[peer].borrow();
            sectors.append(&mut store.written_above(self.base.as_deref()));
        }
        let count = self.size() / SECTOR;
        sectors.into_iter().filter(|sector| *sector < count).collect()
    }

    /// The first of the next sectors that follow each other, how many they are, and the place after.
    fn next_run(&mut self) -> Option<(usize, usize, usize)> {
        let run = self.run()?;
        let first = *run.to_mend.get(run.place)?;
        let rest = run.to_mend[run.place..].iter().take(RUN);
        let count = rest.zip(first..).take_while(|(sector, next)| **sector == *next).count();
        Some((first, count, run.place + count))
    }

    fn end_mending(&mut self) {
        let Mending::Running(run) = std::mem::replace(&mut self.mending, Mending::Done) else {
            return;
        };
        if run.is_flushed {
            self.shared.oracle.borrow_mut().mended(run.begin, self.base.as_deref());
            self.shared.count(|tally| tally.mends += 1);
        }
    }
}
