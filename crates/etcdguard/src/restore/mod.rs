//! A data directory made from a full snapshot and deltas, to any revision or time.
