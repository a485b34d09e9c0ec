//! What copies hold, beside what is said of them: nodes and disks come and go, clocks are set, people delete
//! copies, and the engine is looked at late. Whatever comes, no engine begins without what was acknowledged,
//! and no directory goes that alone has it; and when everything is back the volume is whole.

use super::faults::FaultKind;
use super::*;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Calm,
    KillEngine,
    /// The process of the first or last copy that runs ends.
    Kill(bool),
    /// Wanted on this node, or no longer.
    Ticket(usize),
    /// A node loses its power.
    Lose(usize),
    /// The disk of the first or last copy is gone.
    Disk(bool),
    /// All nodes and disks are back.
    Back,
    /// As `kubectl delete lhr` does.
    Delete(bool),
    Copies,
    Image,
    /// The clock is set by an hour.
    Clock(bool),
    /// Nobody looks at the engine for a while.
    Blind,
}

const EVENTS: [Event; 18] = [
    Event::Calm,
    Event::KillEngine,
    Event::Kill(true),
    Event::Kill(false),
    Event::Ticket(0),
    Event::Ticket(1),
    Event::Lose(0),
    Event::Lose(1),
    Event::Lose(2),
    Event::Disk(true),
    Event::Disk(false),
    Event::Back,
    Event::Delete(true),
    Event::Delete(false),
    Event::Copies,
    Event::Image,
    Event::Clock(true),
    Event::Clock(false),
];

struct Real {
    world: World,
    /// The last write that a client was told of.
    written: u64,
    /// The last write that each directory has; nothing while it is being filled.
    data: BTreeMap<String, Option<u64>>,
    /// The copies of the engine that runs: address and mode.
    inner: BTreeMap<String, (String, ReplicaMode)>,
    port: i32,
    blind: u32,
    wanted: Option<usize>,
    /// Directories on disks that are gone.
    lost: BTreeSet<String>,
    /// How often the engine could not be replaced.
    waited: u32,
}

fn dir(replica: &Replica) -> String {
    replica.spec.data_directory_name.clone().unwrap()
}

fn wants(replica: &Replica) -> bool {
    replica.spec.instance.desire_state == Some(InstanceState::Running)
}

impl Real {
    fn new() -> Self {
        let mut world = World::new(VolumeSpec::default());
        world.settings.node_soft = false;
        world.up = NODES.map(str::to_owned).into();
        for image in world.images.values_mut() {
            image.nodes = world.up.clone();
        }
        let mut real = Self {
            world,
            written: 0,
            data: BTreeMap::new(),
            inner: BTreeMap::new(),
            port: 1000,
            blind: 0,
            wanted: None,
            lost: BTreeSet::new(),
            waited: 0,
        };
        real.run(6);
        real.happen(Event::Ticket(0));
        real.run(10);
        real.world.is(&VolumeState::Attached, &Robustness::Healthy);
        assert!(real.written > 0);
        real
    }

    fn run(&mut self, passes: usize) {
        for _ in 0..passes {
            let lost = self.world.replicas.iter().filter(|it| self.lost.contains(&dir(it)));
            self.world.no_disk = lost.map(ResourceExt::name_any).collect();
            self.world.pass();
            self.obey();
            self.world.now += SignedDuration::from_millis(200);
        }
    }

    fn is_up(&self, node: Option<&str>) -> bool {
        node.is_some_and(|node| self.world.up.contains(node))
    }

    fn obey(&mut self) {
        self.world.past = (self.world.engine.clone(), self.world.replicas.clone());
        if std::mem::take(&mut self.world.is_paused) {
            return;
        }
        self.remove();
        self.tend();
        self.serve();
        if self.blind > 0 {
            self.blind -= 1;
        } else {
            self.look();
        }
    }

    /// Objects that leave go with their data, unless that is another's as well.
    fn remove(&mut self) {
        let (gone, left): (Vec<Replica>, Vec<Replica>) =
            self.world.replicas.drain(..).partition(is_leaving);
        self.world.replicas = left;
        for replica in gone {
            let dir = dir(&replica);
            let is_shared = self.world.replicas.iter().any(|it| self::dir(it) == dir);
            if !is_shared {
                self.data.remove(&dir);
            }
        }
        let is_whole = self.data.values().any(|it| *it == Some(self.written));
        assert!(is_whole || self.data.is_empty(), "the last copy with all data is removed");
    }

