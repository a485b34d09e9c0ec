//! How far an initialization is, as it is told over HTTP: an end is told once, then all is new.

use std::sync::{Mutex, PoisonError};

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
pub struct StatusCell(Mutex<Status>);

impl Default for StatusCell {
    fn default() -> Self {
        Self(Mutex::new(Status::New))
    }
}

impl StatusCell {
    /// Whether the caller is the one to begin.
    pub fn begin(&self) -> bool {
        let mut status = self.lock();
        let begins = *status == Status::New;
        if begins {
            *status = Status::Progress;
        }
        begins
    }

    pub fn end(&self, succeeded: bool) {
        *self.lock() = if succeeded { Status::Successful } else { Status::Failed };
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_once() {
        let cell = StatusCell::default();
        assert_eq!(cell.tell(), Status::New);
        assert!(cell.begin());
        assert!(!cell.begin(), "it runs already");
        assert_eq!(cell.tell(), Status::Progress);
        assert_eq!(cell.tell(), Status::Progress);
        cell.end(true);
        assert!(!cell.begin(), "the end was not told yet");
        assert_eq!(cell.tell(), Status::Successful);
        assert_eq!(cell.tell(), Status::New);
        assert!(cell.begin());
        cell.end(false);
        assert_eq!(cell.tell().text(), "Failed");
        assert_eq!(cell.tell().text(), "New");
    }
}
