//! Backups of volumes through resources, as a user of kubectl sees them.
//!
//! The tests of `deletion` are the three cases of the plan for deletions in the background: normal,
//! error, crash of the controllers. Each step of the plan has its number in a comment.

mod deletion;
mod elsewhere;
mod rig;
