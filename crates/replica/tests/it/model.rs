//! The replica against a plain model: contents as byte vectors, ownership as sets of sectors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use replica::{HeadParent, Progress, Purge, Replica};

use crate::place::{NOW, Place, SECTOR, read_head, read_snapshot};

const SECTORS: u64 = 48;
const SECTORS_MAX: u64 = 96;

#[derive(Debug, Clone)]
enum Op {
    Write { offset: u64, len: u64, seed: u8 },
    Unmap { offset: u64, len: u64 },
    Zero { offset: u64, len: u64 },
    Snapshot { user: bool },
    Revert(prop::sample::Index),
    MarkRemoved(prop::sample::Index),
    MarkOnUnmap(bool),
    Purge { merge: bool, steps: usize },
    Expand,
    Reopen,
    Kill,
    Reload,
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    let offset = prop_oneof![0..SECTORS_MAX * SECTOR, (0..SECTORS_MAX).prop_map(|at| at * SECTOR)];
    let len = prop_oneof![1..20u64, 1..8 * SECTOR, (1..40u64).prop_map(|count| count * SECTOR)];
    let range = (offset, len);
    prop_oneof![
        8 => (range.clone(), any::<u8>())
            .prop_map(|((offset, len), seed)| Op::Write { offset, len, seed }),
        4 => range.clone().prop_map(|(offset, len)| Op::Unmap { offset, len }),
        2 => range.prop_map(|(offset, len)| Op::Zero { offset, len }),
        4 => any::<bool>().prop_map(|user| Op::Snapshot { user }),
        1 => any::<prop::sample::Index>().prop_map(Op::Revert),
        3 => any::<prop::sample::Index>().prop_map(Op::MarkRemoved),
        1 => any::<bool>().prop_map(Op::MarkOnUnmap),
        3 => (any::<bool>(), prop_oneof![1..6usize, Just(usize::MAX)])
            .prop_map(|(merge, steps)| Op::Purge { merge, steps }),
        1 => Just(Op::Expand),
        1 => Just(Op::Reopen),
        2 => Just(Op::Kill),
        1 => Just(Op::Reload),
        1 => Just(Op::Flush),
    ]
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
#[derive(Debug, Default)]
struct Model {
    layers: BTreeMap<String, Layer>,
    mark_on_unmap: bool,
    made: usize,
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

    fn clear(&mut self, sector: u64) {
        let range = usize::try_from(sector * SECTOR).unwrap();
        self.head().contents[range..range + SECTOR as usize].fill(0);
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
            let hides = below[punchable..].iter().any(has);
            if !held {
                continue;
            }
            self.clear(sector);
            for name in &below[..punchable] {
                self.layers.get_mut(name).unwrap().owned.remove(&sector);
            }
            self.head().owned.remove(&sector);
            if hides {
                self.head().owned.insert(sector);
            }
        }
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

    /// Follows whatever part of a purge has happened: names that are gone were merged.
    fn follow_purge(&mut self, replica: &Replica) {
        for layer in self.layers.iter_mut().filter(|(name, layer)| !name.is_empty() && !layer.user)
        {
            layer.1.removed = true;
        }
        let kept: BTreeSet<String> = replica
            .chain()
            .unwrap()
            .disks()
            .filter_map(|(name, _)| name.snapshot().map(str::to_owned))
            .collect();
        // Leaves first: what is left of the gone then had one child each, and was merged into it.
        loop {
            let is_gone = |name: &&String| !name.is_empty() && !kept.contains(*name);
            let gone: Vec<_> = self.layers.keys().filter(is_gone).cloned().collect();
            let Some(next) = gone.iter().min_by_key(|name| self.children(name)) else { return };
            assert!(self.layers[next].removed, "{next} was not to go");
            assert!(self.children(next) < 2, "{next} holds up a branch");
            self.merge(next);
        }
    }

