//! The replica against a plain model, as a state machine: contents as byte vectors, ownership as
//! sets of sectors. How far a purge has come must make no difference to what is read, so the model
//! knows only of purges that ended. The one exception has a test of its own at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use replica::{HeadMerge, MergeStep, Progress, Replica};
use rpc::HeadParent;

use crate::place::{NOW, Place, SECTOR, read_head, read_snapshot};
use crate::purge::{Purge, mark_system_removed};

const SECTORS: u64 = 48;
const SECTORS_MAX: u64 = 96;
/// Of a purge, copied in one step.
const STEP_BYTES: u64 = 3 * SECTOR;

#[derive(Debug, Clone)]
enum Op {
    Write {
        offset: u64,
        len: u64,
        seed: u8,
    },
    Unmap {
        offset: u64,
        len: u64,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Snapshot {
        user: bool,
    },
    Revert(String),
    MarkRemoved(String),
    MarkOnUnmap(bool),
    /// Part of a purge, left off.
    PurgeSome {
        merge: bool,
        steps: usize,
    },
    /// All of one.
    Purge {
        merge: bool,
    },
    /// Part of a merge of the head's parent, left off.
    MergeSome {
        steps: usize,
    },
    Expand,
    Reopen,
    Kill,
    Reload,
    Flush,
}

#[derive(Debug, Clone, Default)]
struct Layer {
    parent: Option<String>,
    removed: bool,
    user: bool,
    owned: BTreeSet<u64>,
    /// The volume at this layer, flattened.
    contents: Vec<u8>,
}

/// The head is the layer named "".
#[derive(Debug, Clone, Default)]
struct Model {
    layers: BTreeMap<String, Layer>,
    mark_on_unmap: bool,
    made: usize,
    /// A purge was begun and not ended: what is left of removed snapshots is not known.
    is_purging: bool,
}

impl Model {
    fn head(&mut self) -> &mut Layer {
        self.layers.get_mut("").unwrap()
    }

    fn size(&self) -> u64 {
        self.layers[""].contents.len() as u64
    }

    fn children(&self, name: &str) -> usize {
        self.layers.values().filter(|layer| layer.parent.as_deref() == Some(name)).count()
    }

    /// Names below the head, nearest first.
    fn below(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut next = self.layers[""].parent.clone();
        while let Some(name) = next.take() {
            next.clone_from(&self.layers[&name].parent);
            found.push(name);
        }
        found
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        let head = self.head();
        head.contents[start..start + bytes.len()].copy_from_slice(bytes);
        let last = (offset + bytes.len() as u64 - 1) / SECTOR;
        head.owned.extend(offset / SECTOR..=last);
    }

    /// The head shows there what the layer of that name shows, or nothing.
    fn show(&mut self, sector: u64, below: Option<&String>) {
        let start = usize::try_from(sector * SECTOR).unwrap();
        let range = start..start + SECTOR as usize;
        let shown = below.and_then(|name| self.layers[name].contents.get(range.clone()));
        let shown = shown.map_or_else(|| vec![0; SECTOR as usize], <[u8]>::to_vec);
        self.head().contents[range].copy_from_slice(&shown);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let below = self.below();
        let first = offset.div_ceil(SECTOR);
        let last = (offset + len) / SECTOR;
        let zeros = vec![0; usize::try_from(len).unwrap()];
        self.write(offset, &zeros);
        for sector in first..last {
            let hides = below.iter().any(|name| self.layers[name].owned.contains(&sector));
            let head = self.head();
            head.owned.remove(&sector);
            if hides {
                head.owned.insert(sector);
            }
        }
    }

    fn unmap(&mut self, offset: u64, len: u64) {
        if self.mark_on_unmap {
            for name in self.below() {
                if self.children(&name) > 1 {
                    break;
                }
                self.layers.get_mut(&name).unwrap().removed = true;
            }
        }
        let below = self.below();
        let removed = |name: &&String| self.layers[*name].removed;
        let group = below.iter().take_while(removed).count();
        let alone = |name: &&String| removed(name) && self.children(name) == 1;
        let punchable = below.iter().take_while(alone).count();
        for sector in offset.div_ceil(SECTOR)..(offset + len) / SECTOR {
            let has = |name: &String| self.layers[name].owned.contains(&sector);
            let held = self.layers[""].owned.contains(&sector) || below[..group].iter().any(has);
            if !held {
                continue;
            }
            self.show(sector, below.get(punchable));
            for name in &below[..punchable] {
                self.layers.get_mut(name).unwrap().owned.remove(&sector);
            }
            self.head().owned.remove(&sector);
        }
    }

