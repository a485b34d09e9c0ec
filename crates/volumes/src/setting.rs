//! Settings, which are there from the start.
