//! Where a store lies: its URL, and opening it.

mod mount;
mod open;
mod secret;
mod url;

pub use self::mount::{MOUNTS, unmount_all};
pub use self::open::Environment;
pub use self::url::{BackupUrl, TargetUrl};
