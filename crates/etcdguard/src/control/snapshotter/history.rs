//! Whose the store is: whether the etcd continues what is there, and what is done where it does
//! not. A history that is not continued is left as it is, and a new one begins beside it.

use std::sync::PoisonError;

use jiff::Timestamp;

use super::chain::Chain;
use super::decide::Bond;
use super::full::stored;
use super::session::Session;
use super::tail::{Continuity, Tail};
use super::{SnapshotError, now};
use crate::datadir::Origin;
use crate::store::{Histories, History, Include, Kind, Latest, Snapshot, history};

/// What an etcd that never stored anything is at.
const EMPTY: i64 = 1;

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

    /// Fails where another guard began a history meanwhile: what is written here would be taken for
    /// a part of it, behind a full snapshot that nobody here knows of.
    pub(super) async fn check_history(&mut self) -> Result<(), SnapshotError> {
        let histories = self.tools.store.histories().await?;
        let is_same = histories.newest() == self.known.histories.newest();
        is_same.then_some(()).ok_or(SnapshotError::Overtaken)
    }

    /// Whether an etcd that is at `revision` is the one that the store is of.
    pub(super) async fn bond(&mut self, revision: i64) -> Result<Bond, SnapshotError> {
        if let Some(origin) = &self.known.origin {
            return Ok(Bond::Other(origin.reason.clone()));
        }
        let Some(newest) = self.chain.newest().cloned() else { return Ok(Bond::Continues) };
        if newest.history != self.known.histories.current() {
            return Ok(Bond::Other("a history was begun, and has no snapshot yet".to_owned()));
        }
        let tail = self.tail(&newest).await;
        let seen = tail.as_ref().map_or(0, |tail| tail.revision);
        let last = self.chain.last_revision().max(seen);
        if revision < last {
            let why = format!("etcd is at revision {revision}, and the store at {last}");
            return Ok(Bond::Other(why));
        }
        let Some(tail) = tail else { return Ok(Bond::Unreadable) };
        let timeout = self.tools.etcd.config().connection_timeout;
        Ok(match tail.compare(&self.tools.etcd, timeout).await? {
            Continuity::Other(why) => Bond::Other(why),
            Continuity::Same => Bond::Continues,
            // Whatever is in an etcd, nothing was there before.
            Continuity::Unknown if tail.revision <= EMPTY => Bond::Continues,
            Continuity::Unknown => Bond::Unsure,
        })
    }

    /// The last changes that the store has: known here, or read from there, where that can be done.
    async fn tail(&mut self, newest: &Snapshot) -> Option<Tail> {
        let known = self.tools.tail.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, tail)) = known.filter(|(name, _)| *name == newest.snap_name) {
            return Some(tail);
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
                Some(tail)
            }
            Err(why) => {
                let name = &newest.snap_name;
                tracing::error!("whether etcd continues {name} cannot be told: {why}");
                None
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
        let history = match beginning(&self.known.histories, &histories, &there, origin.is_some()) {
            Beginning::Overtaken => return Err(SnapshotError::Overtaken),
            Beginning::Unused(history) => history.clone(),
            Beginning::New => {
                let id = origin.unwrap_or_else(history::new_id);
                let since = histories.after_all(now());
                let history = History::begin(id, reason.to_owned(), since, &there);
                store.begin_history(&history).await?;
                history
            }
        };
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

/// How a new history begins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Beginning<'h> {
    /// It was decided on before another guard began one, which has snapshots by now: perhaps this
    /// etcd is the one that they are of.
    Overtaken,
    /// As one that was begun and has nothing yet.
    Unused(&'h History),
    New,
}

/// `known` is what was there when it was decided to begin one, and `found` what is there now.
fn beginning<'h>(
    known: &Histories,
    found: &'h Histories,
    there: &[Snapshot],
    has_origin: bool,
) -> Beginning<'h> {
    let Some(newest) = found.newest() else { return Beginning::New };
    let is_used = there.iter().any(|snapshot| found.number_of(snapshot) == found.current());
    match (is_used, known.newest() == Some(newest)) {
        (false, _) if !has_origin => Beginning::Unused(newest),
        (true, false) => Beginning::Overtaken,
        (true, true) | (false, _) => Beginning::New,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_was_overtaken_begins_nothing_on_what_it_knew() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let begin =
            |id: &str, second| History::begin(id.to_owned(), String::new(), at(second), &[]);
        let full = |second| Snapshot::full(5, at(second), None, false);
        let none = Histories::default();
        let one = Histories::of(vec![begin("0a", 10)]);
        let unused = Beginning::Unused(one.newest().unwrap());
        for (known, found, there, has_origin, expected) in [
            (&none, &none, vec![full(5)], false, Beginning::New),
            (&none, &one, vec![full(5)], false, unused.clone()),
            (&one, &one, vec![full(5)], false, unused),
            (&one, &one, vec![full(5)], true, Beginning::New),
            (&one, &one, vec![full(11)], false, Beginning::New),
            (&none, &one, vec![full(11)], false, Beginning::Overtaken),
            (&none, &one, vec![full(11)], true, Beginning::Overtaken),
        ] {
            assert_eq!(beginning(known, found, &there, has_origin), expected, "{there:?}");
        }
    }
}
