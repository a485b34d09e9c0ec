//! Grows the volume while it is in use: the replicas first, all at one point in the stream of
//! changes, then what the frontend shows.

use std::sync::Arc;

use serde::Deserialize;

use crate::core::{Hold, Mode, SECTOR};

use super::each::each;
use super::engine::{Engine, Replica};
use super::freeze;
use super::limits::{Usage, room_for_one};
use super::link::CallError;

/// Why an expansion was not begun. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("controller expansion is in progress")]
    Running,
    #[error("controller cannot be expanded to a smaller size {0}")]
    Smaller(i64),
    #[error("controller cannot be expanded to size {0}: it is no multiple of {SECTOR}")]
    Unaligned(i64),
    #[error("controller cannot be expanded: the volume is not started")]
    NotStarted,
}

/// What there is to do for a wanted size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Grow,
    Nothing,
}

fn decide(wanted: i64, size: u64, running: bool) -> Result<Way, ExpandError> {
    if running {
        return Err(ExpandError::Running);
    }
    if !wanted.unsigned_abs().is_multiple_of(SECTOR) {
        return Err(ExpandError::Unaligned(wanted));
    }
    let bytes = u64::try_from(wanted).map_err(|_| ExpandError::Smaller(wanted))?;
    match bytes.cmp(&size) {
        std::cmp::Ordering::Less => Err(ExpandError::Smaller(wanted)),
        std::cmp::Ordering::Equal => Ok(Way::Nothing),
        std::cmp::Ordering::Greater => Ok(Way::Grow),
    }
}

/// How a replica says what came of growing: the text of its INTERNAL status.
#[derive(Debug, Deserialize)]
struct Report {
    code: String,
    message: String,
    #[serde(default, rename = "rollbackMessage")]
    rollback: String,
}

/// How one replica took it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Grown {
    Done,
    /// It has its old size, whole.
    Back(String),
    /// It did not answer.
    Lost(String),
    /// It is neither what it was nor what it should be.
    Broken(String),
}

impl Grown {
    fn of<T>(result: Result<T, CallError>) -> Self {
        let Err(error) = result else { return Self::Done };
        let Some(status) = error.answer() else {
            return match error {
                CallError::RawFile { .. } | CallError::File { .. } => Self::Back(error.to_string()),
                _ => Self::Lost(error.to_string()),
            };
        };
        let Ok(report) = serde_json::from_str::<Report>(status.message()) else {
            return Self::Broken(error.to_string());
        };
        let text = if report.rollback.is_empty() {
            report.message
        } else {
            format!("{} (and the way back: {})", report.message, report.rollback)
        };
        match report.code.as_str() {
            "FunctionFailedRollbackSucceeded" | "FunctionFailedWithoutRollback" => Self::Back(text),
            _ => Self::Broken(text),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Back(text) | Self::Lost(text) | Self::Broken(text) => Some(text),
        }
    }
}

/// What came of it all: who is failed, whether the volume has grown, what is told.
#[derive(Debug, PartialEq, Eq)]
struct Conclusion {
    failed: Vec<bool>,
    grown: bool,
    error: Option<String>,
}

fn conclude(replicas: &[(&str, Mode)], outcomes: &[Grown]) -> Conclusion {
    let texts: Vec<_> = replicas
        .iter()
        .zip(outcomes)
        .filter_map(|((address, _), outcome)| {
            outcome.text().map(|text| format!("{address}: {text}"))
        })
        .collect();
    let of_rw = |wanted: fn(&Grown) -> bool| {
        replicas
            .iter()
            .zip(outcomes)
            .any(|((_, mode), outcome)| *mode == Mode::Rw && wanted(outcome))
    };
    let grown = of_rw(|outcome| *outcome == Grown::Done);
    let whole = of_rw(|outcome| matches!(outcome, Grown::Back(_)));
    let first = replicas.iter().position(|(_, mode)| *mode == Mode::Rw);
    let fails = |(at, outcome): (usize, &Grown)| match outcome {
        Grown::Done => !grown,
        Grown::Back(_) => grown,
        Grown::Broken(_) => true,
        // One copy always stays, even if nothing is known of any.
        Grown::Lost(_) => grown || whole || first != Some(at),
    };
    let failed = outcomes.iter().enumerate().map(fails).collect();
    let joined = texts.join("; ");
    let error = match (grown, texts.is_empty()) {
        (true, true) => None,
        (true, false) => {
            Some(format!("the expansion succeeded, but some replica expansion failed: {joined}"))
        }
        (false, _) => {
            Some(format!("the expansion failed since all replica expansion failed: {joined}"))
        }
    };
    Conclusion { failed, grown, error }
}

