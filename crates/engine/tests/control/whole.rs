//! Whole engines over real replicas.
