//! The replica process over its real sockets: every gRPC method, the data port, hostile peers.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::large_stack_arrays,
    reason = "a test that meets the unexpected should stop there"
)]

mod control;
mod disks;
mod frames;
mod full;
mod golden;
mod hostile;
mod owner;
mod process;
mod running;
mod upkeep;
