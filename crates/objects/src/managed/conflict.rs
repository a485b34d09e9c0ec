//! Conflicts of server-side apply, in the words clients show.

use std::collections::BTreeMap;
use std::fmt;

use super::entry::{Entry, Operation};

/// A field of an applied configuration that somebody else owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub manager: String,
    pub operation: Operation,
    pub subresource: Option<String>,
    /// The owner's version, where it tells owners apart: updates only.
    pub api_version_shown: Option<String>,
    /// Path with a leading dot, such as `.spec.size`.
    pub field: String,
}

impl Conflict {
    pub(super) fn new(owner: &Entry, field: String) -> Self {
        let shown = owner.operation == Operation::Update;
        Self {
            manager: owner.manager.clone(),
            operation: owner.operation,
            subresource: owner.subresource.clone(),
            api_version_shown: shown.then(|| owner.api_version.clone()),
            field,
        }
    }

    /// `"manager" with subresource "status" using v1`
    fn owner(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if let Some(subresource) = &self.subresource {
            text = format!("{text} with subresource {subresource:?}");
        }
        if let Some(version) = &self.api_version_shown {
            text = format!("{text} using {version}");
        }
        text
    }

    /// The text of a cause: `conflict with "manager" using v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.owner())
    }
}

/// Why a configuration cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own fields with other values, and the writer did not force.
    Conflicts(Vec<Conflict>),
    /// The configuration has no unambiguous meaning.
    Invalid(String),
}

impl std::error::Error for ApplyError {}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => f.write_str(text),
            Self::Conflicts(conflicts) => match conflicts.as_slice() {
                [only] => {
                    write!(f, "Apply failed with 1 conflict: {}: {}", only.message(), only.field)
                }
                several => {
                    write!(f, "Apply failed with {} conflicts: ", several.len())?;
                    f.write_str(&listed(several))
                }
            },
        }
    }
}

/// The fields of each owner under a line that names the owner.
fn listed(conflicts: &[Conflict]) -> String {
    let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        owners.entry(conflict.owner()).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for (owner, fields) in owners {
        lines.push(format!("conflicts with {owner}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    lines.join("\n")
}
