//! What a backup waits for, and that every wait has an end.

use super::*;

fn now() -> Timestamp {
    "2025-03-01T10:00:00Z".parse().unwrap()
}

/// A backup with all that it needs.
fn ready() -> Seen {
    Seen {
        now: now(),
        state: BackupState::New,
        upload: BackupUpload::default(),
        snapshot_name: "s".into(),
        volume_name: "v".into(),
        target_name: "default".into(),
        volume: Volume::Served,
        snapshot: Snapshot::Ready,
        target: Target::Ready,
        deleted_first: None,
        uploaded_first: None,
        record: Record::None,
    }
}

fn since(seconds: i64) -> BackupUpload {
    let since = now() - jiff::SignedDuration::from_secs(seconds);
    BackupUpload { waiting_since: Some(Time::new(since)), ..BackupUpload::default() }
}

#[test]
fn a_backup_with_all_it_needs_starts() {
    let verdict = decide(&ready());
    assert_eq!((verdict.act, verdict.state), (Act::Start, BackupState::Pending));
    assert_eq!(verdict.upload.attempts, Some(1));
}

#[test]
fn what_it_waits_for_is_told() {
    let down = Volume::Down { engine: "v-e-0".into(), why: None };
    for (seen, act, info) in [
        (
            Seen { deleted_first: Some("b".into()), ..ready() },
            Act::Nothing,
            "Wait for backup b to be deleted",
        ),
        (
            Seen { volume: down.clone(), ..ready() },
            Act::Attach,
            "Waiting for the engine v-e-0 to be ready",
        ),
        (
            Seen {
                volume: Volume::Down { engine: "v-e-0".into(), why: Some("no port".into()) },
                ..ready()
            },
            Act::Attach,
            "Waiting for the engine v-e-0 to be ready: no port",
        ),
        (
            Seen { snapshot: Snapshot::Missing, ..ready() },
            Act::Nothing,
            "Failed to get the Snapshot s",
        ),
        (
            Seen { snapshot: Snapshot::NotReady, ..ready() },
            Act::Nothing,
            "Waiting for the snapshot s to be ready",
        ),
        (
            Seen { target: Target::Unavailable("no route".into()), ..ready() },
            Act::Nothing,
            "Waiting for the backup target default to be available: no route",
        ),
        // A deletion is waited for before the volume is attached for the backup.
        (
            Seen { deleted_first: Some("b".into()), volume: down, ..ready() },
            Act::Nothing,
            "Wait for backup b to be deleted",
        ),
    ] {
        let verdict = decide(&seen);
        assert_eq!(verdict.state, BackupState::Pending);
        assert_eq!((verdict.act, verdict.info.as_deref()), (act, Some(info)));
        assert!(verdict.look_after.is_some(), "{seen:?}");
    }
}

#[test]
fn waiting_ends_for_what_may_never_come_and_not_for_a_deletion() {
    let down = Volume::Down { engine: "e".into(), why: None };
    for (seen, error) in [
        (Seen { volume: down, ..ready() }, "Failed waiting for the engine e to be ready"),
        (Seen { snapshot: Snapshot::Missing, ..ready() }, "Failed to get the Snapshot s"),
        (
            Seen { snapshot: Snapshot::NotReady, ..ready() },
            "Failed waiting for the snapshot s to be ready",
        ),
    ] {
        let early = decide(&Seen { upload: since(119), ..seen.clone() });
        assert_eq!(early.state, BackupState::Pending);
        let late = decide(&Seen { upload: since(120), ..seen });
        assert_eq!((late.state, late.error.as_deref()), (BackupState::Error, Some(error)));
    }
    let waits = Seen { deleted_first: Some("b".into()), upload: since(9999), ..ready() };
    assert_eq!(decide(&waits).state, BackupState::Pending);
    // Nor does the time of such a wait count for the next one.
    assert_eq!(decide(&waits).upload.waiting_since, None);
}

