//! In which order the control side does things: each operation on a volume is a pure state machine.
//!
//! Events go in (what was answered, what failed, what is reached), steps come out, to be taken in their
//! order. [`control`](crate::control) takes them with real calls, the simulator with those of a world
//! of faults; neither decides what comes next.

pub mod claim;
pub mod mend;
pub mod outcome;
pub mod purge;
pub mod rebuild;
pub mod restore;
pub mod together;
