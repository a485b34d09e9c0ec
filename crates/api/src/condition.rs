//! Conditions: the list that says why an object is as it is.
//!
//! Owns one rule, for every dialect: an entry is found by its type, keeps its place, and its
//! transition time moves only when its status flips. Takes the time from its caller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::scalar::Time;
use crate::words::words;

words! {
    /// Whether what a condition's type names is the case.
    open Status {
        True = "True",
        False = "False",
        Unknown = "Unknown",
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// One condition, in the shape all of Kubernetes shares.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// When the status last flipped.
    pub last_transition_time: Time,
    /// Why, as one CamelCase word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, as a sentence for people.
    #[serde(default)]
    #[schemars(required, length(max = 32768))]
    pub message: String,
    /// Generation of the object this was concluded from.
    pub observed_generation: Option<i64>,
}

/// In bytes, which is never more than the characters that the schema counts.
const MESSAGE_MAX_BYTES: usize = 32_768;

/// What a controller has concluded about one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub kind: String,
    pub status: Status,
    pub reason: String,
    pub message: String,
    pub observed_generation: Option<i64>,
}

impl Verdict {
    /// A message that is longer than a condition may hold is cut: what others wrote may stand in it.
    pub fn new(kind: &str, holds: bool, reason: &str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
        Self {
            kind: kind.to_owned(),
            status: holds.into(),
            reason: reason.to_owned(),
            message,
            observed_generation: None,
        }
    }

    /// Says which generation of the object the verdict is about.
    #[must_use]
    pub fn at_generation(self, generation: Option<i64>) -> Self {
        Self { observed_generation: generation, ..self }
    }
}

/// A dialect's form of a condition.
pub trait Entry: Sized + PartialEq + Clone {
    fn kind(&self) -> &str;
    fn status(&self) -> &Status;
    /// The entry for a verdict; `since` is when its status last flipped.
    fn record(verdict: &Verdict, since: Moment<'_, Self>) -> Self;
}

/// When the status of a condition came to be what it is.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a, E> {
    /// Now: the entry is new or its status flipped.
    Now(Time),
    /// Then: as this earlier entry says.
    Since(&'a E),
}

impl Entry for Condition {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn status(&self) -> &Status {
        &self.status
    }

    fn record(verdict: &Verdict, since: Moment<'_, Self>) -> Self {
        Self {
            kind: verdict.kind.clone(),
            status: verdict.status.clone(),
            last_transition_time: match since {
                Moment::Now(now) => now,
                Moment::Since(earlier) => earlier.last_transition_time,
            },
            reason: verdict.reason.clone(),
            message: verdict.message.clone(),
            observed_generation: verdict.observed_generation,
        }
    }
}

/// Writes a verdict into the list; says whether anything changed.
pub fn set<E: Entry>(list: &mut Vec<E>, verdict: &Verdict, now: Time) -> bool {
    let Some(entry) = list.iter_mut().find(|entry| entry.kind() == verdict.kind) else {
        list.push(E::record(verdict, Moment::Now(now)));
        return true;
    };
    let since =
        if *entry.status() == verdict.status { Moment::Since(&*entry) } else { Moment::Now(now) };
    let next = E::record(verdict, since);
    let changed = next != *entry;
    *entry = next;
    changed
}

/// The condition of this type, if the list has one.
pub fn get<'a, E: Entry>(list: &'a [E], kind: &str) -> Option<&'a E> {
    list.iter().find(|entry| entry.kind() == kind)
}

/// Whether the list says that this condition holds. Absent and unknown are both no.
pub fn holds<E: Entry>(list: &[E], kind: &str) -> bool {
    get(list, kind).is_some_and(|entry| *entry.status() == Status::True)
}

/// Drops the condition of this type; says whether there was one.
pub fn remove<E: Entry>(list: &mut Vec<E>, kind: &str) -> bool {
    let before = list.len();
    list.retain(|entry| entry.kind() != kind);
    list.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    #[test]
    fn a_message_that_no_condition_can_hold_is_cut() {
        let long = format!("{}ä{}", "x".repeat(MESSAGE_MAX_BYTES - 1), "y".repeat(9));
        let cut = Verdict::new("Accepted", false, "Bad", long).message;
        assert_eq!(cut, "x".repeat(MESSAGE_MAX_BYTES - 1));
    }

    #[test]
    fn an_entry_keeps_its_place_and_moves_its_time_only_on_a_flip() {
        let mut list: Vec<Condition> = Vec::new();
        let accepted = |holds, reason| Verdict::new("Accepted", holds, reason, "m");
        assert!(set(&mut list, &accepted(false, "Bad"), at(1)));
        assert!(set(&mut list, &Verdict::new("Queued", true, "Done", ""), at(2)));
        assert!(!set(&mut list, &accepted(false, "Bad"), at(3)));
        assert!(set(&mut list, &accepted(false, "Worse"), at(4)));
        assert_eq!(list[0].last_transition_time, at(1));
        assert!(set(&mut list, &accepted(true, "Good"), at(5)));
        assert_eq!(list[0].last_transition_time, at(5));
        assert_eq!(
            list.iter().map(|c| c.kind.as_str()).collect::<Vec<_>>(),
            ["Accepted", "Queued"]
        );
        assert!(holds(&list, "Accepted") && !holds(&list, "Deleting"));
        assert!(remove(&mut list, "Queued") && !remove(&mut list, "Queued"));
    }

    #[test]
    fn a_newer_generation_is_a_change_but_no_transition() {
        let mut list: Vec<Condition> = Vec::new();
        let verdict = Verdict::new("Accepted", true, "Good", "");
        set(&mut list, &verdict.clone().at_generation(Some(1)), at(1));
        assert!(set(&mut list, &verdict.at_generation(Some(2)), at(2)));
        assert_eq!(list[0].last_transition_time, at(1));
    }
}
