//! Volumes that come from a backup: once, or following its source until they are activated.

use std::time::Duration;

use api::longhorn::{
    AccessMode, CloneState, EngineStatus, ReplicaMode, Robustness, VolumeCloneStatus, VolumeState,
};
use api::scalar::{TextInt, Time};
use jiff::Timestamp;
use kube::ResourceExt;
use reconcile::Severity;

use super::draft::{Draft, Plan, Source, is_set, is_there, is_usable};
use super::{ACTIVATE_WITH, ACTIVATION, is_new};
use crate::label;

/// When a source that was not there is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// No request is made for a time later than this.
const FAR_AHEAD: Duration = Duration::from_mins(1);
/// On a volume that was restored: its own uid.
const RESTORED: &str = "holdfast.io/restored";
/// The condition of a volume that is to be activated and is not yet.
const ACTIVATED: &str = "Activated";

impl Draft<'_> {
    fn is_from_backup(&self) -> bool {
        self.volume.spec.from_backup.as_deref().is_some_and(|url| !url.is_empty())
    }

    /// Its engine was told to restore: that goes on although the wish for it was taken out of the volume.
    fn was_told_to_restore(&self) -> bool {
        let told = self.seen.engine.as_ref();
        told.and_then(|it| it.spec.requested_backup_restore.as_deref())
            .is_some_and(|it| !it.is_empty())
    }

    /// What a status says that cannot be so is not believed: whoever may write it would take the volume from its
    /// users, or its data.
    pub(super) fn disbelieve(&mut self) {
        let restores = self.restores()
            && (self.is_from_backup() || self.was_told_to_restore())
            && self.status.restore_initiated == Some(true)
            && !self.is_restored();
        let mut wrong = Vec::new();
        if self.restores() && !restores {
            self.status.restore_required = Some(false);
            wrong.push("restoreRequired");
        }
        if self.status.is_standby == Some(true) && !restores {
            self.status.is_standby = Some(false);
            wrong.push("isStandby");
        }
        if self.is_impossible_clone() {
            self.status.clone_status = self.is_copied().then(|| VolumeCloneStatus {
                state: Some(CloneState::Completed),
                ..VolumeCloneStatus::default()
            });
            wrong.push("cloneStatus");
        }
        if !wrong.is_empty() {
            let text = format!(
                "what was written into the status of volume {} cannot be so and is taken back: {}",
                self.name(),
                wrong.join(", ")
            );
            self.tell(Severity::Warning, "StatusRefused", text);
        }
    }

    /// This very volume has restored: one that is made anew from what was exported of it has not.
    fn is_restored(&self) -> bool {
        let uid = self.volume.metadata.uid.as_ref();
        uid.is_some() && self.volume.annotations().get(RESTORED) == uid
    }

    /// Remembered beside the status, which others may write as well: what was restored once is never laid over
    /// what was written since.
    pub(super) fn remember_restored(&mut self) {
        let is_over = self.is_from_backup()
            && self.status.restore_initiated == Some(true)
            && !self.restores();
        let uid = self.volume.metadata.uid.clone();
        if let Some(uid) = uid.filter(|_| is_over && !self.is_restored()) {
            self.volume.annotations_mut().insert(RESTORED.to_owned(), uid);
        }
    }

    /// Nothing is made of a volume whose backup is not there.
    pub(super) fn wait_for_source(mut self, why: &str) -> Plan {
        self.condition("Restore", false, "RestorePending", why);
        self.look_after(LOOK_AGAIN);
        self.finish()
    }

    /// A restore is laid into a volume that is being made, and never over one that was used.
    pub(super) fn may_begin_restore(&self) -> bool {
        self.status.restore_initiated != Some(true)
            && self.is_from_backup()
            && is_new(&self.state())
            && !self.replicas.iter().any(|it| is_set(it.spec.last_healthy_at.as_ref()))
    }

    /// Sets up the restore, once.
    pub(super) fn begin_restore(&mut self) {
        let Source::Found { volume, backup_volume_size, access_mode, .. } = &self.seen.source
        else {
            return;
        };
        if !self.may_begin_restore() {
            return;
        }
        if self.volume.spec.access_mode.as_ref().is_none_or(|it| *it == AccessMode::Unset) {
            let mode = access_mode.clone().unwrap_or(AccessMode::ReadWriteOnce);
            self.volume.spec.access_mode = Some(mode);
        }
        let standby = self.volume.spec.standby == Some(true);
        let of_store = self.store_size();
        // A store keeps one size of a volume, that of its newest backup: what is restored of it is that
        // large, an older backup as well.
        let size = if standby { of_store } else { of_store.max(*backup_volume_size) };
        if let Some(size) = size {
            self.volume.spec.size = Some(TextInt(size));
        }
        let target =
            self.seen.backup_volume.as_ref().and_then(|it| it.spec.backup_target_name.clone());
        self.volume.labels_mut().insert(label::BACKUP_VOLUME.to_owned(), volume.clone());
        if let Some(target) = target {
            self.volume.labels_mut().insert(label::BACKUP_TARGET.to_owned(), target.clone());
            self.volume.spec.backup_target_name = Some(target);
        }
        if let (false, Some(then)) = (standby, *backup_volume_size)
            && size > Some(then)
        {
            self.say_larger_than_backup(then);
        }
        self.status.is_standby = Some(standby);
        self.status.restore_initiated = Some(true);
        self.status.restore_required = Some(true);
        self.status.actual_size = self.volume.spec.size.map(|size| size.0);
    }

    fn say_larger_than_backup(&mut self, then: i64) {
        let text = format!(
            "the source has grown since that backup was made: volume {} is made as large as the source is now, {} bytes, and not of the {then} bytes it had then",
            self.name(),
            self.size()
        );
        self.tell(Severity::Normal, "LargerThanBackup", text);
    }

    fn store_size(&self) -> Option<i64> {
        self.seen.backup_volume.as_ref()?.status.as_ref()?.size.as_ref()?.parse().ok()
    }

    /// The newest backup, what is to be restored of it, and how large the volume has to be for it.
    pub(super) fn follow_backups(&mut self) {
        let known =
            self.seen.backup_volume.as_ref().filter(|it| it.metadata.deletion_timestamp.is_none());
        let store = known.and_then(|it| it.status.clone()).unwrap_or_default();
        let newest = store.last_backup_name.unwrap_or_default();
        if self.status.last_backup.as_deref().unwrap_or_default() != newest {
            self.status.last_backup = Some(newest.clone());
            self.status.last_backup_at = store.last_backup_at;
        }
        if !self.restores() {
            self.forget_backup();
            return;
        }
        let standby = self.status.is_standby == Some(true);
        let held = self.activates_with();
        let wanted = match &self.seen.source {
            // What is newer than that cannot be had any more.
            _ if held.is_some() => held,
            // One that is gone from the store is not asked for; what was asked for stays.
            _ if standby && !newest.is_empty() => Some(newest),
            _ if standby => None,
            Source::Found { backup, .. } => Some(backup.clone()),
            Source::None | Source::Missing(_) => None,
        };
        if let Some(size) = self.store_size() {
            self.be_as_large_as(size, standby);
        }
        let object = self.seen.backup_volume.as_ref().map(ResourceExt::name_any);
        let Some(engine) = &mut self.engine else { return };
        if let Some(object) = object {
            engine.spec.backup_volume = Some(object);
        }
        if let Some(wanted) = wanted {
            engine.spec.requested_backup_restore = Some(wanted);
        }
    }

    /// The backup that a person wants it activated with, whatever newer ones there are, if all its copies hold it.
    fn activates_with(&self) -> Option<String> {
        let activates =
            self.status.is_standby == Some(true) && self.volume.spec.standby != Some(true);
        let named = self.volume.annotations().get(ACTIVATE_WITH).filter(|_| activates)?;
        self.engine_status().last_restored_backup.filter(|held| held == named)
    }

    /// What it holds is its own from now on: no copy is filled from the backup any more.
    fn forget_backup(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let spec = &mut engine.spec;
        let asked = [&mut spec.requested_backup_restore, &mut spec.backup_volume];
        asked.into_iter().flatten().for_each(String::clear);
    }

    /// A volume that restores is as large as the store says its source is: no engine lays a backup into
    /// one of another size.
    fn be_as_large_as(&mut self, store: i64, standby: bool) {
        let size = self.size();
        let grows = store > size && (standby || !self.restore_has_begun());
        let is_grown = self.engine_status().current_size.is_some_and(|it| it.0 > store);
        if standby && store < size && !is_grown {
            let text = format!(
                "a standby volume is as large as its source: the size of {size} bytes is set back \
                 to {store}; activate it first to expand it"
            );
            self.tell(Severity::Warning, "SizeRefused", text);
        } else if !grows {
            return;
        }
        self.volume.spec.size = Some(TextInt(store));
        if grows && !standby {
            self.say_larger_than_backup(size);
        }
    }

    /// Whether a copy holds something of a backup already, or is about to.
    fn restore_has_begun(&self) -> bool {
        let names = |it: &Option<String>| it.as_deref().is_some_and(|name| !name.is_empty());
        self.engine_status().restore_status.into_iter().flatten().any(|(_, it)| {
            it.is_restoring == Some(true)
                || names(&it.last_restored)
                || names(&it.current_restoring_backup)
        })
    }

    /// While it restores, people are told; when all copies have failed at it, too.
    pub(super) fn say_restore(&mut self) {
        if !self.is_from_backup() {
            return;
        }
        if self.status.restore_initiated != Some(true) {
            let text = "spec.fromBackup was set when the volume was there already, and is ignored: \
                        make a new volume from that backup";
            self.condition("Restore", false, "RestoreRefused", text);
            return;
        }
        if self.is_faulted() && self.restores() {
            let why = self.restore_errors();
            let text = format!("All replica restore failed and the volume became Faulted{why}");
            self.condition("Restore", false, "RestoreFailure", &text);
            return;
        }
        let asked = self.engine.as_ref().and_then(|it| it.spec.requested_backup_restore.clone());
        let asked = asked.filter(|it| self.restores() && !it.is_empty());
        match (self.state(), asked) {
            (VolumeState::Attached | VolumeState::Attaching, Some(asked)) => {
                self.say_under_way(&asked);
            }
            (_, Some(_) | None) => self.condition("Restore", false, "", ""),
        }
    }

    /// A volume that follows another is never done; what people ask is whether it lacks anything.
    fn say_under_way(&mut self, asked: &str) {
        let held = self.engine_status().last_restored_backup;
        if self.volume.spec.standby == Some(true) && held.as_deref() == Some(asked) {
            let text = format!("holds {asked}, the newest backup, and follows its source");
            self.condition("Restore", true, "Following", &text);
        } else {
            self.condition(
                "Restore",
                true,
                "RestoreInProgress",
                &format!("restores backup {asked}"),
            );
        }
    }

    /// The reasons, as they were last told.
    fn restore_errors(&self) -> String {
        let known = self.status.conditions.iter().flatten().find(|it| it.kind == "Restore");
        let known = known.filter(|it| it.reason.as_deref() == Some("RestoreFailure"));
        let text = known.and_then(|it| it.message.as_deref()?.split_once(": "));
        let mut all: Vec<String> = self
            .engine_status()
            .restore_status
            .into_iter()
            .flatten()
            .filter_map(|(address, it)| {
                Some(format!("{address}: {}", it.error.filter(|error| !error.is_empty())?))
            })
            .collect();
        all.sort();
        match (all.is_empty(), text) {
            (false, _) => format!(": {}", all.join("; ")),
            (true, Some((_, earlier))) => format!(": {earlier}"),
            (true, None) => String::new(),
        }
    }

    /// The restore is over: every copy holds the newest backup, nothing is under way, and all are
    /// there. Then the volume detaches, and is like any other.
    pub(super) fn finish_restore(&mut self) {
        if !self.restores() || self.volume.spec.standby == Some(true) || !self.engine_runs() {
            return;
        }
        let status = self.engine_status();
        let asked = self.engine.as_ref().and_then(|it| it.spec.requested_backup_restore.clone());
        let held = status.last_restored_backup.clone().unwrap_or_default();
        if held.is_empty() || asked.as_deref() != Some(&held) {
            self.say_awaited(&asked.unwrap_or_default(), &held);
            return;
        }
        if self.status.is_standby == Some(true) && !self.has_newest(&held) {
            self.look_after(LOOK_AGAIN);
            return;
        }
        if is_busy(&status) || !self.has_enough_copies() || self.size_differs(&status) {
            return;
        }
        let was_standby = self.status.is_standby == Some(true);
        self.status.is_standby = Some(false);
        self.status.restore_required = Some(false);
        let name = self.name();
        let text = if was_standby {
            format!("volume {name} is activated with backup {held}")
        } else {
            format!("volume {name} has restored backup {held}")
        };
        self.tell(Severity::Normal, "Restored", text);
    }

    /// What a volume that is to be activated lacks, and the way out if that never comes.
    fn say_awaited(&mut self, asked: &str, held: &str) {
        if self.status.is_standby != Some(true) {
            return;
        }
        let mut text = format!("backup {asked} is not restored yet");
        if !held.is_empty() {
            text = format!("{text}; {}", way_out(held));
        }
        self.condition(ACTIVATED, false, "WaitingForRestore", &text);
    }

    fn size_differs(&self, status: &EngineStatus) -> bool {
        status.current_size.is_some_and(|it| it.0 != self.size())
    }

    /// Since when the volume is to be activated: what the store has then is what it is activated with.
    fn activation_at(&mut self) -> Timestamp {
        let now = self.seen.now;
        let known = self.volume.annotations().get(ACTIVATION).and_then(|it| it.parse().ok());
        // Times are of seconds: later than any look that has begun.
        let next = Time::new(now.checked_add(Duration::from_secs(1)).unwrap_or(now));
        // A clock that was ahead is not waited for.
        let asked = known.filter(|at| *at <= next.timestamp()).unwrap_or(next.timestamp());
        self.volume.annotations_mut().insert(ACTIVATION.to_owned(), asked.to_string());
        asked
    }

    /// The copies hold what the store has, and the store was read after the activation was asked for.
    fn has_newest(&mut self, held: &str) -> bool {
        let asked = self.activation_at();
        if self.volume.annotations().get(ACTIVATE_WITH).is_some_and(|it| it == held) {
            return true;
        }
        let wait = |draft: &mut Self, why: &str| {
            let text = format!("{why}; {}", way_out(held));
            draft.condition(ACTIVATED, false, "WaitingForStore", &text);
            false
        };
        let is_after = |it: Option<Time>| it.is_some_and(|it| it.timestamp() >= asked);
        let seen = self.seen;
        let Some(store) = &seen.backup_volume else {
            // A store that was read and has nothing of its source any more has nothing newer either.
            let Some(target) = &seen.target else {
                return wait(self, "no BackupVolume says what the store has of its source");
            };
            let status = target.status.clone().unwrap_or_default();
            if status.available == Some(true) && is_after(status.last_synced_at) {
                return true;
            }
            self.ask_for_sync(asked, target.spec.sync_requested_at);
            return wait(self, "the store was not read since the activation was asked for");
        };
        if store.metadata.deletion_timestamp.is_some() {
            return wait(self, "all backups of its source are being deleted");
        }
        let status = store.status.clone().unwrap_or_default();
        if !is_after(status.last_synced_at) {
            self.ask_for_sync(asked, store.spec.sync_requested_at);
            let error = status.messages.as_ref().and_then(|it| it.get("error").cloned());
            let error = error.map(|it| format!(": {it}")).unwrap_or_default();
            let text = format!("the store was not read since the activation was asked for{error}");
            return wait(self, &text);
        }
        match status.last_backup_name.as_deref() {
            None | Some("") => true,
            Some(newest) if newest == held && self.seen.newest_is_known => true,
            Some(newest) => {
                let text = format!("backup {newest} is not restored yet");
                wait(self, &text)
            }
        }
    }

    /// The store is read anew, unless somebody has asked for that already.
    fn ask_for_sync(&mut self, asked: Timestamp, requested: Option<Time>) {
        // One that lies far ahead was answered long ago, or never will be.
        let ahead = self.seen.now.checked_add(FAR_AHEAD).unwrap_or(Timestamp::MAX);
        let requested = requested.map(Time::timestamp);
        if requested.is_none_or(|it| it < asked || it > ahead) {
            self.sync = Some(Time::new(asked));
        }
    }

    /// Nothing is left of an activation that is over, or no longer wanted.
    pub(super) fn forget_activation(&mut self) {
        if self.status.is_standby == Some(true) && self.volume.spec.standby != Some(true) {
            return;
        }
        self.drop_condition(ACTIVATED);
        if let Some(notes) = &mut self.volume.metadata.annotations {
            notes.remove(ACTIVATION);
        }
    }

    pub(super) fn has_enough_copies(&self) -> bool {
        let whole = self.whole_copies();
        match self.status.robustness.as_ref() {
            Some(Robustness::Healthy) => {
                let placed =
                    self.replicas.iter().filter(|it| is_usable(it) && is_there(self.seen, it));
                let all = placed
                    .clone()
                    .all(|it| self.mode(&it.name_any()) == Some(ReplicaMode::ReadWrite));
                all || whole >= self.copies_wanted()
            }
            // A copy that is being filled is waited for; one that cannot be made is not.
            Some(Robustness::Degraded) => {
                let filling = self.replicas.iter().any(|it| {
                    is_usable(it) && self.mode(&it.name_any()) != Some(ReplicaMode::ReadWrite)
                });
                self.seen.settings.degraded_is_enough
                    && !filling
                    && self.create.is_empty()
                    && (self.cannot_place() || !self.rebuilds_restores())
            }
            Some(
                Robustness::Faulted
                | Robustness::Unknown
                | Robustness::Unset
                | Robustness::Other(_),
            )
            | None => false,
        }
    }

    fn cannot_place(&self) -> bool {
        let scheduled = self.status.conditions.iter().flatten().find(|it| it.kind == "Scheduled");
        scheduled.is_some_and(|it| it.status == api::condition::Status::False)
    }
}

fn way_out(held: &str) -> String {
    format!("if the store is lost, annotate the volume with {ACTIVATE_WITH}={held}")
}

pub(super) fn is_busy(status: &EngineStatus) -> bool {
    let on = |flag: Option<bool>| flag == Some(true);
    status.purge_status.iter().flatten().any(|(_, it)| on(it.is_purging))
        || status.restore_status.iter().flatten().any(|(_, it)| on(it.is_restoring))
        || on(status.is_expanding)
}
