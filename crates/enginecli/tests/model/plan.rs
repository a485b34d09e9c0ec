//! Which steps may follow one another: the size, the snapshots and the places of the replicas as
//! they must be after each step. Never: contents, which [`crate::oracle`] keeps.

use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::ReferenceStateMachine;

pub(crate) const SECTOR: u64 = 4096;
pub(crate) const SIZE: u64 = 64 * SECTOR;
const SIZE_MAX: u64 = 2 * SIZE;
const GROWTH: u64 = SIZE / 4;
pub(crate) const COPIES: usize = 3;

/// Some bytes of the volume; taken modulo its size, and cut off there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    offset: u64,
    len: u64,
}

impl Span {
    pub(crate) fn within(self, size: u64) -> std::ops::Range<usize> {
        let start = self.offset % size;
        let end = size.min(start + self.len);
        usize::try_from(start).unwrap()..usize::try_from(end).unwrap()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) span: Span,
    pub(crate) seed: u8,
    pub(crate) durable: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Write(Write),
    Zero(Span),
    Unmap(Span),
}

/// What a replica that is added finds in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directory {
    /// What it held when it was killed.
    Old,
    Fresh,
    /// Nothing, and the size the volume had at first.
    FreshAndSmall,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Change(Change),
    Flush,
    Read(Span),
    Snapshot,
    Revert(String),
    MarkRemoved(String),
    /// While these are written. What an unmap reaches depends on how far a purge is, so none is
    /// made beside one.
    Purge(Vec<Write>),
    Expand,
    /// A replica dies while these are written.
    Kill(usize, Vec<Write>),
    /// One that died is taken from the volume.
    Remove(usize),
    /// One that was removed is rebuilt, while these are made.
    Add {
        copy: usize,
        directory: Directory,
        meanwhile: Vec<Change>,
    },
    /// The same, but it dies after these were made, however far it is.
    AddInVain {
        copy: usize,
        directory: Directory,
        meanwhile: Vec<Change>,
    },
    /// The engine ends and is started again. With `stale`, also with the replicas that had failed,
    /// as they are: they must be refused.
    Restart {
        stale: bool,
    },
    /// The engine and all replicas die, and come back; with `purging`, in the middle of a purge.
    Blackout {
        purging: bool,
    },
    /// The engine dies, and a write that nobody was told of has reached one replica.
    Crash {
        torn: Option<(usize, Write)>,
    },
}

/// Where a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    In,
    /// Listed by the engine as ERR.
    Failed,
    Out,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) revision_counter: bool,
    pub(crate) size: u64,
    pub(crate) copies: [Standing; COPIES],
    /// Those not removed.
    pub(crate) snapshots: Vec<String>,
    made: usize,
}

impl Plan {
    /// The snapshot that was taken last.
    pub(crate) fn newest(&self) -> String {
        format!("s{}", self.made)
    }

    pub(crate) fn standing(&self, wanted: Standing) -> Vec<usize> {
        (0..COPIES).filter(|copy| self.copies[*copy] == wanted).collect()
    }

    /// The engine is started with those it is in use with, and with those that failed or not.
    fn started(&mut self, stale: bool) {
        for copy in self.copies.iter_mut().filter(|copy| **copy != Standing::In) {
            *copy = if stale { Standing::Failed } else { Standing::Out };
        }
    }

    fn allows(&self, step: &Step) -> bool {
        let known = |name: &String| self.snapshots.contains(name);
        match step {
            Step::Change(_)
            | Step::Flush
            | Step::Read(_)
            | Step::Snapshot
            | Step::Purge(_)
            | Step::Blackout { .. }
            | Step::Crash { torn: None } => true,
            Step::Revert(name) => known(name),
            Step::MarkRemoved(name) => known(name) && self.standing(Standing::Failed).is_empty(),
            Step::Expand => self.size < SIZE_MAX,
            Step::Kill(copy, _) => {
                self.copies[*copy] == Standing::In && self.standing(Standing::In).len() > 1
            }
            Step::Remove(copy) => self.copies[*copy] == Standing::Failed,
            Step::Add { copy, .. } | Step::AddInVain { copy, .. } => {
                self.copies[*copy] == Standing::Out
            }
            // Without counters, nothing tells a stale replica from a good one.
            Step::Restart { stale } => !stale || self.revision_counter,
            // With counters, the replica that has one change more is the only one left.
            Step::Crash { torn: Some((copy, _)) } => {
                !self.revision_counter && self.copies[*copy] == Standing::In
            }
        }
    }

    fn follow(&mut self, step: &Step) {
        match step {
            Step::Change(_)
            | Step::Flush
            | Step::Read(_)
            | Step::Revert(_)
            | Step::Purge(_)
            | Step::AddInVain { .. } => {}
            Step::Snapshot => {
                self.made += 1;
                self.snapshots.push(self.newest());
            }
            Step::MarkRemoved(name) => self.snapshots.retain(|known| known != name),
            Step::Expand => self.size += GROWTH,
            Step::Kill(copy, _) => self.copies[*copy] = Standing::Failed,
            Step::Remove(copy) => self.copies[*copy] = Standing::Out,
            Step::Add { copy, .. } => self.copies[*copy] = Standing::In,
            Step::Restart { stale } => self.started(*stale),
            Step::Blackout { .. } | Step::Crash { .. } => self.started(false),
        }
    }
}

