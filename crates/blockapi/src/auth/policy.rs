//! Who may do what: readers look, members change what is their project's, administrators all.

use super::Caller;
use crate::rest::fault::Fault;

/// The least a caller must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Reader,
    Member,
    Admin,
}

/// Refuses with the name of the rule.
pub(crate) fn allow(caller: &Caller, needs: Needs, rule: &str) -> Result<(), Fault> {
    let enough = match needs {
        Needs::Reader => caller.is_admin() || caller.has("reader") || caller.has("member"),
        Needs::Member => caller.is_admin() || caller.has("member"),
        Needs::Admin => caller.is_admin(),
    };
    if enough { Ok(()) } else { Err(Fault::forbidden(rule)) }
}