    /// What nodes do about processes of copies.
    fn tend(&mut self) {
        let mut replicas = std::mem::take(&mut self.world.replicas);
        for replica in &mut replicas {
            let is_up = self.is_up(replica.spec.instance.node_id.as_deref());
            let has_disk = !self.lost.contains(&dir(replica));
            let (wants, owner) = (wants(replica), replica.spec.instance.node_id.clone());
            let dir = dir(replica);
            let status = &mut replica.status.get_or_insert_default().instance;
            let state = status.current_state.clone().unwrap_or(InstanceState::Unset);
            let next = match (is_up, wants, &state) {
                (false, true, InstanceState::Running | InstanceState::Unknown) => {
                    InstanceState::Unknown
                }
                (true, true, InstanceState::Error) => InstanceState::Error,
                (true, true, InstanceState::Running) if !has_disk => InstanceState::Error,
                (true, true, InstanceState::Running) => InstanceState::Running,
                (true, true, InstanceState::Stopped | InstanceState::Unset) if has_disk => {
                    self.port += 10;
                    status.port = Some(self.port);
                    self.data.entry(dir).or_insert(Some(0));
                    InstanceState::Running
                }
                _ => InstanceState::Stopped,
            };
            if next != InstanceState::Running {
                status.port = Some(0);
            }
            status.ip = Some("10.0.0.1".to_owned());
            status.owner_id = owner;
            status.current_state = Some(next);
        }
        self.world.replicas = replicas;
    }

    fn replica(&self, name: &str) -> Option<&Replica> {
        self.world.replicas.iter().find(|it| it.name_any() == name)
    }

    /// It runs where it is said to be.
    fn answers(&self, name: &str, address: &str) -> bool {
        let found = self.replica(name);
        found.is_some_and(|it| {
            self.is_up(it.spec.instance.node_id.as_deref())
                && address_of(it).as_deref() == Some(address)
        })
    }

    fn held(&self, name: &str) -> Option<u64> {
        self.replica(name).and_then(|it| *self.data.get(&dir(it))?)
    }

    fn all_answer(&self, map: &BTreeMap<String, String>) -> bool {
        !map.is_empty() && map.iter().all(|(name, at)| self.answers(name, at))
    }

    /// An engine begins with these copies: those that are behind have failed.
    fn begin(&mut self, map: &BTreeMap<String, String>) {
        let best = map.keys().filter_map(|name| self.held(name)).max();
        assert_eq!(best, Some(self.written), "an engine begins without what was acknowledged");
        let mode = |name: &String| {
            let is_whole = self.held(name) == best;
            if is_whole { ReplicaMode::ReadWrite } else { ReplicaMode::Error }
        };
        self.inner =
            map.iter().map(|(name, at)| (name.clone(), (at.clone(), mode(name)))).collect();
    }

