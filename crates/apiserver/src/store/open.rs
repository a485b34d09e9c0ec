//! From a path to a verified file: lock, create where there is none, check, load.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::Options;
use super::disk::{
    APPLICATION_ID, Beside, Disk, FORMAT, META_DIGEST, META_FORMAT, META_OBJECTS, META_REVISION,
    SET_META, Totals, configure, connect, meta_checksum, row_checksum,
};
use super::error::OpenError;
use super::mark::Mark;
use super::object::{Key, Meta, Stored};
use super::reserve::Reserve;

/// The counter of a new store. Above 1, so that clients that ask for revision 1 learn that it is
/// too old.
const FIRST_REVISION: i64 = 100;
const OWNER_ONLY: u32 = 0o600;

/// What a file held.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The revision of the file.
    pub(super) revision: u64,
    /// The highest revision that may have been given out.
    pub(super) counter: u64,
    pub(super) totals: Totals,
    pub(super) objects: Vec<Stored>,
}

/// Opens the file, or makes it where there is none.
pub(super) fn open(path: &Path, options: &Options) -> Result<(Disk, Loaded), OpenError> {
    let lock = lock(path)?;
    ensure_file(path)?;
    restrict(path)?;
    check_header(path)?;
    let sql = |error| explain(path, error);
    let connection = connect(path).map_err(sql)?;
    // SQLite takes a file that is too short for a new database, and would make it one.
    let id: i64 =
        connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(sql)?;
    if id != APPLICATION_ID {
        let detail = "the file is cut short".to_owned();
        return Err(OpenError::Damaged { path: path.to_owned(), detail });
    }
    configure(&connection, options).map_err(sql)?;
    let mut loaded = Check { path, connection: &connection }.load()?;
    let mark_path = beside(path, ".mark");
    let (mark, counter) = Mark::open(mark_path.clone(), loaded.revision)
        .map_err(|source| OpenError::Io { action: "read", path: mark_path, source })?;
    loaded.counter = counter;
    let beside = Beside { mark, reserve: Reserve::new(beside(path, ".reserve")) };
    Ok((Disk::new(path.to_owned(), options.clone(), connection, lock, beside), loaded))
}

/// Two processes on one file would each believe their own memory.
fn lock(path: &Path) -> Result<File, OpenError> {
    let lock_path = beside(path, ".lock");
    let io = |action, source| OpenError::Io { action, path: lock_path.clone(), source };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(OWNER_ONLY)
        .open(&lock_path)
        .map_err(|source| io("open", source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(io("lock", source)),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn ensure_file(path: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { action: "look at", path: path.to_owned(), source };
    let damaged =
        |detail: &str| OpenError::Damaged { path: path.to_owned(), detail: detail.to_owned() };
    match std::fs::metadata(path) {
        // SQLite would take an empty file for a new database and remove the log. We never leave
        // one behind: a new store appears under its name only when it is complete.
        Ok(found) if found.len() == 0 => Err(damaged("the file is empty")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if beside(path, "-wal").try_exists().map_err(io)? {
                return Err(damaged("its -wal file is there, but the file itself is gone"));
            }
            create(path)
        }
        Err(error) => Err(io(error)),
    }
}

/// Makes an empty store under another name and gives it its name when it is durable, so that a
/// crash in between leaves either no store or a good one.
fn create(path: &Path) -> Result<(), OpenError> {
    let draft = beside(path, ".new");
    let io = |action| {
        let path = draft.clone();
        move |source| OpenError::Io { action, path, source }
    };
    for leftover in [draft.clone(), beside(&draft, "-wal"), beside(&draft, "-journal")] {
        match std::fs::remove_file(&leftover) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::Io { action: "remove", path: leftover, source });
            }
            _ => {}
        }
    }
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(OWNER_ONLY)
        .open(&draft)
        .map_err(io("create"))?;
    initialise(&draft).map_err(|source| OpenError::Sql { path: draft.clone(), source })?;
    File::open(&draft).and_then(|file| file.sync_all()).map_err(io("sync"))?;
    std::fs::rename(&draft, path).map_err(io("rename"))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let sync = |folder: &Path| File::open(folder)?.sync_all();
    sync(folder).map_err(|source| OpenError::Io { action: "sync", path: folder.to_owned(), source })
}

