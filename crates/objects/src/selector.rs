//! Label and field selectors.
//!
//! Owns: their grammar and what they match. Never: decides which fields a type lets clients select
//! on; that is for the caller, who reads [`FieldSelector::requirements`].

mod field;
mod label;

pub use field::{FieldOperator, FieldRequirement, FieldSelector};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};

/// Why a text or object is not a selector; a bad request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl SelectorError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

#[cfg(test)]
mod tests;
