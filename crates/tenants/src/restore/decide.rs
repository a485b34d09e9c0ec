//! The life of a tenant's restore: the graph of backups, with one way to delete.
//!
//! [`decide`] names the next [`Step`]; whoever carries it out observes again and asks again, until a
//! step ends the pass. A step is only named when something would change.

use std::time::Duration;

use api::condition::{self, Verdict as Condition};
use api::mirror::Mirror;
use api::nonadmin::condition::{ACCEPTED, DELETING, QUEUED};
use api::nonadmin::{
    DataMoverCounts, FileSystemCounts, NonAdminRestoreStatus as Status, Phase, QueueInfo,
    VeleroRestore,
};
use api::scalar::Time;
use api::velero::RestoreStatus;

use crate::spec::Verdict;

pub const ACCEPTED_FOR_DELETION: &str = "restore accepted for deletion";
pub const VANISHED: &str = "NonAdminRestore is finalized and its associated Velero Restore has \
                            been removed. Please create a new NonAdminRestore to initiate a new \
                            Restore";

/// How long to wait for what no event may announce.
const RECHECK: Duration = Duration::from_secs(10);

/// Everything a decision may depend on, gathered anew for every step.
#[derive(Debug, Clone)]
pub struct Observed {
    pub now: Time,
    pub admin_namespace: String,
    pub generation: Option<i64>,
    /// The object has a deletion time.
    pub is_deleted: bool,
    pub has_finalizer: bool,
    /// As the API server has it now, not as a cache remembers it.
    pub status: Status,
    pub spec: Verdict,
    /// The identity to take if there is none yet.
    pub candidate: String,
    pub velero: Velero,
    pub namespace_ends: bool,
}

