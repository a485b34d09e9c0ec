//! Every edge of the graph, by the names of its two nodes, and what the graph does not draw.
//!
//! `tests/graph.rs` compares the names here with the graph in `docs/state-machines.md`.

use api::condition::Status as Holds;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Time {
    jiff::Timestamp::from_second(second).unwrap().into()
}

/// A valid backup that nobody has looked at yet.
fn new() -> Observed {
    Observed {
        now: at(100),
        admin_namespace: "openshift-adp".into(),
        generation: Some(1),
        wanted: Wanted::Kept,
        is_deleted: false,
        has_finalizer: false,
        status: Status::default(),
        spec: Verdict::Valid,
        candidate: Candidate::Generated("a-nab-1".into()),
        velero: Velero::Absent,
        request: None,
        restores: 0,
        turn: Turn::Now,
        policy: ApiDeletePolicy::Hold,
        namespace_ends: false,
        leaves_with_location: false,
        in_own_location: false,
        is_marked: false,
    }
}

fn invalid() -> Observed {
    Observed { spec: Verdict::Invalid("no".into()), ..new() }
}

fn mirror<T>(value: Value) -> Mirror<T> {
    match value {
        Value::Object(map) => map.into(),
        other => panic!("{other}"),
    }
}

fn velero(status: Value, position: i64) -> Velero {
    Velero::Found(Box::new(Found {
        status: mirror(status),
        spec: mirror(json!({"includedNamespaces": ["a"]})),
        position: Some(position),
        ..Found::default()
    }))
}

/// One whose Velero backup is completed.
fn created() -> Observed {
    let mut seen = new();
    walk(&mut seen);
    seen.velero = velero(json!({"phase": "Completed"}), 0);
    walk(&mut seen);
    seen
}

fn wanting(wanted: Wanted) -> Observed {
    Observed { wanted, ..created() }
}

fn request(phase: &str, errors: &[&str], attempt: u32) -> Request {
    Request {
        name: "a-nab-1-x7x7x".into(),
        status: mirror(json!({"phase": phase, "errors": errors})),
        attempt,
        created: at(100),
    }
}

/// Carries out a step on what was observed, as an API server would show it next.
fn apply(seen: &mut Observed, step: &Step) {
    match step {
        Step::Report(status) => seen.status = (**status).clone(),
        Step::ReportAndMark(status) => {
            seen.status = (**status).clone();
            seen.is_marked = true;
        }
        Step::AddFinalizer => seen.has_finalizer = true,
        Step::CreateVeleroBackup => seen.velero = velero(json!({}), 12),
        Step::SetDelete => {
            seen.is_deleted = true;
            seen.is_marked = true;
        }
        Step::DeleteVeleroObjects { .. } => {
            seen.velero = Velero::Absent;
            seen.request = None;
        }
        Step::DeleteRestores => seen.restores = 0,
        Step::CreateDeleteRequest => seen.request = Some(request("New", &[], 0)),
        Step::ReplaceDeleteRequest { attempt, .. } => {
            seen.request = Some(request("New", &[], *attempt));
        }
        Step::RemoveFinalizer => seen.has_finalizer = false,
        Step::End | Step::Terminal(_) | Step::Requeue(_) => seen.is_marked = false,
    }
}

/// One pass: the steps up to the one that ends it.
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

/// Passes until one ends without asking to be repeated at once.
fn settle(seen: &mut Observed) -> Vec<Step> {
    let mut all = Vec::new();
    for _ in 0..10 {
        let mut steps = walk(seen);
        let again = steps.last() == Some(&Step::Requeue(Duration::ZERO));
        all.append(&mut steps);
        if !again {
            return all;
        }
    }
    panic!("no rest: {all:?}");
}

fn reported(step: &Step) -> &Status {
    match step {
        Step::Report(status) | Step::ReportAndMark(status) => status,
        other => panic!("no report: {other:?}"),
    }
}

fn conditions(status: &Status) -> Vec<(String, Holds, String, String)> {
    let list = status.conditions.iter().flatten();
    list.map(|it| (it.kind.clone(), it.status.clone(), it.reason.clone(), it.message.clone()))
        .collect()
}

fn entry(kind: &str, holds: bool, reason: &str, message: &str) -> (String, Holds, String, String) {
    (kind.into(), holds.into(), reason.into(), message.into())
}

fn accepted() -> (String, Holds, String, String) {
    entry("Accepted", true, "BackupAccepted", "backup accepted")
}

