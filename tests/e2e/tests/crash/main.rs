//! kill -9 in a loop of concurrent writers.
//!
//! After every kill: each acknowledged write is there, resource versions never went back, and a
//! watch that resumes where it was cut off misses nothing (or is told that history is gone).
//! `CRASH_ROUNDS` says how often, `CRASH_SEED` replays the choices of an earlier run.

mod mirror;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use e2e::{Endpoint, Server};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;

use mirror::{Mirror, Resumed, TIMEOUT};
use writer::Writer;

const ROUNDS: u32 = 100;
const WRITERS: usize = 8;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long the writers may write before the kill.
const WRITING_MS: std::ops::Range<u64> = 20..200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let rounds = from_environment("CRASH_ROUNDS").and_then(|it| it.try_into().ok());
    let rounds: u32 = rounds.unwrap_or(ROUNDS);
    let seed = from_environment("CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("crash: seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = Server::start();
    let mut loop_ = Crashes::new(&server, &mut random).await;
    for round in 1..=rounds {
        loop_.write_until_killed(&mut server, random.random_range(WRITING_MS)).await;
        server.start_again().unwrap();
        loop_.check(&server.endpoint(), round).await;
    }
    println!(
        "crash: {rounds} rounds, {} acknowledged writes, {} lost, {} watches resumed, {} told 410",
        loop_.acknowledged,
        loop_.lost.len(),
        loop_.resumed,
        loop_.expired
    );
    assert!(loop_.lost.is_empty(), "lost: {:#?}", loop_.lost);
    assert!(loop_.acknowledged > u64::from(rounds), "the writers hardly wrote");
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

struct Crashes {
    writers: Vec<Writer>,
    mirror: Mirror,
    /// The newest revision any client was told.
    newest: u64,
    acknowledged: u64,
    resumed: u64,
    expired: u64,
    lost: Vec<String>,
}

impl Crashes {
    async fn new(server: &Server, random: &mut StdRng) -> Self {
        let writers = (0..WRITERS).map(|number| Writer::new(number, random.random())).collect();
        let mut connection = server.endpoint().connect().await.unwrap();
        let mirror = Mirror::list(&mut connection).await;
        Self {
            writers,
            newest: mirror.revision(),
            mirror,
            acknowledged: 0,
            resumed: 0,
            expired: 0,
            lost: Vec::new(),
        }
    }

    /// All write, one watches, and then the power is gone.
    async fn write_until_killed(&mut self, server: &mut Server, writing_ms: u64) {
        let endpoint = server.endpoint();
        let mut watching = JoinSet::new();
        watching.spawn(std::mem::take(&mut self.mirror).follow(endpoint.clone()));
        let written = Arc::new(AtomicU64::new(0));
        let mut writing = JoinSet::new();
        for writer in self.writers.drain(..) {
            writing.spawn(writer.write(endpoint.clone(), written.clone()));
        }
        // From the first answer on: a loaded machine takes its time to make connections.
        let begun = async {
            while written.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, begun).await.expect("nobody writes");
        // The length of this pause is the experiment.
        tokio::time::sleep(Duration::from_millis(writing_ms)).await;
        server.kill();
        self.writers = writing.join_all().await;
        self.mirror = watching.join_all().await.pop().unwrap();
    }

    async fn check(&mut self, endpoint: &Endpoint, round: u32) {
        let mut connection = endpoint.connect().await.unwrap();
        let found = Mirror::list(&mut connection).await;
        let told = self.writers.iter().map(|writer| writer.newest).max().unwrap_or(0);
        self.newest = self.newest.max(told).max(self.mirror.revision());
        if found.revision() < self.newest {
            let (now, then) = (found.revision(), self.newest);
            self.lost.push(format!("round {round}: revision {now} after {then}"));
        }
        let mut acknowledged = Vec::new();
        for writer in &mut self.writers {
            acknowledged.append(&mut writer.acknowledged);
            let complaints = writer.settle(&found);
            self.lost.extend(complaints.map(|text| format!("round {round}: {text}")));
        }
        self.acknowledged += acknowledged.len() as u64;
        for text in self.mirror.contradictions(&found, &acknowledged) {
            self.lost.push(format!("round {round}: {text}"));
        }
        self.resume(endpoint, &acknowledged, round).await;
    }

    /// The mirror catches up by watching, and must come to what a list shows.
    async fn resume(&mut self, endpoint: &Endpoint, acknowledged: &[u64], round: u32) {
        let mut connection = endpoint.connect().await.unwrap();
        let mark = json!({"metadata": {"name": "mark"}, "data": {"counter": round.to_string()}});
        let answer = match round {
            1 => connection.post(MAPS, &mark).await,
            _ => connection.put(&format!("{MAPS}/mark"), &mark).await,
        };
        let until = answer.unwrap().revision();
        if until <= self.newest {
            self.lost.push(format!("round {round}: revision {until} was given twice"));
        }
        self.newest = until;
        let listed = Mirror::list(&mut connection).await;
        match self.mirror.resume(endpoint, until).await {
            Resumed::Caught { seen } => {
                self.resumed += 1;
                let missed = acknowledged.iter().filter(|revision| !seen.contains(revision));
                for revision in missed {
                    self.lost.push(format!("round {round}: no event for revision {revision}"));
                }
                if !self.mirror.same_as(&listed) {
                    self.lost.push(format!("round {round}: the watch and the list differ"));
                }
            }
            Resumed::Expired => self.expired += 1,
        }
        // Each round is judged on its own.
        self.mirror = listed;
    }
}