fn initialise(path: &Path) -> Result<(), rusqlite::Error> {
    let connection = connect(path)?;
    // Before the first table, or it has no effect.
    connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;")?;
    configure(&connection, &Options::default())?;
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         PRAGMA application_id = {APPLICATION_ID};
         CREATE TABLE meta (
             key TEXT NOT NULL PRIMARY KEY,
             value INTEGER NOT NULL,
             checksum INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE objects (
             resource TEXT NOT NULL,
             namespace TEXT NOT NULL,
             name TEXT NOT NULL,
             revision INTEGER NOT NULL,
             body BLOB NOT NULL,
             checksum INTEGER NOT NULL,
             PRIMARY KEY (resource, namespace, name)
         ) STRICT, WITHOUT ROWID;"
    ))?;
    for (key, value) in [
        (META_FORMAT, FORMAT),
        (META_REVISION, FIRST_REVISION),
        (META_OBJECTS, 0),
        (META_DIGEST, 0),
    ] {
        connection.execute(SET_META, params![key, value, meta_checksum(key, value)])?;
    }
    connection.execute_batch("COMMIT")?;
    connection.close().map_err(|(_, error)| error)
}

/// Objects hold secrets: nobody but the owner reads the file.
fn restrict(path: &Path) -> Result<(), OpenError> {
    let io = |action| move |source| OpenError::Io { action, path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(io("look at"))?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY))
            .map_err(io("restrict"))?;
    }
    Ok(())
}

/// A look that changes nothing, before the database library may: even the switch to our settings
/// would change another program's database.
fn check_header(path: &Path) -> Result<(), OpenError> {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    const APPLICATION_ID_AT: usize = 68;
    let mut header = [0; 100];
    match File::open(path).and_then(|mut file| file.read_exact(&mut header)) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(OpenError::Io { action: "read", path: path.to_owned(), source: error });
        }
        Ok(()) if header.starts_with(MAGIC) => {}
        _ => {
            let detail = "it is not a database".to_owned();
            return Err(OpenError::Damaged { path: path.to_owned(), detail });
        }
    }
    let id = header.iter().skip(APPLICATION_ID_AT).take(4);
    let id = id.fold(0_i64, |id, byte| (id << 8) | i64::from(*byte));
    if id == APPLICATION_ID { Ok(()) } else { Err(OpenError::Foreign { path: path.to_owned() }) }
}

/// What an error while opening means. Anything but trouble around the file is trouble in it.
fn explain(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::InUse { path },
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure,
        ) => OpenError::Sql { path, source: error },
        _ => OpenError::Damaged { path, detail: error.to_string() },
    }
}

/// Verifies while it reads.
struct Check<'a> {
    path: &'a Path,
    connection: &'a Connection,
}

