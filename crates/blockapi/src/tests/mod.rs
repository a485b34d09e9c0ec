//! The whole service over the simulated backend, on SQLite and, where there is one, on `PostgreSQL`.

mod attachments;
mod backups;
mod cancelled;
mod document;
mod forms;
mod images;
mod interleavings;
mod operators;
mod outside;
mod owners;
mod pages;
mod qos;
mod rig;
mod upgrade;
mod wire;
mod work;
