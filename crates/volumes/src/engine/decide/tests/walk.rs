//! Everything that can happen to an engine whose copies restore: which acts it comes to, and that it comes to its
//! end. The engine, its copies and the volume's plan are as small as they can be and still go wrong.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::*;

/// How many copies the volume wants.
const COPIES: usize = 2;
/// How often a copy ends, fails, or the monitor is killed.
const FAULTS: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Mode {
    Serves,
    Filled,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Copy {
    mode: Mode,
    /// The backup it holds; 0 is none.
    held: u8,
    restoring: Option<u8>,
    snapshots: u8,
    purging: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Engine {
    copies: BTreeMap<u16, Copy>,
    /// What the volume wants the engine to have.
    planned: BTreeSet<u16>,
    next: u16,
    size: u8,
    wanted: u8,
    expanding: bool,
    newest: u8,
    adding: Option<u16>,
    asking: bool,
    faults: u8,
}

impl Engine {
    fn start() -> Self {
        let copy =
            Copy { mode: Mode::Serves, held: 0, restoring: None, snapshots: 1, purging: false };
        Self {
            copies: [(1, copy), (2, copy)].into(),
            planned: [1, 2].into(),
            next: 3,
            size: 1,
            wanted: 1,
            expanding: false,
            newest: 1,
            adding: None,
            asking: false,
            faults: 0,
        }
    }

    fn working(&self) -> impl Iterator<Item = (&u16, &Copy)> {
        self.copies.iter().filter(|(_, copy)| copy.mode != Mode::Broken)
    }

    fn count(&self, mode: Mode) -> usize {
        self.copies.values().filter(|it| it.mode == mode).count()
    }

    fn acts(&self) -> Vec<Act> {
        let map = self.planned.iter().map(|port| (format!("r{port}"), format!("h:{port}")));
        let spec = EngineSpec {
            instance: InstanceSpec {
                volume_size: Some(TextInt(i64::from(self.wanted))),
                ..InstanceSpec::default()
            },
            replica_address_map: Some(map.collect()),
            requested_backup_restore: Some(format!("b{}", self.newest)),
            ..EngineSpec::default()
        };
        let mode = |copy: &Copy| match copy.mode {
            Mode::Serves => M::ReadWrite,
            Mode::Filled => M::WriteOnly,
            Mode::Broken => M::Error,
        };
        let restore = |copy: &Copy| EngineRestoreStatus {
            is_restoring: Some(copy.restoring.is_some()),
            last_restored: Some(if copy.held == 0 {
                String::new()
            } else {
                format!("b{}", copy.held)
            }),
            ..EngineRestoreStatus::default()
        };
        let purge = |copy: &Copy| EnginePurgeStatus {
            is_purging: Some(copy.purging),
            ..EnginePurgeStatus::default()
        };
        let look = Look {
            size: i64::from(self.size),
            is_expanding: self.expanding,
            modes: self.copies.iter().map(|(port, copy)| (at(*port), mode(copy))).collect(),
            restores: self.working().map(|(port, copy)| (at(*port), restore(copy))).collect(),
            purges: self.working().map(|(port, copy)| (at(*port), purge(copy))).collect(),
            ..Look::default()
        };
        let adding = self.adding.map(at);
        let verdict = decide(&Seen {
            now: Timestamp::from_second(1_000_000).unwrap(),
            spec: &spec,
            status: &EngineStatus::default(),
            look: &look,
            is_full: true,
            adding: adding.as_deref(),
            resting: &BTreeSet::new(),
            asking_restore: self.asking,
            may_restore: true,
            may_expand: true,
            rejections: &BTreeMap::new(),
            asking_clone: false,
            clone_failure: None,
            backup_size: Some(i64::from(self.wanted)),
            is_older: false,
        });
        assert!(!verdict.acts.is_empty() || verdict.busy || self.is_settled(), "asleep: {self:?}");
        verdict.acts
    }

    /// Every copy that is planned is there and holds the newest backup.
    fn is_settled(&self) -> bool {
        self.copies.keys().copied().collect::<BTreeSet<_>>() == self.planned
            && self.copies.values().all(|it| it.mode == Mode::Serves && it.held == self.newest)
            && self.size == self.wanted
    }

    fn is_done(&self) -> bool {
        self.planned.len() == COPIES && self.is_settled() && self.acts().is_empty()
    }

    /// What the engine does when it is asked.
    fn perform(&mut self, act: &Act) {
        let port = |address: &str| address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
        match act {
            Act::Add { address, restore, .. } => {
                assert!(*restore, "the others' data is no data yet: {self:?}");
                assert!(self.adding.is_none() && self.count(Mode::Filled) == 0, "{self:?}");
                self.adding = Some(port(address));
            }
            Act::Restore { .. } => {
                assert!(!self.asking && !self.copies.values().any(|it| it.purging), "{self:?}");
                assert_eq!(self.size, self.wanted, "{self:?}");
                self.asking = true;
            }
            Act::Verify { address } => {
                let copy = self.copies.get_mut(&port(address)).unwrap();
                assert!(copy.mode == Mode::Filled && copy.held > 0 && copy.restoring.is_none());
                copy.mode = Mode::Serves;
            }
            Act::Fail { address } => {
                let copy = self.copies.get_mut(&port(address)).unwrap();
                assert_eq!(copy.mode, Mode::Filled, "a good copy is given up");
                copy.mode = Mode::Broken;
            }
            Act::Remove { address } => {
                let gone = self.copies.remove(&port(address)).unwrap();
                let serves = self.count(Mode::Serves) > 0;
                assert!(serves || gone.mode != Mode::Serves, "the last good copy goes");
            }
            Act::Expand { .. } => {
                assert!(self.count(Mode::Filled) == 0 && self.adding.is_none(), "{self:?}");
                self.expanding = true;
            }
            Act::StartFrontend | Act::StopFrontend | Act::Clone { .. } => {
                panic!("{act:?}: {self:?}")
            }
        }
    }

    /// A look, and as many of its acts.
    fn pass(&self, upto: usize) -> Self {
        let mut next = self.clone();
        for act in self.acts().iter().take(upto) {
            next.perform(act);
        }
        next
    }

    /// The command that adds a copy ends.
    fn added(&self) -> Option<Self> {
        let mut next = Self { adding: None, ..self.clone() };
        let port = self.adding?;
        if self.count(Mode::Serves) == 0 || self.expanding || !self.planned.contains(&port) {
            next.planned.remove(&port);
            return Some(next);
        }
        let copy =
            Copy { mode: Mode::Filled, held: 0, restoring: None, snapshots: 1, purging: false };
        next.copies.insert(port, copy);
        Some(next)
    }

    /// The command that asks for a restore ends.
    fn asked(&self) -> Option<Self> {
        let mut next = Self { asking: false, ..self.clone() };
        if !self.asking {
            return None;
        }
        let purges = self.working().any(|(_, it)| it.purging);
        let many = self.working().any(|(_, it)| it.snapshots > 1);
        for copy in next.copies.values_mut().filter(|it| it.mode != Mode::Broken) {
            if many && !purges {
                copy.purging = copy.snapshots > 1;
            } else if !many && !purges && self.size == self.wanted {
                let needs = copy.restoring.is_none() && copy.held != self.newest;
                copy.restoring = copy.restoring.or(needs.then_some(self.newest));
            }
        }
        Some(next)
    }

    /// What copies have begun comes to its end.
    fn worked(&self, port: u16) -> Option<Self> {
        let mut next = self.clone();
        let copy = next.copies.get_mut(&port).filter(|it| it.mode != Mode::Broken)?;
        if copy.purging {
            (copy.purging, copy.snapshots) = (false, 1);
        } else {
            copy.held = copy.restoring.take()?;
        }
        Some(next)
    }

    fn expanded(&self) -> Option<Self> {
        let mut next = Self { expanding: false, size: self.wanted, ..self.clone() };
        for copy in next.copies.values_mut() {
            copy.snapshots += 1;
        }
        self.expanding.then_some(next)
    }

    /// The volume gives up copies that are broken, and wants others when all that there are serve.
    fn planned_anew(&self) -> Self {
        let mut next = self.clone();
        next.planned.retain(|it| self.copies.get(it).is_none_or(|it| it.mode != Mode::Broken));
        let settled = self.copies.values().all(|it| it.mode == Mode::Serves)
            && self.copies.keys().copied().collect::<BTreeSet<_>>() == next.planned;
        if settled && !self.expanding && self.size == self.wanted && next.planned.len() < COPIES {
            next.planned.insert(next.next);
            next.next += 1;
        }
        next
    }

    /// Everything does what it should.
    fn calm(&self) -> Self {
        let mut engine = self.pass(usize::MAX).planned_anew();
        for step in [Self::added, Self::asked, Self::expanded] {
            engine = step(&engine).unwrap_or(engine);
        }
        for port in engine.copies.keys().copied().collect::<Vec<_>>() {
            engine = engine.worked(port).unwrap_or(engine);
        }
        engine
    }

    fn faulty(&self) -> Vec<Self> {
        if self.faults >= FAULTS {
            return Vec::new();
        }
        let base = Self { faults: self.faults + 1, ..self.clone() };
        // The monitor is killed, and its commands with it.
        let mut all = vec![Self { adding: None, asking: false, ..base.clone() }];
        for (port, copy) in self.working() {
            // Without a copy to read from the engine ends, and another begins.
            if copy.mode == Mode::Filled || self.count(Mode::Serves) > 1 {
                let mut next = base.clone();
                let broken = next.copies.get_mut(port).unwrap();
                (broken.mode, broken.restoring, broken.purging) = (Mode::Broken, None, false);
                all.push(next);
            }
        }
        all
    }

    fn moves(&self) -> Vec<Self> {
        let acts = self.acts().len();
        // A pass may end after any of its acts.
        let mut all: Vec<Self> = (1..=acts).map(|upto| self.pass(upto)).collect();
        all.extend([self.added(), self.asked(), self.expanded()].into_iter().flatten());
        all.extend(self.copies.keys().filter_map(|port| self.worked(*port)));
        all.push(self.planned_anew());
        all.extend(self.faulty());
        if self.newest == 1 {
            all.push(Self { newest: 2, ..self.clone() });
            all.push(Self { newest: 2, wanted: 2, ..self.clone() });
        }
        all
    }
}

fn reachable() -> HashSet<Engine> {
    let mut found: HashSet<Engine> = HashSet::new();
    let mut next = VecDeque::from([Engine::start()]);
    while let Some(engine) = next.pop_front() {
        if found.contains(&engine) {
            continue;
        }
        assert!(engine.count(Mode::Filled) <= 1, "two copies are filled at once: {engine:?}");
        assert!(engine.count(Mode::Serves) >= 1, "the last good copy is gone: {engine:?}");
        next.extend(engine.moves());
        found.insert(engine);
    }
    found
}

/// The asserts on the way hold wherever it can come; and from there, once nothing more goes wrong, every copy holds
/// the newest backup.
#[test]
fn whatever_comes_every_copy_holds_the_newest_backup_in_the_end() {
    let found = reachable();
    assert!(found.len() > 1_000, "only {} states were looked at", found.len());
    let mut ends: HashSet<Engine> = HashSet::new();
    for begin in found {
        let (mut engine, mut path) = (begin.clone(), Vec::new());
        while !ends.contains(&engine) && !engine.is_done() {
            assert!(path.len() < 40, "{begin:?} does not end: {engine:?}");
            path.push(engine.clone());
            engine = engine.calm();
        }
        ends.extend(path);
        ends.insert(engine);
    }
}