#[test]
fn a_volume_that_is_not_there_or_holds_nothing_is_an_error_at_once() {
    for volume in [Volume::Missing, Volume::Restoring] {
        assert_eq!(decide(&Seen { volume, ..ready() }).state, BackupState::Error);
    }
}

#[test]
fn an_upload_is_followed_and_never_goes_back() {
    let going = Seen { state: BackupState::InProgress, ..ready() };
    assert_eq!(decide(&going).act, Act::Watch);
    let verdict = decide(&Seen { record: Record::Running { percent: 7 }, ..ready() });
    assert_eq!((verdict.state, verdict.percent), (BackupState::InProgress, Some(7)));
    assert_eq!(decide(&Seen { record: Record::Complete, ..ready() }).act, Act::Finish);
    for record in [Record::Starting, Record::Locked("x".into()), Record::Lost("y".into())] {
        let blocked = Seen { record, deleted_first: Some("b".into()), ..going.clone() };
        assert_eq!(decide(&blocked).state, BackupState::InProgress);
    }
}

#[test]
fn a_lost_upload_is_started_again_a_few_times() {
    let lost =
        Seen { state: BackupState::InProgress, record: Record::Lost("gone".into()), ..ready() };
    let tried = |attempts| BackupUpload { attempts: Some(attempts), ..BackupUpload::default() };
    let again = decide(&Seen { upload: tried(1), ..lost.clone() });
    assert_eq!((again.act, again.state), (Act::Start, BackupState::InProgress));
    assert_eq!(again.upload.attempts, Some(2));
    let over = decide(&Seen { upload: tried(ATTEMPTS), ..lost });
    assert_eq!((over.state, over.error.as_deref()), (BackupState::Error, Some("gone")));
}

#[test]
fn a_backup_whose_volume_was_not_told_is_tried_again_and_complete_in_the_end() {
    let untold =
        Seen { state: BackupState::InProgress, record: Record::Untold("gone".into()), ..ready() };
    let tried = |attempts| BackupUpload { attempts: Some(attempts), ..BackupUpload::default() };
    let again = decide(&Seen { upload: tried(1), ..untold.clone() });
    assert_eq!((again.act, again.state), (Act::Start, BackupState::InProgress));
    assert_eq!(again.upload.attempts, Some(2));
    for over in [
        Seen { upload: tried(ATTEMPTS), ..untold.clone() },
        Seen { volume: Volume::Missing, ..untold.clone() },
        Seen { volume: Volume::Restoring, ..untold.clone() },
        Seen { snapshot: Snapshot::Missing, upload: since(121), ..untold },
    ] {
        let end = decide(&over);
        assert_eq!((end.act, end.error), (Act::Finish, None), "{over:?}");
    }
}

#[test]
fn a_lock_of_somebody_else_is_waited_for() {
    let verdict = decide(&Seen { record: Record::Locked("held by x".into()), ..ready() });
    assert_eq!((verdict.act, verdict.state), (Act::Forget, BackupState::Pending));
    assert!(verdict.info.unwrap().contains("held by x"));
}

/// Else it would be shown as in progress for ever, and keep whoever waits for it.
#[test]
fn an_upload_that_the_store_does_not_have_is_looked_for_and_then_given_up() {
    let uploaded = || Seen { state: BackupState::InProgress, record: Record::Complete, ..ready() };
    assert_eq!(decide(&uploaded()).act, Act::Finish);
    let first = not_stored(&uploaded());
    assert_eq!((first.state, first.error), (BackupState::InProgress, None));
    assert!(first.upload.waiting_since.is_some());
    let last = not_stored(&Seen { upload: since(121), ..uploaded() });
    assert_eq!(last.state, BackupState::Error);
    assert!(last.error.unwrap().contains("does not have it"));
}

#[test]
fn nobody_waits_for_a_time_of_a_clock_that_was_ahead() {
    let verdict = decide(&Seen { snapshot: Snapshot::Missing, upload: since(-3600), ..ready() });
    assert_eq!(verdict.upload.waiting_since, Some(Time::new(now())));
}
