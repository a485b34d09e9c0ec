//! Volumes that begin as a copy of another: of one of its snapshots, or of all it holds now.
//!
//! A try is made with copies that nobody has used yet. It has begun when the engine is told of the
//! source, and that is written down before a byte is copied: whatever ends in the middle, the copies of
//! that try are thrown away and the next one has others. So nothing half-filled is ever served, and a
//! volume is complete only if every copy the engine reads from has said that it holds all.

use std::time::Duration;

use api::longhorn::{CloneState, InstanceState, ProgressState, ReplicaMode, Robustness};
use api::longhorn::{VolumeCloneStatus, VolumeState};
use api::scalar::{Stamp, TextInt, Time};
use jiff::SignedDuration;
use kube::ResourceExt;
use reconcile::{Backoff, Severity};

use super::draft::{Draft, Plan, is_leaving, is_set};
use super::is_new;

/// When a source that was not ready is looked at again, though nothing of it changed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Between tries.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };
/// On a volume that has become a copy of another: its own uid.
const COPIED: &str = "holdfast.io/copied";
/// How often it is tried.
pub(crate) const TRIES: i32 = 6;

/// What a volume is to be a copy of, as far as it could be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Original {
    /// It is a copy of nothing, or has become one.
    None,
    /// It will never be one.
    Impossible(String),
    /// Not yet.
    Missing(String),
    Found(Found),
}

/// The volume that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) volume: String,
    pub(crate) snapshot: String,
    /// The snapshot is taken for this copy, and goes with it.
    pub(crate) is_own: bool,
    pub(crate) size_bytes: i64,
    /// Where it is attached, or can be.
    pub(crate) node: String,
    /// The snapshot is there and can be read.
    pub(crate) is_taken: bool,
    /// Its engine answers.
    pub(crate) runs: bool,
}

/// What is to be so at the volume that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AtOriginal {
    pub(crate) volume: String,
    /// Attached here, for the copy.
    pub(crate) held_at: Option<String>,
    /// The snapshot that is taken for the copy, and whether it is still needed.
    pub(crate) snapshot: Option<(String, bool)>,
}

/// How the copying stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    Running,
    Complete,
    Failed(String),
}

/// A volume, or one of its snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) volume: String,
    pub(crate) snapshot: Option<String>,
}

/// `vol://VOLUME` or `snap://VOLUME/SNAPSHOT`.
pub(crate) fn read_source(url: &str) -> Option<Named> {
    let filled = |text: &str| (!text.is_empty() && !text.contains('/')).then(|| text.to_owned());
    if let Some(volume) = url.strip_prefix("vol://") {
        return Some(Named { volume: filled(volume)?, snapshot: None });
    }
    let (volume, snapshot) = url.strip_prefix("snap://")?.split_once('/')?;
    Some(Named { volume: filled(volume)?, snapshot: Some(filled(snapshot)?) })
}

/// `snap://VOLUME/SNAPSHOT`, as an engine is told of it.
fn url(volume: &str, snapshot: &str) -> String {
    format!("snap://{volume}/{snapshot}")
}

/// The name of the snapshot that is taken of a volume for a copy of it.
pub(crate) fn own_snapshot(uid: &str) -> String {
    format!("clone-{uid}")
}