/// The Velero restore under the identity in the status.
#[derive(Debug, Clone, PartialEq)]
pub enum Velero {
    Absent,
    /// There is one, and it was not made for this object: not to be read, not to be touched.
    Foreign,
    Found(Box<Found>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    pub status: Mirror<RestoreStatus>,
    /// Its deletion was asked for already.
    pub is_deleted: bool,
    pub position: Option<i64>,
    pub downloads: Option<DataMoverCounts>,
    pub pod_volumes: Option<FileSystemCounts>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write the status, go on.
    Report(Box<Status>),
    AddFinalizer,
    CreateVeleroRestore,
    DeleteVeleroRestore,
    RemoveFinalizer,
    End,
    /// The pass is over with an error that only an edit can mend.
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
    if let Some(refused) = rejection(seen) {
        return refused;
    }
    let accepted = |status: &mut Status| {
        note(status, seen, ACCEPTED, true, "RestoreAccepted", "restore accepted");
    };
    if let Some(report) = seen.report(accepted) {
        return report;
    }
    if seen.nacuuid().is_none() {
        return seen.report(|status| identify(status, seen)).unwrap_or(Step::End);
    }
    if !seen.has_finalizer {
        return Step::AddFinalizer;
    }
    match &seen.velero {
        Velero::Absent => Step::CreateVeleroRestore,
        // Refused above.
        Velero::Foreign => Step::End,
        Velero::Found(found) => {
            seen.report(|status| follow(status, seen, found)).unwrap_or(Step::End)
        }
    }
}

/// Why the restore is not, or no longer, accepted.
fn rejection(seen: &Observed) -> Option<Step> {
    let queued = condition::holds(seen.status.conditions.as_deref().unwrap_or_default(), QUEUED);
    let (reason, message, after) = match (&seen.velero, &seen.spec) {
        (Velero::Absent | Velero::Foreign, _) if queued => {
            ("VeleroRestoreNotFound", VANISHED.to_owned(), Step::Terminal(VANISHED.into()))
        }
        (Velero::Foreign, _) => {
            let message = "the Velero Restore of this name belongs to another NonAdminRestore; \
                           create this one under another name";
            ("VeleroRestoreNotFound", message.to_owned(), Step::Terminal(message.into()))
        }
        (_, Verdict::Valid) => return None,
        (_, Verdict::Invalid(message)) => {
            ("InvalidRestoreSpec", message.clone(), Step::Terminal(message.clone()))
        }
        (_, Verdict::NotYet(message)) => {
            ("InvalidRestoreSpec", message.clone(), Step::Requeue(RECHECK))
        }
    };
    let report = seen.report(|status| {
        advance(status, Phase::BackingOff);
        note(status, seen, ACCEPTED, false, reason, &message);
        match &seen.velero {
            Velero::Found(found) => mirror(status, found),
            Velero::Absent | Velero::Foreign if queued => forget(status),
            Velero::Absent | Velero::Foreign => {}
        }
    });
    Some(report.unwrap_or(after))
}

fn delete(seen: &Observed) -> Step {
    if !seen.has_finalizer {
        return Step::End;
    }
    if seen.nacuuid().is_none() {
        return Step::RemoveFinalizer;
    }
    // The executor may need its store to let go, and that can take long: the tenant sees for what.
    let message = match (&seen.velero, seen.nacuuid()) {
        (Velero::Found(found), Some(name)) if found.is_deleted => {
            format!("{ACCEPTED_FOR_DELETION}; waiting for Velero Restore {name}")
        }
        _ => ACCEPTED_FOR_DELETION.to_owned(),
    };
    let deleting = |status: &mut Status| {
        advance(status, Phase::Deleting);
        let list = status.conditions.get_or_insert_default();
        // Once it says what it waits for, it keeps saying so.
        let said = condition::get(list, DELETING).map(|entry| entry.message.clone());
        if said.is_none_or(|said| !said.starts_with(&message)) {
            note(status, seen, DELETING, true, "DeletionPending", &message);
        }
    };
    if let Some(report) = seen.report(deleting) {
        return report;
    }
    match &seen.velero {
        // A store that is down does not hold up a whole namespace: the executor goes on by itself.
        Velero::Found(found) if found.is_deleted && seen.namespace_ends => Step::RemoveFinalizer,
        Velero::Found(found) if found.is_deleted => Step::Requeue(RECHECK),
        Velero::Found(_) => Step::DeleteVeleroRestore,
        Velero::Absent | Velero::Foreign => Step::RemoveFinalizer,
    }
}

impl Observed {
    pub fn nacuuid(&self) -> Option<&str> {
        let nacuuid = self.status.velero_restore.as_ref()?.nacuuid.as_deref()?;
        (!nacuuid.is_empty()).then_some(nacuuid)
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

fn note(status: &mut Status, seen: &Observed, kind: &str, holds: bool, reason: &str, why: &str) {
    let verdict = Condition::new(kind, holds, reason, why).at_generation(seen.generation);
    condition::set(status.conditions.get_or_insert_default(), &verdict, seen.now);
}

fn identify(status: &mut Status, seen: &Observed) {
    status.velero_restore = Some(VeleroRestore {
        nacuuid: Some(seen.candidate.clone()),
        name: Some(seen.candidate.clone()),
        namespace: Some(seen.admin_namespace.clone()),
        status: None,
    });
}

fn follow(status: &mut Status, seen: &Observed, found: &Found) {
    advance(status, Phase::Created);
    if !condition::holds(status.conditions.get_or_insert_default(), QUEUED) {
        note(status, seen, QUEUED, true, "RestoreScheduled", "Created Velero Restore object");
    }
    mirror(status, found);
}

fn mirror(status: &mut Status, found: &Found) {
    status.velero_restore.get_or_insert_default().status = Some(found.status.clone());
    if let Some(estimated_queue_position) = found.position {
        status.queue_info = Some(QueueInfo { estimated_queue_position });
    }
    status.data_mover_data_downloads.clone_from(&found.downloads);
    status.file_system_pod_volume_restores.clone_from(&found.pod_volumes);
}

/// The Velero restore is gone: nothing of it is shown, nothing is waited for.
fn forget(status: &mut Status) {
    if let Some(velero) = &mut status.velero_restore {
        velero.status = None;
    }
    status.queue_info = Some(QueueInfo { estimated_queue_position: 0 });
    status.data_mover_data_downloads = None;
    status.file_system_pod_volume_restores = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    fn new() -> Observed {
        Observed {
            now: at(100),
            admin_namespace: "openshift-adp".into(),
            generation: Some(1),
            is_deleted: false,
            has_finalizer: false,
            status: Status::default(),
            spec: Verdict::Valid,
            candidate: "a-nar-1".into(),
            velero: Velero::Absent,
            namespace_ends: false,
        }
    }

    fn velero(phase: &str, position: i64) -> Velero {
        let status = json!({"phase": phase}).as_object().unwrap().clone().into();
        Velero::Found(Box::new(Found { status, position: Some(position), ..Found::default() }))
    }

    /// Carries out a step on what was observed, as an API server would show it next.
    fn apply(seen: &mut Observed, step: &Step) {
        match step {
            Step::Report(status) => seen.status = (**status).clone(),
            Step::AddFinalizer => seen.has_finalizer = true,
            Step::CreateVeleroRestore => {
                seen.velero =
                    Velero::Found(Box::new(Found { position: Some(3), ..Found::default() }));
            }
            Step::DeleteVeleroRestore => seen.velero = Velero::Absent,
            Step::RemoveFinalizer => seen.has_finalizer = false,
            Step::End | Step::Terminal(_) | Step::Requeue(_) => {}
        }
    }

    fn walk(seen: &mut Observed) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..20 {
            let step = decide(seen);
            apply(seen, &step);
            steps.push(step);
            if matches!(steps.last(), Some(Step::End | Step::Terminal(_) | Step::Requeue(_))) {
                return steps;
            }
        }
        panic!("no end: {steps:?}");
    }

    fn conditions(status: &Status) -> Vec<(String, String, String, String)> {
        let list = status.conditions.iter().flatten();
        list.map(|it| {
            (it.kind.clone(), it.status.to_string(), it.reason.clone(), it.message.clone())
        })
        .collect()
    }

    fn entry(
        kind: &str,
        holds: &str,
        reason: &str,
        message: &str,
    ) -> (String, String, String, String) {
        (kind.into(), holds.into(), reason.into(), message.into())
    }

    fn accepted() -> (String, String, String, String) {
        entry("Accepted", "True", "RestoreAccepted", "restore accepted")
    }

    fn queued() -> (String, String, String, String) {
        entry("Queued", "True", "RestoreScheduled", "Created Velero Restore object")
    }

    fn created() -> Observed {
        let mut seen = new();
        walk(&mut seen);
        seen.velero = velero("Completed", 0);
        walk(&mut seen);
        seen
    }

    #[test]
    fn a_valid_restore_is_new_accepted_named_kept_created() {
        let mut seen = new();
        let steps = walk(&mut seen);
        assert!(
            matches!(
                steps[..],
                [
                    Step::Report(_),
                    Step::Report(_),
                    Step::Report(_),
                    Step::AddFinalizer,
                    Step::CreateVeleroRestore,
                    Step::Report(_),
                    Step::End
                ]
            ),
            "{steps:?}"
        );
        assert_eq!(seen.status.phase, Some(Phase::Created));
        assert_eq!(conditions(&seen.status), [accepted(), queued()]);
        assert_eq!(seen.status.queue_info.clone().unwrap().estimated_queue_position, 3);
        assert_eq!(seen.status.velero_restore.clone().unwrap().status, Some(Mirror::default()));
        assert_eq!(walk(&mut seen), [Step::End], "a steady object is not written");
    }

    #[test]
    fn an_invalid_one_backs_off_until_it_is_edited_or_its_backup_is_ready() {
        let mut seen = Observed { spec: Verdict::Invalid("no".into()), ..new() };
        assert_eq!(walk(&mut seen).last(), Some(&Step::Terminal("no".into())));
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
        assert_eq!(
            conditions(&seen.status),
            [entry("Accepted", "False", "InvalidRestoreSpec", "no")]
        );
        assert_eq!((seen.nacuuid(), seen.has_finalizer), (None, false));
        seen.spec = Verdict::NotYet("later".into());
        assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(RECHECK)));
        seen.spec = Verdict::Valid;
        walk(&mut seen);
        assert_eq!(seen.status.phase, Some(Phase::Created));
        assert_eq!(conditions(&seen.status), [accepted(), queued()]);
    }

