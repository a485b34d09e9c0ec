//! Tenants' own places in object stores.

pub mod decide;
pub mod validate;