fn queued() -> (String, Holds, String, String) {
    entry("Queued", true, "BackupScheduled", "Created Velero Backup object")
}

fn deleting(message: &str) -> (String, Holds, String, String) {
    entry("Deleting", true, "DeletionPending", message)
}

mod switch {
    use super::*;

    #[test]
    fn nab_start_to_switch() {
        // Whatever is asked of it, a pass begins by choosing one path.
        for wanted in [Wanted::Kept, Wanted::Deleted, Wanted::ForceDeleted] {
            for is_deleted in [false, true] {
                let _ = decide(&Observed { wanted, is_deleted, ..new() });
                let _ = path(wanted, is_deleted);
            }
        }
    }

    #[test]
    fn switch_to_create_update() {
        assert_eq!(path(Wanted::Kept, false), Path::CreateUpdate);
    }

    #[test]
    fn switch_to_nab_api_delete() {
        assert_eq!(path(Wanted::Kept, true), Path::ApiDelete);
    }

    #[test]
    fn switch_to_force_delete() {
        // Before all others, also before a deletion by the API and the other flag.
        assert_eq!(path(Wanted::ForceDeleted, false), Path::ForceDelete);
        assert_eq!(path(Wanted::ForceDeleted, true), Path::ForceDelete);
    }

    #[test]
    fn switch_to_delete_backup() {
        assert_eq!(path(Wanted::Deleted, false), Path::Delete);
        assert_eq!(path(Wanted::Deleted, true), Path::Delete);
    }
}

mod create_update {
    use super::*;

    #[test]
    fn create_update_to_init_nab_create() {
        assert_eq!(reported(&decide(&new())).phase, Some(Phase::New));
    }

    #[test]
    fn init_nab_create_to_set_new_phase() {
        let status = Status { phase: Some(Phase::New), ..Status::default() };
        assert_eq!(decide(&new()), Step::Report(Box::new(status)));
    }

    #[test]
    fn init_nab_create_to_validate_spec() {
        let mut seen = invalid();
        seen.status.phase = Some(Phase::New);
        assert_eq!(reported(&decide(&seen)).phase, Some(Phase::BackingOff));
    }

    #[test]
    fn set_new_phase_to_validate_spec() {
        // In the same pass: no requeue between them.
        let steps = walk(&mut invalid());
        assert_eq!(reported(&steps[0]).phase, Some(Phase::New));
        assert_eq!(reported(&steps[1]).phase, Some(Phase::BackingOff));
    }

    #[test]
    fn validate_spec_to_set_backing_off_phase() {
        let steps = walk(&mut invalid());
        assert_eq!(reported(&steps[1]).phase, Some(Phase::BackingOff));
    }

    #[test]
    fn set_backing_off_phase_to_set_invalid_condition() {
        // Both in one write.
        let steps = walk(&mut invalid());
        let want = [entry("Accepted", false, "InvalidBackupSpec", "no")];
        assert_eq!(conditions(reported(&steps[1])), want);
    }

    #[test]
    fn set_invalid_condition_to_terminal_error() {
        let mut seen = invalid();
        let steps = walk(&mut seen);
        assert_eq!(steps[2..], [Step::Terminal("no".into())]);
        assert_eq!(walk(&mut seen), [Step::Terminal("no".into())]);
    }

    #[test]
    fn validate_spec_to_set_accepted_condition() {
        let steps = walk(&mut new());
        assert_eq!(conditions(reported(&steps[1])), [accepted()]);
        assert_eq!(reported(&steps[1]).phase, Some(Phase::New));
    }

    #[test]
    fn set_accepted_condition_to_refetch_nab() {
        // The pass goes on from what the API server has, not from what it had: somebody else's
        // identity in the newer status is kept.
        let mut seen = new();
        for _ in 0..2 {
            let step = decide(&seen);
            apply(&mut seen, &step);
        }
        seen.status.velero_backup =
            Some(VeleroBackup { nacuuid: Some("a-nab-0".into()), ..VeleroBackup::default() });
        assert_eq!(decide(&seen), Step::AddFinalizer);
    }

    #[test]
    fn refetch_nab_to_check_velero_backup() {
        let mut seen = new();
        for _ in 0..2 {
            let step = decide(&seen);
            apply(&mut seen, &step);
        }
        assert!(reported(&decide(&seen)).velero_backup.is_some());
    }