    #[test]
    fn a_velero_restore_that_vanished_is_never_made_again() {
        for gone in [Velero::Absent, Velero::Foreign] {
            let mut seen = Observed { velero: gone, ..created() };
            assert_eq!(walk(&mut seen).last(), Some(&Step::Terminal(VANISHED.into())));
            let want = [entry("Accepted", "False", "VeleroRestoreNotFound", VANISHED), queued()];
            assert_eq!(conditions(&seen.status), want);
            assert_eq!(seen.status.phase, Some(Phase::Created));
        }
    }

    #[test]
    fn deletion_takes_the_velero_restore_along_and_says_what_it_waits_for() {
        let mut seen = Observed { is_deleted: true, ..created() };
        let steps = walk(&mut seen);
        assert_eq!(steps[1..], [Step::DeleteVeleroRestore, Step::RemoveFinalizer, Step::End]);
        let want = entry("Deleting", "True", "DeletionPending", ACCEPTED_FOR_DELETION);
        assert_eq!(conditions(&seen.status), [accepted(), queued(), want]);
        let mut seen = Observed { is_deleted: true, ..created() };
        walk(&mut seen.clone());
        seen.velero = Velero::Found(Box::new(Found { is_deleted: true, ..Found::default() }));
        assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(RECHECK)));
        assert!(conditions(&seen.status)[2].3.ends_with("; waiting for Velero Restore a-nar-1"));
        let mut ends = Observed { namespace_ends: true, ..seen.clone() };
        assert_eq!(
            walk(&mut ends),
            [Step::RemoveFinalizer, Step::End],
            "a namespace is not held up"
        );
        seen.velero = Velero::Absent;
        assert_eq!(walk(&mut seen), [Step::RemoveFinalizer, Step::End], "no last write");
    }

    #[test]
    fn deletion_of_what_was_never_made_holds_nothing_up() {
        let mut seen = Observed { is_deleted: true, has_finalizer: true, ..new() };
        assert_eq!(walk(&mut seen), [Step::RemoveFinalizer, Step::End]);
        let mut seen = Observed { is_deleted: true, velero: Velero::Foreign, ..created() };
        let steps = walk(&mut seen);
        assert!(!steps.contains(&Step::DeleteVeleroRestore), "{steps:?}");
    }

    #[test]
    fn a_kill_between_any_two_steps_changes_nothing_of_the_end() {
        for is_deleted in [false, true] {
            let begin = || if is_deleted { Observed { is_deleted, ..created() } } else { new() };
            let mut whole = begin();
            for killed_after in 0..walk(&mut whole).len() {
                let mut seen = begin();
                for _ in 0..killed_after {
                    let step = decide(&seen);
                    apply(&mut seen, &step);
                }
                walk(&mut seen);
                assert_eq!(seen.status, whole.status, "killed after {killed_after}");
                assert_eq!(
                    (seen.has_finalizer, &seen.velero),
                    (whole.has_finalizer, &whole.velero)
                );
            }
        }
    }
}
