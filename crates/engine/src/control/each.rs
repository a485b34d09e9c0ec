//! One request to many replicas at once.

use std::future::Future;

use futures::future::join_all;

use super::engine::{Engine, Replica};
use super::link::{CallError, Link};
use super::outcome::{Outcome, to_fail};

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
    let outcomes = each(replicas, call).await.into_iter().map(Outcome::of);
    let outcomes: Vec<_> =
        replicas.iter().zip(outcomes).map(|(replica, outcome)| (replica.mode, outcome)).collect();
    let failed = to_fail(&outcomes);
    for ((replica, (_, outcome)), failed) in replicas.iter().zip(&outcomes).zip(failed) {
        if failed {
            let reason = outcome.text().unwrap_or("it went ahead of the others");
            engine.fail(replica, &format!("{what}: {reason}")).await;
        }
    }
    match verdict(replicas, &outcomes) {
        Some(texts) => Err(texts),
        None => Ok(()),
    }
}

/// Why the whole did not succeed, if it did not.
fn verdict(replicas: &[Replica], outcomes: &[(crate::core::Mode, Outcome)]) -> Option<String> {
    let done = outcomes
        .iter()
        .any(|(mode, outcome)| *mode == crate::core::Mode::Rw && *outcome == Outcome::Done);
    let exists = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Exists(_)));
    if done && !exists {
        return None;
    }
    let texts: Vec<_> = replicas
        .iter()
        .zip(outcomes)
        .filter_map(|(replica, (_, outcome))| {
            outcome.text().map(|text| format!("{}: {text}", replica.address))
        })
        .collect();
    Some(if texts.is_empty() {
        "no replica that can be read did it".to_owned()
    } else {
        texts.join("; ")
    })
}
