//! How far an initialization is, as it is told over HTTP: an end is told once, then all is new.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    New,
    Progress,
    Successful,
    Failed,
}

impl Status {
    pub fn text(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::Progress => "Progress",
            Self::Successful => "Successful",
            Self::Failed => "Failed",
        }
    }

    fn after_telling(self) -> Self {
        match self {
            Self::New | Self::Successful | Self::Failed => Self::New,
            Self::Progress => Self::Progress,
        }
    }
}

/// The status of the one initialization there can be.
#[derive(Debug)]
pub struct StatusCell {
    status: Mutex<Status>,
    runs: AtomicU64,
}

impl Default for StatusCell {
    fn default() -> Self {
        Self { status: Mutex::new(Status::New), runs: AtomicU64::new(0) }
    }
}

impl StatusCell {
    /// What the caller, if it is the one to begin, ends with.
    pub fn begin(self: &Arc<Self>) -> Option<Running> {
        let mut status = self.lock();
        if *status != Status::New {
            return None;
        }
        *status = Status::Progress;
        self.runs.fetch_add(1, Ordering::Relaxed);
        Some(Running { cell: Arc::clone(self), outcome: Status::Failed })
    }

    /// Tells the status; an end is forgotten with that.
    pub fn tell(&self) -> Status {
        let mut status = self.lock();
        let told = *status;
        *status = told.after_telling();
        told
    }

    pub fn is_in_progress(&self) -> bool {
        *self.lock() == Status::Progress
    }

    /// How many initializations were begun.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An initialization that runs. However it ends, that is told: what does not say that it succeeded,
/// because it panicked or was dropped, has failed.
#[derive(Debug)]
pub struct Running {
    cell: Arc<StatusCell>,
    outcome: Status,
}

impl Running {
    pub fn end(mut self, succeeded: bool) {
        if succeeded {
            self.outcome = Status::Successful;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.cell.lock() = self.outcome;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_and_not_progress_for_ever() {
        let cell = Arc::new(StatusCell::default());
        let running = cell.begin().unwrap();
        let panicked = std::thread::spawn(move || {
            let _running = running;
            panic!("as a test");
        });
        assert!(panicked.join().is_err());
        assert_eq!(cell.tell(), Status::Failed);
        assert!(cell.begin().is_some(), "and it can be begun again");
    }

    #[test]
    fn an_end_is_told_once() {
        let cell = Arc::new(StatusCell::default());
        assert_eq!(cell.tell(), Status::New);
        let running = cell.begin().unwrap();
        assert!(cell.begin().is_none(), "it runs already");
        assert_eq!(cell.tell(), Status::Progress);
        assert_eq!(cell.tell(), Status::Progress);
        running.end(true);
        assert!(cell.begin().is_none(), "the end was not told yet");
        assert_eq!(cell.tell(), Status::Successful);
        assert_eq!(cell.tell(), Status::New);
        cell.begin().unwrap().end(false);
        assert_eq!(cell.tell().text(), "Failed");
        assert_eq!(cell.tell().text(), "New");
    }
}
