//! What lies in a store, for those who look: lists, and what is known of one volume or backup.

mod inspect;
mod list;

pub use self::inspect::{BackupInfo, Head, VolumeInfo};
pub use self::list::Shown;
