//! The life of a tenant's backup, as the graph in `docs/state-machines.md` draws it.
//!
//! [`decide`] looks at what was observed and names the next [`Step`]; whoever carries it out observes
//! again and asks again, until a step ends the pass. Nothing here reads a clock or an API. A step is
//! only named when something would change, so that a pass over a steady object writes nothing.
//!
//! ```text
//! SWITCH ── create/update ── New ── validate ── Accepted ── nacuuid ── finalizer ── Velero Backup ── Created
//!        │                            └─ BackingOff
//!        ├─ API delete ── Deleting, held
//!        ├─ delete ────── Deleting ── DeleteBackupRequest ── Velero Backup gone ── finalizer off
//!        └─ force delete  Deleting ── Velero objects deleted ── finalizer off
//! ```

use std::time::Duration;

use api::condition::{self, Verdict as Condition};
use api::mirror::Mirror;
use api::nonadmin::condition::{ACCEPTED, DELETING, QUEUED};
use api::nonadmin::{
    DataMoverCounts, FileSystemCounts, NonAdminBackupStatus as Status, Phase, QueueInfo,
    VeleroBackup, VeleroDeleteBackupRequest,
};
use api::scalar::Time;
use api::velero::{BackupSpec, BackupStatus, DeleteBackupRequestStatus, DeletePhase};

use crate::settings::ApiDeletePolicy;
use crate::spec::Verdict;

pub const ACCEPTED_FOR_DELETION: &str = "backup accepted for deletion";
pub const HELD: &str = "backup deletion requires setting spec.deleteBackup or \
                        spec.forceDeleteBackup to true or finalizer removal";
pub const PERMANENT: &str = "permanent backup deletion requires setting spec.deleteBackup to true";
pub const NAMESPACE_ENDS: &str = "backup accepted for deletion because its namespace is being \
                                  deleted; the data of the backup stays in the store";
pub const VANISHED: &str = "NonAdminBackup is finalized and its associated Velero Backup has been \
                            removed. Please create a new NonAdminBackup to initiate a new backup";
pub const NOTHING_TO_SYNC: &str = "related Velero Backup to be synced from does not exist";

/// How long to wait for what no event may announce.
const RECHECK: Duration = Duration::from_secs(10);
/// The first pause before a deletion that failed is asked for again, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_mins(10);

/// What the spec wants of the backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Kept,
    Deleted,
    ForceDeleted,
}

/// Which part of the graph a pass walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    CreateUpdate,
    ApiDelete,
    Delete,
    ForceDelete,
}

/// Everything a decision may depend on, gathered anew for every step.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are observed apart and mean nothing together"
)]
pub struct Observed {
    pub now: Time,
    pub admin_namespace: String,
    pub generation: Option<i64>,
    pub wanted: Wanted,
    /// The object has a deletion time.
    pub is_deleted: bool,
    pub has_finalizer: bool,
    /// As the API server has it now, not as a cache remembers it.
    pub status: Status,
    /// What validation says of the spec.
    pub spec: Verdict,
    /// The identity to take if there is none yet.
    pub candidate: Candidate,
    pub velero: Velero,
    pub request: Option<Request>,
    /// Restores from this backup that nobody has deleted yet.
    pub restores: usize,
    pub turn: Turn,
    pub policy: ApiDeletePolicy,
    pub namespace_ends: bool,
    /// It was told to go because its storage location goes.
    pub leaves_with_location: bool,
    /// Its data lies in a store of the tenant's own.
    pub in_own_location: bool,
    /// This pass has changed the object, so it ends with a requeue.
    pub is_marked: bool,
}

/// Where the identity of a new backup comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    Generated(String),
    /// A Velero backup from a store, made for this very object.
    Synced(String),
    /// The label names a Velero backup that is not there or not this object's.
    Nothing,
}

