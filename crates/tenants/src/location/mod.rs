//! Tenants' own places in object stores.

pub mod credentials;
pub mod decide;
pub(crate) mod run;
pub mod validate;
