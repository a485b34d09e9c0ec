//! Puts into a directory that wait for the disk together, see [`durable::on::commit`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use durable::on::{self, Committed, IfTaken, Staged};
use durable::{Barrier, Mode, Operation};

use super::{Inner, LocalStore};
use crate::error::Error;
use crate::key::Key;
use crate::store::{Batch, Waiting};

pub(super) fn open(store: LocalStore, barrier: Box<dyn Barrier>) -> Arc<dyn Batch> {
    let (staged, commits) = (Mutex::default(), Mutex::new(Commits::Go));
    Arc::new(LocalBatch(Arc::new(State { store, barrier, staged, commits })))
}

#[derive(Debug)]
struct LocalBatch(Arc<State>);

#[derive(Debug)]
struct State {
    store: LocalStore,
    barrier: Box<dyn Barrier>,
    staged: Mutex<Vec<(Key, Staged)>>,
    /// One after the other: a barrier tells of what was lost to one of those who wait.
    commits: Mutex<Commits>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commits {
    Go,
    /// One failed: anything that was staged then may be lost, and no barrier will say so again.
    Failed,
}

impl State {
    fn staged(&self) -> MutexGuard<'_, Vec<(Key, Staged)>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner(&self) -> &Inner {
        &self.store.inner
    }

    fn stage(&self, key: Key, bytes: &[u8], if_taken: IfTaken) -> Result<Waiting, Error> {
        let (inner, path): (_, PathBuf) = (self.inner(), self.inner().path(&key)?);
        let covers = self.barrier.covers(&path).map_err(|source| {
            let (operation, path) = (Operation::Inspect, path.clone());
            Error::from(durable::Error::Io { operation, path, source })
        })?;
        if !covers {
            match if_taken {
                IfTaken::KeepSameLength => inner.put_new(&key, bytes)?,
                IfTaken::Replace => inner.put(&key, bytes)?,
            };
            return Ok(Self::waiting(&self.staged()));
        }
        let stage = || on::stage(inner.disk.as_ref(), &path, bytes, Mode::PRIVATE, if_taken);
        let one = inner.in_folder_made(&key, &path, on::create_dir_unsynced, stage)?;
        let mut staged = self.staged();
        staged.push((key, one));
        Ok(Self::waiting(&staged))
    }

    fn waiting(staged: &[(Key, Staged)]) -> Waiting {
        let bytes = staged.iter().map(|(_, it)| it.len_bytes()).sum();
        Waiting { objects: staged.len(), bytes }
    }

    fn commit(&self) -> Result<Vec<(Key, u64)>, Error> {
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if *commits == Commits::Failed {
            let source = "what was written with it may be lost, since an earlier commit failed";
            return Err(Error::Unavailable { what: "a batch".to_owned(), source: source.into() });
        }
        let done = self.commit_staged();
        if done.is_err() {
            *commits = Commits::Failed;
        }
        done
    }

    fn commit_staged(&self) -> Result<Vec<(Key, u64)>, Error> {
        let staged = std::mem::take(&mut *self.staged());
        if staged.is_empty() {
            self.barrier.wait().map_err(|source| {
                let (operation, path) = (Operation::Sync, self.inner().root.clone());
                Error::from(durable::Error::Io { operation, path, source })
            })?;
            return Ok(Vec::new());
        }
        let lengths: Vec<u64> = staged.iter().map(|(_, it)| it.len_bytes()).collect();
        let (keys, files): (Vec<Key>, Vec<Staged>) = staged.into_iter().unzip();
        let named = on::commit(self.inner().disk.as_ref(), self.barrier.as_ref(), &files)?;
        let all = keys.into_iter().zip(lengths).zip(named);
        Ok(all.filter(|(_, it)| *it == Committed::Theirs).map(|(found, _)| found).collect())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (_, one) in std::mem::take(&mut *self.staged()) {
            one.discard(self.inner().disk.as_ref());
        }
    }
}

impl LocalBatch {
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&State) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let state = Arc::clone(&self.0);
        // What is staged goes with the state, also where nobody waits for this any more.
        self.0.store.run(move |_| work(&state)).await
    }
}

#[async_trait]
impl Batch for LocalBatch {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Waiting, Error> {
        let key = key.clone();
        self.run(move |state| {
            if !state.inner().is_missing(&key)? {
                return Err(Error::Exists { key });
            }
            state.stage(key, &bytes, IfTaken::KeepSameLength)
        })
        .await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Waiting, Error> {
        let key = key.clone();
        self.run(move |state| state.stage(key, &bytes, IfTaken::Replace)).await
    }

    async fn commit(&self) -> Result<Vec<(Key, u64)>, Error> {
        self.run(State::commit).await
    }
}
