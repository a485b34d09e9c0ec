//! Restores: what one may do, how its objects are changed, and how it is carried out.

pub(crate) mod along;
pub(crate) mod confine;
pub(crate) mod decide;
pub(crate) mod edit;
pub(crate) mod item;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod spool;
