//! Tenants' schedules: backups that are asked for at set times.

pub mod decide;
pub(crate) mod run;
pub mod validate;
