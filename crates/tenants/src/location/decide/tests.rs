//! The life of a storage location, step by step.

use serde_json::json;

use super::*;

fn new() -> Observed {
    Observed {
        now: jiff::Timestamp::from_second(100).unwrap().into(),
        admin_namespace: "openshift-adp".into(),
        namespace: "a".into(),
        name: "l".into(),
        generation: Some(1),
        is_deleted: false,
        has_finalizer: false,
        status: Status::default(),
        requested: spec("b"),
        spec: Verdict::Valid,
        candidate: "a-l-1".into(),
        require_approval: false,
        request: None,
        secret: Copy::Missing,
        location: Copy::Missing,
        velero: None,
        backups: 0,
        secret_written: None,
        location_written: None,
    }
}

fn spec(bucket: &str) -> Mirror<BackupStorageLocationSpec> {
    json!({"objectStorage": {"bucket": bucket}}).as_object().unwrap().clone().into()
}

fn written(before: Copy) -> Written {
    if before == Copy::Missing { Written::Created } else { Written::Updated }
}

/// Carries out a step on what was observed, as an API server would show it next.
fn apply(seen: &mut Observed, step: &Step) {
    match step {
        Step::Report(status) => seen.status = (**status).clone(),
        Step::CreateRequest(decision) => {
            let status = RequestStatus::default();
            seen.request = Some(Request { decision: Some(*decision), status });
        }
        Step::Approve => seen.request.as_mut().unwrap().decision = Some(Approval::Approve),
        Step::ReportRequest(status) => seen.request.as_mut().unwrap().status = (**status).clone(),
        Step::AddFinalizer => seen.has_finalizer = true,
        Step::WriteSecret => {
            seen.secret_written = Some(written(seen.secret));
            seen.secret = Copy::Same;
        }
        Step::WriteLocation => {
            seen.location_written = Some(written(seen.location));
            seen.location = Copy::Same;
            seen.velero = Some(Mirror::default());
        }
        Step::Revoke => {
            seen.secret = Copy::Missing;
            seen.location = Copy::Missing;
            seen.velero = None;
        }
        Step::ForceDeleteBackups => seen.backups = 0,
        Step::DeleteObjects => {
            seen.secret = Copy::Missing;
            seen.location = Copy::Missing;
            seen.request = None;
        }
        Step::RemoveFinalizer => seen.has_finalizer = false,
        Step::End | Step::Terminal(_) | Step::Requeue(_) => {
            seen.secret_written = None;
            seen.location_written = None;
        }
    }
}

fn walk(seen: &mut Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..30 {
        let step = decide(seen);
        apply(seen, &step);
        steps.push(step);
        if matches!(steps.last(), Some(Step::End | Step::Terminal(_) | Step::Requeue(_))) {
            return steps;
        }
    }
    panic!("no end: {steps:?}");
}

fn reasons(status: &Status) -> Vec<String> {
    let list = status.conditions.iter().flatten();
    list.map(|it| format!("{}={} {}", it.kind, it.status, it.reason)).collect()
}

fn approve(seen: &mut Observed, decision: Option<Approval>) {
    seen.request.as_mut().unwrap().decision = decision;
}

#[test]
fn without_approval_it_is_made_at_once_with_four_conditions_in_order() {
    let mut seen = new();
    walk(&mut seen);
    assert_eq!(seen.status.phase, Some(Phase::Created));
    assert_eq!(
        reasons(&seen.status),
        [
            "Accepted=True BslSpecValidation",
            "ClusterAdminApproved=True BslSpecApproved",
            "SecretSynced=True SecretCreated",
            "BackupStorageLocationSynced=True BackupStorageLocationCreated",
        ]
    );
    let answer = seen.request.clone().unwrap().status;
    assert_eq!(answer.phase, Some(RequestPhase::Approved));
    let said = answer.non_admin_backup_storage_location.unwrap();
    assert_eq!((said.nacuuid.as_deref(), said.name.as_deref()), (Some("a-l-1"), Some("l")));
    assert_eq!(said.requested_spec, Some(spec("b")));
    assert_eq!(walk(&mut seen), [Step::End], "a steady object is not written");
}