    /// An unmap would show a removed layer, because a branch needs it; a purge that was left off
    /// may have removed the branch.
    fn shows_removed(&self) -> bool {
        let below = self.below();
        let mut group = below.iter().take_while(|name| self.layers[*name].removed);
        group.any(|name| self.children(name) > 1)
    }

    /// A merge of a removed layer into its only child moves what it owns.
    fn merge(&mut self, name: &str) {
        let gone = self.layers.remove(name).unwrap();
        let child = self.layers.values_mut().find(|layer| layer.parent.as_deref() == Some(name));
        if let Some(child) = child {
            child.parent = gone.parent;
            child.owned.extend(gone.owned);
        }
    }

    fn mark_system_removed(&mut self) {
        for (name, layer) in &mut self.layers {
            layer.removed |= !name.is_empty() && !layer.user;
        }
    }

    /// What a purge makes go, one after the other.
    fn purge(&mut self, merge_into_head: bool) {
        self.mark_system_removed();
        // One that leaves the head's parent finds it gone if an earlier one was to merge it.
        self.is_purging &= !merge_into_head;
        loop {
            let head_parent = self.layers[""].parent.clone();
            let can_go = |name: &&String| {
                let is_kept_for_head = !merge_into_head && head_parent.as_ref() == Some(*name);
                !name.is_empty()
                    && self.layers[*name].removed
                    && self.children(name) < 2
                    && !is_kept_for_head
            };
            let Some(next) = self.layers.keys().find(can_go).cloned() else { return };
            self.merge(&next);
        }
    }

    /// The names of snapshots, those that are removed included or not.
    fn names(&self, also_removed: bool) -> Vec<String> {
        let is_named = |(name, layer): &(&String, &Layer)| {
            !name.is_empty() && (also_removed || !layer.removed)
        };
        self.layers.iter().filter(is_named).map(|(name, _)| name.clone()).collect()
    }

    fn next_size(&self) -> u64 {
        self.size() + 16 * SECTOR
    }
}

fn clip(model: &Model, offset: u64, len: u64) -> (u64, u64) {
    let offset = offset % model.size();
    (offset, len.min(model.size() - offset))
}

fn purge_of(merge: bool) -> Purge {
    Purge::new(if merge { HeadParent::Fold } else { HeadParent::Keep })
}

struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Model;
    type Transition = Op;