impl Check<'_> {
    fn damaged(&self, detail: impl Into<String>) -> OpenError {
        OpenError::Damaged { path: self.path.to_owned(), detail: detail.into() }
    }

    fn sql(&self) -> impl Fn(rusqlite::Error) -> OpenError {
        |error| explain(self.path, error)
    }

    fn load(&self) -> Result<Loaded, OpenError> {
        let format = self.meta(META_FORMAT)?;
        if format > FORMAT {
            let path = self.path.to_owned();
            return Err(OpenError::TooNew { path, found: format, newest: FORMAT });
        }
        if format < 1 {
            return Err(self.damaged(format!("format {format} does not exist")));
        }
        let verdict: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(self.sql())?;
        if verdict != "ok" {
            return Err(self.damaged(verdict));
        }
        let revision = self.meta_count(META_REVISION)?;
        let expected = Totals {
            objects: self.meta_count(META_OBJECTS)?,
            digest: self.meta(META_DIGEST)?.cast_unsigned(),
        };
        let objects = self.objects(revision)?;
        let mut totals = Totals::default();
        for object in &objects {
            totals.add(object);
        }
        if totals != expected {
            return Err(self.damaged(format!(
                "{} objects are there that do not add up to the {} that were written",
                totals.objects, expected.objects
            )));
        }
        Ok(Loaded { revision, counter: revision, totals, objects })
    }

    fn meta(&self, key: &str) -> Result<i64, OpenError> {
        let found: Option<(i64, i64)> = self
            .connection
            .query_row("SELECT value, checksum FROM meta WHERE key = ?1", params![key], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(self.sql())?;
        match found {
            None => Err(self.damaged(format!("the field {key} is missing"))),
            Some((value, checksum)) if checksum == i64::from(meta_checksum(key, value)) => {
                Ok(value)
            }
            Some(_) => Err(self.damaged(format!("the field {key} has a wrong checksum"))),
        }
    }

    fn meta_count(&self, key: &str) -> Result<u64, OpenError> {
        let value = self.meta(key)?;
        u64::try_from(value).map_err(|_negative| self.damaged(format!("{key} is {value}")))
    }

    fn objects(&self, newest: u64) -> Result<Vec<Stored>, OpenError> {
        let mut statement = self
            .connection
            .prepare(
                "SELECT resource, namespace, name, revision, body, checksum FROM objects \
                 ORDER BY resource, namespace, name",
            )
            .map_err(self.sql())?;
        let mut rows = statement.query([]).map_err(self.sql())?;
        let mut objects: Vec<Stored> = Vec::new();
        while let Some(row) = rows.next().map_err(self.sql())? {
            let object = self.object(row, objects.last().map(|object| &object.key), newest)?;
            objects.push(object);
        }
        Ok(objects)
    }

    fn object(
        &self,
        row: &Row<'_>,
        before: Option<&Key>,
        newest: u64,
    ) -> Result<Stored, OpenError> {
        let raw = RawRow::read(row).map_err(self.sql())?;
        let name = format!("{}/{}/{}", raw.resource, raw.namespace, raw.name);
        let Ok(revision) = u64::try_from(raw.revision) else {
            return Err(self.damaged(format!("{name} has revision {}", raw.revision)));
        };
        if revision > newest {
            return Err(self.damaged(format!("{name} is newer than the counter")));
        }
        let meta = Meta::of_body(raw.body)
            .map_err(|error| self.damaged(format!("{name} is not readable: {error}")))?;
        let body = Bytes::from(raw.body.to_vec());
        let stored = Stored { key: raw.key(before), revision, body, meta };
        if raw.checksum != i64::from(row_checksum(&stored)) {
            return Err(self.damaged(format!("{name} has a wrong checksum")));
        }
        Ok(stored)
    }
}

struct RawRow<'a> {
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    revision: i64,
    body: &'a [u8],
    checksum: i64,
}

impl<'a> RawRow<'a> {
    fn read(row: &'a Row<'_>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            resource: row.get_ref(0)?.as_str()?,
            namespace: row.get_ref(1)?.as_str()?,
            name: row.get_ref(2)?.as_str()?,
            revision: row.get(3)?,
            body: row.get_ref(4)?.as_blob()?,
            checksum: row.get(5)?,
        })
    }

    /// Rows come in order, so what the one before had is shared.
    fn key(&self, before: Option<&Key>) -> Key {
        let share = |text: &str, found: Option<&Arc<str>>| match found {
            Some(found) if **found == *text => Arc::clone(found),
            _ => Arc::from(text),
        };
        Key {
            resource: share(self.resource, before.map(|key| &key.resource)),
            namespace: share(self.namespace, before.map(|key| &key.namespace)),
            name: Arc::from(self.name),
        }
    }
}
