//! The file: one `SQLite` database that holds the current objects and the revision counter.
//!
//! Owns the format and its verification. A file is never made or repaired silently: it is created
//! only where none was, and whatever is not exactly what was committed is refused. It decides
//! nothing about conflicts or revisions; it writes what it is told in one transaction.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::Options;
use super::error::StorageError;
use super::mark::Mark;
use super::object::{EventKind, Key, Stored};
use super::reserve::Reserve;

/// The newest format this build reads; the only one it writes.
pub(super) const FORMAT: i64 = 1;
/// Marks a database as ours in its header: "HFST".
pub(super) const APPLICATION_ID: i64 = 0x4846_5354;

pub(super) const META_FORMAT: &str = "format";
pub(super) const META_REVISION: &str = "revision";
pub(super) const META_OBJECTS: &str = "objects";
pub(super) const META_DIGEST: &str = "digest";

/// The log is copied back into the file when about this many pages of 4 KiB were written to it, once
/// everybody was answered; `SQLite` itself would do it within a commit, at twice as many. It is cut to
/// the limit when it was longer.
const CHECKPOINT_PAGES: usize = 1000;
const PAGE_BYTES: usize = 4096;
const WAL_LIMIT_BYTES: u32 = 8 << 20;
/// Free pages are given back once there are this many, some with each look: half a mebibyte is
/// moved in about a millisecond.
const FREE_PAGES: i64 = 512;
const VACUUM_PAGES: u32 = 128;
/// On a full disk more is moved at once, but no more than the space set aside can hold.
const SHRINK_PAGES: u32 = 256;
const SAY_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_mins(1);
/// How many commits lie between two looks.
const VACUUM_EVERY: u32 = 8;

/// What all rows together must add up to: a row that is missing, or is there in an older version,
/// does not go unnoticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) objects: u64,
    pub(super) digest: u64,
}

impl Totals {
    pub(super) fn add(&mut self, object: &Stored) {
        self.objects = self.objects.wrapping_add(1);
        self.digest = self.digest.wrapping_add(u64::from(row_checksum(object)));
    }

    pub(super) fn subtract(&mut self, object: &Stored) {
        self.objects = self.objects.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(u64::from(row_checksum(object)));
    }
}

/// Covers the key and the revision too: a row is wrong also when it is another's.
pub(super) fn row_checksum(object: &Stored) -> u32 {
    let Key { resource, namespace, name } = &object.key;
    let mut sum = 0;
    for text in [resource, namespace, name] {
        sum = crc32c::crc32c_append(sum, text.as_bytes());
        // No UTF-8 text holds this byte, so the parts cannot be cut elsewhere.
        sum = crc32c::crc32c_append(sum, &[0xff]);
    }
    sum = crc32c::crc32c_append(sum, &object.revision.to_le_bytes());
    crc32c::crc32c_append(sum, &object.body)
}

pub(super) fn meta_checksum(key: &str, value: i64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), &value.to_le_bytes())
}

/// Why a commit did not succeed.
#[derive(Debug)]
pub(super) enum CommitError {
    /// Rolled back; the disk or the quota is full.
    Full,
    /// The connection is gone. Whether the commit happened is known after [`Disk::reconnect`].
    Unknown(StorageError),
}

/// One change of a commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) kind: EventKind,
    pub(super) object: &'a Stored,
}

/// The small files beside the database.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) mark: Mark,
    pub(super) reserve: Reserve,
}

/// The database, for its one writer.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    options: Options,
    connection: Option<Connection>,
    commits: u32,
    /// Pages written to the log since it was copied back, about.
    logged_pages: usize,
    beside: Beside,
    complaints: telemetry::Seldom,
    /// Keeps other processes out; held as long as this lives.
    _lock: std::fs::File,
}

impl Disk {
    pub(super) fn new(
        path: PathBuf,
        options: Options,
        connection: Connection,
        lock: std::fs::File,
        mut beside: Beside,
    ) -> Self {
        if !beside.reserve.take() {
            tracing::warn!(path = %path.display(), "the disk is full: only deletions are written");
        }
        let complaints = telemetry::Seldom::new(SAY_AGAIN_AFTER);
        Self {
            path,
            options,
            connection: Some(connection),
            commits: 0,
            logged_pages: 0,
            beside,
            complaints,
            _lock: lock,
        }
    }

