//! Restores of tenants.

pub mod decide;
pub mod identity;
pub(crate) mod run;
pub mod validate;
