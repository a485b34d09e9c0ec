//! A replicated volume, as those who use it see it: processes, command line, NBD clients of others,
//! files.

mod clients;
mod faults;
mod fence;
mod golden;
mod identity;
mod liar;
mod lifecycle;
mod rebuild;
mod resize;
mod snapshots;
mod socket;
mod tls;
mod upgrade;
mod verbs;

use bytes::Bytes;
use e2e::engine::{Nbd, SECTOR};

/// Sectors of one byte value each, never zero.
fn pattern(sectors: u64, seed: u8) -> Bytes {
    let fill = |sector: u64| (u8::try_from(sector % 251).unwrap()).wrapping_add(seed) | 1;
    let sectors: Vec<[u8; 4096]> = (0..sectors).map(|sector| [fill(sector); 4096]).collect();
    sectors.concat().into()
}

/// Writes `sectors` from `first` on, and flushes.
async fn put(nbd: &Nbd, first: u64, sectors: u64, seed: u8) {
    nbd.write(first * SECTOR, pattern(sectors, seed)).await.unwrap();
    nbd.flush().await.unwrap();
}
