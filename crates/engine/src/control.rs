//! Starts, grows, snapshots and rebuilds the volume.
