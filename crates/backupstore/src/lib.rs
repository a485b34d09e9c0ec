//! The backup store: blocks by their checksums, the records that list them, and locks.
//!
//! Owns: making, restoring, deleting, listing and verifying backups in a store that v1 engines read
//! and write ([`mod@format`] is all that is known of its bytes; the module `repository` is the boundary
//! before it), and opening such a store by its URL ([`target`]). Never: command lines, network services, replica directories; those call this.
//!
//! What holds whatever happens: a backup whose record is final has all its blocks; a block is removed
//! only under the delete lock, and only when no record names it; what is read is checked. What is
//! assumed of a store for that stands in `docs/formats/locking.md`, and is tried in simulated time.

mod backing_images;
mod block;
mod buffers;
mod catalog;
mod clock;
mod control;
pub mod create;
pub mod delete;
mod error;
mod gc;
mod groups;
mod hasher;
mod lock;
mod name;
mod rate_limiter;
mod repository;
pub mod restore;
pub mod scrub;
pub mod source;
mod store;
mod subject;
pub mod target;
pub mod verify;

pub use backing_images::{BackingImageInfo, BackingImageRequest, ImageRestoreOptions, StoredImage};
pub use blobs::Retry;
pub use block::{BlockSize, Compression};
pub use catalog::{BackupInfo, Head, Shown, VolumeInfo};
pub use clock::{BootClock, Clock};
pub use control::{Awaited, CancellationToken, Control, Wait};
pub use error::{BlockDamage, DamagedBlock, DamagedBlocks, Error, Locked};
pub use hasher::{Hasher, Sum};
pub use lock::{Holder, LOCK_TIMEOUT, LockSchedule, Processes};
pub use name::Name;
pub use repository::v1 as format;
pub use repository::{ARCHIVE_MAX_BYTES, SystemBackup};
pub use source::{BackedUp, Extents, FileSource, Source};
pub use store::{Abilities, BackupStore};
pub use subject::Subject;
pub use target::{AbilityValues, BackupUrl, Environment, TargetInfo, TargetUrl};