/// The Velero backup under the identity in the status.
#[derive(Debug, Clone, PartialEq)]
pub enum Velero {
    Absent,
    /// There is one, and it was not made for this object: not to be read, not to be touched.
    Foreign,
    Found(Box<Found>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    pub status: Mirror<BackupStatus>,
    pub spec: Mirror<BackupSpec>,
    /// Its deletion was asked for already.
    pub is_deleted: bool,
    pub position: Option<i64>,
    pub uploads: Option<DataMoverCounts>,
    pub pod_volumes: Option<FileSystemCounts>,
}

impl Found {
    /// Whether it has data of volumes, which lies in the administrators' target wherever its archive is.
    fn has_volumes(&self) -> bool {
        let status = self.status.view().unwrap_or_default();
        status.volume_snapshots_completed.is_some_and(|count| count > 0)
    }
}

/// The newest request to delete the Velero backup.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub name: String,
    pub status: Mirror<DeleteBackupRequestStatus>,
    /// How many came before it, and when it was made.
    pub attempt: u32,
    pub created: Time,
}

/// Whether the namespace may have one more Velero backup in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    Now,
    Later(String),
}

/// What is remembered of a backup whose objects go while its data stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bury {
    Nothing,
    /// Data of volumes is with the administrators and takes room there; the backup may come back.
    Volumes,
    /// It must not come back.
    Backup,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write the status, go on.
    Report(Box<Status>),
    /// Write the status, go on, and requeue at the end of the pass.
    ReportAndMark(Box<Status>),
    AddFinalizer,
    CreateVeleroBackup,
    /// Delete the tenant's object: its finalizer keeps it until all is done.
    SetDelete,
    DeleteVeleroObjects {
        bury: Bury,
    },
    DeleteRestores,
    CreateDeleteRequest,
    /// The request ended and the backup is still there.
    ReplaceDeleteRequest {
        name: String,
        attempt: u32,
    },
    RemoveFinalizer,
    /// The pass is over; the next change starts another.
    End,
    /// The pass is over with an error that only an edit can mend.
    Terminal(String),
    Requeue(Duration),
}

/// SWITCH: which path this object is on. The first that fits wins.
pub fn path(wanted: Wanted, is_deleted: bool) -> Path {
    match (wanted, is_deleted) {
        (Wanted::ForceDeleted, _) => Path::ForceDelete,
        (Wanted::Deleted, _) => Path::Delete,
        (Wanted::Kept, true) => Path::ApiDelete,
        (Wanted::Kept, false) => Path::CreateUpdate,
    }
}

pub fn decide(seen: &Observed) -> Step {
    match path(seen.wanted, seen.is_deleted) {
        Path::CreateUpdate => create_update(seen),
        Path::ApiDelete => api_delete(seen),
        Path::Delete => delete(seen),
        Path::ForceDelete => force_delete(seen),
    }
}

fn create_update(seen: &Observed) -> Step {
    // initNabCreate
    if seen.status.phase.is_none() {
        return seen.report(|status| status.advance(Phase::New)).unwrap_or(Step::End);
    }
    // validateSpec
    if let Some(refused) = rejection(seen) {
        return refused;
    }
    // setAcceptedCondition
    let accepted = |status: &mut Status| {
        status.note(seen, ACCEPTED, true, "BackupAccepted", "backup accepted");
    };
    if let Some(report) = seen.report(accepted) {
        return report;
    }
    // checkVeleroBackup, generateNACUUID, updateNABStatus
    let Some(_) = seen.nacuuid() else { return seen.identify() };
    // setFinalizer, addFinalizer
    if !seen.has_finalizer {
        return Step::AddFinalizer;
    }
    // createVB, createNewVB, updateFromVB
    match (&seen.velero, &seen.turn) {
        (Velero::Absent, Turn::Now) => Step::CreateVeleroBackup,
        (Velero::Absent, Turn::Later(why)) => seen
            .report(|status| status.note(seen, QUEUED, false, "WaitingForTurn", why))
            .unwrap_or(Step::End),
        // Refused above.
        (Velero::Foreign, _) => Step::End,
        // setCreatedPhase, setQueuedCondition
        (Velero::Found(found), _) => {
            seen.report(|status| status.follow(seen, found)).unwrap_or(Step::End)
        }
    }
}

