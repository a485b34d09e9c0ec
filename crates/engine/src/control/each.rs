//! One request to many replicas at once.

use std::future::Future;

use futures::future::join_all;

use crate::core::Mode;
use crate::machine::outcome::{Outcome, settle};

use super::engine::{Engine, Replica};
use super::link::{CallError, Link};

/// What `call` gave for each of `replicas`, in their order.
pub(super) async fn each<T, F>(
    replicas: &[Replica],
    call: impl Fn(Link) -> F,
) -> Vec<Result<T, CallError>>
where
    F: Future<Output = Result<T, CallError>>,
{
    join_all(replicas.iter().map(|replica| call(replica.link.clone()))).await
}

/// Has `replicas` all do the same, and fails those that fell behind the others; `what` says to the
/// log what it was.
///
/// # Errors
/// The texts of all that did not do it, with their addresses, if one of them had it already or
/// none that is read from did it.
pub(super) async fn all_or_out<T, F>(
    engine: &Engine,
    what: &str,
    replicas: &[Replica],
    call: impl Fn(Link) -> F,
) -> Result<(), String>
where
    F: Future<Output = Result<T, CallError>>,
{
    let outcomes = each(replicas, call).await.into_iter().map(judge);
    let taken = replicas.iter().zip(outcomes);
    let taken: Vec<_> = taken.filter_map(|(one, outcome)| Some((one.asked()?, outcome))).collect();
    let settled = settle(&taken);
    for (id, why) in &settled.out {
        engine.volume().set_mode(*id, Mode::Err, &format!("{what}: {why}")).await;
    }
    settled.failure().map_or(Ok(()), Err)
}

/// How one replica took it.
pub(super) fn judge<T>(result: Result<T, CallError>) -> Outcome {
    let Err(error) = result else { return Outcome::Done };
    let text = error.to_string();
    match error {
        CallError::Refused(_) if says_existing(&text) => Outcome::Exists(text),
        CallError::Refused(_) | CallError::RawFile { .. } | CallError::File { .. } => {
            Outcome::Refused(text)
        }
        CallError::Unreachable(_)
        | CallError::TimedOut(_)
        | CallError::Broken(_)
        | CallError::Empty(_) => Outcome::Lost(text),
    }
}

/// The text by which a replica says that it has a snapshot of that name:
/// `snapshot X is already existing`.
fn says_existing(text: &str) -> bool {
    text.find("snapshot ")
        .is_some_and(|at| text.get(at..).is_some_and(|rest| rest.contains(" is already existing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_existing_snapshot_is_known_in_any_wrapping() {
        assert!(says_existing("failed: snapshot volume-snap-a.img is already existing"));
        assert!(!says_existing("snapshot a is gone"));
        assert!(!says_existing("it is already existing"));
    }
}