    /// Whether only deletions may be written: the space set aside for them is not whole.
    pub(super) fn is_short(&self) -> bool {
        !self.beside.reserve.is_there()
    }

    /// Looks whether there is space again.
    pub(super) fn look_for_space(&mut self) {
        if self.is_short() && self.beside.reserve.take() {
            tracing::info!(path = %self.path.display(), "there is space for the object store again");
        }
    }

    /// Gives up the space set aside; whether that is reason to try again.
    pub(super) fn use_reserve(&mut self) -> bool {
        self.beside.reserve.give() && self.shorten_log()
    }

    /// Gives the file system what deletions have freed, so that the reserve can be taken again.
    pub(super) fn shrink(&mut self) {
        let Some(connection) = &self.connection else { return };
        let shrunk = vacuum(connection, SHRINK_PAGES)
            .and_then(|()| checkpoint(connection).map_err(StorageError::from));
        if let Err(error) = shrunk {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot shrink the object store yet"
            );
            if !is_full(&error) || !connection.is_autocommit() {
                self.connection = None;
            }
        }
        self.look_for_space();
    }

    /// Makes the rows durable, with the counter and the totals they lead to.
    pub(super) fn commit(
        &mut self,
        rows: &[Row<'_>],
        revision: u64,
        totals: Totals,
    ) -> Result<(), CommitError> {
        match self.attempt(rows, revision, totals) {
            Err(CommitError::Full) if self.shorten_log() => self.attempt(rows, revision, totals),
            outcome => outcome,
        }
    }

    /// The log may hold many versions of a page of which the file needs one, so on a full disk
    /// there may be room yet.
    fn shorten_log(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| checkpoint(connection).is_ok())
    }

    fn attempt(
        &mut self,
        rows: &[Row<'_>],
        revision: u64,
        totals: Totals,
    ) -> Result<(), CommitError> {
        let Some(connection) = &self.connection else {
            return Err(CommitError::Unknown(self.gone()));
        };
        self.commits = self.commits.wrapping_add(1);
        self.logged_pages = self.logged_pages.saturating_add(pages(rows));
        if let Err(source) = self.beside.mark.reach(revision) {
            if super::reserve::is_full(&source) {
                return Err(CommitError::Full);
            }
            let error = StorageError::Io { path: self.path.clone(), source };
            self.connection = None;
            return Err(CommitError::Unknown(error));
        }
        let staged = stage(connection, rows, revision, totals);
        #[cfg(test)]
        let staged = staged.and_then(|()| self.options.faults.before_commit(self.is_short()));
        let result = staged.and_then(|()| seal(connection));
        #[cfg(test)]
        let result = self.options.faults.after_commit(result);
        let Err(error) = result else { return Ok(()) };
        let is_open = !connection.is_autocommit();
        let is_rolled_back = !is_open || connection.execute_batch("ROLLBACK").is_ok();
        if is_rolled_back && (is_full(&error) || self.is_out_of_quota(&error)) {
            return Err(CommitError::Full);
        }
        self.connection = None;
        Err(CommitError::Unknown(error))
    }

    /// Whether [`Self::tidy`] is due.
    pub(super) fn is_untidy(&self) -> bool {
        self.logged_pages >= CHECKPOINT_PAGES || self.has_free_pages()
    }

    /// Looked at now and then.
    fn has_free_pages(&self) -> bool {
        let is_due = self.commits.is_multiple_of(VACUUM_EVERY);
        // What cannot be read is found again by the look itself.
        is_due
            && self
                .connection
                .as_ref()
                .is_some_and(|it| free_pages(it).unwrap_or(i64::MAX) > FREE_PAGES)
    }

    /// Now and then gives some free pages back to the file system. Apart from the commits, so that
    /// no write fails because of it.
    pub(super) fn tidy(&mut self) {
        let is_long = self.logged_pages >= CHECKPOINT_PAGES;
        let is_due = self.has_free_pages();
        let Some(connection) = &self.connection else { return };
        let mut done = Ok(());
        if is_long {
            self.logged_pages = 0;
            done = copy_log_back(connection);
        }
        if is_due && done.is_ok() {
            done = vacuum(connection, VACUUM_PAGES);
        }
        if let Err(error) = done {
            if let Some(unsaid) = self.complaints.pass() {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    path = %self.path.display(),
                    unsaid,
                    "object store cannot put its file in order"
                );
            }
            if !is_full(&error) || !connection.is_autocommit() {
                self.connection = None;
            }
        }
    }

    /// `SQLite` tells a full disk from other failures, but not a quota that is used up; whether it is,
    /// somebody has to try.
    fn is_out_of_quota(&self, error: &StorageError) -> bool {
        #[cfg(test)]
        if self.options.faults.is_out_of_quota() {
            return is_failed_write(error);
        }
        is_failed_write(error) && self.beside.reserve.is_out_of_quota()
    }

    fn gone(&self) -> StorageError {
        let source = std::io::Error::from(std::io::ErrorKind::NotConnected);
        StorageError::Io { path: self.path.clone(), source }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Opens the file again after a failure, and returns the revision it stands at. What was read
    /// is durable: a failed sync may have left pages that only the page cache knows, so the log is
    /// copied into the file and synced anew.
    pub(super) fn reconnect(&mut self) -> Result<u64, StorageError> {
        #[cfg(test)]
        self.options.faults.reconnect()?;
        let connection = connect(&self.path)?;
        configure(&connection, &self.options)?;
        checkpoint(&connection)?;
        let revision: i64 = connection.query_row(
            "SELECT value FROM meta WHERE key = ?1",
            params![META_REVISION],
            |row| row.get(0),
        )?;
        self.connection = Some(connection);
        Ok(u64::try_from(revision)?)
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves one file behind, without a log.
    pub(super) fn close(mut self, last: u64) -> Result<(), StorageError> {
        let Some(connection) = self.connection.take() else { return Ok(()) };
        checkpoint(&connection)?;
        connection.close().map_err(|(_, error)| error)?;
        let settled = self.beside.mark.settle(last);
        settled.map_err(|source| StorageError::Io { path: self.path.clone(), source })
    }
}

/// Opens an existing file; never makes one.
pub(super) fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

pub(super) fn configure(connection: &Connection, options: &Options) -> Result<(), rusqlite::Error> {
    // Exclusive before the log is first touched: no shared-memory file, and no other program can
    // change what we hold in memory.
    connection.execute_batch(&format!(
        "PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_size_limit = {WAL_LIMIT_BYTES};",
        2 * CHECKPOINT_PAGES
    ))?;
    if let Some(pages) = options.max_pages {
        connection.execute_batch(&format!("PRAGMA max_page_count = {pages};"))?;
    }
    connection.set_prepared_statement_cache_capacity(16);
    Ok(())
}

fn checkpoint(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()))
}