    #[test]
    fn check_velero_backup_to_generate_nacuuid() {
        let steps = walk(&mut new());
        let made = reported(&steps[2]).velero_backup.clone().unwrap();
        assert_eq!(made.nacuuid.as_deref(), Some("a-nab-1"));
    }

    #[test]
    fn generate_nacuuid_to_update_nab_status() {
        let steps = walk(&mut new());
        let made = reported(&steps[2]).velero_backup.clone().unwrap();
        assert_eq!(made.name, made.nacuuid);
        assert_eq!(made.namespace.as_deref(), Some("openshift-adp"));
        assert_eq!((made.status, made.spec), (None, None));
    }

    #[test]
    fn update_nab_status_to_set_finalizer() {
        assert_eq!(walk(&mut new())[3], Step::AddFinalizer);
    }

    #[test]
    fn check_velero_backup_to_set_finalizer() {
        let mut seen = Observed { has_finalizer: false, ..created() };
        seen.candidate = Candidate::Generated("another".into());
        assert_eq!(decide(&seen), Step::AddFinalizer);
        assert_eq!(seen.nacuuid(), Some("a-nab-1"));
    }

    #[test]
    fn set_finalizer_to_add_finalizer() {
        let steps = walk(&mut new());
        let finalizer = steps.iter().position(|it| *it == Step::AddFinalizer).unwrap();
        let backup = steps.iter().position(|it| *it == Step::CreateVeleroBackup).unwrap();
        assert!(finalizer < backup, "an orphan could be left behind: {steps:?}");
    }

    #[test]
    fn add_finalizer_to_create_vb() {
        assert_eq!(walk(&mut new())[3..5], [Step::AddFinalizer, Step::CreateVeleroBackup]);
    }

    #[test]
    fn set_finalizer_to_create_vb() {
        let mut seen = new();
        for _ in 0..4 {
            let step = decide(&seen);
            apply(&mut seen, &step);
        }
        assert!(seen.has_finalizer);
        assert_eq!(decide(&seen), Step::CreateVeleroBackup);
    }

    #[test]
    fn create_vb_to_create_new_vb() {
        let steps = walk(&mut new());
        let made = steps.iter().filter(|it| **it == Step::CreateVeleroBackup).count();
        assert_eq!(made, 1);
    }

    #[test]
    fn create_new_vb_to_set_created_phase() {
        let steps = walk(&mut new());
        assert_eq!(reported(&steps[5]).phase, Some(Phase::Created));
    }

    #[test]
    fn set_created_phase_to_set_queued_condition() {
        let steps = walk(&mut new());
        let status = reported(&steps[5]);
        assert_eq!(conditions(status), [accepted(), queued()]);
        assert_eq!(status.queue_info.as_ref().unwrap().estimated_queue_position, 12);
        assert_eq!(status.velero_backup.as_ref().unwrap().status, Some(Mirror::default()));
    }

    #[test]
    fn set_queued_condition_to_end_create_update() {
        assert_eq!(walk(&mut new())[6..], [Step::End]);
    }

    #[test]
    fn create_vb_to_update_from_vb() {
        let mut seen = created();
        let running = json!({"phase": "InProgress", "startTimestamp": "2024-11-27T10:48:45Z",
            "progress": {"totalItems": 3}, "somethingNew": 1});
        seen.velero = velero(running.clone(), 1);
        let step = decide(&seen);
        let status = reported(&step);
        let shown = status.velero_backup.as_ref().unwrap().status.as_ref().unwrap();
        assert_eq!(Value::Object(shown.document().clone()), running);
        assert_eq!(status.queue_info.as_ref().unwrap().estimated_queue_position, 1);
        assert_eq!(status.phase, Some(Phase::Created));
        assert_eq!(conditions(status), [accepted(), queued()]);
    }

    #[test]
    fn update_from_vb_to_end_create_update() {
        let mut seen = created();
        assert_eq!(walk(&mut seen), [Step::End], "a steady object is not written");
    }
}

mod api_delete {
    use super::*;

    fn deleted() -> Observed {
        Observed { is_deleted: true, generation: Some(2), ..created() }
    }

    #[test]
    fn nab_api_delete_to_set_phase() {
        assert_eq!(reported(&decide(&deleted())).phase, Some(Phase::Deleting));
    }

    #[test]
    fn set_phase_to_set_condition() {
        let step = decide(&deleted());
        assert_eq!(conditions(reported(&step)), [accepted(), queued(), deleting(HELD)]);
    }