/// Why the backup is not, or no longer, accepted.
fn rejection(seen: &Observed) -> Option<Step> {
    let queued = condition::holds(seen.conditions(), QUEUED);
    let (reason, message, after) = match (&seen.velero, &seen.spec, &seen.candidate) {
        (Velero::Absent | Velero::Foreign, _, _) if queued => {
            // Never made again: after its time ran out that would be a new backup nobody asked for.
            ("VeleroBackupNotFound", VANISHED.to_owned(), Step::Terminal(VANISHED.into()))
        }
        (Velero::Foreign, _, _) => {
            let message = "the Velero Backup of this name belongs to another NonAdminBackup; \
                           create this one under another name";
            ("VeleroBackupNotFound", message.to_owned(), Step::Terminal(message.into()))
        }
        (_, _, Candidate::Nothing) if seen.nacuuid().is_none() => nothing_to_sync(),
        // A tenant can write the label itself: without the backup it speaks of it says nothing, and
        // nothing is made that was not validated.
        (Velero::Absent, _, Candidate::Synced(_)) => nothing_to_sync(),
        // What comes from a store was accepted when it was made.
        (Velero::Found(_), _, Candidate::Synced(_)) | (_, Verdict::Valid, _) => return None,
        (_, Verdict::Invalid(message), _) => {
            ("InvalidBackupSpec", message.clone(), Step::Terminal(message.clone()))
        }
        (_, Verdict::NotYet(message), _) => {
            ("InvalidBackupSpec", message.clone(), Step::Requeue(RECHECK))
        }
    };
    // setBackingOffPhase, setInvalidCondition; one write
    let report = seen.report(|status| {
        status.advance(Phase::BackingOff);
        status.note(seen, ACCEPTED, false, reason, &message);
        match &seen.velero {
            // An edit that is refused does not hide how the backup itself goes.
            Velero::Found(found) => status.mirror(found),
            Velero::Absent | Velero::Foreign if queued => status.forget(),
            Velero::Absent | Velero::Foreign => {}
        }
    });
    Some(report.unwrap_or(after))
}

fn nothing_to_sync() -> (&'static str, String, Step) {
    let after = Step::Terminal(NOTHING_TO_SYNC.into());
    ("VeleroBackupNotFound", NOTHING_TO_SYNC.to_owned(), after)
}

fn api_delete(seen: &Observed) -> Step {
    let (message, removes) = match (seen.namespace_ends, seen.policy) {
        (true, _) => (NAMESPACE_ENDS, true),
        (false, ApiDeletePolicy::RemoveObjects) => (PERMANENT, true),
        (false, ApiDeletePolicy::Hold) => (HELD, false),
    };
    // setPhase, setCondition
    if let Some(report) = seen.report(|status| status.deleting(seen, message)) {
        return report;
    }
    if !seen.has_finalizer {
        return Step::End;
    }
    // Nothing was ever made for it: there is nothing to hold.
    if seen.nacuuid().is_none() {
        return Step::RemoveFinalizer;
    }
    if !removes {
        return Step::End;
    }
    // Whoever has the name of the namespace next is somebody else; what lies in a store of the
    // tenant's own belongs to whoever has its keys.
    let is_buried = seen.namespace_ends && !seen.in_own_location;
    let bury = if is_buried { Bury::Backup } else { Bury::Nothing };
    match &seen.velero {
        Velero::Found(found) if found.is_deleted => Step::Requeue(RECHECK),
        Velero::Found(_) => Step::DeleteVeleroObjects { bury },
        Velero::Absent | Velero::Foreign => Step::RemoveFinalizer,
    }
}

