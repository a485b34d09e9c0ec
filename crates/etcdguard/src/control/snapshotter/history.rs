//! Whose the store is: whether the etcd continues what is there, and what is done where it does
//! not. A history that is not continued is left as it is, and a new one begins beside it.

use std::sync::{MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::io::AsyncRead;

use super::chain::Chain;
use super::decide::Bond;
use super::full::stored;
use super::session::Session;
use super::tail::{Continuity, Tail};
use super::{SnapshotError, now};
use crate::datadir::Origin;
use crate::store::{Histories, History, Include, Kind, Latest, SnapStore, Snapshot, history};

/// What an etcd that never stored anything is at.
const EMPTY: i64 = 1;

/// A snapshot that was sent, and the id of the history that it is of: none for the first.
#[derive(Debug, Clone)]
pub(in crate::control) struct Unsettled {
    snapshot: Snapshot,
    intended: Option<String>,
}

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
        self.settle().await?;
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
    async fn check_history(&mut self) -> Result<(), SnapshotError> {
        let histories = self.tools.store.histories().await?;
        let is_same = histories.newest() == self.known.histories.newest();
        is_same.then_some(()).ok_or(SnapshotError::Overtaken)
    }

    /// Saves a snapshot, and looks again after that: a guard that began a history while this was on
    /// its way does not know of it, and by a clock that is behind, or in the same second, it would be
    /// a part of that history. Then it is taken back.
    pub(super) async fn save(
        &mut self,
        snapshot: &Snapshot,
        body: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<Snapshot, SnapshotError> {
        self.check_history().await?;
        let intended = self.known.histories.newest().map(|newest| newest.id.clone());
        // Until it has been looked at: what fails from here on may have been stored all the same.
        self.keep_unsettled(Some(Unsettled { snapshot: snapshot.clone(), intended }));
        let saved = self.tools.store.save(snapshot, body).await?;
        self.settle().await?;
        self.check_history().await?;
        Ok(saved)
    }

    /// Takes back the last snapshot that was sent, where it came to lie in a history that it is not
    /// of.
    async fn settle(&mut self) -> Result<(), SnapshotError> {
        let unsettled = self.unsettled().clone();
        if let Some(Unsettled { snapshot, intended }) = unsettled {
            take_back(&self.tools.store, &snapshot, intended.as_deref()).await?;
            self.keep_unsettled(None);
        }
        Ok(())
    }

    fn unsettled(&self) -> MutexGuard<'_, Option<Unsettled>> {
        self.tools.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_unsettled(&self, unsettled: Option<Unsettled>) {
        *self.unsettled() = unsettled;
    }

    /// Whether an etcd that is at `revision` is the one that the store is of.
    pub(super) async fn bond(&mut self, revision: i64) -> Result<Bond, SnapshotError> {
        if let Some(origin) = &self.known.origin {
            return Ok(Bond::Other(origin.reason.clone()));
        }
        let Some(newest) = self.chain.newest().cloned() else { return Ok(Bond::Continues) };
        // Its number in the listing may be of before another one was forgotten.
        if self.known.histories.number_of(&newest) != self.known.histories.current() {
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

/// Removes a snapshot that lies in another history than the one of this id.
async fn take_back(
    store: &SnapStore,
    snapshot: &Snapshot,
    intended: Option<&str>,
) -> Result<(), SnapshotError> {
    let histories = store.histories().await?;
    let found = histories.of_snapshot(snapshot);
    if found.map(|history| history.id.as_str()) == intended {
        return Ok(());
    }
    // What was collected meanwhile is gone with its history, and so is this.
    let stored = store.list(Include::All).await?;
    for stored in stored.iter().filter(|it| it.identity() == snapshot.identity()) {
        tracing::warn!(
            "another guard began a history while {} was on its way: it is taken back",
            stored.snap_name
        );
        store.delete(stored).await?;
    }
    Ok(())
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
    use crate::store::{Environment, StoreConfig};

    /// The other guard's clock is behind by a minute, and it began while this was on its way: what it
    /// had listed did not have it.
    #[tokio::test]
    async fn what_came_to_lie_in_another_history_is_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            provider: "Local".to_owned(),
            container: "backups".to_owned(),
            ..StoreConfig::default()
        };
        let environment: Environment =
            [("HOME", home.path().to_str().unwrap())].into_iter().collect();
        let store = SnapStore::open(&config, &environment).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let begin = |id: &str, second| {
            History::begin(id.to_owned(), "as a test".to_owned(), at(second), &[])
        };
        store.begin_history(&begin("0a", 1000)).await.unwrap();
        let ours = Snapshot::delta(5, 9, at(1060), None);
        let theirs = Snapshot::full(3, at(1001), None, false);
        for snapshot in [&ours, &theirs] {
            store.save(snapshot, &b"bytes"[..]).await.unwrap();
        }
        take_back(&store, &ours, Some("0a")).await.unwrap();
        assert_eq!(store.list(Include::All).await.unwrap().len(), 2, "it is where it should be");
        store.begin_history(&begin("0b", 1002)).await.unwrap();
        take_back(&store, &theirs, Some("0a")).await.unwrap();
        take_back(&store, &ours, Some("0a")).await.unwrap();
        let left = store.list(Include::All).await.unwrap();
        let left: Vec<&str> = left.iter().map(|it| it.snap_name.as_str()).collect();
        assert_eq!(left, [theirs.snap_name]);
    }

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
