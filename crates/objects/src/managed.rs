//! Who owns which field: `metadata.managedFields` and server-side apply.
//!
//! Owns: field sets and their `FieldsV1` form, ownership after every kind of write, the merge of an
//! applied configuration, and its conflicts. Never: reads a clock (the [`Writer`] brings the time),
//! and never prunes, defaults or validates, which the caller does with the result.
//!
//! Start reading at [`track_update`] for plain writes and at [`apply`] for server-side apply. The
//! vocabulary of both is the [`FieldSet`].

mod apply;
mod change;
mod conflict;
mod entry;
mod set;
mod shape;
mod stored;
mod track;

pub use apply::apply;
pub use conflict::{ApplyError, Conflict};
pub use entry::Operation;
pub use set::{FieldSet, FieldSetError};
pub use track::track_update;

/// Who writes, through what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// Version of the object as it was written, such as `apps/v1`.
    pub api_version: &'a str,
    /// The subresource written through, such as `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// The time as RFC 3339 text with seconds.
    pub now: &'a str,
}

#[cfg(test)]
mod tests;
