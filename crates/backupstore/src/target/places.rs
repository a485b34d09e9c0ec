//! Where what is known of a target lies in it. No other engine looks there, whatever the format beside it.

use blobs::{Key, Prefix};

use crate::error::Error;

const FOLDER: &str = "backupstore/holdfast";

fn key(text: &str) -> Result<Key, Error> {
    Key::parse(text).map_err(|source| Error::Key { source })
}

/// What the target was found to be able to.
pub(super) fn record() -> Result<Key, Error> {
    key(&format!("{FOLDER}/target.json"))
}

/// What deletions are left with on a disk that is full.
pub(super) fn reserve() -> Result<Key, Error> {
    key(&format!("{FOLDER}/reserve"))
}

/// Where objects lie with which a store is tried.
pub(super) fn probes() -> Result<Prefix, Error> {
    Ok(key(&format!("{FOLDER}/probes"))?.into())
}

pub(super) fn probe(number: u64) -> Result<Key, Error> {
    key(&format!("{FOLDER}/probes/{number:016x}"))
}