    fn pick(&self, index: prop::sample::Index, also_removed: bool) -> Option<String> {
        let named: Vec<_> = self
            .layers
            .iter()
            .filter(|(name, layer)| !name.is_empty() && (also_removed || !layer.removed))
            .map(|(name, _)| name.clone())
            .collect();
        (!named.is_empty()).then(|| index.get(&named).clone())
    }
}

fn clip(model: &Model, offset: u64, len: u64) -> (u64, u64) {
    let offset = offset % model.size();
    (offset, len.min(model.size() - offset))
}

fn apply(place: &Place, replica: &mut Replica, model: &mut Model, op: &Op) {
    match op.clone() {
        Op::Write { offset, len, seed } => {
            let (offset, len) = clip(model, offset, len);
            let bytes = crate::place::pattern(usize::try_from(len).unwrap(), seed);
            replica.write_at(&bytes, offset).unwrap();
            model.write(offset, &bytes);
        }
        Op::Unmap { offset, len } => {
            let (offset, len) = clip(model, offset, len);
            replica.unmap_at(offset, len).unwrap();
            model.unmap(offset, len);
        }
        Op::Zero { offset, len } => {
            let (offset, len) = clip(model, offset, len);
            replica.write_zeroes_at(offset, len).unwrap();
            model.zero(offset, len);
        }
        Op::Snapshot { user } => {
            model.made += 1;
            let name = format!("s{:02}", model.made);
            replica.snapshot(&name, user, NOW, None).unwrap();
            let head = model.head().clone();
            *model.head() = Layer {
                parent: Some(name.clone()),
                contents: head.contents.clone(),
                ..Layer::default()
            };
            model.layers.insert(name, Layer { user, ..head });
        }
        Op::Revert(index) => {
            let Some(name) = model.pick(index, true) else { return };
            let reverted = replica.revert(&format!("volume-snap-{name}.img"), NOW);
            let target = &model.layers[&name];
            assert_eq!(reverted.is_err(), target.removed);
            if reverted.is_ok() {
                let size = model.layers[""].contents.len();
                let mut contents = target.contents.clone();
                contents.resize(size, 0);
                *model.head() = Layer { parent: Some(name), contents, ..Layer::default() };
            }
        }
        Op::MarkRemoved(index) => {
            let Some(name) = model.pick(index, false) else { return };
            replica.mark_removed(&name).unwrap();
            model.layers.get_mut(&name).unwrap().removed = true;
        }
        Op::MarkOnUnmap(wanted) => {
            replica.unmap_mark_removed = wanted;
            model.mark_on_unmap = wanted;
        }
        Op::Purge { merge, steps } => {
            replica.mark_system_removed().unwrap();
            let mut purge = Purge::new(if merge { HeadParent::Merge } else { HeadParent::Prune });
            for _ in 0..steps {
                if purge.step(replica, 3 * SECTOR).unwrap() == Progress::Done {
                    break;
                }
            }
            model.follow_purge(replica);
        }
        Op::Expand => {
            let size = model.size() + 16 * SECTOR;
            if size > SECTORS_MAX * SECTOR {
                return;
            }
            replica.expand(i64::try_from(size).unwrap(), NOW).unwrap();
            let mut head = model.head().clone();
            let name = format!("expand-{size}");
            let mut contents = head.contents.clone();
            contents.resize(usize::try_from(size).unwrap(), 0);
            *model.head() = Layer { parent: Some(name.clone()), contents, ..Layer::default() };
            head.user = false;
            model.layers.insert(name, head);
        }
        Op::Reopen => {
            replica.close().unwrap();
            *replica = place.opened();
            replica.unmap_mark_removed = model.mark_on_unmap;
        }
        Op::Kill => {
            *replica = place.opened();
            replica.unmap_mark_removed = model.mark_on_unmap;
        }
        Op::Reload => replica.reload().unwrap(),
        Op::Flush => replica.flush().unwrap(),
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

fn run(place: &Place, ops: &[Op]) {
    let mut replica = place.created(SECTORS);
    let contents = vec![0; usize::try_from(SECTORS * SECTOR).unwrap()];
    let mut model = Model::default();
    model.layers.insert(String::new(), Layer { contents, ..Layer::default() });
    for op in ops {
        apply(place, &mut replica, &mut model, op);
        check(&place.path(), &mut replica, &model);
    }
}

proptest! {
    #![proptest_config(config(24))]
    #[test]
    fn the_replica_reads_what_the_model_reads(ops in prop::collection::vec(op(), 1..40)) {
        run(&Place::new(), &ops);
    }
}

proptest! {
    #![proptest_config(config(96))]
    #[test]
    fn the_replica_reads_what_the_model_reads_without_extent_maps(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        run(&Place::in_memory(), &ops);
    }
}
