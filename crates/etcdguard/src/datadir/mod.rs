//! The data directory of an etcd member: read, checked and written without an etcd.
//!
//! Owns: what etcd keeps in its database, its write-ahead log and its snapshot files. Never: pages
//! and trees (that is `bolt`), or where a backup comes from (that is `restore`). A check never
//! changes a byte of what it looks at.
//!
//! Start at [`check()`]; [`make_dirs`], [`rejoin`] and [`write_log`] make a new one.

mod check;
mod current;
mod hash;
mod identity;
mod lock;
mod origin;
mod raft;
mod row;
mod snap;
mod wal;
mod write;

pub use check::{Checked, Damage, DamageKind, Database, Mode, check, check_database};
pub use current::{Current, KEY_BUCKET, META_BUCKET, current};
pub use hash::{HashError, HashKv, Latest, hash_kv, latest_rows};
pub use identity::{Identity, IdentityError, Member};
pub use lock::{is_held, is_locked};
pub use origin::Origin;
pub use row::{KeyValue, Revision, RowKey};
pub use snap::{SnapError, SnapFile, read_snap};
pub use wal::{WalError, WalSummary, read_segment, verify as verify_wal};
pub use write::{WriteError, make_dirs, rejoin, sync_dir, write_log};

/// The database's place in a data directory.
pub const DATABASE: &str = "member/snap/db";
const SNAP: &str = "member/snap";
const WAL: &str = "member/wal";

#[cfg(test)]
mod tests;