    #[test]
    fn set_condition_to_end_delete() {
        let mut seen = deleted();
        assert_eq!(walk(&mut seen).len(), 2);
        assert_eq!(walk(&mut seen), [Step::End]);
        assert!(seen.has_finalizer && matches!(seen.velero, Velero::Found(_)), "it is held");
    }
}

mod force_delete {
    use super::*;

    fn forced() -> Observed {
        wanting(Wanted::ForceDeleted)
    }

    #[test]
    fn force_delete_to_set_deleting_phase() {
        assert_eq!(reported(&decide(&forced())).phase, Some(Phase::Deleting));
    }

    #[test]
    fn set_deleting_phase_to_set_deleting_condition() {
        let step = decide(&forced());
        let want = [accepted(), queued(), deleting(ACCEPTED_FOR_DELETION)];
        assert_eq!(conditions(reported(&step)), want);
    }

    #[test]
    fn set_deleting_condition_to_check_status_changed() {
        assert!(matches!(decide(&forced()), Step::ReportAndMark(_)));
    }

    #[test]
    fn check_status_changed_to_update_and_requeue() {
        let mut seen = forced();
        let step = decide(&seen);
        apply(&mut seen, &step);
        assert!(seen.is_marked);
    }

    #[test]
    fn update_and_requeue_to_check_deletion_timestamp() {
        assert_eq!(walk(&mut forced())[1], Step::SetDelete);
    }

    #[test]
    fn check_status_changed_to_check_deletion_timestamp() {
        let mut seen = forced();
        walk(&mut seen);
        seen.is_deleted = false;
        assert_eq!(decide(&seen), Step::SetDelete);
    }

    #[test]
    fn check_deletion_timestamp_to_initiate_force_delete() {
        assert_eq!(walk(&mut forced())[1], Step::SetDelete);
    }

    #[test]
    fn initiate_force_delete_to_requeue_after_force_delete() {
        let mut seen = forced();
        walk(&mut seen);
        seen.is_deleted = false;
        apply(&mut seen, &Step::SetDelete);
        assert!(seen.is_marked);
    }

    #[test]
    fn requeue_after_force_delete_to_check_requeue_flag() {
        assert_eq!(walk(&mut forced())[2..], [Step::Requeue(Duration::ZERO)]);
    }

    #[test]
    fn check_deletion_timestamp_to_check_requeue_flag() {
        let mut seen = Observed { is_deleted: true, ..forced() };
        let steps = walk(&mut seen);
        assert!(matches!(steps[..], [Step::ReportAndMark(_), Step::Requeue(Duration::ZERO)]));
    }

    #[test]
    fn check_requeue_flag_to_requeue_force_delete_path() {
        let mut seen = forced();
        assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(Duration::ZERO)));
        assert!(seen.has_finalizer);
    }

    #[test]
    fn check_requeue_flag_to_check_velero_objects() {
        let mut seen = forced();
        walk(&mut seen);
        assert_eq!(decide(&seen), Step::DeleteVeleroObjects { bury: Bury::Backup });
    }

    #[test]
    fn check_velero_objects_to_delete_velero_objects() {
        let mut seen = forced();
        walk(&mut seen);
        seen.velero = Velero::Absent;
        seen.request = Some(request("New", &[], 0));
        assert_eq!(
            decide(&seen),
            Step::DeleteVeleroObjects { bury: Bury::Backup },
            "a request alone is enough"
        );
    }

    #[test]
    fn check_velero_objects_to_remove_finalizer() {
        let mut seen = forced();
        walk(&mut seen);
        seen.velero = Velero::Absent;
        assert_eq!(decide(&seen), Step::RemoveFinalizer);
    }

    #[test]
    fn delete_velero_objects_to_remove_finalizer() {
        let mut seen = forced();
        walk(&mut seen);
        assert_eq!(
            walk(&mut seen),
            [Step::DeleteVeleroObjects { bury: Bury::Backup }, Step::RemoveFinalizer, Step::End]
        );
        // Also when the executor takes its time.
        let mut seen = Observed { has_finalizer: true, ..seen };
        seen.velero = Velero::Found(Box::new(Found { is_deleted: true, ..Found::default() }));
        assert_eq!(decide(&seen), Step::RemoveFinalizer);
    }

    #[test]
    fn remove_finalizer_to_end_force() {
        let mut seen = forced();
        settle(&mut seen);
        assert!(!seen.has_finalizer);
        assert_eq!(decide(&seen), Step::End);
    }
}

