//! Restores of tenants.

pub mod decide;
pub(crate) mod run;
pub mod validate;