    /// What the node of the engine does, and the engine.
    fn serve(&mut self) {
        let Some(mut engine) = self.world.engine.take() else { return };
        let mut status = engine.status.clone().unwrap_or_default();
        let spec = engine.spec.clone();
        let wants = spec.instance.desire_state == Some(InstanceState::Running);
        let state = status.instance.current_state.clone().unwrap_or(InstanceState::Unset);
        let next = spec.upgraded_replica_address_map.clone().unwrap_or_default();
        let map = spec.replica_address_map.clone().unwrap_or_default();
        let at = status.instance.owner_id.clone().filter(|_| state == InstanceState::Running);
        let is_up = self.is_up(at.as_deref().or(spec.instance.node_id.as_deref()));
        match (wants, is_up, &state) {
            (true, false, InstanceState::Running | InstanceState::Unknown) => {
                self.inner.clear();
                status.instance.current_state = Some(InstanceState::Unknown);
            }
            (true, true, InstanceState::Unknown | InstanceState::Error) => {
                self.inner.clear();
                status.instance.current_state = Some(InstanceState::Error);
            }
            (true, true, InstanceState::Running) => {
                let differs = status.instance.current_image != spec.instance.image;
                let now = api::scalar::Time::new(self.world.now);
                let is_refused = crate::node::failed_upgrade(&status.instance).is_some();
                if next.is_empty() {
                    self.waited = 0;
                    crate::node::say_upgrade(&mut status.instance, None, now);
                    self.follow(&map);
                } else if differs && !is_refused && self.all_answer(&next) {
                    self.begin(&next);
                    status.instance.current_image.clone_from(&spec.instance.image);
                } else if differs {
                    self.waited += 1;
                    let image = spec.instance.image.clone().unwrap_or_default();
                    let error = Some("a replica is not there".to_owned());
                    let next = crate::instances::Successor { image, error };
                    if self.waited > 4 {
                        crate::node::say_upgrade(&mut status.instance, Some(&next), now);
                    }
                }
                self.write(spec.disable_frontend != Some(true));
                if status.current_size != spec.instance.volume_size {
                    status.current_size = spec.instance.volume_size;
                }
            }
            (true, true, _) if self.all_answer(&map) => {
                self.begin(&map);
                status.instance.current_state = Some(InstanceState::Running);
                status.instance.owner_id.clone_from(&spec.instance.node_id);
                status.instance.current_image.clone_from(&spec.instance.image);
                status.instance.port = Some(900);
                status.current_size = spec.instance.volume_size;
            }
            _ => {
                self.inner.clear();
                let size = status.current_size;
                let owner = status.instance.owner_id.clone();
                status = api::longhorn::EngineStatus { current_size: size, ..Default::default() };
                status.instance.owner_id = owner;
                status.instance.current_state = Some(InstanceState::Stopped);
            }
        }
        engine.status = Some(status);
        self.world.engine = Some(engine);
    }

    /// One copy is filled at a time; what is not planned goes.
    fn follow(&mut self, map: &BTreeMap<String, String>) {
        let readable = |it: &(String, ReplicaMode)| it.1 == ReplicaMode::ReadWrite;
        let stays = self.inner.iter().any(|(name, it)| readable(it) && map.contains_key(name));
        self.inner.retain(|name, it| map.contains_key(name) || (!stays && readable(it)));
        let fills = self.inner.values().any(|it| it.1 == ReplicaMode::WriteOnly);
        let missing = map.iter().find(|(name, at)| {
            !self.inner.contains_key(*name) && self.answers(name, at) && stays && !fills
        });
        if let Some((name, at)) = missing {
            let dir = dir(self.replica(name).unwrap());
            self.data.insert(dir, None);
            self.inner.insert(name.clone(), (at.clone(), ReplicaMode::WriteOnly));
        }
    }

    /// A client writes, and is told when all copies that are left have it.
    fn write(&mut self, is_served: bool) {
        let mut inner = std::mem::take(&mut self.inner);
        for (name, (at, mode)) in &mut inner {
            if !self.answers(name, at) {
                *mode = ReplicaMode::Error;
            }
        }
        let readable = inner.values().any(|it| it.1 == ReplicaMode::ReadWrite);
        self.written += u64::from(readable && is_served);
        for (name, (_, mode)) in inner.iter_mut().filter(|_| readable) {
            if *mode == ReplicaMode::WriteOnly {
                *mode = ReplicaMode::ReadWrite;
            }
            if *mode == ReplicaMode::ReadWrite {
                let dir = dir(self.replica(name).unwrap());
                self.data.insert(dir, Some(self.written));
            }
        }
        self.inner = inner;
    }

    /// What the monitor writes down.
    fn look(&mut self) {
        let Some(engine) = &mut self.world.engine else { return };
        let status = engine.status.get_or_insert_default();
        let replaced = engine.spec.upgraded_replica_address_map.iter().flatten().next().is_some()
            && status.instance.current_image != engine.spec.instance.image;
        if status.instance.current_state != Some(InstanceState::Running) || replaced {
            return;
        }
        let modes = self.inner.iter().map(|(name, it)| (name.clone(), it.1.clone()));
        status.replica_mode_map = Some(modes.collect());
        let places = self.inner.iter().map(|(name, it)| (name.clone(), it.0.clone()));
        status.current_replica_address_map = Some(places.collect());
    }

