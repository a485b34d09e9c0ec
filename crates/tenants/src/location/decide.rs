//! The life of a tenant's storage location: validation, the administrators' word, and the copies of
//! Secret and location where the executor reads them.
//!
//! [`decide`] names the next [`Step`]; whoever carries it out observes again and asks again, until a
//! step ends the pass. A step is only named when something would change.

use std::time::Duration;

use api::condition::{self, Verdict as Condition};
use api::mirror::Mirror;
use api::nonadmin::condition::{
    ACCEPTED, CLUSTER_ADMIN_APPROVED, DELETING, LOCATION_SYNCED, SECRET_SYNCED,
    SPEC_UPDATE_APPROVED,
};
use api::nonadmin::{
    Approval, NonAdminBackupStorageLocationRequestStatus as RequestStatus,
    NonAdminBackupStorageLocationStatus as Status, Phase, RequestPhase, RequestedLocation,
    VeleroBackupStorageLocation,
};
use api::scalar::Time;
use api::velero::{BackupStorageLocationSpec, BackupStorageLocationStatus};

use crate::spec::Verdict;

const UPDATE_REFUSED: &str = "NaBSL Spec update not allowed. Changes will not be applied. Delete \
                              NaBSL and create new one with updated spec";
pub const ACCEPTED_FOR_DELETION: &str = "storage location accepted for deletion; backups in it \
                                         are removed from the cluster, their data stays in the \
                                         store";
/// How long to wait for what no event may announce.
const RECHECK: Duration = Duration::from_secs(10);

/// Everything a decision may depend on, gathered anew for every step.
#[derive(Debug, Clone)]
pub struct Observed {
    pub now: Time,
    pub admin_namespace: String,
    pub namespace: String,
    pub name: String,
    pub generation: Option<i64>,
    /// The object has a deletion time.
    pub is_deleted: bool,
    pub has_finalizer: bool,
    /// As the API server has it now, not as a cache remembers it.
    pub status: Status,
    /// The spec as the tenant has it now.
    pub requested: Mirror<BackupStorageLocationSpec>,
    pub spec: Verdict,
    /// The identity to take if there is none yet.
    pub candidate: String,
    pub require_approval: bool,
    pub request: Option<Request>,
    pub secret: Copy,
    pub location: Copy,
    /// What Velero says of the location.
    pub velero: Option<Mirror<BackupStorageLocationStatus>>,
    /// Backups in this location whose removal nobody asked for yet.
    pub backups: usize,
    /// What this pass has already written, which is what the conditions then say.
    pub secret_written: Option<Written>,
    pub location_written: Option<Written>,
}

/// How a copy was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Created,
    Updated,
}

/// The question to the administrators.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub decision: Option<Approval>,
    pub status: RequestStatus,
}

/// A copy in the executor's namespace, beside what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copy {
    Missing,
    /// There is one of that name, and it was not made for this object.
    Foreign,
    Differs,
    Same,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write the status, go on.
    Report(Box<Status>),
    CreateRequest(Approval),
    Approve,
    ReportRequest(Box<RequestStatus>),
    AddFinalizer,
    WriteSecret,
    WriteLocation,
    /// Take Secret and location away, because they are not, or no longer, approved.
    Revoke,
    ForceDeleteBackups,
    DeleteObjects,
    RemoveFinalizer,
    End,
    /// The pass is over with an error that only a person can mend.
    Terminal(String),
    Requeue(Duration),
}

pub fn decide(seen: &Observed) -> Step {
    if seen.is_deleted { delete(seen) } else { create_update(seen) }
}

fn create_update(seen: &Observed) -> Step {
    if seen.status.phase.is_none() {
        return seen.report(|status| advance(status, Phase::New)).unwrap_or(Step::End);
    }
    let (holds, message, after) = match &seen.spec {
        Verdict::Valid => (true, "NonAdminBackupStorageLocation spec validation successful", None),
        Verdict::Invalid(why) => (false, why.as_str(), Some(Step::Terminal(why.clone()))),
        Verdict::NotYet(why) => (false, why.as_str(), Some(Step::Requeue(RECHECK))),
    };
    // The administrators' word counts at once, whatever became of the spec or the Secret since.
    let rejection = seen.rejection();
    if rejection.is_some()
        && let Some(step) = withdraw(seen)
    {
        return step;
    }
    // An edit that is refused leaves what was approved before as it is; only that is said.
    let goes_on = seen.is_edited() || rejection.is_some();
    let judged = seen.report(|status| {
        if !holds {
            advance(status, Phase::BackingOff);
        }
        note(status, seen, (ACCEPTED, holds), "BslSpecValidation", message);
    });
    if let Some(report) = judged {
        return report;
    }
    if let Some(after) = after.filter(|_| !goes_on) {
        return after;
    }
    if seen.nacuuid().is_none() {
        return seen.report(|status| identify(status, seen)).unwrap_or(Step::End);
    }
    let Some(request) = &seen.request else {
        let decision = if seen.require_approval { Approval::Pending } else { Approval::Approve };
        return Step::CreateRequest(decision);
    };
    // A rejection was said by a person: that nobody need be asked does not undo it.
    let undecided = matches!(request.decision, None | Some(Approval::Pending));
    if !seen.require_approval && undecided {
        return Step::Approve;
    }
    let answer = seen.answer(request);
    if answer != request.status {
        return Step::ReportRequest(Box::new(answer));
    }
    if !seen.has_finalizer {
        return Step::AddFinalizer;
    }
    match rejection {
        Some(rejection) => refused(seen, rejection),
        None if seen.is_edited() => {
            let said = seen.report(|status| {
                edited(status, seen);
                mirror(status, seen);
            });
            said.unwrap_or_else(|| Step::Terminal(UPDATE_REFUSED.into()))
        }
        None => approved(seen),
    }
}

