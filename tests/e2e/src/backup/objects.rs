//! Names of objects in a store, by the description of its layout.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha512};

/// The usual size of blocks.
pub const BLOCK: u64 = 2 << 20;
const CHECKSUM_DIGITS: usize = 64;

pub(super) fn checksum(bytes: &[u8]) -> String {
    let mut text = Sha512::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    text.truncate(CHECKSUM_DIGITS);
    text
}

pub fn volume_folder(volume: &str) -> String {
    let sum = checksum(volume.as_bytes());
    format!("backupstore/volumes/{}/{}/{volume}", &sum[..2], &sum[2..4])
}

pub fn backup_key(volume: &str, backup: &str) -> String {
    format!("{}/backups/backup_{backup}.cfg", volume_folder(volume))
}

pub fn block_key(volume: &str, sum: &str) -> String {
    format!("{}/blocks/{}/{}/{sum}.blk", volume_folder(volume), &sum[..2], &sum[2..4])
}

/// The name of another volume that begins like this one and lies beside it, so that its objects
/// begin with the name of this one's folder.
pub fn sibling(volume: &str) -> String {
    let folder = volume_folder(volume);
    let mut names = (2_u32..).map(|number| format!("{volume}-{number}"));
    names.find(|name| volume_folder(name).starts_with(&folder)).unwrap()
}
