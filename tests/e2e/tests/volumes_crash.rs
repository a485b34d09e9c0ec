//! kill -9 of the server with its controllers and its node, of engines and of replicas, while volumes
//! are written, copied, backed up, restored, followed and deleted, in a loop.
//!
//! After every round what was asked for is there, and each byte that was ever acknowledged: in the
//! volume, in what was made from it, and at the end in the volume that followed it.
//! `VOLUMES_CRASH_ROUNDS` says how often, `VOLUMES_CRASH_SEED` replays the choices of an earlier run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use e2e::volumes::{Content, Rig};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

const ROUNDS: u32 = 5;
const MEBIBYTES: u64 = 24;
const SOURCE: &str = "data";
/// Longest time from the begin of something to the kill.
const LATEST: Duration = Duration::from_secs(6);
/// Then the volume that follows is activated and compared, and another one begun.
const ROUNDS_OF_A_FOLLOWER: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Write,
    Snapshot,
    Backup,
    RemoveBackup,
    Restore,
    CopyVolume,
    CopySnapshot,
    RemoveVolume,
    Attach,
}

const FLOWS: [Flow; 9] = [
    Flow::Backup,
    Flow::Restore,
    Flow::CopyVolume,
    Flow::Write,
    Flow::RemoveBackup,
    Flow::Attach,
    Flow::CopySnapshot,
    Flow::Snapshot,
    Flow::RemoveVolume,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Server,
    Engine,
    Replica,
    /// The server, and a replica while it is away.
    ServerAndReplica,
}

const VICTIMS: [Victim; 4] =
    [Victim::Server, Victim::Engine, Victim::Replica, Victim::ServerAndReplica];

