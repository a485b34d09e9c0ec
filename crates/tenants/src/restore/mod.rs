//! Restores of tenants.

pub mod decide;
pub mod validate;