fn spans() -> impl Strategy<Value = Span> + Clone {
    let sectors = SIZE_MAX / SECTOR;
    let offset = prop_oneof![0..SIZE_MAX, (0..sectors).prop_map(|at| at * SECTOR)];
    let len =
        prop_oneof![1..600u64, 1..6 * SECTOR, (1..sectors / 2).prop_map(|count| count * SECTOR)];
    (offset, len).prop_map(|(offset, len)| Span { offset, len })
}

fn writes() -> impl Strategy<Value = Write> + Clone {
    let parts = (spans(), 1..=u8::MAX, prop::bool::weighted(0.1));
    parts.prop_map(|(span, seed, durable)| Write { span, seed, durable })
}

fn changes() -> impl Strategy<Value = Change> + Clone {
    prop_oneof![
        5 => writes().prop_map(Change::Write),
        1 => spans().prop_map(Change::Zero),
        2 => spans().prop_map(Change::Unmap),
    ]
}

type Choice = (u32, BoxedStrategy<Step>);

/// What is always possible.
fn requests() -> Vec<Choice> {
    vec![
        (17, changes().prop_map(Step::Change).boxed()),
        (1, Just(Step::Flush).boxed()),
        (1, spans().prop_map(Step::Read).boxed()),
        (4, Just(Step::Snapshot).boxed()),
        (3, prop::collection::vec(writes(), 0..6).prop_map(Step::Purge).boxed()),
    ]
}

fn about_snapshots(plan: &Plan) -> Vec<Choice> {
    let mut found = Vec::new();
    if plan.snapshots.is_empty() {
        return found;
    }
    let names = select(plan.snapshots.clone());
    found.push((2, names.clone().prop_map(Step::Revert).boxed()));
    if plan.standing(Standing::Failed).is_empty() {
        found.push((4, names.prop_map(Step::MarkRemoved).boxed()));
    }
    found
}

fn about_copies(plan: &Plan) -> Vec<Choice> {
    let mut found = Vec::new();
    let (present, failed) = (plan.standing(Standing::In), plan.standing(Standing::Failed));
    let out = plan.standing(Standing::Out);
    if present.len() > 1 {
        let kill = (select(present), prop::collection::vec(writes(), 0..8));
        found.push((2, kill.prop_map(|(copy, meanwhile)| Step::Kill(copy, meanwhile)).boxed()));
    }
    if !failed.is_empty() {
        found.push((4, select(failed).prop_map(Step::Remove).boxed()));
    }
    if !out.is_empty() {
        let directory = select(vec![Directory::Old, Directory::Fresh, Directory::FreshAndSmall]);
        let meanwhile = prop::collection::vec(changes(), 0..6);
        let add = (select(out), directory, meanwhile);
        let in_vain = add.clone().prop_map(|(copy, directory, meanwhile)| Step::AddInVain {
            copy,
            directory,
            meanwhile,
        });
        let add =
            add.prop_map(|(copy, directory, meanwhile)| Step::Add { copy, directory, meanwhile });
        found.push((6, add.boxed()));
        found.push((2, in_vain.boxed()));
    }
    found
}

fn about_engines(plan: &Plan) -> Vec<Choice> {
    let mut found = vec![(1, Just(Step::Crash { torn: None }).boxed())];
    found.push((1, any::<bool>().prop_map(|purging| Step::Blackout { purging }).boxed()));
    if plan.revision_counter {
        found.push((2, any::<bool>().prop_map(|stale| Step::Restart { stale }).boxed()));
    } else {
        found.push((1, Just(Step::Restart { stale: false }).boxed()));
        let torn = (select(plan.standing(Standing::In)), writes());
        found.push((2, torn.prop_map(|torn| Step::Crash { torn: Some(torn) }).boxed()));
    }
    if plan.size < SIZE_MAX {
        found.push((1, Just(Step::Expand).boxed()));
    }
    found
}

pub(crate) struct Histories;

impl ReferenceStateMachine for Histories {
    type State = Plan;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Plan> {
        let plan = |revision_counter| Plan {
            revision_counter,
            size: SIZE,
            copies: [Standing::In; COPIES],
            snapshots: Vec::new(),
            made: 0,
        };
        any::<bool>().prop_map(plan).boxed()
    }

    fn transitions(plan: &Plan) -> BoxedStrategy<Step> {
        let mut choices = requests();
        choices.extend(about_snapshots(plan));
        choices.extend(about_copies(plan));
        choices.extend(about_engines(plan));
        proptest::strategy::Union::new_weighted(choices).boxed()
    }

    fn preconditions(plan: &Plan, step: &Step) -> bool {
        plan.allows(step)
    }

    fn apply(mut plan: Plan, step: &Step) -> Plan {
        plan.follow(step);
        plan
    }
}
