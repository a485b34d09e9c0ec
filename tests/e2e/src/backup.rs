//! What the suites of backups share: targets of both kinds, volumes whose contents are known, and a
//! faulty way to an S3 service.
//!
//! Never: knows the backup store from inside. Its objects are read as another program would read
//! them, see [`Target::image`]; everything else goes through the command line.

mod bucket;
mod image;
mod objects;
mod proxy;
mod restored;
mod source;
mod target;

pub use bucket::{Bucket, S3_KEY, S3_SECRET};
pub use image::unpack;
pub use objects::{BLOCK, backup_key, block_key, sibling, volume_folder};
pub use proxy::{Call, Fault, Proxy};
pub use restored::Restored;
pub use source::Source;
pub use target::Target;