#[test]
fn with_approval_nothing_is_made_before_and_all_is_taken_away_after() {
    let mut seen = Observed { require_approval: true, ..new() };
    let steps = walk(&mut seen);
    assert!(!steps.contains(&Step::WriteSecret) && !steps.contains(&Step::WriteLocation));
    assert_eq!(seen.status.phase, Some(Phase::New));
    let pending = "ClusterAdminApproved=False BslSpecApprovalPending";
    assert_eq!(reasons(&seen.status), ["Accepted=True BslSpecValidation", pending]);
    approve(&mut seen, Some(Approval::Approve));
    walk(&mut seen);
    assert_eq!(seen.status.phase, Some(Phase::Created));
    assert_eq!(reasons(&seen.status).len(), 4);
    approve(&mut seen, Some(Approval::Reject));
    let steps = walk(&mut seen);
    assert!(steps.contains(&Step::Revoke));
    assert_eq!(seen.status.phase, Some(Phase::Created), "a phase does not go back");
    let rejected = "ClusterAdminApproved=False BslSpecRejected";
    assert_eq!(reasons(&seen.status), ["Accepted=True BslSpecValidation", rejected]);
    assert_eq!(seen.request.clone().unwrap().status.phase, Some(RequestPhase::Rejected));
}

#[test]
fn a_rejected_one_backs_off() {
    let mut seen = Observed { require_approval: true, ..new() };
    walk(&mut seen);
    approve(&mut seen, Some(Approval::Reject));
    walk(&mut seen);
    assert_eq!(seen.status.phase, Some(Phase::BackingOff));
}

#[test]
fn a_word_of_the_administrators_counts_whatever_the_tenant_did_to_its_spec_or_secret() {
    for decision in [Some(Approval::Reject), Some(Approval::Pending), None] {
        let mut made = Observed { require_approval: true, ..new() };
        walk(&mut made);
        approve(&mut made, Some(Approval::Approve));
        walk(&mut made);
        assert_eq!(made.status.phase, Some(Phase::Created));
        approve(&mut made, decision);
        let no_secret = Observed { spec: Verdict::NotYet("no secret".into()), ..made.clone() };
        let invalid = Observed { spec: Verdict::Invalid("no".into()), ..made.clone() };
        let edited = Observed { requested: spec("other"), location: Copy::Differs, ..made };
        for mut seen in [no_secret, invalid, edited] {
            let steps = walk(&mut seen);
            assert!(steps.contains(&Step::Revoke), "{steps:?}");
            let want = if decision == Some(Approval::Reject) {
                RequestPhase::Rejected
            } else {
                RequestPhase::Pending
            };
            assert_eq!(seen.request.clone().unwrap().status.phase, Some(want));
            assert!(
                reasons(&seen.status).iter().any(|it| it.starts_with("ClusterAdminApproved=False"))
            );
            assert_eq!(walk(&mut seen).len(), 1, "and then it rests");
        }
    }
}

#[test]
fn a_rejection_stays_though_nobody_need_be_asked_any_more() {
    let mut seen = Observed { require_approval: true, ..new() };
    walk(&mut seen);
    approve(&mut seen, Some(Approval::Reject));
    walk(&mut seen);
    seen.require_approval = false;
    let steps = walk(&mut seen);
    assert!(!steps.contains(&Step::Approve) && !steps.contains(&Step::WriteSecret), "{steps:?}");
    approve(&mut seen, Some(Approval::Pending));
    let steps = walk(&mut seen);
    assert!(steps.contains(&Step::Approve), "{steps:?}");
    approve(&mut seen, Some(Approval::Reject));
    let steps = walk(&mut seen);
    assert!(steps.contains(&Step::Revoke), "one can be rejected all the same: {steps:?}");
}

