//! Where a store lies: its URL, and opening it.

mod known;
mod mount;
mod open;
mod places;
mod probe;
mod reserve;
mod secret;
mod url;

pub(crate) use self::known::Trust;
pub use self::known::{AbilityValues, TargetInfo};
pub use self::mount::{MOUNTS, unmount_all};
pub use self::open::Environment;
pub use self::url::{BackupUrl, TargetUrl};
