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

fn answered(code: &str, rollback: &str) -> Outcome {
    let json = serde_json::json!({"code": code, "message": "m", "rollbackMessage": rollback});
    judge::<()>(Err(CallError::Refused(Status::internal(json.to_string()))))
}

#[test]
fn the_code_says_what_the_replica_is_now() {
    assert_eq!(answered("FunctionFailedRollbackSucceeded", ""), Outcome::Refused("m".into()));
    assert_eq!(answered("FunctionFailedWithoutRollback", ""), Outcome::Refused("m".into()));
    let both = "m (and the way back: r)";
    assert_eq!(answered("FunctionFailedRollbackFailed", "r"), Outcome::Broken(both.into()));
    assert_eq!(answered("ResultUnknown", ""), Outcome::Broken("m".into()));
    let plain = CallError::Refused(Status::unknown("x"));
    assert_eq!(judge::<()>(Err(plain)), Outcome::Broken("x".into()));
}

#[test]
fn one_that_grew_is_success_and_the_others_are_told() {
    assert_eq!(told(Ok(Done { left: None })), Ok(()));
    let left = Some("b: full".to_owned());
    let text = "the expansion succeeded, but some replica expansion failed: b: full";
    assert_eq!(told(Ok(Done { left })), Err(text.into()));
    let none = Undone::Replicas("a: x; b: y; c: z".into());
    let text = "the expansion failed since all replica expansion failed: a: x; b: y; c: z";
    assert_eq!(told(Err(none)), Err(text.into()));
}
