//! The format of the store that v1 engines read and write: names, places, bytes. Pure: it touches
//! no store and asks no clock but for the time it writes down. What is decided with what it reads
//! lives outside, so that a second format can stand beside it.

mod backing_image;
mod backup_cfg;
mod block;
mod buffers;
mod frame;
mod json;
mod lanes;
pub(crate) mod layout;
mod lock_record;
mod lz4;
mod names;
mod system_backup;
mod volume_cfg;

pub use backing_image::BackingImageCfg;
pub use backup_cfg::{BackupCfg, BlockRef, SingleFile};
pub(crate) use backup_cfg::{PARAMETER_MODE, parameters};
pub use block::{BlockSize, Compression, Damage, pack, unpack};
pub(crate) use block::{is_zero, open, pack_in};
pub(crate) use buffers::{Buffer, BufferPool, DISK_ALIGN};
pub(crate) use json::{CFG_MAX_BYTES, from_bytes, to_bytes};
pub(crate) use lock_record::{EXPIRY, LOCK_MAX_BYTES, SeenLock};
pub use lock_record::{LockKind, LockRecord};
pub(crate) use names::hex;
pub use names::{Checksum, Name};
pub use system_backup::SystemBackupCfg;
pub use volume_cfg::VolumeCfg;
pub(crate) use volume_cfg::seconds;

/// The key of a record in progress that tells one try from all others: its writer replaces only the
/// very record that it began. Writers without it are of another kind.
pub(crate) const WRITER: &str = "Writer";

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

/// Reads a lock; nothing where it is none.
pub fn parse_lock(bytes: &[u8]) -> Option<LockRecord> {
    LockRecord::parse(bytes)
}
