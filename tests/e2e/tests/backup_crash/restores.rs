//! A volume that follows the backups of another, killed and brought back while it does.

use std::time::Duration;

use e2e::backup::{Restored, Target};
use e2e::engine::{Frontend, Setup, Volume, sum};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::lane::{kill, pause_for};
use crate::plan::{Moment, Plan};

const REPLICAS: usize = 2;
const LOOK_EVERY: Duration = Duration::from_millis(1);
const RECORD: &str = "restore.json";

#[derive(Debug)]
pub(crate) struct Standby {
    restored: Restored,
    /// The backup that it holds.
    pub(crate) last: Option<String>,
}

impl Standby {
    pub(crate) fn new(size_bytes: u64) -> Self {
        let setup = Setup {
            replicas: REPLICAS,
            size_bytes,
            frontend: Frontend::None,
            // Which replica is newest says nothing here: backups tell what they hold.
            revision_counter: false,
            ..Setup::default()
        };
        Self { restored: Restored { volume: Volume::start(setup) }, last: None }
    }

    /// Begins to restore a backup, kills replicas meanwhile, and starts everything anew. Whether the
    /// kill came before the end.
    pub(crate) fn interrupted(
        &mut self,
        target: &Target,
        volume: &str,
        backup: &str,
        plan: &Plan,
        random: &mut StdRng,
    ) -> bool {
        let victims: Vec<usize> = match random.random_range(0..3) {
            0 => vec![0],
            1 => vec![1],
            _ => vec![0, 1],
        };
        let ids: Vec<u32> = self
            .restored
            .volume
            .replicas
            .iter()
            .map(|replica| replica.process.as_ref().unwrap().id())
            .collect();
        // With the engine gone too, nobody notes that a copy failed: after a restart all are the
        // volume's again, and the restore is taken up where it was.
        let engine = self.restored.volume.engine().process.id();
        let own = &*self;
        std::thread::scope(|scope| {
            let restoring = scope.spawn(|| own.restored.begin(target, volume, backup));
            let pause = match plan.moment {
                Moment::After(pause) => pause,
                Moment::AfterSign(pause) => {
                    while !own.has_begun(victims[0], backup) && !restoring.is_finished() {
                        std::thread::park_timeout(LOOK_EVERY);
                    }
                    pause
                }
            };
            // Its length is part of the experiment.
            pause_for(pause);
            kill(engine);
            for victim in &victims {
                kill(ids[*victim]);
            }
            // Told or not: the records do.
            let _ = restoring.join().unwrap();
        });
        self.restored.volume.kill_engine();
        for victim in &victims {
            self.restored.volume.replicas[*victim].kill();
        }
        // Those that live go on; they are given the time, or not.
        let in_time = victims.iter().any(|victim| self.record(*victim)["lastRestored"] != backup);
        self.restored.volume.restart();
        in_time
    }

    fn record(&self, replica: usize) -> Value {
        let text = std::fs::read(self.restored.volume.replicas[replica].dir.join(RECORD));
        text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn has_begun(&self, replica: usize, backup: &str) -> bool {
        self.record(replica)["unfinished"]["backup"] == backup
    }

    /// Restores it to its end, whatever was begun before; every replica then holds it.
    #[track_caller]
    pub(crate) fn restore(&mut self, target: &Target, volume: &str, backup: &str, expected: &str) {
        if let Err(refused) = self.restored.begin(target, volume, backup) {
            // One that has it already needs nothing.
            assert!(refused.contains("already restored backup"), "{backup}: {refused}");
        }
        let ended = self.restored.wait(backup);
        ended.unwrap_or_else(|error| panic!("{backup} was not restored: {error}"));
        assert_eq!(sum(&self.restored.volume.assert_equal()), expected, "{backup}");
        self.last = Some(backup.to_owned());
    }
}
