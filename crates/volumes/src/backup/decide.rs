//! How a backup is made: what it waits for, when it starts, what is shown meanwhile.
//!
//! ```text
//! New -> Pending (with the reason) -> InProgress -> Completed
//!                                  \-> Error       -> Error
//! ```
//!
//! The upload itself is the replica's; a task of this process starts it and asks how far it is. A
//! task that is gone with its process is taken up again by [`Act::Watch`]; an upload that is gone
//! with its replica is started again on another, which finds what the first has uploaded.

use std::time::Duration;

use api::longhorn::{BackupState, BackupUpload};
use api::scalar::Time;
use jiff::Timestamp;

/// How long a backup waits for its engine or its snapshot.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);
/// How often an upload is started before the backup is given up.
pub(crate) const ATTEMPTS: i32 = 4;
/// What is waited for tells of its end; this is for the one whose words got lost.
const LOOK: Duration = Duration::from_secs(5);

/// The volume a backup is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Volume {
    Missing,
    /// It holds no data of its own yet.
    Restoring,
    /// Nobody serves it: not attached, or on its way.
    Down {
        engine: String,
        /// What its volume says against it.
        why: Option<String>,
    },
    Served,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Snapshot {
    Missing,
    NotReady,
    Ready,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Missing,
    Unavailable(String),
    Ready,
}

/// What this process knows of the upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    None,
    /// The replica was asked and has not answered.
    Starting,
    Running {
        percent: i32,
    },
    Complete,
    Failed(String),
    /// Somebody else holds the lock of the store.
    Locked(String),
    /// The replica, or what it knew, is gone.
    Lost(String),
    /// As lost, but the store has the backup, and its volume does not name it yet: the next try finds it
    /// complete, and tells the volume.
    Untold(String),
}

/// Everything a decision may look at.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) now: Timestamp,
    pub(crate) state: BackupState,
    pub(crate) upload: BackupUpload,
    pub(crate) snapshot_name: String,
    pub(crate) volume_name: String,
    pub(crate) target_name: String,
    pub(crate) volume: Volume,
    pub(crate) snapshot: Snapshot,
    pub(crate) target: Target,
    /// A backup of the same volume whose data is being removed.
    pub(crate) deleted_first: Option<String>,
    /// A backup that has the only place under a limit of the rate.
    pub(crate) uploaded_first: Option<String>,
    pub(crate) record: Record,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Ask for the volume to be attached.
    Attach,
    /// Show first, then have a replica begin.
    Start,
    /// An upload was begun by an earlier process: ask its replica how far it is.
    Watch,
    /// The upload is complete: read it from the store.
    Finish,
    /// The record of the upload was used.
    Forget,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) act: Act,
    pub(crate) state: BackupState,
    pub(crate) info: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) percent: Option<i32>,
    pub(crate) upload: BackupUpload,
    pub(crate) look_after: Option<Duration>,
}

pub(crate) fn decide(seen: &Seen) -> Verdict {
    match &seen.record {
        Record::Starting => Verdict {
            info: Some("Starting the upload".to_owned()),
            ..seen.with(Act::Nothing, seen.waiting_state())
        },
        Record::Running { percent } => Verdict {
            percent: Some(*percent),
            look_after: Some(Duration::from_secs(1)),
            ..seen.with(Act::Nothing, BackupState::InProgress)
        },
        Record::Complete => seen.with(Act::Finish, BackupState::InProgress),
        Record::Failed(why) => seen.fail(Act::Forget, why.clone()),
        // Nothing was begun, so this try does not count.
        Record::Locked(why) => Verdict {
            info: Some(format!("Waiting for the backup store: {why}")),
            look_after: Some(LOOK),
            upload: BackupUpload {
                attempts: seen.upload.attempts.map(|it| it.saturating_sub(1)),
                ..seen.upload.clone()
            },
            ..seen.with(Act::Forget, seen.waiting_state())
        },
        Record::Lost(why) => match seen.upload.attempts.unwrap_or(0) {
            started if started < ATTEMPTS => seen.ready_or_wait(),
            _ => seen.fail(Act::Forget, why.clone()),
        },
        // It is complete, whatever keeps its volume from being told.
        Record::Untold(_) => match seen.upload.attempts.unwrap_or(0) {
            started if started < ATTEMPTS => {
                Some(seen.ready_or_wait()).filter(|it| it.state != BackupState::Error)
            }
            _ => None,
        }
        .unwrap_or_else(|| seen.with(Act::Finish, BackupState::InProgress)),
        Record::None if seen.state == BackupState::InProgress => {
            seen.with(Act::Watch, BackupState::InProgress)
        }
        Record::None => seen.ready_or_wait(),
    }
}