    fn chosen(&self, first: bool, fits: impl Fn(&Replica) -> bool) -> Option<usize> {
        let mut all = (0..self.world.replicas.len()).filter(|it| fits(&self.world.replicas[*it]));
        if first { all.next() } else { all.next_back() }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Calm => self.run(4),
            Event::Blind => self.blind = 4,
            Event::KillEngine => {
                let status = self.world.engine.as_mut().and_then(|it| it.status.as_mut());
                if let Some(status) = status
                    && status.instance.current_state == Some(InstanceState::Running)
                {
                    status.instance.current_state = Some(InstanceState::Error);
                }
            }
            Event::Kill(first) => {
                if let Some(victim) = self.chosen(first, |it| address_of(it).is_some()) {
                    self.world.kill(victim);
                }
            }
            Event::Ticket(node) if self.wanted == Some(node) => {
                self.world.drop_ticket();
                self.wanted = None;
            }
            Event::Ticket(node) => {
                self.world.ticket(NODES[node]);
                self.wanted = Some(node);
            }
            Event::Lose(node) => drop(self.world.up.remove(NODES[node])),
            Event::Disk(first) => {
                let has = |it: &Replica| !self.lost.contains(&dir(it));
                if let Some(lost) = self.chosen(first, has) {
                    self.lost.insert(dir(&self.world.replicas[lost]));
                }
            }
            Event::Back => self.come_back(),
            Event::Delete(first) => {
                let stays = |it: &Replica| it.metadata.deletion_timestamp.is_none();
                if let Some(deleted) = self.chosen(first, stays) {
                    self.world.delete_copy(deleted);
                }
            }
            Event::Copies => {
                let now = self.world.volume.spec.number_of_replicas.unwrap_or(2);
                self.world.volume.spec.number_of_replicas = Some(if now == 2 { 3 } else { 2 });
            }
            Event::Image => {
                let is_new = self.world.volume.spec.image.as_deref() == Some(NEW);
                let next = if is_new { crate::image::DEFAULT } else { NEW };
                self.world.volume.spec.image = Some(next.to_owned());
            }
            Event::Clock(ahead) => {
                let hour = SignedDuration::from_hours(1);
                self.world.now = if ahead { self.world.now + hour } else { self.world.now - hour };
            }
        }
        self.run(1);
    }

    fn come_back(&mut self) {
        self.world.up = NODES.map(str::to_owned).into();
        self.lost.clear();
    }

    fn settle(&mut self) {
        self.come_back();
        self.blind = 0;
        for _ in 0..8 {
            self.run(14);
            self.world.now += SignedDuration::from_mins(11);
        }
    }

    fn ends_well(&self) -> bool {
        let status = self.world.status();
        if self.wanted.is_none() {
            return status.state == Some(VolumeState::Detached);
        }
        let copies: Vec<&Replica> = self.world.replicas.iter().filter(|it| is_usable(it)).collect();
        (status.state, status.robustness)
            == (Some(VolumeState::Attached), Some(Robustness::Healthy))
            && copies.iter().all(|it| self.data[&dir(it)] == Some(self.written))
    }
}

fn go(order: &[Event], faults: &[Option<Fault>], calm: &[usize]) {
    let mut real = Real::new();
    for (index, event) in order.iter().enumerate() {
        let pass = real.world.counts.len();
        let fault = faults.get(index).copied().flatten();
        real.world.fault = fault.map(|it| Fault { pass: pass + it.pass, ..it });
        real.happen(*event);
        real.run(calm.get(index).copied().unwrap_or(1));
    }
    real.settle();
    let (status, data) = (real.world.status(), (&real.data, real.written));
    let replicas: Vec<_> = real.world.replicas.iter().map(|it| (it.name_any(), &it.spec)).collect();
    assert!(
        real.ends_well(),
        "after {order:?} {calm:?} {faults:?}: {status:#?} {data:?} {replicas:#?} {:#?}",
        real.world.engine
    );
}

