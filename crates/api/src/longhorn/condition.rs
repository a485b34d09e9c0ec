//! Conditions as this dialect writes them: times are text, and may be empty.

use crate::condition::{Entry, Moment, Status, Verdict};
use crate::scalar::Stamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One condition.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in CamelCase.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// When it was last looked at; mostly empty.
    pub last_probe_time: Option<Stamp>,
    /// When the status last flipped.
    pub last_transition_time: Option<Stamp>,
    /// Why, as one CamelCase word for programs.
    pub reason: Option<String>,
    /// Why, as a sentence for people.
    pub message: Option<String>,
}

impl Entry for Condition {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn record(verdict: &Verdict, since: Moment<'_, Self>) -> Self {
        let (probe, transition) = match since {
            Moment::Now(now) => (Some(Stamp::never()), Some(now.into())),
            Moment::Since(earlier) => {
                (earlier.last_probe_time.clone(), earlier.last_transition_time.clone())
            }
        };
        Self {
            kind: verdict.kind.clone(),
            status: verdict.status.clone(),
            last_probe_time: probe,
            last_transition_time: transition,
            reason: Some(verdict.reason.clone()),
            message: Some(verdict.message.clone()),
        }
    }
}