/// The replica has said that it is complete, and the store does not have it: it may be seen a little later
/// than it was written, or be in another store by now.
pub(crate) fn not_stored(seen: &Seen) -> Verdict {
    let text =
        format!("the upload is complete, and backup target {} does not have it", seen.target_name);
    seen.wait_a_while(&text, &text)
}

/// What the store has under its name is of another snapshot: that is not what was asked for.
pub(crate) fn not_its_own(seen: &Seen, snapshot: &str) -> Verdict {
    let text = format!(
        "backup target {} has a backup of this name of snapshot {snapshot}: make one of another name",
        seen.target_name
    );
    seen.fail(Act::Forget, text)
}

impl Seen {
    /// A backup never goes back from `InProgress`.
    fn waiting_state(&self) -> BackupState {
        match self.state {
            BackupState::InProgress => BackupState::InProgress,
            _ => BackupState::Pending,
        }
    }

    fn with(&self, act: Act, state: BackupState) -> Verdict {
        let upload = BackupUpload { waiting_since: None, ..self.upload.clone() };
        let (info, error, percent) = (None, None, None);
        Verdict { act, state, info, error, percent, upload, look_after: None }
    }

    fn fail(&self, act: Act, why: String) -> Verdict {
        Verdict { error: Some(why), ..self.with(act, BackupState::Error) }
    }

    /// Everything that must hold before an upload begins, in the order in which it is told.
    fn ready_or_wait(&self) -> Verdict {
        let snapshot = &self.snapshot_name;
        match self.volume {
            Volume::Missing => {
                let why = format!(
                    "cannot find the corresponding volume: volume {:?} not found",
                    self.volume_name
                );
                return self.fail(Act::Nothing, why);
            }
            Volume::Restoring => {
                let why =
                    format!("cannot back up volume {}: it is restoring data", self.volume_name);
                return self.fail(Act::Nothing, why);
            }
            Volume::Down { .. } | Volume::Served => {}
        }
        match &self.target {
            Target::Missing => {
                let why = format!("failed to find the backup target {}", self.target_name);
                return self.wait_a_while(&why, &why);
            }
            Target::Unavailable(why) => {
                let text = format!(
                    "Waiting for the backup target {} to be available: {why}",
                    self.target_name
                );
                return self.wait(text);
            }
            Target::Ready => {}
        }
        match self.snapshot {
            Snapshot::Missing => {
                let text = format!("Failed to get the Snapshot {snapshot}");
                return self.wait_a_while(&text, &text);
            }
            Snapshot::NotReady => {
                return self.wait_a_while(
                    &format!("Waiting for the snapshot {snapshot} to be ready"),
                    &format!("Failed waiting for the snapshot {snapshot} to be ready"),
                );
            }
            Snapshot::Ready => {}
        }
        if let Some(first) = &self.deleted_first {
            return self.wait(format!("Wait for backup {first} to be deleted"));
        }
        if let Some(first) = &self.uploaded_first {
            return self
                .wait(format!("Wait for backup {first} to be uploaded: the rate is limited"));
        }
        if let Volume::Down { engine, why } = &self.volume {
            let why = why.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            let waits = self.wait_a_while(
                &format!("Waiting for the engine {engine} to be ready{why}"),
                &format!("Failed waiting for the engine {engine} to be ready{why}"),
            );
            let attaches = waits.state != BackupState::Error;
            return if attaches { Verdict { act: Act::Attach, ..waits } } else { waits };
        }
        let upload = BackupUpload {
            waiting_since: None,
            started_at: Some(Time::new(self.now)),
            attempts: Some(self.upload.attempts.unwrap_or(0).saturating_add(1)),
        };
        Verdict { upload, ..self.with(Act::Start, self.waiting_state()) }
    }

    /// Without end: what is waited for ends by itself, or a person ends it.
    fn wait(&self, info: String) -> Verdict {
        Verdict {
            info: Some(info),
            look_after: Some(LOOK),
            ..self.with(Act::Nothing, self.waiting_state())
        }
    }

    /// Until the timeout is over: what is not there may never come.
    fn wait_a_while(&self, info: &str, error: &str) -> Verdict {
        // By a clock that was ahead it does not begin to wait before that time has come.
        let since = self.upload.waiting_since.filter(|it| it.timestamp() <= self.now);
        let since = since.unwrap_or(Time::new(self.now));
        let waited = since.timestamp().duration_until(self.now);
        if waited.is_positive() && waited.unsigned_abs() >= TIMEOUT {
            return self.fail(Act::Nothing, error.to_owned());
        }
        let upload = BackupUpload { waiting_since: Some(since), ..self.upload.clone() };
        Verdict { upload, ..self.wait(info.to_owned()) }
    }
}

#[cfg(test)]
mod tests;
