//! Tenants' requests for files of their backups and restores.

pub mod decide;
pub(crate) mod run;
