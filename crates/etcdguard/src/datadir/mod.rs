//! A member's data directory: write-ahead log, raft snapshots, checks, and writing a new one.