    fn init_state() -> BoxedStrategy<Model> {
        let contents = vec![0; usize::try_from(SECTORS * SECTOR).unwrap()];
        let head = Layer { contents, ..Layer::default() };
        let layers = BTreeMap::from([(String::new(), head)]);
        Just(Model { layers, ..Model::default() }).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Op> {
        let offset =
            prop_oneof![0..SECTORS_MAX * SECTOR, (0..SECTORS_MAX).prop_map(|at| at * SECTOR)];
        let len = prop_oneof![1..20u64, 1..8 * SECTOR, (1..40u64).prop_map(|count| count * SECTOR)];
        let range = (offset, len);
        let mut choices = vec![
            (
                8,
                (range.clone(), any::<u8>())
                    .prop_map(|((offset, len), seed)| Op::Write { offset, len, seed })
                    .boxed(),
            ),
            (4, range.clone().prop_map(|(offset, len)| Op::Unmap { offset, len }).boxed()),
            (2, range.prop_map(|(offset, len)| Op::Zero { offset, len }).boxed()),
            (4, any::<bool>().prop_map(|user| Op::Snapshot { user }).boxed()),
            (1, any::<bool>().prop_map(Op::MarkOnUnmap).boxed()),
            (
                2,
                (any::<bool>(), 1..8usize)
                    .prop_map(|(merge, steps)| Op::PurgeSome { merge, steps })
                    .boxed(),
            ),
            (1, any::<bool>().prop_map(|merge| Op::Purge { merge }).boxed()),
            (1, (1..8usize).prop_map(|steps| Op::MergeSome { steps }).boxed()),
        ];
        choices.extend(
            [Op::Expand, Op::Reopen, Op::Kill, Op::Kill, Op::Reload, Op::Flush]
                .map(|op| (1, Just(op).boxed())),
        );
        let (all, kept) = (model.names(true), model.names(false));
        if !all.is_empty() {
            choices.push((1, select(all).prop_map(Op::Revert).boxed()));
        }
        if !kept.is_empty() {
            choices.push((3, select(kept).prop_map(Op::MarkRemoved).boxed()));
        }
        proptest::strategy::Union::new_weighted(choices).boxed()
    }

    fn preconditions(model: &Model, op: &Op) -> bool {
        match op {
            Op::Revert(name) => model.layers.contains_key(name),
            Op::MarkRemoved(name) => model.layers.get(name).is_some_and(|layer| !layer.removed),
            Op::Expand => model.next_size() <= SECTORS_MAX * SECTOR,
            // Which snapshots it would mark, or show, depends on those that are left.
            Op::Unmap { .. } => {
                !(model.is_purging && (model.mark_on_unmap || model.shows_removed()))
            }
            Op::Write { .. } | Op::Zero { .. } | Op::Snapshot { .. } | Op::MarkOnUnmap(_) => true,
            Op::PurgeSome { .. } | Op::Purge { .. } | Op::MergeSome { .. } => true,
            Op::Reopen | Op::Kill | Op::Reload | Op::Flush => true,
        }
    }

    fn apply(mut model: Model, op: &Op) -> Model {
        match op.clone() {
            Op::Write { offset, len, seed } => {
                let (offset, len) = clip(&model, offset, len);
                model.write(offset, &crate::place::pattern(usize::try_from(len).unwrap(), seed));
            }
            Op::Unmap { offset, len } => {
                let (offset, len) = clip(&model, offset, len);
                model.unmap(offset, len);
            }
            Op::Zero { offset, len } => {
                let (offset, len) = clip(&model, offset, len);
                model.zero(offset, len);
            }
            Op::Snapshot { user } => {
                model.made += 1;
                let size = model.size();
                let name = format!("s{:02}", model.made);
                model.freeze(name, user, size);
            }
            Op::Revert(name) => {
                let target = &model.layers[&name];
                if !target.removed {
                    let mut contents = target.contents.clone();
                    contents.resize(model.layers[""].contents.len(), 0);
                    *model.head() = Layer { parent: Some(name), contents, ..Layer::default() };
                }
            }
            Op::MarkRemoved(name) => model.layers.get_mut(&name).unwrap().removed = true,
            Op::MarkOnUnmap(wanted) => model.mark_on_unmap = wanted,
            Op::PurgeSome { .. } => {
                model.mark_system_removed();
                model.is_purging = true;
            }
            Op::MergeSome { .. } => model.is_purging = true,
            Op::Purge { merge } => model.purge(merge),
            Op::Expand => {
                let size = model.next_size();
                model.freeze(format!("expand-{size}"), false, size);
            }
            Op::Reopen | Op::Kill | Op::Reload | Op::Flush => {}
        }
        model
    }
}

impl Model {
    /// The head becomes a snapshot, and a new one of this size sits on it.
    fn freeze(&mut self, name: String, user: bool, size: u64) {
        let frozen = self.head().clone();
        let mut contents = frozen.contents.clone();
        contents.resize(usize::try_from(size).unwrap(), 0);
        *self.head() = Layer { parent: Some(name.clone()), contents, ..Layer::default() };
        self.layers.insert(name, Layer { user, ..frozen });
    }
}

struct System {
    place: Place,
    replica: Replica,
}

impl System {
    fn new(place: Place) -> Self {
        let replica = place.created(SECTORS);
        Self { place, replica }
    }

    fn open_again(&mut self, model: &Model) {
        self.replica = self.place.opened();
        self.replica.unmap_mark_removed = model.mark_on_unmap;
    }