fn force_delete(seen: &Observed) -> Step {
    if let Some(step) = begin_deletion(seen, ACCEPTED_FOR_DELETION) {
        return step;
    }
    // A location that is made again over the same store brings its backups back.
    let bury = match &seen.velero {
        _ if !seen.leaves_with_location => Bury::Backup,
        Velero::Found(found) if found.has_volumes() => Bury::Volumes,
        Velero::Found(_) | Velero::Absent | Velero::Foreign => Bury::Nothing,
    };
    // checkVeleroObjects
    match (&seen.velero, &seen.request) {
        (Velero::Found(found), _) if !found.is_deleted => Step::DeleteVeleroObjects { bury },
        (Velero::Found(_) | Velero::Absent, Some(_)) => Step::DeleteVeleroObjects { bury },
        // What was asked to go is not waited for.
        _ if seen.has_finalizer => Step::RemoveFinalizer,
        (Velero::Found(_) | Velero::Absent, None) | (Velero::Foreign, _) => Step::End,
    }
}

fn delete(seen: &Observed) -> Step {
    let message = deletion_message(seen.request.as_ref());
    if let Some(step) = begin_deletion(seen, &message) {
        return step;
    }
    // checkFinalizer
    if !seen.has_finalizer {
        return Step::End;
    }
    // checkVeleroBackupInfo
    if !matches!(seen.velero, Velero::Found(_)) {
        return Step::RemoveFinalizer;
    }
    if seen.restores > 0 {
        return Step::DeleteRestores;
    }
    // checkDeleteBackupRequest
    let Some(request) = &seen.request else { return Step::CreateDeleteRequest };
    // updateDBRStatus
    let shown = seen.report(|status| {
        status.velero_delete_backup_request = Some(VeleroDeleteBackupRequest {
            nacuuid: seen.nacuuid().map(str::to_owned),
            name: Some(request.name.clone()),
            namespace: Some(seen.admin_namespace.clone()),
            status: Some(request.status.clone()),
        });
        // Its own phase is Deleting by now; the tenant sees that too.
        if let Velero::Found(found) = &seen.velero {
            status.mirror(found);
        }
    });
    if let Some(report) = shown {
        return report;
    }
    // waitForVBDeletion
    if !request.has_ended() {
        return Step::Requeue(RECHECK);
    }
    let pause = retry_pause(request.attempt);
    let due = request.created.timestamp().saturating_add(pause).unwrap_or(jiff::Timestamp::MAX);
    let left = due.duration_since(seen.now.timestamp());
    match Duration::try_from(left) {
        Ok(left) if !left.is_zero() => Step::Requeue(left),
        _ => Step::ReplaceDeleteRequest {
            name: request.name.clone(),
            attempt: request.attempt.saturating_add(1),
        },
    }
}

/// What both deletions begin with: the phase and the condition, the deletion time, and a requeue
/// after either.
fn begin_deletion(seen: &Observed, message: &str) -> Option<Step> {
    // setDeletingPhase, setDeletingCondition, checkStatusChanged
    if let Some(Step::Report(status)) = seen.report(|status| status.deleting(seen, message)) {
        return Some(Step::ReportAndMark(status));
    }
    // checkDeletionTimestamp, initiateDelete
    if !seen.is_deleted {
        return Some(Step::SetDelete);
    }
    // checkRequeueFlag
    seen.is_marked.then_some(Step::Requeue(Duration::ZERO))
}

fn deletion_message(request: Option<&Request>) -> String {
    let errors = request.map(Request::errors).unwrap_or_default();
    match errors.as_slice() {
        [] => ACCEPTED_FOR_DELETION.to_owned(),
        errors => format!(
            "{ACCEPTED_FOR_DELETION}; Velero could not delete it and will be asked again: {}",
            errors.join("; ")
        ),
    }
}

/// 10 s, doubled each time, up to 10 min.
fn retry_pause(attempt: u32) -> Duration {
    let factor = 2_u32.checked_pow(attempt.min(16)).unwrap_or(u32::MAX);
    RETRY_FIRST.saturating_mul(factor).min(RETRY_MAX)
}

impl Request {
    fn has_ended(&self) -> bool {
        let phase = self.status.view().ok().and_then(|status| status.phase);
        phase == Some(DeletePhase::Processed)
    }

