//! Puts into a directory that wait for the disk together, see [`durable::on::commit`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use durable::on::{self, Committed, IfTaken, Staged};
use durable::{Barrier, Mode};

use super::{Inner, LocalStore};
use crate::error::Error;
use crate::key::Key;
use crate::store::{Batch, Waiting};

pub(super) fn open(store: LocalStore, barrier: Box<dyn Barrier>) -> Arc<dyn Batch> {
    Arc::new(LocalBatch(Arc::new(State { store, barrier, staged: Mutex::default() })))
}

#[derive(Debug)]
struct LocalBatch(Arc<State>);

#[derive(Debug)]
struct State {
    store: LocalStore,
    barrier: Box<dyn Barrier>,
    staged: Mutex<Vec<(Key, Staged)>>,
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
        let stage = || on::stage(inner.disk.as_ref(), &path, bytes, Mode::PRIVATE, if_taken);
        let one = inner.in_folder_made(&key, &path, on::create_dir_unsynced, stage)?;
        let mut staged = self.staged();
        staged.push((key, one));
        let bytes = staged.iter().map(|(_, it)| it.len_bytes()).sum();
        Ok(Waiting { objects: staged.len(), bytes })
    }

    fn commit(&self) -> Result<Vec<(Key, u64)>, Error> {
        let staged = std::mem::take(&mut *self.staged());
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
