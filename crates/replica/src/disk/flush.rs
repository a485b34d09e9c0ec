//! A flush that waits on another thread than the replica's: the replica hands out what has to be
//! synced, somebody waits for the disk, the replica is told how it went.

use std::sync::Arc;

use durable::Sparse;

use crate::disk::error::{During, Error};

/// One file to be synced.
#[derive(Debug)]
pub(crate) struct Syncing {
    pub(crate) file: Arc<dyn Sparse>,
    pub(crate) name: String,
}

impl Syncing {
    pub(crate) fn run(&self) -> Result<(), Error> {
        self.file.sync_data().during("flush", &self.name)
    }
}

/// The waiting part of a flush. Covers the writes that returned before it was made.
#[derive(Debug)]
#[must_use = "nothing is on disk before it ran and Replica::end_flush was told"]
pub struct Flush {
    pub(crate) images: Vec<Syncing>,
    /// The open images this was made by; they may have been replaced when it ends.
    pub(crate) made_by: Arc<()>,
    /// Synced after the images, or beside them. Writes that came meanwhile may have made it larger; being early is
    /// what the number may do, being late for a flushed write it may not.
    pub(crate) counter: Option<(Syncing, i64)>,
}

/// How a [`Flush`] went, for [`crate::disk::Replica::end_flush`].
#[derive(Debug)]
#[must_use = "the replica must be told, or it would sync everything again"]
pub struct Flushed {
    pub(crate) made_by: Arc<()>,
    pub(crate) counter: Option<i64>,
    pub(crate) result: Result<(), Error>,
}

impl Flush {
    /// Whether everything is on disk already, so that [`Self::run`] would not wait.
    pub fn is_idle(&self) -> bool {
        self.images.is_empty() && self.counter.is_none()
    }

    /// The images and the counter apart, to be waited for side by side: two waits take as long as
    /// one. The counter may be on disk first, as it may be at any other time.
    pub fn split(mut self) -> (Self, Option<Self>) {
        if self.images.is_empty() {
            return (self, None);
        }
        let (counter, made_by) = (self.counter.take(), Arc::clone(&self.made_by));
        let counter =
            counter.map(|counter| Self { images: Vec::new(), made_by, counter: Some(counter) });
        (self, counter)
    }

    /// Waits for the disk.
    pub fn run(self) -> Flushed {
        let mut all = self.images.iter().chain(self.counter.as_ref().map(|(file, _)| file));
        let result = all.try_for_each(Syncing::run);
        let counter = self.counter.map(|(_, value)| value);
        Flushed { made_by: self.made_by, counter, result }
    }
}

impl Flushed {
    /// Both parts of a flush that was [`Flush::split`].
    pub fn and(self, other: Self) -> Self {
        let result = self.result.and(other.result);
        Self { made_by: self.made_by, counter: self.counter.or(other.counter), result }
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::{OpenRequest, Options, Replica, State};

    #[test]
    fn a_flush_that_overlaps_another_does_not_rely_on_it() {
        let place = tempfile::tempdir().unwrap();
        let mut replica = Replica::new(place.path().join("r"), Options::default());
        replica.create(1 << 20, "now").unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        replica.write_at(&[1; 8192], 0).unwrap();
        replica.snapshot("a", true, "now", None).unwrap();
        replica.mark_removed("a").unwrap();
        replica.flush().unwrap();
        let idle = replica.start_flush().unwrap();
        assert_eq!((idle.images.len(), idle.counter.is_some()), (0, false), "all is on disk");
        replica.end_flush(idle.run()).unwrap();

        replica.write_at(&[2; 4096], 0).unwrap();
        replica.unmap_at(4096, 4096).unwrap();
        let first = replica.start_flush().unwrap();
        let second = replica.start_flush().unwrap();
        assert_eq!((first.images.len(), second.images.len()), (2, 2), "head and snapshot");
        assert!(first.counter.is_some() && second.counter.is_some());
        let (images, counter) = second.split();
        replica.end_flush(images.run().and(counter.unwrap().run())).unwrap();
        let third = replica.start_flush().unwrap();
        assert_eq!(third.images.len(), 2, "the first is still on its way");
        // The images are replaced under two flushes.
        replica.reload().unwrap();
        let fourth = replica.start_flush().unwrap();
        replica.end_flush(first.run()).unwrap();
        replica.end_flush(third.run()).unwrap();
        let fifth = replica.start_flush().unwrap();
        assert_eq!(fifth.images.len(), 1, "the fourth is still on its way");
        replica.end_flush(fifth.run()).unwrap();
        replica.end_flush(fourth.run()).unwrap();
        let idle = replica.start_flush().unwrap();
        assert_eq!(idle.images.len(), 0);
        replica.end_flush(idle.run()).unwrap();
    }

    #[test]
    fn a_replica_whose_flush_failed_does_no_more() {
        let place = tempfile::tempdir().unwrap();
        let mut replica = Replica::new(place.path().join("r"), Options::default());
        replica.create(1 << 20, "now").unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        let mut failed = replica.start_flush().unwrap().run();
        failed.result = Err(crate::disk::Error::NotOpen);
        assert!(replica.end_flush(failed).is_err());
        assert!(replica.write_at(&[1], 0).is_err() && replica.read_at(&mut [1], 0).is_err());
        assert!(replica.flush().is_err() && replica.snapshot("a", true, "now", None).is_err());
        assert!(replica.close().is_err());
    }

    #[test]
    fn a_failed_flush_is_remembered_until_the_copy_is_replaced_or_salvaged() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("r");
        let mut replica = Replica::new(&dir, Options::default());
        replica.create(1 << 20, "now").unwrap();
        replica.open(&OpenRequest::default()).unwrap();
        let mut failed = replica.start_flush().unwrap().run();
        failed.result = Err(crate::disk::Error::NotOpen);
        assert!(replica.end_flush(failed).is_err());
        assert_eq!(replica.state(), State::Error);
        assert!(replica.close().is_err());
        // Nor by another process.
        for replica in [&mut replica, &mut Replica::new(&dir, Options::default())] {
            let why = replica.open(&OpenRequest::default()).unwrap_err().text();
            assert!(why.contains("a flush failed"), "{why}");
        }
        replica.open(&OpenRequest { salvage: true, ..OpenRequest::default() }).unwrap();
        replica.write_at(&[1], 0).unwrap();
        replica.close().unwrap();
        replica.open(&OpenRequest::default()).unwrap();
    }
}