/// What happens to the copy that went on alone, after both were salvaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its node is gone again.
    Away,
    /// Its process ends whenever it is started.
    Breaks,
    /// Its disk is not there.
    DiskGone,
}

/// Both failed within a minute of each other, and the second went on alone meanwhile: what the first has is
/// behind, also where the second is not there when somebody attaches the volume.
#[test]
fn a_copy_that_failed_before_the_last_is_not_served_alone_after_a_salvage() {
    for fate in [Fate::Away, Fate::Breaks, Fate::DiskGone] {
        let mut real = Real::new();
        let at = |real: &Real, index: usize| {
            let node = real.world.replicas[index].spec.instance.node_id.clone().unwrap();
            NODES.iter().position(|it| *it == node).unwrap()
        };
        let (first, second) = (at(&real, 0), at(&real, 1));
        let engine = (0..NODES.len()).find(|it| ![first, second].contains(it)).unwrap();
        real.happen(Event::Ticket(engine));
        real.run(14);
        real.world.is(&VolumeState::Attached, &Robustness::Healthy);
        real.world.settings.rebuilds_per_node = 0;
        real.happen(Event::Lose(first));
        real.run(3);
        assert!(has_failed(&real.world.replicas[0]));
        let before = real.written;
        real.world.now += SignedDuration::from_secs(40);
        real.run(3);
        assert!(real.written > before, "the second goes on alone");
        real.happen(Event::Lose(second));
        real.happen(Event::Ticket(engine));
        real.run(8);
        real.world.is(&VolumeState::Detached, &Robustness::Faulted);
        real.come_back();
        real.run(8);
        real.world.is(&VolumeState::Detached, &Robustness::Unknown);
        assert!(!has_failed(&real.world.replicas[1]), "the last one is salvaged");
        let data = dir(&real.world.replicas[1]);
        match fate {
            Fate::Away => real.happen(Event::Lose(second)),
            Fate::DiskGone => drop(real.lost.insert(data)),
            Fate::Breaks => {}
        }
        real.happen(Event::Ticket(engine));
        for _ in 0..20 {
            if fate == Fate::Breaks && address_of(&real.world.replicas[1]).is_some() {
                real.world.kill(1);
            }
            // Whenever an engine begins, it is looked whether it has what was acknowledged.
            real.run(1);
        }
        real.world.settings.rebuilds_per_node = 5;
        real.settle();
        assert!(real.ends_well(), "{fate:?}");
    }
}

/// Every order of two, close to each other and further apart.
#[test]
fn nothing_that_was_acknowledged_is_lost_whatever_comes() {
    for first in EVENTS {
        for second in EVENTS {
            for calm in [0, 3] {
                let order = [first, second];
                let run = std::panic::catch_unwind(|| go(&order, &[], &[calm, calm]));
                assert!(run.is_ok(), "{order:?} {calm}");
            }
        }
    }
}

/// Long ones by chance, with passes that end in the middle: `HOLDFAST_WALKS` says how many.
#[test]
fn long_walks_lose_nothing_that_was_acknowledged() {
    let walks: u64 = std::env::var("HOLDFAST_WALKS").map_or(150, |it| it.parse().unwrap());
    let from: u64 = std::env::var("HOLDFAST_WALKS_FROM").map_or(1, |it| it.parse().unwrap());
    for seed in from..from + walks {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
        };
        let (mut order, mut faults, mut calm) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..10 {
            let index = next(EVENTS.len() + 1);
            order.push(EVENTS.get(index).copied().unwrap_or(Event::Blind));
            let kind = match next(6) {
                0 => Some(FaultKind::OldEngine),
                1 => Some(FaultKind::OldReplicas),
                2 | 3 => Some(FaultKind::Cut { after: next(6), obeyed: next(2) == 0 }),
                _ => None,
            };
            faults.push(kind.map(|kind| Fault { pass: next(3), kind }));
            calm.push(next(5));
        }
        let told = (seed, order.clone());
        let run = std::panic::catch_unwind(|| go(&order, &faults, &calm));
        assert!(run.is_ok(), "seed {}: {:?} {faults:?} {calm:?}", told.0, told.1);
    }
}
