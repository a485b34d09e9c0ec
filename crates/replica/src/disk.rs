//! One copy of a volume: a directory of sparse image files that form a chain of snapshots under
//! one writable head.
//!
//! Owns: the format of that directory (`docs/formats/replica.md`), the chain, the map from sector
//! to layer, and every operation that changes them. Never: sockets, async, clocks (times are
//! handed in). A [`Replica`] belongs to one thread; what may run beside it on other threads says
//! so: [`View`], [`Hash`] and [`Coalesce`].
//!
//! The promises: after a crash at any instruction the directory opens in the state before or
//! after the operation; a snapshot never changes; what was flushed is on disk. Start at
//! [`Replica`], then `live` for the data path and `steps` for the order of changes.

mod chain;
mod counter;
mod crc64;
mod dir;
mod error;
mod flush;
mod hash;
mod headmerge;
mod image;
mod index;
mod layers;
mod live;
mod merge;
mod meta;
mod names;
mod prune;
mod purge;
mod qcow2;
mod replica;
mod report;
mod steps;
mod view;

pub use chain::{Chain, Disk};
pub use counter::CounterPolicy;
pub use crc64::Crc64;
pub use dir::{NoHook, StepHook};
pub use durable::Extent;
pub use error::{Error, ExpandCode, ExpandError};
pub use flush::{Flush, Flushed};
pub use hash::{Hash, HashOutcome};
pub use headmerge::{HeadMerge, MergeStep};
pub use image::SECTOR_BYTES;
pub use layers::Stretch;
pub use merge::{Coalesce, Progress};
pub use meta::{Checksum, DiskMeta, Labels, VolumeMeta};
pub use names::{DiskName, checksum_file, meta_file};
pub use prune::Prune;
pub use purge::{Action, PurgeDisk, PurgeStep, next_purge_step};
pub use qcow2::Qcow2Error;
pub use replica::{OpenRequest, Options, Replica, State};
pub use report::{DiskReport, Report};
pub use view::View;

pub(crate) use error::During;
pub(crate) use image::{Access, Image};
pub(crate) use meta::META_MAX_BYTES;
pub(crate) use names::META_SUFFIX;