pub(super) const UPSERT: &str = "INSERT INTO objects \
    (resource, namespace, name, revision, body, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
    ON CONFLICT (resource, namespace, name) DO UPDATE SET \
    revision = excluded.revision, body = excluded.body, checksum = excluded.checksum";
const DELETE: &str = "DELETE FROM objects WHERE resource = ?1 AND namespace = ?2 AND name = ?3";
pub(super) const SET_META: &str = "INSERT INTO meta (key, value, checksum) VALUES (?1, ?2, ?3) \
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum";

/// Begins a transaction and puts everything into it.
fn stage(
    connection: &Connection,
    rows: &[Row<'_>],
    revision: u64,
    totals: Totals,
) -> Result<(), StorageError> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut upsert = connection.prepare_cached(UPSERT)?;
    let mut delete = connection.prepare_cached(DELETE)?;
    for Row { kind, object } in rows {
        let Key { resource, namespace, name } = &object.key;
        match kind {
            EventKind::Put => upsert.execute(params![
                &**resource,
                &**namespace,
                &**name,
                i64::try_from(object.revision)?,
                &*object.body,
                row_checksum(object),
            ])?,
            EventKind::Delete => delete.execute(params![&**resource, &**namespace, &**name])?,
        };
    }
    let mut set = connection.prepare_cached(SET_META)?;
    for (key, value) in [
        (META_REVISION, i64::try_from(revision)?),
        (META_OBJECTS, i64::try_from(totals.objects)?),
        (META_DIGEST, totals.digest.cast_signed()),
    ] {
        set.execute(params![key, value, meta_checksum(key, value)])?;
    }
    Ok(())
}