    fn errors(&self) -> Vec<String> {
        self.status.view().ok().and_then(|status| status.errors).unwrap_or_default()
    }
}

impl Observed {
    pub fn nacuuid(&self) -> Option<&str> {
        let nacuuid = self.status.velero_backup.as_ref()?.nacuuid.as_deref()?;
        (!nacuuid.is_empty()).then_some(nacuuid)
    }

    fn conditions(&self) -> &[api::condition::Condition] {
        self.status.conditions.as_deref().unwrap_or_default()
    }

    /// Update Status if Changed.
    fn report(&self, change: impl FnOnce(&mut Status)) -> Option<Step> {
        let mut next = self.status.clone();
        change(&mut next);
        (next != self.status).then(|| Step::Report(Box::new(next)))
    }

    fn identify(&self) -> Step {
        let nacuuid = match &self.candidate {
            Candidate::Generated(nacuuid) | Candidate::Synced(nacuuid) => nacuuid.clone(),
            Candidate::Nothing => return Step::End,
        };
        let made = VeleroBackup {
            name: Some(nacuuid.clone()),
            nacuuid: Some(nacuuid),
            namespace: Some(self.admin_namespace.clone()),
            ..VeleroBackup::default()
        };
        self.report(|status| status.velero_backup = Some(made)).unwrap_or(Step::End)
    }
}

/// How a status may change; nothing else changes it.
trait Change {
    /// The phase only moves forward.
    fn advance(&mut self, to: Phase);
    fn note(&mut self, seen: &Observed, kind: &str, holds: bool, reason: &str, message: &str);
    fn deleting(&mut self, seen: &Observed, message: &str);
    /// Created and queued, and everything Velero says.
    fn follow(&mut self, seen: &Observed, found: &Found);
    fn mirror(&mut self, found: &Found);
    /// The Velero backup is gone: nothing of it is shown, nothing is waited for.
    fn forget(&mut self);
}

impl Change for Status {
    fn advance(&mut self, to: Phase) {
        self.phase = self.phase.max(Some(to));
    }

    fn note(&mut self, seen: &Observed, kind: &str, holds: bool, reason: &str, message: &str) {
        let verdict = Condition::new(kind, holds, reason, message).at_generation(seen.generation);
        condition::set(self.conditions.get_or_insert_default(), &verdict, seen.now);
    }

    fn deleting(&mut self, seen: &Observed, message: &str) {
        self.advance(Phase::Deleting);
        let list = self.conditions.get_or_insert_default();
        // The deletion time is a new generation; that alone is nothing to write down.
        if condition::get(list, DELETING).is_none_or(|entry| entry.message != message) {
            self.note(seen, DELETING, true, "DeletionPending", message);
        }
    }

    fn follow(&mut self, seen: &Observed, found: &Found) {
        self.advance(Phase::Created);
        if !condition::holds(self.conditions.get_or_insert_default(), QUEUED) {
            self.note(seen, QUEUED, true, "BackupScheduled", "Created Velero Backup object");
        }
        self.mirror(found);
    }

    fn mirror(&mut self, found: &Found) {
        let velero = self.velero_backup.get_or_insert_default();
        velero.status = Some(found.status.clone());
        velero.spec = Some(found.spec.clone());
        // Nobody knows the place: what is shown stays.
        if let Some(estimated_queue_position) = found.position {
            self.queue_info = Some(QueueInfo { estimated_queue_position });
        }
        self.data_mover_data_uploads.clone_from(&found.uploads);
        self.file_system_pod_volume_backups.clone_from(&found.pod_volumes);
    }

    fn forget(&mut self) {
        if let Some(velero) = &mut self.velero_backup {
            velero.status = None;
            velero.spec = None;
        }
        self.queue_info = Some(QueueInfo { estimated_queue_position: 0 });
        self.data_mover_data_uploads = None;
        self.file_system_pod_volume_backups = None;
    }
}

#[cfg(test)]
mod tests;
