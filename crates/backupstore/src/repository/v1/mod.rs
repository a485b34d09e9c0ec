//! The format of the store that v1 engines read and write: names, places, bytes. Pure: it touches
//! no store and asks no clock but for the time it writes down. Nothing outside of the
//! [repository](super) knows of it, so that a second format can stand beside it; programs that read such
//! a store by themselves find it as `backupstore::format`.

mod backing_image;
mod backup_cfg;
mod block;
mod checksum;
mod frame;
mod json;
mod lanes;
pub(super) mod layout;
mod lock_record;
mod lz4;
mod system_backup;
mod volume_cfg;

use serde_json::{Map, Value};

pub use backing_image::BackingImageCfg;
pub use backup_cfg::{BackupCfg, SingleFile};
pub(super) use block::{is_plausible, object_max_bytes, open, pack_in};
pub use block::{pack, unpack};
pub use checksum::sha512_of_each;
pub(super) use json::{CFG_MAX_BYTES, SHORT_MAX_BYTES, from_bytes, to_bytes};
pub use lock_record::parse_lock;
pub(super) use lock_record::{LOCK_MAX_BYTES, lock_bytes};
pub use system_backup::SystemBackupCfg;
pub use volume_cfg::VolumeCfg;

pub use crate::block::{BlockRef, BlockSize, Checksum, Compression, Damage};
pub use crate::lock::{LockKind, LockRecord};
pub use crate::name::Name;

/// The key of a record in progress that tells one try from all others: its writer replaces only the
/// very record that it began. Writers without it are of another kind.
pub(super) const WRITER: &str = "Writer";

/// In its place where a record without it was taken over: the one who began it may still finish it, and
/// can be kept from that as little as before. It stays when the record is complete: the other puts its
/// own in the place of that one as well.
pub(super) const SUCCESSOR: &str = "Successor";

/// The key of a complete record that says when its snapshot was taken: what v1 calls so is when the backup
/// was started.
const TAKEN: &str = "SnapshotTakenAt";

/// What a complete record says of who took it over.
fn succession(is_successor: bool) -> Map<String, Value> {
    is_successor.then(|| (SUCCESSOR.to_owned(), Value::Bool(true))).into_iter().collect()
}

/// Reads the record of a backup.
pub fn parse_backup(bytes: &[u8]) -> Result<BackupCfg, String> {
    BackupCfg::parse(bytes)
}

/// The record of a backup as it is stored.
pub fn backup_bytes(cfg: &BackupCfg) -> Result<Vec<u8>, serde_json::Error> {
    cfg.to_bytes()
}

/// Reads the record of a volume.
pub fn parse_volume(bytes: &[u8]) -> Result<VolumeCfg, String> {
    from_bytes(bytes).map_err(|error| error.to_string())
}

/// The record of a volume as it is stored.
pub fn volume_bytes(cfg: &VolumeCfg) -> Result<Vec<u8>, serde_json::Error> {
    to_bytes(cfg)
}

/// Reads the record of a backing image.
pub fn parse_backing_image(bytes: &[u8]) -> Result<BackingImageCfg, String> {
    BackingImageCfg::parse(bytes)
}
