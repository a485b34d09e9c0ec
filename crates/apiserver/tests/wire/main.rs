//! What clients see on the wire: paths, forms of answers, discovery, lists and watches.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod clients;
mod discovery;
mod forms;
mod leaving;
mod limits;
mod listing;
mod paths;
mod protobuf;
mod sockets;
mod support;
mod watching;
