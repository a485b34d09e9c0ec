//! Whose the store is: whether the etcd continues what is there, and what is done where it does
//! not. A history that is not continued is left as it is, and a new one begins beside it.

use std::sync::PoisonError;

use jiff::Timestamp;

use super::chain::Chain;
use super::full::stored;
use super::session::Session;
use super::tail::{Continuity, Tail};
use super::{SnapshotError, now};
use crate::datadir::Origin;
use crate::store::{Histories, History, Include, Kind, Latest, Snapshot, history};

/// What the store says of its histories.
#[derive(Debug, Default)]
pub(super) struct Known {
    histories: Histories,
    /// What the data directory says of itself, where it is a new beginning.
    origin: Option<Origin>,
}

impl Known {
    /// When the history began that is written to.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.histories.newest().map(|newest| newest.since)
    }

    /// The number of that history.
    pub(super) fn current(&self) -> usize {
        self.histories.current()
    }
}

impl Session<'_> {
    /// Reads what the store has.
    pub(super) async fn read_store(&mut self) -> Result<(), SnapshotError> {
        let latest = Latest::of(&self.tools.store.list(Include::Unmarked).await?);
        let histories = self.tools.store.histories().await?;
        let origin = self.origin()?;
        let origin = origin.filter(|it| histories.is_new(&it.id, it.restored_at));
        self.chain = Chain::of(latest);
        self.known = Known { histories, origin };
        Ok(())
    }

    fn origin(&self) -> Result<Option<Origin>, SnapshotError> {
        let dir = self.tools.config.data_dir.as_deref();
        // A few bytes: not worth a thread.
        dir.map_or(Ok(None), |dir| Origin::read(dir).map_err(SnapshotError::Origin))
    }

    /// Why an etcd that is at `revision` is not the one that the store is of; none if it is, or
    /// nothing speaks against it.
    pub(super) async fn other_history(
        &mut self,
        revision: i64,
    ) -> Result<Option<String>, SnapshotError> {
        if let Some(origin) = &self.known.origin {
            return Ok(Some(origin.reason.clone()));
        }
        let Some(newest) = self.chain.newest().cloned() else { return Ok(None) };
        if newest.history != self.known.histories.current() {
            return Ok(Some("a history was begun, and has no snapshot yet".to_owned()));
        }
        let tail = self.tail(&newest).await;
        let last = self.chain.last_revision().max(tail.revision);
        if revision < last {
            return Ok(Some(format!("etcd is at revision {revision}, and the store at {last}")));
        }
        let patience = self.tools.etcd.config().connection_timeout;
        match tail.compare(&self.tools.etcd, patience).await? {
            Continuity::Other(why) => Ok(Some(why)),
            Continuity::Same | Continuity::Unknown => Ok(None),
        }
    }

    /// The last changes that the store has: known here, or read from there.
    async fn tail(&mut self, newest: &Snapshot) -> Tail {
        let known = self.tools.tail.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, tail)) = known.filter(|(name, _)| *name == newest.snap_name) {
            return tail;
        }
        let read = match newest.kind {
            Kind::Incr => {
                let read = Tail::of_delta(&self.tools.store, newest).await;
                read.map_err(|error| telemetry::Chain(&error).to_string())
            }
            Kind::Full => {
                let read = stored(&self.tools.store, newest, &self.tools.config.temp_dir).await;
                read.map_err(|error| error.to_string())
            }
        };
        match read {
            Ok(tail) => {
                self.keep_tail(newest, tail.clone());
                tail
            }
            Err(why) => {
                let name = &newest.snap_name;
                tracing::error!("whether etcd continues {name} cannot be told: {why}");
                Tail::default()
            }
        }
    }

    /// Remembers the last changes in the store for the next run.
    pub(super) fn keep_tail(&self, newest: &Snapshot, tail: Tail) {
        let mut kept = self.tools.tail.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some((newest.snap_name.clone(), tail));
    }

    /// Begins a new history in the store: written down before its first snapshot, so that nothing
    /// is ever taken for a part of the old one.
    pub(super) async fn begin_history(&mut self, reason: &str) -> Result<(), SnapshotError> {
        let store = &self.tools.store;
        let there = store.list(Include::All).await?;
        let histories = store.histories().await?;
        let origin = self.known.origin.take().map(|origin| origin.id);
        let unused = histories.newest().filter(|_| {
            let current = histories.current();
            origin.is_none() && !there.iter().any(|snapshot| snapshot.history == current)
        });
        let unused = unused.cloned();
        let history = unused.clone().unwrap_or_else(|| {
            let id = origin.unwrap_or_else(history::new_id);
            History::begin(id, reason.to_owned(), now(), &there)
        });
        if unused.is_none() {
            store.begin_history(&history).await?;
        }
        tracing::warn!(
            "this etcd is not the one that the store is of: {reason}. A new history begins with a \
             full snapshot; what was there stays until the collection policy removes it, and can be \
             restored with --to-time {}",
            history.before()
        );
        self.known.histories = store.histories().await?;
        self.forget();
        Ok(())
    }
}