/// Why the administrators do not, or no longer, allow the location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rejection {
    /// Their answer is about another location.
    Unknown,
    Rejected,
    Pending,
}

/// What is there without their word goes first, and the request says why.
fn withdraw(seen: &Observed) -> Option<Step> {
    let request = seen.request.as_ref()?;
    let answer = seen.answer(request);
    if answer != request.status {
        return Some(Step::ReportRequest(Box::new(answer)));
    }
    let there = |copy| matches!(copy, Copy::Same | Copy::Differs);
    (there(seen.secret) || there(seen.location)).then_some(Step::Revoke)
}

fn refused(seen: &Observed, rejection: Rejection) -> Step {
    let (reason, how, phase) = match rejection {
        Rejection::Unknown => (
            "BslSpecUpdateRejected",
            "does not contain valid NAC UUID and can not be approved",
            Phase::BackingOff,
        ),
        Rejection::Rejected => {
            ("BslSpecRejected", "approval decision set to Reject", Phase::BackingOff)
        }
        Rejection::Pending => ("BslSpecApprovalPending", "approval pending", Phase::New),
    };
    let message = format!("NonAdminBackupStorageLocationRequest {how}");
    let said = seen.report(|status| {
        advance(status, phase);
        note(status, seen, (CLUSTER_ADMIN_APPROVED, false), reason, &message);
        let list = status.conditions.get_or_insert_default();
        for kind in [SECRET_SYNCED, LOCATION_SYNCED] {
            condition::remove(list, kind);
        }
        if seen.is_edited() {
            edited(status, seen);
        } else {
            condition::remove(list, SPEC_UPDATE_APPROVED);
        }
        if let Some(velero) = &mut status.velero_backup_storage_location {
            velero.status = None;
        }
    });
    said.unwrap_or(Step::Terminal(message))
}

fn edited(status: &mut Status, seen: &Observed) {
    let kind = (SPEC_UPDATE_APPROVED, false);
    note(status, seen, kind, "BslSpecUpdateRejected", UPDATE_REFUSED);
}

