//! Volumes through resources, as a user of kubectl sees them: attached, written to, healed, restored, copied,
//! followed and activated. The bytes are compared through NBD.
//!
//! The tests of `recovery` are the plans for volumes that are rebuilt while they restore; each step has
//! its number in a comment.

mod clones;
mod growth;
mod life;
mod recovery;
mod rejections;
mod revert;
mod system;
mod traces;
mod upgrade;
