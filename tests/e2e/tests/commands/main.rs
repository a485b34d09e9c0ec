//! The commands for people, as typed in a shell.

mod bundle;
mod doctor;
mod rejections;
mod shell;
mod tour;
mod upgrade;
mod walk;
mod watch;
