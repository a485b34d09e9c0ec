//! Snapshots as objects.