mod delete_backup {
    use super::*;

    fn deleted() -> Observed {
        wanting(Wanted::Deleted)
    }

    /// One that waits for Velero.
    fn waiting() -> Observed {
        let mut seen = deleted();
        settle(&mut seen);
        seen
    }

    #[test]
    fn delete_backup_to_set_deleting_phase_delete() {
        assert_eq!(reported(&decide(&deleted())).phase, Some(Phase::Deleting));
    }

    #[test]
    fn set_deleting_phase_delete_to_set_deleting_condition_delete() {
        let step = decide(&deleted());
        let want = [accepted(), queued(), deleting(ACCEPTED_FOR_DELETION)];
        assert_eq!(conditions(reported(&step)), want);
    }

    #[test]
    fn set_deleting_condition_delete_to_check_status_changed_delete() {
        assert!(matches!(decide(&deleted()), Step::ReportAndMark(_)));
    }

    #[test]
    fn check_status_changed_delete_to_update_and_requeue_delete() {
        let mut seen = deleted();
        let step = decide(&seen);
        apply(&mut seen, &step);
        assert!(seen.is_marked);
    }

    #[test]
    fn update_and_requeue_delete_to_check_deletion_timestamp_delete() {
        assert_eq!(walk(&mut deleted())[1], Step::SetDelete);
    }

    #[test]
    fn check_status_changed_delete_to_check_deletion_timestamp_delete() {
        let mut seen = deleted();
        walk(&mut seen);
        seen.is_deleted = false;
        assert_eq!(decide(&seen), Step::SetDelete);
    }

    #[test]
    fn check_deletion_timestamp_delete_to_initiate_delete() {
        assert_eq!(walk(&mut deleted())[1], Step::SetDelete);
    }

    #[test]
    fn initiate_delete_to_requeue_after_delete() {
        let mut seen = deleted();
        walk(&mut seen);
        seen.is_deleted = false;
        apply(&mut seen, &Step::SetDelete);
        assert!(seen.is_marked);
    }

    #[test]
    fn requeue_after_delete_to_check_requeue_flag_delete() {
        assert_eq!(walk(&mut deleted())[2..], [Step::Requeue(Duration::ZERO)]);
    }

    #[test]
    fn check_deletion_timestamp_delete_to_check_requeue_flag_delete() {
        let mut seen = Observed { is_deleted: true, ..deleted() };
        let steps = walk(&mut seen);
        assert!(matches!(steps[..], [Step::ReportAndMark(_), Step::Requeue(Duration::ZERO)]));
    }