    /// `model` is as it is afterwards.
    fn apply(&mut self, model: &Model, op: Op) {
        let replica = &mut self.replica;
        match op {
            Op::Write { offset, len, seed } => {
                let (offset, len) = clip(model, offset, len);
                let bytes = crate::place::pattern(usize::try_from(len).unwrap(), seed);
                replica.write_at(&bytes, offset).unwrap();
            }
            Op::Unmap { offset, len } => {
                let (offset, len) = clip(model, offset, len);
                replica.unmap_at(offset, len).unwrap();
            }
            Op::Zero { offset, len } => {
                let (offset, len) = clip(model, offset, len);
                replica.write_zeroes_at(offset, len).unwrap();
            }
            Op::Snapshot { user } => {
                replica.snapshot(&format!("s{:02}", model.made), user, NOW, None).unwrap();
            }
            Op::Revert(name) => {
                let reverted = replica.revert(&format!("volume-snap-{name}.img"), NOW);
                assert_eq!(reverted.is_err(), model.layers[&name].removed);
            }
            Op::MarkRemoved(name) => replica.mark_removed(&name).unwrap(),
            Op::MarkOnUnmap(wanted) => replica.unmap_mark_removed = wanted,
            Op::PurgeSome { merge, steps } => {
                mark_system_removed(replica).unwrap();
                let mut purge = purge_of(merge);
                for _ in 0..steps {
                    purge.step(replica, STEP_BYTES).unwrap();
                }
            }
            Op::Purge { merge } => {
                mark_system_removed(replica).unwrap();
                let mut purge = purge_of(merge);
                while purge.step(replica, STEP_BYTES).unwrap() != Progress::Done {}
                let names = |(name, _): (&replica::DiskName, _)| name.snapshot().map(str::to_owned);
                let left: BTreeSet<_> =
                    replica.chain().unwrap().disks().filter_map(names).collect();
                let expected: BTreeSet<_> = model.names(true).into_iter().collect();
                // Which of the removed ones is left below the head depends on those before it.
                let kept: BTreeSet<_> = model.names(false).into_iter().collect();
                assert!(left == expected || model.is_purging && kept.is_subset(&left));
            }
            Op::MergeSome { steps } => {
                let mut merge = HeadMerge::default();
                for _ in 0..steps {
                    match merge.step(replica, STEP_BYTES).unwrap() {
                        MergeStep::Working => {}
                        MergeStep::NeedsFlush => {
                            replica.flush().unwrap();
                            merge.flushed();
                        }
                        MergeStep::Done => break,
                    }
                }
            }
            Op::Expand => {
                replica.expand(i64::try_from(model.size()).unwrap(), NOW).unwrap();
            }
            Op::Reopen => {
                replica.close().unwrap();
                self.open_again(model);
            }
            Op::Kill => self.open_again(model),
            Op::Reload => replica.reload().unwrap(),
            Op::Flush => replica.flush().unwrap(),
        }
        check(&self.place.path(), &mut self.replica, model);
    }
}

fn check(dir: &Path, replica: &mut Replica, model: &Model) {
    let contents = read_head(replica);
    let differs = contents.iter().zip(&model.layers[""].contents).position(|(a, b)| a != b);
    assert_eq!(differs.map(|at| at as u64 / SECTOR), None, "sector of the head");
    assert_eq!(contents.len() as u64, model.size());
    for (name, layer) in
        model.layers.iter().filter(|(name, layer)| !name.is_empty() && !layer.removed)
    {
        let mut expected = layer.contents.clone();
        expected.resize(contents.len(), 0);
        assert!(read_snapshot(dir, name) == expected, "{name}");
    }
    let mut at = 0;
    replica
        .block_status(0, model.size(), |run| {
            assert_eq!(run.offset, at);
            at += run.len_bytes;
            let range = usize::try_from(run.offset).unwrap()..usize::try_from(at).unwrap();
            assert!(run.is_data || contents[range].iter().all(|byte| *byte == 0));
        })
        .unwrap();
    assert_eq!(at, model.size());
}

/// `PROPTEST_CASES` asks for more, or for fewer.
fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig { max_shrink_iters: 400, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return asked;
    }
    ProptestConfig { cases, ..asked }
}

/// On a file system with extent maps.
struct OnDisk;

impl StateMachineTest for OnDisk {
    type SystemUnderTest = System;
    type Reference = Machine;

    fn init_test(_: &Model) -> System {
        System::new(Place::new())
    }

    fn apply(mut system: System, model: &Model, op: Op) -> System {
        system.apply(model, op);
        system
    }
}

/// On one without.
struct InMemory;

impl StateMachineTest for InMemory {
    type SystemUnderTest = System;
    type Reference = Machine;

    fn init_test(_: &Model) -> System {
        System::new(Place::in_memory())
    }

    fn apply(mut system: System, model: &Model, op: Op) -> System {
        system.apply(model, op);
        system
    }
}

prop_state_machine! {
    #![proptest_config(config(24))]
    #[test]
    fn the_replica_reads_what_the_model_reads(sequential 1..40 => OnDisk);
}

prop_state_machine! {
    #![proptest_config(config(96))]
    #[test]
    fn the_replica_reads_what_the_model_reads_without_extent_maps(sequential 1..60 => InMemory);
}

/// A removed snapshot is shown by an unmap only while a branch needs it. Whether a purge has removed
/// the branch already is told by the number, by which an engine knows which copies to make equal.
#[test]
fn an_unmap_shows_a_removed_snapshot_while_a_branch_needs_it_and_the_number_tells() {
    let discarded = |branch_is_gone: bool| {
        let place = Place::new();
        let mut replica = place.created(SECTORS);
        replica.write_at(&[7; SECTOR as usize], 0).unwrap();
        for name in ["s01", "s02"] {
            replica.snapshot(name, true, NOW, None).unwrap();
        }
        replica.revert("volume-snap-s01.img", NOW).unwrap();
        for name in ["s01", "s02"] {
            replica.mark_removed(name).unwrap();
        }
        if branch_is_gone {
            purge_of(true).step(&mut replica, STEP_BYTES).unwrap();
        }
        let (_, number) = replica.discard_at(0, SECTOR).unwrap();
        (read_head(&mut replica)[0], number)
    };
    let (shown, with_branch) = discarded(false);
    let (gone, without_branch) = discarded(true);
    assert_eq!((shown, gone), (7, 0));
    assert_ne!(with_branch, without_branch);
}
