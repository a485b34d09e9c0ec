//! Grows the volume while it is in use: the replicas first, all at one point in the stream of
//! changes, then what the frontend shows.

use std::sync::Arc;

use serde::Deserialize;

use crate::core::{Hold, SECTOR};
use crate::machine::outcome::Outcome;
use crate::machine::together::{Done, Order, Undone};

use super::engine::Engine;
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

/// How one replica took it. One that says that it went back has its old size, whole.
fn judge<T>(result: Result<T, CallError>) -> Outcome {
    let Err(error) = result else { return Outcome::Done };
    let Some(status) = error.answer() else {
        return match error {
            CallError::RawFile { .. } | CallError::File { .. } => {
                Outcome::Refused(error.to_string())
            }
            _ => Outcome::Lost(error.to_string()),
        };
    };
    let Ok(report) = serde_json::from_str::<Report>(status.message()) else {
        return Outcome::Broken(error.to_string());
    };
    let text = if report.rollback.is_empty() {
        report.message
    } else {
        format!("{} (and the way back: {})", report.message, report.rollback)
    };
    match report.code.as_str() {
        "FunctionFailedRollbackSucceeded" | "FunctionFailedWithoutRollback" => {
            Outcome::Refused(text)
        }
        _ => Outcome::Broken(text),
    }
}

/// What is told of it.
fn told(ended: Result<Done, Undone>) -> Result<(), String> {
    match ended {
        Ok(Done { left: None }) => Ok(()),
        Ok(Done { left: Some(texts) }) => {
            Err(format!("the expansion succeeded, but some replica expansion failed: {texts}"))
        }
        Err(Undone::Replicas(texts)) => {
            Err(format!("the expansion failed since all replica expansion failed: {texts}"))
        }
        Err(Undone::Busy(why) | Undone::Size(why) | Undone::Record(why)) => Err(why),
    }
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
        let size = u64::try_from(wanted).map_err(|error| error.to_string())?;
        let order =
            Order { hold: Hold::Changes { flush: true }, filling_too: true, size: Some(size) };
        let limit = self.hold_limit();
        let grown = self.together(
            "expansion",
            order,
            |link| async move { link.expand(limit, wanted).await },
            judge,
        );
        told(grown.await)
    }
}

#[cfg(test)]
mod tests;