    #[test]
    fn check_requeue_flag_delete_to_requeue_delete_path() {
        let mut seen = deleted();
        assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(Duration::ZERO)));
        assert_eq!(seen.request, None);
    }

    #[test]
    fn check_requeue_flag_delete_to_check_finalizer() {
        let mut seen = deleted();
        walk(&mut seen);
        seen.has_finalizer = false;
        assert_eq!(decide(&seen), Step::End);
    }

    #[test]
    fn check_finalizer_to_end_delete_backup() {
        let mut seen = Observed { has_finalizer: false, ..waiting() };
        assert_eq!(walk(&mut seen), [Step::End]);
    }

    #[test]
    fn check_finalizer_to_check_velero_backup_info() {
        let mut seen = deleted();
        walk(&mut seen);
        assert_eq!(decide(&seen), Step::CreateDeleteRequest);
    }

    #[test]
    fn check_velero_backup_info_to_remove_nab_finalizer() {
        let mut seen = deleted();
        seen.velero = Velero::Absent;
        assert!(settle(&mut seen).contains(&Step::RemoveFinalizer));
        assert_eq!(seen.request, None, "nothing to ask for");
    }

    #[test]
    fn check_velero_backup_info_to_check_delete_backup_request() {
        let mut seen = deleted();
        walk(&mut seen);
        seen.request = Some(request("InProgress", &[], 0));
        assert!(reported(&decide(&seen)).velero_delete_backup_request.is_some());
    }

    #[test]
    fn check_delete_backup_request_to_create_delete_backup_request() {
        let mut seen = deleted();
        walk(&mut seen);
        assert_eq!(walk(&mut seen)[0], Step::CreateDeleteRequest);
    }

    #[test]
    fn create_delete_backup_request_to_update_dbr_status() {
        let mut seen = deleted();
        walk(&mut seen);
        let steps = walk(&mut seen);
        let shown = reported(&steps[1]).velero_delete_backup_request.clone().unwrap();
        assert_eq!(shown.nacuuid.as_deref(), Some("a-nab-1"));
        assert_eq!(shown.name.as_deref(), Some("a-nab-1-x7x7x"));
        assert_eq!(shown.namespace.as_deref(), Some("openshift-adp"));
    }

    #[test]
    fn check_delete_backup_request_to_update_dbr_status() {
        let mut seen = waiting();
        seen.request = Some(request("InProgress", &[], 0));
        let step = decide(&seen);
        let shown = reported(&step).velero_delete_backup_request.clone().unwrap();
        assert_eq!(shown.status.unwrap().view().unwrap().phase, Some(DeletePhase::InProgress));
    }

    #[test]
    fn update_dbr_status_to_wait_for_vb_deletion() {
        let mut seen = waiting();
        assert_eq!(walk(&mut seen), [Step::Requeue(RECHECK)], "nothing changed, nothing written");
    }

    #[test]
    fn wait_for_vb_deletion_to_requeue_for_vb_deletion() {
        let mut seen = waiting();
        seen.request = Some(request("InProgress", &[], 0));
        assert_eq!(walk(&mut seen)[1..], [Step::Requeue(RECHECK)]);
        assert!(seen.has_finalizer);
    }

    #[test]
    fn wait_for_vb_deletion_to_remove_nab_finalizer() {
        let mut seen = waiting();
        seen.velero = Velero::Absent;
        assert_eq!(walk(&mut seen), [Step::RemoveFinalizer, Step::End]);
    }

    #[test]
    fn remove_nab_finalizer_to_end_delete_backup() {
        let mut seen = waiting();
        seen.velero = Velero::Absent;
        walk(&mut seen);
        assert_eq!(walk(&mut seen), [Step::End]);
    }

    #[test]
    fn restores_go_first() {
        let mut seen = Observed { restores: 2, ..deleted() };
        let steps = settle(&mut seen);
        let restores = steps.iter().position(|it| *it == Step::DeleteRestores).unwrap();
        let request = steps.iter().position(|it| *it == Step::CreateDeleteRequest).unwrap();
        assert!(restores < request);
    }

    #[test]
    fn a_deletion_that_failed_is_asked_for_again_after_a_growing_pause() {
        let mut seen = waiting();
        seen.request = Some(request("Processed", &["backup is still in progress"], 0));
        let steps = settle(&mut seen);
        assert!(
            conditions(&seen.status)[2].3.ends_with("asked again: backup is still in progress"),
            "{:?}",
            conditions(&seen.status)
        );
        assert_eq!(steps.last(), Some(&Step::Requeue(Duration::from_secs(10))));
        seen.now = at(110);
        let again = Step::ReplaceDeleteRequest { name: "a-nab-1-x7x7x".into(), attempt: 1 };
        assert_eq!(decide(&seen), again);
        for (attempt, seconds) in [(0, 10), (1, 20), (3, 80), (6, 600), (40, 600)] {
            assert_eq!(retry_pause(attempt), Duration::from_secs(seconds));
        }
    }
}

/// What the graph does not draw: the decisions where it is silent.
mod beyond {
    use super::*;

    #[test]
    fn a_mended_spec_comes_to_life_and_the_phase_never_goes_back() {
        let mut seen = invalid();
        walk(&mut seen);
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
        seen.spec = Verdict::Valid;
        walk(&mut seen);
        assert_eq!(seen.status.phase, Some(Phase::Created));
        assert_eq!(conditions(&seen.status), [accepted(), queued()]);
        seen.spec = Verdict::Invalid("no".into());
        seen.velero = velero(json!({"phase": "InProgress"}), 1);
        walk(&mut seen);
        assert_eq!(seen.status.phase, Some(Phase::Created));
        assert_eq!(
            conditions(&seen.status)[0],
            entry("Accepted", false, "InvalidBackupSpec", "no")
        );
        let shown = seen.status.velero_backup.clone().unwrap().status.unwrap();
        assert_eq!(shown.document()["phase"], "InProgress", "it is followed all the same");
    }

