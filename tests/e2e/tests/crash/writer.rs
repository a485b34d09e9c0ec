//! One client that writes its own objects, one request at a time, and remembers what it was told.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use e2e::{Answer, Connection, Endpoint};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::MAPS;
use crate::mirror::Mirror;

/// Few names, so that they are created, changed and deleted often.
const NAMES: u32 = 6;

/// Counter in an object, or none if it is not there.
type State = Option<u64>;

#[derive(Debug)]
pub(crate) struct Writer {
    number: usize,
    random: StdRng,
    counter: u64,
    /// What the server acknowledged last, by name.
    states: BTreeMap<String, State>,
    /// The request that was under way at the kill: it may have happened or not.
    open: Option<(String, State)>,
    /// Revisions of acknowledged writes since the last check.
    pub(crate) acknowledged: Vec<u64>,
    pub(crate) newest: u64,
}

impl Writer {
    pub(crate) fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            random: StdRng::seed_from_u64(seed),
            counter: 0,
            states: BTreeMap::new(),
            open: None,
            acknowledged: Vec::new(),
            newest: 0,
        }
    }

    /// Writes until the server is gone, and counts what was acknowledged.
    pub(crate) async fn write(mut self, endpoint: Endpoint, written: Arc<AtomicU64>) -> Self {
        if let Ok(mut connection) = endpoint.connect().await {
            while self.step(&mut connection).await.is_ok() {
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
        self
    }

    async fn step(&mut self, connection: &mut Connection) -> io::Result<()> {
        let name = format!("w{}-{}", self.number, self.random.random_range(0..NAMES));
        let before = self.states.get(&name).copied().flatten();
        let delete = before.is_some() && self.random.random_ratio(1, 4);
        self.counter += 1;
        let after = (!delete).then_some(self.counter);
        self.open = Some((name.clone(), after));
        let answer = self.request(connection, &name, before, after).await?;
        assert!(answer.status.is_success(), "{name}: {before:?} to {after:?}: {answer:?}");
        let revision = answer.revision();
        // The answer to a delete is a Status without a revision, or the object as it was.
        if after.is_some() {
            assert!(revision > self.newest, "revision {revision} after {}", self.newest);
            self.newest = revision;
            self.acknowledged.push(revision);
        }
        self.open = None;
        self.states.insert(name, after);
        Ok(())
    }

    async fn request(
        &mut self,
        connection: &mut Connection,
        name: &str,
        before: State,
        after: State,
    ) -> io::Result<Answer> {
        let path = format!("{MAPS}/{name}");
        let Some(counter) = after else { return connection.delete(&path).await };
        let data = json!({"counter": counter.to_string()});
        let whole = json!({"metadata": {"name": name}, "data": data});
        match (before, self.random.random_ratio(1, 2)) {
            (None, _) => connection.post(MAPS, &whole).await,
            (Some(_), true) => connection.put(&path, &whole).await,
            (Some(_), false) => connection.merge(&path, &json!({"data": data})).await,
        }
    }

    /// Compares what was acknowledged with what is there, and goes on from what is there.
    pub(crate) fn settle(&mut self, found: &Mirror) -> impl Iterator<Item = String> + use<> {
        let open = self.open.take();
        if let Some((name, _)) = &open {
            self.states.entry(name.clone()).or_insert(None);
        }
        let mut complaints = Vec::new();
        for (name, state) in &mut self.states {
            let there = found.counter(name);
            let may_have =
                open.as_ref().filter(|(other, _)| other == name).map(|(_, after)| *after);
            if there != *state && Some(there) != may_have {
                complaints.push(format!("{name} is {there:?}, acknowledged {state:?}"));
            }
            *state = there;
        }
        complaints.into_iter()
    }
}
