//! How much of the disk restores may take while they run: one account for all of them, because each alone
//! would find room that the others are about to use.
//!
//! A spool asks before it writes, a step at a time. What was promised and is not on the disk yet counts as
//! taken; what is on the disk, the disk itself tells. Tenants decide what stands in their archives and
//! when they are restored: together they get a share, so that administrators can always restore.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What others keep of the disk that archives are unpacked on.
const LEFT_FREE_BYTES: u64 = 64 << 20;
/// How much is promised at a time.
const STEP_BYTES: u64 = 1 << 20;
/// Of what would be free without any spool, one part in so many is for all tenants together.
const TENANTS_SHARE: u64 = 4;

/// How much can be written beside a file.
type Free = fn(&File) -> io::Result<u64>;

fn free_bytes(file: &File) -> io::Result<u64> {
    let found = rustix::fs::fstatvfs(file)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Who decides what stands in an archive, or when it is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Administrators,
    Tenants,
}

/// The account of all spools of this process.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    account: Arc<Mutex<Account>>,
    free: Free,
}

impl Default for Room {
    fn default() -> Self {
        Self { account: Arc::default(), free: free_bytes }
    }
}

#[derive(Debug, Default)]
struct Account {
    /// On the disk, of all.
    written: u64,
    /// Not on the disk yet, of all.
    promised: u64,
    /// Both, of tenants.
    tenants: u64,
}

impl Account {
    /// Whether so much more can be promised, with so much free on the disk now.
    fn judge(&self, whose: Whose, more: u64, free: u64) -> io::Result<()> {
        let left = free.saturating_sub(self.promised).saturating_sub(LEFT_FREE_BYTES);
        if left < more {
            return Err(full(format!(
                "the disk for unpacking has {} MiB free, of which {} MiB stay so and {} MiB are \
                 promised to other restores, and at least {} MiB are needed; make room there and \
                 restore again",
                free >> 20,
                LEFT_FREE_BYTES >> 20,
                self.promised >> 20,
                more.div_ceil(1 << 20)
            )));
        }
        let share = free.saturating_add(self.written) / TENANTS_SHARE;
        if whose == Whose::Tenants && self.tenants.saturating_add(more) > share {
            return Err(full(format!(
                "restores of tenants have {} MiB of the disk for unpacking, and {} MiB is what all of \
                 them together may have; restore again when another has ended, or let an administrator \
                 restore it",
                self.tenants >> 20,
                share >> 20
            )));
        }
        Ok(())
    }
}

fn full(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, message)
}

impl Room {
    /// Opens an account for one spool.
    pub(crate) fn begin(&self, whose: Whose) -> Held {
        Held { room: self.clone(), whose, promised: 0, written: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one spool has; given back when it is dropped, which is when its file goes.
#[derive(Debug)]
pub(crate) struct Held {
    room: Room,
    whose: Whose,
    /// Beyond what is written.
    promised: u64,
    written: u64,
}

impl Held {
    /// Makes sure that the file may be so long.
    pub(crate) fn reach(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        let have = self.written + self.promised;
        if len_bytes <= have {
            return Ok(());
        }
        let needed = len_bytes - have;
        let mut account = self.room.lock();
        // Asked under the lock: nobody is promised the same room.
        let free = (self.room.free)(file)?;
        let step = needed.max(STEP_BYTES);
        // Near the end what is needed may fit where a step does not.
        let more = if account.judge(self.whose, step, free).is_ok() { step } else { needed };
        account.judge(self.whose, more, free)?;
        account.promised += more;
        if self.whose == Whose::Tenants {
            account.tenants += more;
        }
        drop(account);
        self.promised += more;
        Ok(())
    }

    /// The file is so long now.
    pub(crate) fn wrote(&mut self, len_bytes: u64) {
        let more = len_bytes.saturating_sub(self.written).min(self.promised);
        self.written += more;
        self.promised -= more;
        let mut account = self.room.lock();
        account.written += more;
        account.promised = account.promised.saturating_sub(more);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut account = self.room.lock();
        account.written = account.written.saturating_sub(self.written);
        account.promised = account.promised.saturating_sub(self.promised);
        if self.whose == Whose::Tenants {
            account.tenants = account.tenants.saturating_sub(self.written + self.promised);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::restore::spool::Spool;
    use crate::tarball::Sink as _;

    thread_local! {
        /// Of the disk that a test plays.
        static FREE: Cell<u64> = const { Cell::new(0) };
    }
    const MIB: u64 = 1 << 20;

    fn played(free: u64) -> Room {
        FREE.set(free);
        Room { account: Arc::default(), free: |_| Ok(FREE.get()) }
    }

    /// Writes in turns until nobody may write any more; how much all wrote.
    fn fill(spools: &mut [Spool], each_max: u64) -> u64 {
        let piece = vec![0; usize::try_from(MIB).unwrap()];
        let mut all = 0;
        for _ in 0..each_max {
            for spool in &mut *spools {
                if spool.bytes(&piece).is_ok() {
                    let left = FREE.get().checked_sub(MIB);
                    FREE.set(left.expect("the disk is full to its last byte"));
                    all += MIB;
                }
            }
        }
        all
    }

    fn begin(folder: &tempfile::TempDir, room: &Room, whose: Whose) -> Spool {
        Spool::new(folder.path(), room, whose, 0).unwrap()
    }

    #[test]
    fn restores_together_leave_what_others_keep() {
        let folder = tempfile::tempdir().unwrap();
        let room = played(LEFT_FREE_BYTES + 16 * MIB);
        let mut spools: Vec<Spool> =
            (0..8).map(|_| begin(&folder, &room, Whose::Administrators)).collect();
        fill(&mut spools, 16);
        assert!(FREE.get() >= LEFT_FREE_BYTES, "{} MiB are left", FREE.get() / MIB);
    }

    #[test]
    fn tenants_together_get_a_share_and_administrators_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let room = played(400 * MIB);
        let mut tenants: Vec<Spool> =
            (0..8).map(|_| begin(&folder, &room, Whose::Tenants)).collect();
        let taken = fill(&mut tenants, 50);
        assert!((90 * MIB..=100 * MIB).contains(&taken), "{} MiB", taken / MIB);
        let refused = tenants[0].bytes(&vec![0; 4 << 20]).unwrap_err().to_string();
        assert!(refused.contains("all of them together may have"), "{refused}");
        let mut ours = [begin(&folder, &room, Whose::Administrators)];
        assert_eq!(fill(&mut ours, 150), 150 * MIB);
        // What has ended gives back.
        drop(tenants);
        drop(ours);
        FREE.set(400 * MIB);
        assert!(fill(&mut [begin(&folder, &room, Whose::Tenants)], 50) == 50 * MIB);
        let account = room.lock();
        assert_eq!((account.written, account.promised, account.tenants), (0, 0, 0));
    }

    #[test]
    fn a_disk_is_not_filled_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let room = played(LEFT_FREE_BYTES + 8 * MIB);
        let ours = Whose::Administrators;
        let refused = Spool::new(folder.path(), &room, ours, 9 * MIB).unwrap_err();
        assert!(refused.to_string().contains("has 72 MiB free"), "{refused}");
        // It fits packed, and grows.
        let mut spool = Spool::new(folder.path(), &room, ours, MIB).unwrap();
        assert!(fill(std::slice::from_mut(&mut spool), 64) <= 8 * MIB);
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        assert!(free_bytes(&file).unwrap() > 0, "the disk is asked");
    }
}