    #[test]
    fn what_may_mend_itself_is_looked_at_again() {
        let mut seen = Observed { spec: Verdict::NotYet("later".into()), ..new() };
        assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(RECHECK)));
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
    }

    #[test]
    fn a_velero_backup_that_vanished_is_never_made_again() {
        for gone in [Velero::Absent, Velero::Foreign] {
            let mut seen = Observed { velero: gone, ..created() };
            let steps = walk(&mut seen);
            assert_eq!(steps.last(), Some(&Step::Terminal(VANISHED.into())));
            assert_eq!(seen.status.phase, Some(Phase::Created));
            let want = [entry("Accepted", false, "VeleroBackupNotFound", VANISHED), queued()];
            assert_eq!(conditions(&seen.status), want);
            assert_eq!(seen.status.velero_backup.clone().unwrap().status, None);
            assert_eq!(walk(&mut seen).len(), 1, "nothing changed, nothing written");
            // From the store it may come back by itself.
            seen.velero = velero(json!({"phase": "Completed"}), 0);
            walk(&mut seen);
            assert_eq!(conditions(&seen.status), [accepted(), queued()]);
        }
    }

    #[test]
    fn a_forged_sync_label_leads_nowhere() {
        let mut seen = Observed { candidate: Candidate::Nothing, ..new() };
        let steps = walk(&mut seen);
        assert_eq!(steps.last(), Some(&Step::Terminal(NOTHING_TO_SYNC.into())));
        assert_eq!(seen.status.velero_backup, None);
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
        for wanted in [Wanted::Deleted, Wanted::ForceDeleted] {
            let mut seen = Observed { wanted, ..seen.clone() };
            let steps = settle(&mut seen);
            let deletes = |it: &Step| matches!(it, Step::DeleteVeleroObjects { .. });
            assert!(!steps.iter().any(deletes), "{steps:?}");
            assert!(!steps.contains(&Step::CreateDeleteRequest), "{steps:?}");
        }
    }

    #[test]
    fn a_backup_from_a_store_is_accepted_as_it_is() {
        let mut seen = invalid();
        seen.candidate = Candidate::Synced("a-nab-0".into());
        seen.velero = velero(json!({"phase": "Completed"}), 0);
        let steps = walk(&mut seen);
        assert!(!steps.contains(&Step::CreateVeleroBackup));
        assert_eq!(seen.nacuuid(), Some("a-nab-0"));
        assert_eq!(conditions(&seen.status), [accepted(), queued()]);
        assert_eq!(seen.status.phase, Some(Phase::Created));
    }

    #[test]
    fn a_sync_label_on_a_backup_that_waits_lets_nothing_unvalidated_through() {
        let mut seen = Observed { turn: Turn::Later("one runs".into()), ..new() };
        walk(&mut seen);
        assert_eq!(seen.nacuuid(), Some("a-nab-1"));
        // What the tenant edits then: its own identity as the label, and a spec that is not allowed.
        let mut seen = Observed {
            candidate: Candidate::Synced("a-nab-1".into()),
            spec: Verdict::Invalid("no".into()),
            turn: Turn::Now,
            ..seen
        };
        let steps = walk(&mut seen);
        assert_eq!(steps.last(), Some(&Step::Terminal(NOTHING_TO_SYNC.into())), "{steps:?}");
        assert!(!steps.contains(&Step::CreateVeleroBackup), "{steps:?}");
        assert_eq!(seen.status.phase, Some(Phase::BackingOff));
    }

    #[test]
    fn nobody_touches_what_belongs_to_another() {
        for wanted in [Wanted::Kept, Wanted::Deleted, Wanted::ForceDeleted] {
            for is_deleted in [false, true] {
                for policy in [ApiDeletePolicy::Hold, ApiDeletePolicy::RemoveObjects] {
                    let mut seen = Observed {
                        wanted,
                        is_deleted,
                        policy,
                        velero: Velero::Foreign,
                        request: Some(request("New", &[], 0)),
                        ..created()
                    };
                    for step in settle(&mut seen) {
                        assert!(
                            !matches!(
                                step,
                                Step::DeleteVeleroObjects { .. }
                                    | Step::CreateDeleteRequest
                                    | Step::CreateVeleroBackup
                                    | Step::ReplaceDeleteRequest { .. }
                            ),
                            "{step:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_namespace_that_ends_is_not_held_up() {
        let mut seen = Observed { is_deleted: true, namespace_ends: true, ..created() };
        let steps = settle(&mut seen);
        let deletion = Step::DeleteVeleroObjects { bury: Bury::Backup };
        assert!(steps.contains(&deletion) && !seen.has_finalizer, "{steps:?}");
        assert_eq!(conditions(&seen.status)[2], deleting(NAMESPACE_ENDS));
        // Who has the keys of the store has its backups, under whatever namespace.
        let mut seen =
            Observed { is_deleted: true, namespace_ends: true, in_own_location: true, ..created() };
        assert!(settle(&mut seen).contains(&Step::DeleteVeleroObjects { bury: Bury::Nothing }));
    }

    #[test]
    fn backups_that_go_with_their_location_may_come_back_with_it() {
        let mut seen = Observed { leaves_with_location: true, ..wanting(Wanted::ForceDeleted) };
        let steps = settle(&mut seen);
        assert!(steps.contains(&Step::DeleteVeleroObjects { bury: Bury::Nothing }), "{steps:?}");
        // Their volumes' data does not lie there: it stays with the administrators, and counts.
        let mut seen = Observed { leaves_with_location: true, ..wanting(Wanted::ForceDeleted) };
        seen.velero = velero(json!({"phase": "Completed", "volumeSnapshotsCompleted": 1}), 0);
        let steps = settle(&mut seen);
        assert!(steps.contains(&Step::DeleteVeleroObjects { bury: Bury::Volumes }), "{steps:?}");
    }

    #[test]
    fn what_others_hold_says_that_it_is_deleted_and_leaves_no_velero_backup() {
        let mut seen = Observed { is_deleted: true, ..new() };
        walk(&mut seen);
        assert_eq!(seen.status.phase, Some(Phase::Deleting));
        assert_eq!(conditions(&seen.status), [deleting(HELD)]);
        let mut seen = Observed { has_finalizer: false, ..wanting(Wanted::ForceDeleted) };
        settle(&mut seen);
        assert_eq!(seen.velero, Velero::Absent);
        assert_eq!(decide(&seen), Step::End);
    }

    #[test]
    fn the_policy_of_the_peer_removes_the_objects_and_keeps_the_data() {
        let mut seen =
            Observed { is_deleted: true, policy: ApiDeletePolicy::RemoveObjects, ..created() };
        let steps = settle(&mut seen);
        let deletion = Step::DeleteVeleroObjects { bury: Bury::Nothing };
        assert!(steps.contains(&deletion) && !seen.has_finalizer, "{steps:?}");
        assert!(!steps.contains(&Step::CreateDeleteRequest));
        assert_eq!(conditions(&seen.status)[2], deleting(PERMANENT));
    }

    #[test]
    fn a_tenant_that_has_its_share_waits_for_its_turn() {
        let mut seen = Observed { turn: Turn::Later("two run".into()), ..new() };
        let steps = walk(&mut seen);
        assert!(!steps.contains(&Step::CreateVeleroBackup));
        assert_eq!(seen.status.phase, Some(Phase::New));
        assert_eq!(
            conditions(&seen.status)[1],
            entry("Queued", false, "WaitingForTurn", "two run")
        );
        seen.turn = Turn::Now;
        walk(&mut seen);
        assert_eq!(conditions(&seen.status), [accepted(), queued()]);
    }

    #[test]
    fn deletion_after_a_hold_keeps_the_time_of_the_condition() {
        let mut seen = Observed { is_deleted: true, ..created() };
        walk(&mut seen);
        seen.wanted = Wanted::Deleted;
        seen.now = at(500);
        walk(&mut seen);
        let list = seen.status.conditions.clone().unwrap();
        assert_eq!(list[2].message, ACCEPTED_FOR_DELETION);
        assert_eq!(list[2].last_transition_time, at(100));
    }

    #[test]
    fn a_kill_between_any_two_steps_changes_nothing_of_the_end() {
        for wanted in [Wanted::Kept, Wanted::Deleted, Wanted::ForceDeleted] {
            let begin = || if wanted == Wanted::Kept { new() } else { wanting(wanted) };
            let mut whole = begin();
            let count = settle(&mut whole).len();
            for killed_after in 0..count {
                let mut seen = begin();
                for _ in 0..killed_after {
                    let step = decide(&seen);
                    apply(&mut seen, &step);
                }
                // What only the process knew is gone.
                seen.is_marked = false;
                settle(&mut seen);
                assert_eq!(seen.status, whole.status, "{wanted:?} killed after {killed_after}");
                assert_eq!(seen.has_finalizer, whole.has_finalizer);
                assert_eq!(seen.velero, whole.velero);
                assert_eq!(seen.request, whole.request);
            }
        }
    }
}
