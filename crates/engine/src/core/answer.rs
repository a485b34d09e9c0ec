//! What an answer must be to a request of its kind. An answer of another kind is a fault of the
//! replica that gave it.

use bytes::Bytes;
use wire::frame::{NO_SPACE_TEXT, Outcome, Run, decode_runs};

use super::changes::SECTOR;
use super::op::{Kind, Op, Step};

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Data(Bytes),
    Runs(Vec<Run>),
    Done(u32),
    /// It has no space left for the change.
    Full,
    Bad(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Bytes(u32),
    Runs(u32),
    /// A change of that many bytes.
    Change(u32),
    AnyChange,
    Flush,
    Pong,
}

pub(super) fn judge(op: &Op, outcome: Outcome) -> Verdict {
    let expected = match (op.step, op.kind) {
        (Step::Reading, Kind::Status) => Expected::Runs(op.frame_len),
        (Step::Reading | Step::Fetching, _) => Expected::Bytes(op.frame_len),
        (_, Kind::Unmap) => Expected::AnyChange,
        (_, Kind::Round) => Expected::Flush,
        (_, Kind::Ping) => Expected::Pong,
        (_, Kind::Mark | Kind::Record) => Expected::Change(0),
        (_, Kind::Write | Kind::Zero | Kind::Mend | Kind::Read | Kind::Status | Kind::Flush) => {
            Expected::Change(op.frame_len)
        }
    };
    take(expected, outcome)
}

fn take(expected: Expected, outcome: Outcome) -> Verdict {
    use Expected as E;
    match (expected, outcome) {
        (E::Bytes(len), Outcome::Data(data)) if data.len() == len as usize => Verdict::Data(data),
        (E::Runs(len), Outcome::Data(data)) => runs(len, data),
        (E::Change(len), Outcome::Count(count)) if is_all(len, count) => Verdict::Done(len),
        (E::AnyChange | E::Flush | E::Pong, Outcome::Count(count)) => Verdict::Done(count),
        (E::Change(_) | E::AnyChange, Outcome::NoSpace(_)) => Verdict::Full,
        (E::Change(_) | E::AnyChange, Outcome::Error(text)) if text.contains(NO_SPACE_TEXT) => {
            Verdict::Full
        }
        (E::Flush, Outcome::Error(text)) => Verdict::Bad(format!("cannot flush: {text}")),
        (E::Pong, Outcome::Error(text)) => Verdict::Bad(format!("ping: {text}")),
        (_, Outcome::Error(text) | Outcome::NoSpace(text)) => Verdict::Bad(text),
        (_, Outcome::Data(data)) => wrong(expected, "bytes of data", data.len()),
        (_, Outcome::Eof(data)) => {
            wrong(expected, "bytes before the end of the volume", data.len())
        }
        (_, Outcome::Count(count)) => wrong(expected, "as the count", count as usize),
    }
}

/// Whether this is the count of a change that was done whole. A replica of the peer reads and writes the
/// whole sector around a write that lies inside of one, and counts what it wrote.
fn is_all(len: u32, count: u32) -> bool {
    count == len || (u64::from(count) == SECTOR && (1..SECTOR).contains(&u64::from(len)))
}

fn runs(len: u32, data: Bytes) -> Verdict {
    let size = data.len();
    let fits = |runs: &Vec<Run>| {
        let sum = runs.iter().try_fold(0_u32, |sum, run| sum.checked_add(run.len));
        !runs.is_empty() && runs.iter().all(|run| run.len > 0) && sum.is_some_and(|it| it <= len)
    };
    match decode_runs(data).filter(fits) {
        Some(runs) => Verdict::Runs(runs),
        None => wrong(Expected::Runs(len), "bytes of data", size),
    }
}

fn wrong(expected: Expected, what: &str, amount: usize) -> Verdict {
    let wanted = match expected {
        Expected::Bytes(len) => format!("a read of {len} bytes"),
        Expected::Runs(len) => format!("a status of {len} bytes"),
        Expected::Change(len) => format!("a change of {len} bytes"),
        Expected::AnyChange => "an unmap".to_owned(),
        Expected::Flush => "a flush".to_owned(),
        Expected::Pong => "a ping".to_owned(),
    };
    Verdict::Bad(format!("answered {wanted} with {amount} {what}"))
}

#[cfg(test)]
mod tests {
    use wire::frame::encode_runs;

    use super::*;

    fn error(text: &str) -> Outcome {
        Outcome::Error(text.to_owned())
    }

    fn data(len: usize) -> Outcome {
        Outcome::Data(Bytes::from(vec![7; len]))
    }

    #[test]
    fn right_answers_are_taken() {
        let seven = Bytes::from_static(&[7; 4]);
        let run = [Run { len: 3, hole: true }, Run { len: 1, hole: false }];
        for (expected, outcome, verdict) in [
            (Expected::Bytes(4), data(4), Verdict::Data(seven)),
            (Expected::Runs(4), Outcome::Data(encode_runs(&run)), Verdict::Runs(run.to_vec())),
            (Expected::Change(9), Outcome::Count(9), Verdict::Done(9)),
            (Expected::Change(9), Outcome::Count(4096), Verdict::Done(9)),
            (Expected::Change(9), error("pwrite: no space left on device"), Verdict::Full),
            (Expected::AnyChange, Outcome::Count(77), Verdict::Done(77)),
            (Expected::AnyChange, error("no space left on device"), Verdict::Full),
            (Expected::Flush, Outcome::Count(0), Verdict::Done(0)),
            (Expected::Pong, Outcome::Count(0), Verdict::Done(0)),
        ] {
            assert_eq!(take(expected, outcome.clone()), verdict, "{expected:?} {outcome:?}");
        }
    }

    #[test]
    fn wrong_answers_are_a_fault() {
        let empty = [Run { len: 0, hole: true }];
        let long = [Run { len: 5, hole: true }];
        let huge = [Run { len: u32::MAX, hole: true }; 2];
        for (expected, outcome) in [
            (Expected::Bytes(4), data(3)),
            (Expected::Bytes(4), data(5)),
            (Expected::Bytes(4), Outcome::Count(4)),
            (Expected::Bytes(4), Outcome::Eof(Bytes::from_static(&[7; 4]))),
            (Expected::Bytes(4), error("input/output error")),
            (Expected::Bytes(4), error("no space left on device")),
            (Expected::Runs(4), Outcome::Count(0)),
            (Expected::Runs(4), data(7)),
            (Expected::Runs(4), Outcome::Data(encode_runs(&empty))),
            (Expected::Runs(4), Outcome::Data(encode_runs(&long))),
            (Expected::Runs(4), Outcome::Data(encode_runs(&huge))),
            (Expected::Change(9), Outcome::Count(8)),
            (Expected::Change(9), Outcome::Count(10)),
            (Expected::Change(9), Outcome::Count(8192)),
            (Expected::Change(0), Outcome::Count(4096)),
            (Expected::Change(8192), Outcome::Count(4096)),
            (Expected::Change(9), data(9)),
            (Expected::Change(9), error("input/output error")),
            (Expected::Flush, error("input/output error")),
            (Expected::Flush, error("no space left on device")),
            (Expected::Flush, data(1)),
            (Expected::Pong, error("replica is closed")),
        ] {
            let verdict = take(expected, outcome.clone());
            assert!(matches!(verdict, Verdict::Bad(_)), "{expected:?} {outcome:?}: {verdict:?}");
        }
    }
}
