//! Backups of volumes in an object store: blocks, manifests, locks, garbage collection, verification.
