//! The sidecar: configuration, HTTP, metrics, initialization, and which controllers run.