fn approved(seen: &Observed) -> Step {
    let message = "NonAdminBackupStorageLocationRequest approval decision set to Approve";
    let approval = seen.report(|status| {
        note(status, seen, (CLUSTER_ADMIN_APPROVED, true), "BslSpecApproved", message);
        condition::remove(status.conditions.get_or_insert_default(), SPEC_UPDATE_APPROVED);
    });
    if let Some(report) = approval {
        return report;
    }
    match (seen.secret, seen.location) {
        (Copy::Foreign, _) => return failed(seen, Part::Secret),
        (Copy::Missing | Copy::Differs, _) => return Step::WriteSecret,
        (Copy::Same, _) => {}
    }
    if let Some(report) = seen.report(|status| synced(status, seen, Part::Secret)) {
        return report;
    }
    match seen.location {
        Copy::Foreign => failed(seen, Part::Location),
        Copy::Missing | Copy::Differs => Step::WriteLocation,
        Copy::Same => {
            let done = seen.report(|status| {
                synced(status, seen, Part::Location);
                advance(status, Phase::Created);
                mirror(status, seen);
            });
            done.unwrap_or(Step::End)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Secret,
    Location,
}

fn synced(status: &mut Status, seen: &Observed, part: Part) {
    let (kind, word, written) = match part {
        Part::Secret => (SECRET_SYNCED, "Secret", seen.secret_written),
        Part::Location => (LOCATION_SYNCED, "BackupStorageLocation", seen.location_written),
    };
    let said = condition::holds(status.conditions.get_or_insert_default(), kind);
    let (reason, verb) = match written {
        Some(Written::Updated) => ("Updated", "updated"),
        None | Some(Written::Created) if said => return,
        None | Some(Written::Created) => ("Created", "created"),
    };
    let message = format!("{word} successfully {verb} in the OADP namespace");
    note(status, seen, (kind, true), &format!("{word}{reason}"), &message);
}

fn failed(seen: &Observed, part: Part) -> Step {
    let (kind, reason, message) = match part {
        Part::Secret => {
            (SECRET_SYNCED, "SecretSyncFailed", "Failed to sync secret to OADP namespace")
        }
        Part::Location => (
            LOCATION_SYNCED,
            "BackupStorageLocationSyncError",
            "BackupStorageLocation failure during sync",
        ),
    };
    let report = seen.report(|status| note(status, seen, (kind, false), reason, message));
    report.unwrap_or(Step::Requeue(RECHECK))
}

fn delete(seen: &Observed) -> Step {
    if !seen.has_finalizer {
        return Step::End;
    }
    let deleting = |status: &mut Status| {
        advance(status, Phase::Deleting);
        let list = status.conditions.get_or_insert_default();
        if !condition::holds(list, DELETING) {
            let kind = (DELETING, true);
            note(status, seen, kind, "DeletionPending", ACCEPTED_FOR_DELETION);
        }
    };
    if let Some(report) = seen.report(deleting) {
        return report;
    }
    // Without the location nobody could delete them any more.
    if seen.backups > 0 {
        return Step::ForceDeleteBackups;
    }
    let there = |copy| matches!(copy, Copy::Same | Copy::Differs);
    if seen.request.is_some() || there(seen.secret) || there(seen.location) {
        return Step::DeleteObjects;
    }
    Step::RemoveFinalizer
}

impl Observed {
    pub fn nacuuid(&self) -> Option<&str> {
        let nacuuid = self.status.velero_backup_storage_location.as_ref()?.nacuuid.as_deref()?;
        (!nacuuid.is_empty()).then_some(nacuuid)
    }

    /// What the administrators' word on it is, if it is not a yes. Nothing before they are asked.
    fn rejection(&self) -> Option<Rejection> {
        let request = self.request.as_ref().filter(|_| self.nacuuid().is_some())?;
        let said = request.status.non_admin_backup_storage_location.as_ref();
        // What says nothing yet will say who it is about.
        let about = said.and_then(|said| said.nacuuid.as_deref()).or_else(|| self.nacuuid());
        match request.decision {
            _ if about != self.nacuuid() => Some(Rejection::Unknown),
            Some(Approval::Approve) => None,
            Some(Approval::Reject) => Some(Rejection::Rejected),
            None | Some(Approval::Pending) => self.require_approval.then_some(Rejection::Pending),
        }
    }

    /// The tenant changed the spec after the administrators were asked about another.
    fn is_edited(&self) -> bool {
        let asked = self
            .request
            .as_ref()
            .and_then(|request| request.status.non_admin_backup_storage_location.as_ref())
            .and_then(|said| said.requested_spec.as_ref());
        asked.is_some_and(|asked| *asked != self.requested)
    }

    /// What a request says that was made just now.
    pub(crate) fn first_answer(&self, decision: Approval) -> RequestStatus {
        let made = Request { decision: Some(decision), status: RequestStatus::default() };
        self.answer(&made)
    }

    /// What the request should say: what was asked first, and what came of it.
    fn answer(&self, request: &Request) -> RequestStatus {
        let said = request.status.non_admin_backup_storage_location.clone().unwrap_or_default();
        RequestStatus {
            phase: Some(match request.decision {
                Some(Approval::Approve) => RequestPhase::Approved,
                Some(Approval::Reject) => RequestPhase::Rejected,
                None | Some(Approval::Pending) => RequestPhase::Pending,
            }),
            non_admin_backup_storage_location: Some(RequestedLocation {
                nacuuid: said.nacuuid.or_else(|| self.nacuuid().map(str::to_owned)),
                name: said.name.or_else(|| Some(self.name.clone())),
                namespace: said.namespace.or_else(|| Some(self.namespace.clone())),
                requested_spec: said.requested_spec.or_else(|| Some(self.requested.clone())),
            }),
        }
    }

    /// Update Status if Changed.
    fn report(&self, change: impl FnOnce(&mut Status)) -> Option<Step> {
        let mut next = self.status.clone();
        change(&mut next);
        (next != self.status).then(|| Step::Report(Box::new(next)))
    }
}

/// The phase only moves forward.
fn advance(status: &mut Status, to: Phase) {
    status.phase = status.phase.max(Some(to));
}

fn note(status: &mut Status, seen: &Observed, what: (&str, bool), reason: &str, message: &str) {
    let verdict = Condition::new(what.0, what.1, reason, message).at_generation(seen.generation);
    condition::set(status.conditions.get_or_insert_default(), &verdict, seen.now);
}

fn identify(status: &mut Status, seen: &Observed) {
    status.velero_backup_storage_location = Some(VeleroBackupStorageLocation {
        nacuuid: Some(seen.candidate.clone()),
        name: Some(seen.candidate.clone()),
        namespace: Some(seen.admin_namespace.clone()),
        status: None,
    });
}

fn mirror(status: &mut Status, seen: &Observed) {
    if let Some(velero) = &mut status.velero_backup_storage_location {
        velero.status.clone_from(&seen.velero);
    }
}

#[cfg(test)]
mod tests;
