//! Long work of controllers: started once under a key, looked at by passes, gone with the process.
//!
//! Owns: that there is one piece of work for a key, that its end is told to whoever waits for it,
//! and that work that breaks down has an end, too. Never: what the work does.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reconcile::{Key, Queue};
use tasks::Tasks;

/// How a piece of work stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stand<T> {
    Running,
    Ended(T),
    /// It panicked, or was stopped.
    Broken,
}

/// One piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Entry<M, T> {
    /// What its starter wants to know of it.
    pub(crate) mark: M,
    pub(crate) stand: Stand<T>,
}

type Entries<M, T> = Arc<Mutex<HashMap<String, Entry<M, T>>>>;

/// All work of one sort.
pub(crate) struct Work<M, T> {
    name: &'static str,
    tasks: Tasks,
    entries: Entries<M, T>,
}

impl<M, T> fmt::Debug for Work<M, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Work").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<M: Clone + Send + 'static, T: Clone + Send + 'static> Work<M, T> {
    pub(crate) fn new(name: &'static str, tasks: &Tasks) -> Self {
        Self { name, tasks: tasks.child(name), entries: Arc::default() }
    }

    /// What is known of the work under this key.
    pub(crate) fn look(&self, key: &str) -> Option<Entry<M, T>> {
        lock(&self.entries).get(key).cloned()
    }

    /// All work whose key begins so, by what follows that.
    pub(crate) fn under(&self, prefix: &str) -> Vec<(String, Entry<M, T>)> {
        let of = |(key, entry): (&String, &Entry<M, T>)| {
            Some((key.strip_prefix(prefix)?.to_owned(), entry.clone()))
        };
        lock(&self.entries).iter().filter_map(of).collect()
    }

    pub(crate) fn is_running(&self, key: &str) -> bool {
        self.look(key).is_some_and(|entry| matches!(entry.stand, Stand::Running))
    }

    /// Starts work under this key, unless some runs there. Its end asks for a pass of `tell`.
    pub(crate) fn start(
        &self,
        key: &str,
        mark: M,
        tell: (Arc<Queue>, Key),
        work: impl Future<Output = T> + Send + 'static,
    ) -> bool {
        {
            let mut entries = lock(&self.entries);
            if entries.get(key).is_some_and(|it| matches!(it.stand, Stand::Running)) {
                return false;
            }
            entries.insert(key.to_owned(), Entry { mark, stand: Stand::Running });
        }
        let ending =
            Ending { entries: Arc::clone(&self.entries), key: key.to_owned(), end: None, tell };
        self.tasks.spawn(self.name, async move {
            let mut ending = ending;
            ending.end = Some(work.await);
        });
        true
    }

    /// Work that has ended, or is no longer of interest, is forgotten.
    pub(crate) fn forget(&self, key: &str) {
        lock(&self.entries).remove(key);
    }
}

/// Writes down the end, however it comes.
struct Ending<M, T> {
    entries: Entries<M, T>,
    key: String,
    end: Option<T>,
    tell: (Arc<Queue>, Key),
}

impl<M, T> Drop for Ending<M, T> {
    fn drop(&mut self) {
        let stand = self.end.take().map_or(Stand::Broken, Stand::Ended);
        if let Some(entry) = lock(&self.entries).get_mut(&self.key) {
            entry.stand = stand;
        }
        self.tell.0.add(&self.tell.1);
    }
}

fn lock<K, V>(map: &Mutex<HashMap<K, V>>) -> MutexGuard<'_, HashMap<K, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reconcile::Backoff;
    use tokio::sync::oneshot;

    use super::*;

    fn work() -> (Work<u8, u8>, Arc<Queue>, Key) {
        let queue = Arc::new(Queue::new(Backoff::DEFAULT));
        (Work::new("test", &Tasks::new()), queue, Key::new("n", "a"))
    }

    async fn told(queue: &Queue) {
        let depth = async {
            while queue.depth() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), depth).await.unwrap();
    }

    #[tokio::test]
    async fn work_runs_once_and_tells_of_its_end() {
        let (work, queue, key) = work();
        let (go, went) = oneshot::channel::<()>();
        let waits = async move {
            let _ = went.await;
            7
        };
        assert!(work.start("k", 1, (Arc::clone(&queue), key.clone()), waits));
        assert!(!work.start("k", 2, (Arc::clone(&queue), key), async { 8 }));
        assert!(work.is_running("k"));
        go.send(()).unwrap();
        told(&queue).await;
        let entry = work.look("k").unwrap();
        assert_eq!((entry.mark, entry.stand), (1, Stand::Ended(7)));
        work.forget("k");
        assert!(work.look("k").is_none());
    }

    #[tokio::test]
    async fn work_that_breaks_down_has_ended() {
        let (work, queue, key) = work();
        work.start("k", 1, (Arc::clone(&queue), key), async { panic!("on purpose") });
        told(&queue).await;
        assert_eq!(work.look("k").unwrap().stand, Stand::Broken);
    }
}
