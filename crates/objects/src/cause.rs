//! What is wrong with one field of an object, in the words and reasons Kubernetes clients parse.

use std::fmt;

/// Machine-readable reason of a [`Cause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Required,
    Invalid,
    /// It refers to something that is not there.
    NotFound,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
}

impl Reason {
    /// The value of `details.causes[].reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// One reason why an object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: Reason,
    /// Path as clients print it: `spec.ports[1].name`, `metadata.labels`.
    pub field: String,
    /// The text without the field, starting with its class: `Invalid value: "x": must be …`.
    pub message: String,
}

impl Cause {
    pub fn new(reason: Reason, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }

    /// `Required value[: detail]`
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Reason::Required, field, with_detail("Required value", detail))
    }

    /// `Invalid value: <value>: detail`; the value is shown as JSON.
    pub fn invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::new(Reason::Invalid, field, with_detail(&format!("Invalid value: {value}"), detail))
    }

    /// `Forbidden: detail`
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(Reason::Forbidden, field, with_detail("Forbidden", detail))
    }

    /// `Not found: <value>`
    pub fn not_found(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self::new(Reason::NotFound, field, format!("Not found: {value}"))
    }

    /// `Duplicate value: <value>`
    pub fn duplicate(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self::new(Reason::Duplicate, field, format!("Duplicate value: {value}"))
    }

    /// `Unsupported value: <value>: supported values: "a", "b"`
    pub fn not_supported(
        field: impl Into<String>,
        value: &serde_json::Value,
        all: &[&str],
    ) -> Self {
        let all: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
        let text = format!("Unsupported value: {value}: supported values: {}", all.join(", "));
        Self::new(Reason::NotSupported, field, text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn with_detail(class: &str, detail: &str) -> String {
    if detail.is_empty() { class.to_owned() } else { format!("{class}: {detail}") }
}