impl Engine {
    /// Begins to grow the volume and returns; [`Engine::show`] tells how it went.
    pub(super) fn expand(self: &Arc<Self>, wanted: i64) -> Result<(), ExpandError> {
        {
            let mut state = self.state();
            if state.entries.is_empty() {
                return Err(ExpandError::NotStarted);
            }
            match decide(wanted, state.size, state.expansion.running)? {
                Way::Nothing => return Ok(()),
                Way::Grow => {}
            }
            state.expansion.running = true;
            state.expansion.error.clear();
            state.expansion.failed_at.clear();
        }
        let engine = Arc::clone(self);
        self.tasks.spawn_draining("expand", |_| async move { engine.grow(wanted).await });
        Ok(())
    }

    async fn grow(&self, wanted: i64) {
        self.await_equal().await;
        let _order = self.order.lock().await;
        self.volume.set_expanding(true).await;
        let error = self.grow_all(wanted).await.err();
        self.volume.set_expanding(false).await;
        let mut state = self.state();
        state.expansion.running = false;
        match error {
            None => tracing::info!(size = wanted, "expanded the volume to {wanted} bytes"),
            Some(error) => {
                tracing::error!(size = wanted, error, "expansion to {wanted} bytes: {error}");
                state.expansion.error = error;
                state.expansion.failed_at = jiff::Timestamp::now().to_string();
            }
        }
    }

    /// # Errors
    /// The text to show, also if the volume has grown but not all replicas have.
    async fn grow_all(&self, wanted: i64) -> Result<(), String> {
        self.equal().map_err(|error| error.to_string())?;
        freeze::quiesce(self.volume.frontend(), false).await.end().await;
        let seen = self.ask_readable().await.map_err(|error| error.to_string())?;
        room_for_one(Usage::of(&seen), self.limits()).map_err(|error| error.to_string())?;
        let asked = self.live();
        let result = {
            let held = self.hold(Hold::Changes { flush: true }).await;
            let _hold = held.map_err(|error| error.to_string())?;
            self.grow_replicas(wanted).await
        };
        if result.grown {
            let size = u64::try_from(wanted).map_err(|error| error.to_string())?;
            self.volume.resize(size).await.map_err(|error| error.to_string())?;
            self.state().size = size;
        }
        self.record_losses(&asked).await.map_err(|fault| fault.to_string())?;
        result.error.map_or(Ok(()), Err)
    }

    async fn grow_replicas(&self, wanted: i64) -> Conclusion {
        let replicas = self.live();
        let limit = self.hold_limit();
        let answers = each(&replicas, |link| async move { link.expand(limit, wanted).await }).await;
        let outcomes: Vec<_> = answers.into_iter().map(Grown::of).collect();
        let known = |replica: &Replica| (replica.address.clone(), replica.mode);
        let known: Vec<_> = replicas.iter().map(known).collect();
        let known: Vec<_> = known.iter().map(|(text, mode)| (text.as_str(), *mode)).collect();
        let result = conclude(&known, &outcomes);
        for ((replica, outcome), failed) in replicas.iter().zip(&outcomes).zip(&result.failed) {
            if *failed {
                let reason = outcome.text().unwrap_or("it went ahead of the others");
                self.fail(replica, &format!("expansion: {reason}")).await;
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;
