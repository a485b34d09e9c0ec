//! The whole service over the simulated backend, on SQLite and, where there is one, on `PostgreSQL`.

mod backups;
mod interleavings;
mod outside;
mod rig;
mod upgrade;
mod wire;