impl Draft<'_> {
    fn clone_status(&self) -> VolumeCloneStatus {
        self.status.clone_status.clone().unwrap_or_default()
    }

    pub(super) fn clone_state(&self) -> CloneState {
        self.clone_status().state.unwrap_or(CloneState::Unset)
    }

    /// It is to be a copy, and is none yet: nobody gets it.
    pub(super) fn clones(&self) -> bool {
        let asked = self.volume.spec.data_source.as_deref().is_some_and(|it| !it.is_empty());
        match self.clone_state() {
            CloneState::Unset => asked && self.is_unused(),
            CloneState::Initiated
            | CloneState::CopyCompletedAwaitingHealthy
            | CloneState::Failed => true,
            CloneState::Completed | CloneState::Other(_) => false,
        }
    }

    /// It was not made from another volume, and is said to become a copy of one. A copy that was begun
    /// goes on although the wish for it was taken out of the volume.
    pub(super) fn is_impossible_clone(&self) -> bool {
        let asked = self.volume.spec.data_source.as_deref().is_some_and(|it| !it.is_empty());
        let begins = asked || self.told_source().is_some();
        super::is_unfinished_clone(&self.volume) && (!begins || self.is_copied())
    }

    /// This very volume has become a copy, and has what was written to it since.
    pub(super) fn is_copied(&self) -> bool {
        let uid = self.volume.metadata.uid.as_ref();
        uid.is_some() && self.volume.annotations().get(COPIED) == uid
    }

    /// Remembered beside the status, which others may write as well.
    pub(super) fn remember_copied(&mut self) {
        let uid = self.volume.metadata.uid.clone();
        let is_over = self.clone_state() == CloneState::Completed && !self.is_copied();
        if let Some(uid) = uid.filter(|_| is_over) {
            self.volume.annotations_mut().insert(COPIED.to_owned(), uid);
        }
    }

    /// Nobody has ever written to it. An engine alone says nothing: it is stored before the status
    /// that tells of the copying, and a crash may come between them. One that is older than copies
    /// has what was written to it.
    fn is_unused(&self) -> bool {
        let had_data = self.replicas.iter().any(|it| is_set(it.spec.last_healthy_at.as_ref()));
        self.seen.engine.is_none() || (is_new(&self.state()) && !had_data)
    }

    /// Its copies are not worth keeping yet.
    pub(super) fn is_unfilled_clone(&self) -> bool {
        matches!(self.clone_state(), CloneState::Initiated | CloneState::Failed)
    }

    /// The volume attaches itself for this.
    pub(super) fn works_at_clone(&self) -> bool {
        matches!(
            self.clone_state(),
            CloneState::Initiated | CloneState::CopyCompletedAwaitingHealthy
        )
    }

    /// Sets up the copy, once. Why nothing can be made yet, if so.
    pub(super) fn begin_clone(&mut self) -> Result<(), String> {
        if !self.clones() || self.clone_state() != CloneState::Unset {
            return Ok(());
        }
        let found = match &self.seen.original {
            Original::None => return Ok(()),
            Original::Impossible(why) => return Err(self.give_up_clone(why.clone())),
            Original::Missing(why) => {
                self.condition("Clone", false, "ClonePending", why);
                return Err(why.clone());
            }
            Original::Found(found) => found.clone(),
        };
        let size = self.size();
        if size > 0 && size < found.size_bytes {
            let why = format!(
                "spec.size {size} is less than the {} bytes of {}: ask for at least as much",
                found.size_bytes, found.volume
            );
            return Err(self.give_up_clone(why));
        }
        if size <= 0 {
            self.volume.spec.size = Some(TextInt(found.size_bytes));
        }
        let text = format!("source volume {}, snapshot {}", found.volume, found.snapshot);
        self.status.clone_status = Some(VolumeCloneStatus {
            source_volume: Some(found.volume),
            snapshot: Some(found.snapshot),
            state: Some(CloneState::Initiated),
            attempt_count: Some(0),
            next_allowed_attempt_at: None,
        });
        self.tell(Severity::Normal, "VolumeCloneInitiated", text);
        Ok(())
    }

    /// Nothing is made of a volume whose source is not there.
    pub(super) fn wait_for_original(mut self) -> Plan {
        self.look_after(LOOK_AGAIN);
        self.finish()
    }

    fn set_clone_state(&mut self, state: CloneState) {
        self.status.clone_status.get_or_insert_default().state = Some(state);
    }

    /// It will never be a copy, and says why.
    fn give_up_clone(&mut self, why: String) -> String {
        let status = self.status.clone_status.get_or_insert_default();
        status.state = Some(CloneState::Failed);
        status.next_allowed_attempt_at = None;
        self.condition("Clone", false, "CloneFailure", &why);
        self.tell(Severity::Warning, "VolumeCloneFailed", why.clone());
        why
    }

    /// The try is over; the next one comes later, and has other copies.
    fn fail_clone(&mut self, why: &str) {
        let tried = self.clone_status().attempt_count.unwrap_or(0).saturating_add(1);
        self.status.clone_status.get_or_insert_default().attempt_count = Some(tried);
        let text = format!("try {tried} of {TRIES} failed: {why}");
        if tried >= TRIES {
            self.give_up_clone(text);
            return;
        }
        let pause = AGAIN.after(u32::try_from(tried).unwrap_or(1));
        let due = self.seen.now + SignedDuration::try_from(pause).unwrap_or_default();
        let status = self.status.clone_status.get_or_insert_default();
        status.state = Some(CloneState::Failed);
        status.next_allowed_attempt_at = Some(Stamp::from(Time::new(due)));
        self.condition("Clone", false, "CloneFailure", &text);
        self.tell(Severity::Warning, "VolumeCloneFailed", text);
    }

    fn told_source(&self) -> Option<String> {
        let told = self.seen.engine.as_ref()?.spec.requested_data_source.clone();
        told.filter(|url| !url.is_empty())
    }

    /// From the first try to the copy that is like any other volume.
    pub(super) fn follow_clone(&mut self) {
        match self.clone_state() {
            CloneState::Unset | CloneState::Completed | CloneState::Other(_) => {}
            CloneState::Initiated => self.copy(),
            CloneState::Failed => self.try_again(),
            CloneState::CopyCompletedAwaitingHealthy => {
                if let Some(engine) = &mut self.engine {
                    engine.spec.requested_data_source = Some(String::new());
                }
            }
        }
    }

    fn copy(&mut self) {
        self.condition("Clone", true, "CloneInProgress", "");
        if self.told_source().is_none() {
            if self.lost_every_copy() {
                self.fail_clone("every replica failed before the copy began");
                return;
            }
            self.begin_copy();
            return;
        }
        match self.stand() {
            Stand::Running => {}
            Stand::Complete => {
                self.set_clone_state(CloneState::CopyCompletedAwaitingHealthy);
            }
            Stand::Failed(why) => self.fail_clone(&why),
        }
    }

    fn lost_every_copy(&self) -> bool {
        self.create.is_empty()
            && self.replicas.iter().all(|it| super::draft::has_failed(it) || is_leaving(it))
    }

    /// The engine is told when all copies and the source are ready.
    fn begin_copy(&mut self) {
        let found = match &self.seen.original {
            Original::Found(found) => found,
            Original::Missing(why) | Original::Impossible(why) => {
                let why = why.clone();
                self.condition("Clone", true, "CloneWaiting", &why);
                self.look_after(LOOK_AGAIN);
                return;
            }
            Original::None => return,
        };
        let ready = self.state() == VolumeState::Attached && self.engine_runs() && self.is_synced();
        if !ready || !found.is_taken || !found.runs {
            self.look_after(LOOK_AGAIN);
            return;
        }
        let url = url(&found.volume, &found.snapshot);
        if let Some(engine) = &mut self.engine {
            engine.spec.requested_data_source = Some(url);
        }
    }

    fn stand(&self) -> Stand {
        match self.engine_state() {
            InstanceState::Running if self.state() == VolumeState::Attached => {}
            // Nobody says that it ended.
            InstanceState::Unknown if self.state() == VolumeState::Attached => {
                return Stand::Running;
            }
            _ => return Stand::Failed("the engine ended while it was copied".to_owned()),
        }
        let status = self.engine_status();
        let (Some(modes), Some(places)) =
            (status.replica_mode_map, status.current_replica_address_map)
        else {
            return Stand::Running;
        };
        let clones = status.clone_status.unwrap_or_default();
        if self.lost_every_copy() {
            let reasons = clones.iter().filter_map(|(address, it)| {
                Some(format!("{address}: {}", it.error.clone().filter(|it| !it.is_empty())?))
            });
            let reasons: Vec<String> = reasons.collect();
            let why =
                if reasons.is_empty() { "every replica failed".into() } else { reasons.join("; ") };
            return Stand::Failed(why);
        }
        let snapshot = self.clone_status().snapshot.unwrap_or_default();
        let mut readable = modes.iter().filter(|(_, mode)| **mode == ReplicaMode::ReadWrite);
        let any = readable.clone().next().is_some();
        // Every one the engine reads from, also one that is about to be removed, and no other.
        let whole = readable.all(|(name, _)| {
            let place = places.get(name).map(|at| format!("tcp://{at}"));
            let found = place.and_then(|at| clones.get(&at));
            self.replicas.iter().any(|it| it.name_any() == *name)
                && found.is_some_and(|it| {
                    it.state == Some(ProgressState::Complete)
                        && it.snapshot_name.as_deref() == Some(&snapshot)
                })
        });
        if any && whole { Stand::Complete } else { Stand::Running }
    }

    /// What the last try left goes; when nothing of it is left, the next one may begin.
    fn try_again(&mut self) {
        let left: Vec<String> =
            self.replicas.iter().filter(|it| !is_leaving(it)).map(ResourceExt::name_any).collect();
        self.delete.extend(left);
        let due = self.clone_status().next_allowed_attempt_at.as_ref().and_then(Stamp::get);
        let Some(due) = due else { return };
        let rest = Duration::try_from(due.duration_since(self.seen.now)).unwrap_or_default();
        // No pause is longer than the longest: the clock was set back since.
        let rest = if rest > AGAIN.longest { Duration::ZERO } else { rest };
        let closed = matches!(self.state(), VolumeState::Detached | VolumeState::Creating);
        if !rest.is_zero() || !self.replicas.is_empty() || !closed {
            self.look_after(rest.max(Duration::from_millis(500)));
            return;
        }
        if !matches!(self.seen.original, Original::Found(_)) {
            self.look_after(LOOK_AGAIN);
            return;
        }
        if let Some(engine) = &mut self.engine {
            engine.spec.requested_data_source = Some(String::new());
        }
        let status = self.status.clone_status.get_or_insert_default();
        status.next_allowed_attempt_at = None;
        status.state = Some(CloneState::Initiated);
        self.set_robustness(Robustness::Unknown);
        self.add_copies();
        self.place_copies();
    }

    /// Every copy is there, and holds all: the volume is like any other.
    pub(super) fn finish_clone(&mut self) {
        // The source is let go before: this is never so in the pass that saw the copying end.
        let before = self.seen.volume.status.as_ref().and_then(|it| it.clone_status.clone());
        let before = before.and_then(|it| it.state);
        let over = before == Some(CloneState::CopyCompletedAwaitingHealthy)
            && self.engine_runs()
            && self.state() == VolumeState::Attached
            && self.has_enough_copies();
        if !over {
            return;
        }
        self.set_clone_state(CloneState::Completed);
        self.condition("Clone", false, "", "");
        let status = self.clone_status();
        let text = format!(
            "volume {} is a copy of volume {}, snapshot {}",
            self.name(),
            status.source_volume.unwrap_or_default(),
            status.snapshot.unwrap_or_default()
        );
        self.tell(Severity::Normal, "VolumeCloneCompleted", text);
    }

    /// What the source is asked for, from what is written down of the copy.
    pub(super) fn at_original(&self) -> Option<AtOriginal> {
        let status = self.clone_status();
        let volume = status.source_volume.clone()?;
        let leaves = self.volume.metadata.deletion_timestamp.is_some();
        let copies = self.clone_state() == CloneState::Initiated && !leaves;
        let again = self.clone_state() == CloneState::Failed
            && status.next_allowed_attempt_at.is_some()
            && !leaves;
        if self.clone_state() == CloneState::Completed && !leaves {
            return None;
        }
        let node = match &self.seen.original {
            Original::Found(found) => Some(found.node.clone()).filter(|node| !node.is_empty()),
            Original::None | Original::Impossible(_) | Original::Missing(_) => None,
        };
        let uid = self.volume.metadata.uid.as_deref().unwrap_or_default();
        let own = status.snapshot.filter(|name| *name == own_snapshot(uid));
        Some(AtOriginal {
            volume,
            held_at: node.filter(|_| copies),
            snapshot: own.map(|name| (name, copies || again)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_volume_or_one_of_its_snapshots() {
        let named = |volume: &str, snapshot: Option<&str>| {
            Some(Named { volume: volume.into(), snapshot: snapshot.map(str::to_owned) })
        };
        assert_eq!(read_source("vol://a"), named("a", None));
        assert_eq!(read_source("snap://a/b"), named("a", Some("b")));
        for bad in
            ["", "a", "vol://", "vol://a/b", "snap://a", "snap://a/", "snap:///b", "snap://a/b/c"]
        {
            assert_eq!(read_source(bad), None, "{bad}");
        }
    }
}