#[test]
fn volumes_and_what_is_made_of_them_survive_kills() {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
    let rounds = number("VOLUMES_CRASH_ROUNDS").map_or(ROUNDS, |it| u32::try_from(it).unwrap());
    let seed = number("VOLUMES_CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("crash volumes: seed {seed}");
    let mut run = Run::start(seed);
    for round in 0..rounds {
        run.round(round);
    }
    run.compare_follower();
    println!("crash volumes: {rounds} rounds, {:?}, nothing lost", run.counts);
}

#[derive(Debug)]
struct Run {
    rig: Rig,
    random: StdRng,
    content: Content,
    /// What each backup and each snapshot holds.
    backups: BTreeMap<String, Content>,
    snapshots: BTreeMap<String, Content>,
    follower: Option<String>,
    serial: u64,
    counts: BTreeMap<(Flow, Victim), u32>,
}

impl Run {
    fn start(seed: u64) -> Self {
        let rig = Rig::start();
        rig.patch("lhs", "replica-replenishment-wait-interval", &json!({"value": "1"}));
        rig.volume(SOURCE, MEBIBYTES, 2);
        rig.attach(SOURCE);
        let mut run = Self {
            rig,
            random: StdRng::seed_from_u64(seed),
            content: Content::new(),
            backups: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            follower: None,
            serial: 0,
            counts: BTreeMap::new(),
        };
        run.change();
        run.back_up();
        run.follow();
        run
    }

    fn name(&mut self, what: &str) -> String {
        self.serial += 1;
        format!("{what}-{}", self.serial)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    fn round(&mut self, round: u32) {
        let flow = FLOWS[usize::try_from(round).unwrap() % FLOWS.len()];
        let victim = self.pick(&VICTIMS);
        let pause = LATEST.mul_f64(self.random.random::<f64>().powi(2));
        let began = Instant::now();
        println!(
            "crash volumes: round {round}: {flow:?}, {victim:?} after {} ms",
            pause.as_millis()
        );
        self.change();
        match flow {
            Flow::Write => self.kill_while_writing(victim, pause),
            Flow::Attach => {
                self.rig.detach(SOURCE);
                self.rig.ask_attach(SOURCE);
                self.kill(victim, pause, SOURCE);
            }
            Flow::Snapshot => {
                let name = self.name("snap");
                let then = self.content.clone();
                self.rig.ask_snapshot(SOURCE, &name);
                self.kill(victim, pause, SOURCE);
                self.rig.is_taken(&name);
                self.snapshots.insert(name, then);
            }
            Flow::Backup => {
                let (name, then) = (self.name("backup"), self.content.clone());
                self.rig.snapshot(SOURCE, &format!("snap-{name}"));
                self.rig.ask_backup(SOURCE, &name);
                self.kill(victim, pause, SOURCE);
                self.rig.is_backed_up(&name);
                self.backups.insert(name, then);
            }
            Flow::RemoveBackup => {
                self.back_up();
                let oldest = self.backups.keys().next().unwrap().clone();
                self.backups.remove(&oldest);
                self.rig.kubectl(&["delete", "lhb", &oldest, "--wait=false"]);
                self.kill(victim, pause, SOURCE);
                self.rig.is_gone("lhb", &oldest);
                self.check_a_backup();
            }
            Flow::Restore => {
                let names: Vec<String> = self.backups.keys().cloned().collect();
                let from = self.pick(&names);
                let name = self.name("restored");
                self.rig.make_from_backup(&name, &from, 2, false);
                self.kill(victim, pause, &name);
                self.rig.is_restored(&name);
                let then = self.backups[&from].clone();
                self.compare_and_remove(&name, &then, None);
            }
            Flow::CopyVolume => {
                let (name, then) = (self.name("copy"), self.content.clone());
                self.rig.copy(&name, &format!("vol://{SOURCE}"), MEBIBYTES, 2);
                self.kill(victim, pause, &name);
                self.rig.is_copied(&name);
                self.compare_and_remove(&name, &then, None);
            }
            Flow::CopySnapshot => {
                if self.snapshots.is_empty() {
                    let name = self.name("snap");
                    self.rig.snapshot(SOURCE, &name);
                    self.snapshots.insert(name, self.content.clone());
                }
                let names: Vec<String> = self.snapshots.keys().cloned().collect();
                let from = self.pick(&names);
                let name = self.name("copy");
                self.rig.copy(&name, &format!("snap://{SOURCE}/{from}"), MEBIBYTES, 1);
                let of = self.pick(&[name.clone(), SOURCE.to_owned()]);
                self.kill(victim, pause, &of);
                self.rig.is_copied(&name);
                let then = self.snapshots[&from].clone();
                self.compare_and_remove(&name, &then, None);
            }
            Flow::RemoveVolume => {
                let (name, then) = (self.name("copy"), self.content.clone());
                self.rig.copy(&name, &format!("vol://{SOURCE}"), MEBIBYTES, 2);
                self.rig.is_copied(&name);
                self.compare_and_remove(&name, &then, Some((victim, pause)));
            }
        }
        *self.counts.entry((flow, victim)).or_default() += 1;
        self.rig.until("the source is attached and healthy", || self.rig.is_served(SOURCE));
        self.rig.holds(SOURCE, &self.content, MEBIBYTES);
        self.rig.until("nothing else holds the source", || self.rig.tickets(SOURCE) == 1);
        if (round + 1).is_multiple_of(ROUNDS_OF_A_FOLLOWER) {
            self.compare_follower();
            self.follow();
        }
        println!("crash volumes: round {round}: right after {} s", began.elapsed().as_secs());
    }

    /// Some data that is acknowledged before anything is killed.
    fn change(&mut self) {
        let seed = self.random.random_range(1..u64::from(u32::MAX));
        let at = self.random.random_range(0..MEBIBYTES - 4);
        self.rig.write(SOURCE, &mut self.content, at, 4, seed);
    }

    fn back_up(&mut self) {
        let name = self.name("backup");
        self.rig.backup(SOURCE, &name);
        self.backups.insert(name, self.content.clone());
    }

    fn check_a_backup(&mut self) {
        let newest = self.backups.keys().next_back().unwrap().clone();
        let name = self.name("checked");
        self.rig.make_from_backup(&name, &newest, 1, false);
        self.rig.is_restored(&name);
        let then = self.backups[&newest].clone();
        self.compare_and_remove(&name, &then, None);
    }

    fn kill(&mut self, victim: Victim, pause: Duration, volume: &str) {
        e2e::engine::blocking(async {
            tokio::time::sleep(pause).await;
        });
        let replicas = self.rig.replicas(volume);
        let one = (!replicas.is_empty()).then(|| self.pick(&replicas));
        let folder = one.map(|it| self.rig.folder(&it));
        let kill_one = || folder.as_deref().is_some_and(e2e::volumes::kill_replica_in);
        match victim {
            Victim::Engine => {
                self.rig.kill_engine_that_may_run(volume);
            }
            Victim::Replica => {
                kill_one();
            }
            Victim::Server => self.rig.restart_server(),
            Victim::ServerAndReplica => {
                self.rig.server.kill();
                kill_one();
                self.rig.server.start_again().unwrap();
            }
        }
    }

    /// What was not acknowledged may be old or new; it is written again.
    fn kill_while_writing(&mut self, victim: Victim, pause: Duration) {
        let seed = self.random.random_range(1..u64::from(u32::MAX));
        let endpoint = self.rig.endpoint(SOURCE);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = Content::new();
                let until = Instant::now() + pause + Duration::from_secs(1);
                while Instant::now() < until {
                    if !e2e::volumes::try_write(&endpoint, &mut acknowledged, 0, 8, seed) {
                        break;
                    }
                }
                acknowledged
            });
            self.kill(victim, pause, SOURCE);
            let acknowledged = writer.join().unwrap();
            self.content.extend(acknowledged);
        });
        self.rig.until("the source is served again", || self.rig.is_served(SOURCE));
        self.rig.write(SOURCE, &mut self.content, 0, 8, seed);
    }

    fn compare_and_remove(
        &mut self,
        name: &str,
        then: &Content,
        killed: Option<(Victim, Duration)>,
    ) {
        self.rig.attach(name);
        self.rig.holds(name, then, MEBIBYTES);
        self.rig.kubectl(&["delete", "lhv", name, "--wait=false"]);
        if let Some((victim, pause)) = killed {
            self.kill(victim, pause, name);
        }
        self.rig.is_gone("lhv", name);
        self.rig.until("nothing of it is left", || self.rig.replicas(name).is_empty());
    }

    fn follow(&mut self) {
        let newest = self.newest();
        let name = self.name("standby");
        self.rig.make_from_backup(&name, &newest, 2, true);
        self.follower = Some(name);
    }

    fn newest(&self) -> String {
        let number = |name: &String| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
        self.backups.keys().max_by_key(|name| number(name)).unwrap().clone()
    }

    /// Activated, the follower holds the newest backup.
    fn compare_follower(&mut self) {
        let Some(name) = self.follower.take() else { return };
        self.rig.patch("lhv", &name, &json!({"spec": {"Standby": false, "frontend": "blockdev"}}));
        self.rig.until("the follower is activated and detached", || {
            self.rig.field("lhv", &name, "/status/isStandby") == Some(json!(false))
                && self.rig.state(&name) == "detached"
        });
        let then = self.backups[&self.newest()].clone();
        self.compare_and_remove(&name, &then, None);
    }
}