/// After this the transaction is durable.
fn seal(connection: &Connection) -> Result<(), StorageError> {
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// The pages that these rows change, about: theirs, those of the index and of the counters.
fn pages(rows: &[Row<'_>]) -> usize {
    rows.iter().map(|row| 2 + row.object.body.len() / PAGE_BYTES).sum::<usize>() + 1
}

/// The log can then be written from its beginning again, at the length it has.
fn copy_log_back(connection: &Connection) -> Result<(), StorageError> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_row| Ok(()))?;
    Ok(())
}

fn free_pages(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))
}

fn vacuum(connection: &Connection, pages: u32) -> Result<(), StorageError> {
    let mut vacuum = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step gives back one page.
    let mut steps = vacuum.query([])?;
    while steps.next()?.is_some() {}
    Ok(())
}

fn is_full(error: &StorageError) -> bool {
    let StorageError::Sql(error) = error else { return false };
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

fn is_failed_write(error: &StorageError) -> bool {
    let StorageError::Sql(rusqlite::Error::SqliteFailure(error, _)) = error else { return false };
    error.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
}

/// Failures on demand, to walk the paths that a healthy disk never takes.
#[cfg(test)]
pub(crate) mod faults {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

    use super::StorageError;

    #[derive(Debug, Clone, Default)]
    pub(crate) struct Faults(Arc<Inner>);

    #[derive(Debug, Default)]
    struct Inner {
        commit: AtomicU8,
        reconnects: AtomicU32,
        quota: AtomicBool,
    }

    fn failure() -> rusqlite::Error {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        rusqlite::Error::SqliteFailure(code, None)
    }

    impl Faults {
        /// The next commit happens, but is reported as failed.
        pub(crate) fn lose_answer(&self) {
            self.0.commit.store(1, Ordering::SeqCst);
        }

        /// The next `count` attempts to open the file again fail.
        pub(crate) fn refuse_reconnects(&self, count: u32) {
            self.0.reconnects.store(count, Ordering::SeqCst);
        }

        /// The next commit does not happen, and is reported as an I/O error.
        pub(crate) fn lose_commit(&self) {
            self.0.commit.store(2, Ordering::SeqCst);
        }

        pub(super) fn after_commit(
            &self,
            result: Result<(), StorageError>,
        ) -> Result<(), StorageError> {
            let struck =
                self.0.commit.compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if struck { result.and(Err(failure().into())) } else { result }
        }

        /// From now on a quota lets nothing be written beyond what is set aside, or no longer.
        pub(crate) fn use_up_quota(&self, is_used_up: bool) {
            self.0.quota.store(is_used_up, Ordering::SeqCst);
        }

        pub(super) fn is_out_of_quota(&self) -> bool {
            self.0.quota.load(Ordering::SeqCst)
        }

        pub(super) fn before_commit(&self, is_short: bool) -> Result<(), StorageError> {
            if self.is_out_of_quota() && !is_short {
                // What `SQLite` makes of EDQUOT.
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_WRITE);
                return Err(rusqlite::Error::SqliteFailure(code, None).into());
            }
            let struck =
                self.0.commit.compare_exchange(2, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if struck { Err(failure().into()) } else { Ok(()) }
        }

        pub(super) fn reconnect(&self) -> Result<(), StorageError> {
            let left = self
                .0
                .reconnects
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() { Err(failure().into()) } else { Ok(()) }
        }
    }
}
