use tonic::Status;

use super::*;

fn text(wanted: i64, running: bool) -> Result<Way, String> {
    decide(wanted, 8192, running).map_err(|error| error.to_string())
}

#[test]
fn what_is_refused_is_refused_at_once() {
    assert_eq!(text(12288, false), Ok(Way::Grow));
    assert_eq!(text(8192, false), Ok(Way::Nothing));
    assert_eq!(text(12288, true), Err("controller expansion is in progress".into()));
    let smaller = "controller cannot be expanded to a smaller size 4096";
    assert_eq!(text(4096, false), Err(smaller.into()));
    assert!(text(-4096, false).is_err());
    assert!(text(12289, false).is_err());
}

fn answered(code: &str, rollback: &str) -> Grown {
    let json = serde_json::json!({"code": code, "message": "m", "rollbackMessage": rollback});
    Grown::of::<()>(Err(CallError::Refused(Status::internal(json.to_string()))))
}

#[test]
fn the_code_says_what_the_replica_is_now() {
    assert_eq!(answered("FunctionFailedRollbackSucceeded", ""), Grown::Back("m".into()));
    assert_eq!(answered("FunctionFailedWithoutRollback", ""), Grown::Back("m".into()));
    let both = "m (and the way back: r)";
    assert_eq!(answered("FunctionFailedRollbackFailed", "r"), Grown::Broken(both.into()));
    assert_eq!(answered("ResultUnknown", ""), Grown::Broken("m".into()));
    let plain = CallError::Refused(Status::unknown("x"));
    assert_eq!(Grown::of::<()>(Err(plain)), Grown::Broken("x".into()));
}

#[test]
fn one_that_grew_is_success_and_the_others_are_out() {
    let set = [("a", Mode::Rw), ("b", Mode::Rw), ("c", Mode::Wo)];
    let end = conclude(&set, &[Grown::Done, Grown::Back("full".into()), Grown::Done]);
    assert_eq!(end.failed, [false, true, false]);
    assert!(end.grown);
    assert_eq!(
        end.error.as_deref(),
        Some("the expansion succeeded, but some replica expansion failed: b: full")
    );
}

#[test]
fn when_all_fail_those_that_are_whole_stay() {
    let set = [("a", Mode::Rw), ("b", Mode::Rw), ("c", Mode::Rw)];
    let outcomes = [Grown::Back("x".into()), Grown::Broken("y".into()), Grown::Lost("z".into())];
    let end = conclude(&set, &outcomes);
    assert_eq!(end.failed, [false, true, true]);
    assert!(!end.grown);
    assert_eq!(
        end.error.as_deref(),
        Some("the expansion failed since all replica expansion failed: a: x; b: y; c: z")
    );
}

#[test]
fn of_those_that_are_all_silent_one_stays() {
    let set = [("a", Mode::Rw), ("b", Mode::Rw)];
    let end = conclude(&set, &[Grown::Lost("x".into()), Grown::Lost("x".into())]);
    assert_eq!(end.failed, [false, true]);
}