#[test]
fn an_edit_is_not_applied_and_said_until_it_is_undone() {
    let mut seen = new();
    walk(&mut seen);
    seen.requested = spec("other");
    seen.location = Copy::Differs;
    let steps = walk(&mut seen);
    assert!(!steps.contains(&Step::WriteLocation) && !steps.contains(&Step::Revoke), "{steps:?}");
    assert_eq!(seen.status.phase, Some(Phase::Created));
    assert!(
        reasons(&seen.status).contains(&"SpecUpdateApproved=False BslSpecUpdateRejected".into())
    );
    seen.requested = spec("b");
    seen.location = Copy::Same;
    walk(&mut seen);
    assert_eq!(reasons(&seen.status).len(), 4);
}

#[test]
fn new_credentials_are_copied_and_said() {
    let mut seen = new();
    walk(&mut seen);
    seen.secret = Copy::Differs;
    let steps = walk(&mut seen);
    assert_eq!(steps[0], Step::WriteSecret);
    assert_eq!(reasons(&seen.status)[2], "SecretSynced=True SecretUpdated");
    assert_eq!(walk(&mut seen), [Step::End]);
}

#[test]
fn a_request_that_speaks_of_another_is_not_an_approval() {
    let mut seen = Observed { require_approval: true, ..new() };
    walk(&mut seen);
    let request = seen.request.as_mut().unwrap();
    request.decision = Some(Approval::Approve);
    request.status.non_admin_backup_storage_location.as_mut().unwrap().nacuuid = Some("x".into());
    let steps = walk(&mut seen);
    assert!(!steps.contains(&Step::WriteSecret), "{steps:?}");
    assert!(reasons(&seen.status)[1].ends_with("BslSpecUpdateRejected"));
}

#[test]
fn what_belongs_to_another_is_not_overwritten() {
    let mut seen = Observed { secret: Copy::Foreign, ..new() };
    let steps = walk(&mut seen);
    assert!(!steps.contains(&Step::WriteSecret));
    assert!(reasons(&seen.status).contains(&"SecretSynced=False SecretSyncFailed".into()));
}

#[test]
fn an_invalid_one_backs_off_and_makes_nothing() {
    let mut seen = Observed { spec: Verdict::Invalid("no".into()), ..new() };
    assert_eq!(walk(&mut seen).last(), Some(&Step::Terminal("no".into())));
    assert_eq!(seen.status.phase, Some(Phase::BackingOff));
    assert_eq!((seen.request.clone(), seen.nacuuid()), (None, None));
    seen.spec = Verdict::NotYet("no secret".into());
    assert_eq!(walk(&mut seen).last(), Some(&Step::Requeue(RECHECK)));
    seen.spec = Verdict::Valid;
    walk(&mut seen);
    assert_eq!(seen.status.phase, Some(Phase::Created));
}

#[test]
fn deletion_takes_backups_and_copies_along() {
    let mut seen = new();
    walk(&mut seen);
    seen.is_deleted = true;
    seen.backups = 2;
    let steps = walk(&mut seen);
    assert_eq!(
        steps[1..],
        [Step::ForceDeleteBackups, Step::DeleteObjects, Step::RemoveFinalizer, Step::End]
    );
    assert_eq!(seen.status.phase, Some(Phase::Deleting));
    let mut seen = Observed { is_deleted: true, has_finalizer: true, ..new() };
    assert_eq!(walk(&mut seen)[1..], [Step::RemoveFinalizer, Step::End], "nothing was ever made");
}

#[test]
fn a_kill_between_any_two_steps_changes_nothing_of_the_end() {
    let mut whole = new();
    for killed_after in 0..walk(&mut whole).len() {
        let mut seen = new();
        for _ in 0..killed_after {
            let step = decide(&seen);
            apply(&mut seen, &step);
        }
        seen.secret_written = None;
        seen.location_written = None;
        walk(&mut seen);
        assert_eq!(seen.status, whole.status, "killed after {killed_after}");
    }
}
