//! Reading a SQLite file.
//!
//! The driver gives each connection a thread: a statement goes there, its rows come back one by one, and
//! a second trip asks whether the connection still is one, for what most requests read in a few dozen
//! microseconds. So it is read where it is asked for; what takes longer goes to a thread.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::Semaphore;

use super::{ACQUIRE_TIMEOUT, BUSY_TIMEOUT, Bound, DbError, Row, Then, Value};

/// What is not read by then goes to a thread and begins anew; meanwhile others wait for it.
const INLINE_TIMEOUT: Duration = Duration::from_millis(5);
/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 1_000;
/// Reading on threads at once.
const THREADS: usize = 4;
const STATEMENTS: usize = 256;

/// The connections that read a file. Clones are the same.
#[derive(Debug, Clone)]
pub struct Readers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    inline: Mutex<Vec<Inline>>,
    threaded: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
    is_closed: AtomicBool,
}

/// Waits for no lock, and gives up when its time is over.
#[derive(Debug)]
struct Inline {
    connection: Connection,
    clock: Instant,
    limit: Arc<Limit>,
}

#[derive(Debug)]
struct Limit {
    /// When the statement is to end, in microseconds of the clock.
    end: AtomicU64,
    /// It did not, and was stopped.
    is_over: AtomicBool,
}

impl Inline {
    fn open(path: &Path) -> Result<Self, rusqlite::Error> {
        let connection = connect(path, Duration::ZERO)?;
        // What it knows of tables and of how full they are is read now, however long it takes.
        connection.prepare("SELECT name FROM sqlite_schema")?;
        let clock = Instant::now();
        let limit = Limit { end: AtomicU64::new(0), is_over: AtomicBool::new(false) };
        let limit = Arc::new(limit);
        let looked_at = limit.clone();
        let look = move || {
            let is_over = micros(clock.elapsed()) > looked_at.end.load(Ordering::Relaxed);
            looked_at.is_over.fetch_or(is_over, Ordering::Relaxed);
            is_over
        };
        connection.progress_handler(STEPS, Some(look))?;
        Ok(Self { connection, clock, limit })
    }

    fn begin(&self) {
        self.limit.end.store(micros(self.clock.elapsed() + INLINE_TIMEOUT), Ordering::Relaxed);
    }

    /// Whether it was stopped. It may then have been at what it must know of the tables, and SQLite goes
    /// on with half of that, without a word: such a connection is not used again.
    fn was_stopped(&self) -> bool {
        self.limit.is_over.load(Ordering::Relaxed)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Why there are no rows.
#[derive(Debug)]
enum Failure {
    /// SQLite says so.
    Sqlite(rusqlite::Error),
    /// A row is not what it should be, or the file is closed.
    Other(DbError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Failure> for DbError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sqlite(error) => error.into(),
            Failure::Other(error) => error,
        }
    }
}

impl Failure {
    /// With more time, or once somebody has let go of a lock, it may succeed.
    fn may_succeed_later(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::OperationInterrupted
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
    }
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self(Arc::new(Inner {
            path: path.to_owned(),
            inline: Mutex::default(),
            threaded: Mutex::default(),
            places: Arc::new(Semaphore::new(THREADS)),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Rows of a statement that changes nothing.
    pub(super) async fn fetch(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        match self.0.at_once(|connection| read(connection, sql, values)) {
            Err(failure) if failure.may_succeed_later() => {}
            ended => return Ok(ended?),
        }
        let (sql, values) = (sql.to_owned(), values.to_vec());
        self.at_leisure(move |connection| read(connection, &sql, &values)).await
    }

    pub(super) async fn fetch_both(
        &self,
        first: &Bound,
        then: Then,
    ) -> Result<(Vec<Row>, Vec<Row>), DbError> {
        match self.0.at_once(|connection| read_both(connection, first, then)) {
            Err(failure) if failure.may_succeed_later() => {}
            ended => return Ok(ended?),
        }
        let first = first.clone();
        self.at_leisure(move |connection| read_both(connection, &first, then)).await
    }

    async fn at_leisure<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, DbError> {
        let place = tokio::time::timeout(ACQUIRE_TIMEOUT, self.0.places.clone().acquire_owned());
        let place = place.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let inner = self.0.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            inner.at_leisure(read)
        });
        Ok(reading.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    /// Reads that are on their way end; there are no more.
    pub(super) async fn close(&self) {
        self.0.is_closed.store(true, Ordering::Release);
        let all = u32::try_from(THREADS).unwrap_or(u32::MAX);
        let _ended = self.0.places.acquire_many(all).await;
        lock(&self.0.inline).clear();
        lock(&self.0.threaded).clear();
    }
}

impl Inner {
    fn at_once<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.open()?;
        let idle = lock(&self.inline).pop();
        let inline = idle.map_or_else(|| Inline::open(&self.path), Ok)?;
        inline.begin();
        let found = read(&inline.connection);
        // As many as there are threads that run requests.
        if !inline.was_stopped() {
            lock(&self.inline).push(inline);
        }
        found
    }

    fn at_leisure<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.open()?;
        // In place of the one that was stopped, so that nobody else must wait for it.
        if lock(&self.inline).is_empty()
            && let Ok(inline) = Inline::open(&self.path)
        {
            lock(&self.inline).push(inline);
        }
        let idle = lock(&self.threaded).pop();
        let threaded = idle.map_or_else(|| connect(&self.path, BUSY_TIMEOUT), Ok)?;
        let found = read(&threaded);
        lock(&self.threaded).push(threaded);
        found
    }

    fn open(&self) -> Result<(), Failure> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Failure::Other(sqlx::Error::PoolClosed.into()));
        }
        Ok(())
    }
}

/// Connections are put back whole, also by whoever panics.
fn lock<T>(idle: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It may write only what all who read must be able to, such as what is left of a process that was killed.
fn connect(path: &Path, busy: Duration) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn read(connection: &Connection, sql: &str, values: &[Value]) -> Result<Vec<Row>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values)?;
    let names: Arc<[Box<str>]> =
        statement.column_names().into_iter().map(Box::<str>::from).collect();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..names.len()).map(|at| {
            let value = row.get_ref(at)?;
            take(value).map_err(|problem| {
                let column = names.get(at).map(ToString::to_string).unwrap_or_default();
                Failure::Other(DbError::Column { column, problem })
            })
        });
        let values = values.collect::<Result<Vec<_>, Failure>>()?;
        found.push(Row::new(names.clone(), values));
    }
    Ok(found)
}

fn read_both(
    connection: &Connection,
    (sql, values): &Bound,
    then: Then,
) -> Result<(Vec<Row>, Vec<Row>), Failure> {
    // Both see what the first one saw; dropped, it ends.
    let moment = connection.unchecked_transaction()?;
    let rows = read(&moment, sql, values)?;
    let more = match then(&rows).map_err(Failure::Other)? {
        None => Vec::new(),
        Some((sql, values)) => read(&moment, &sql, &values)?,
    };
    Ok((rows, more))
}

/// SQLite counts `$3` by where it comes first, not by its number.
fn bind(statement: &mut rusqlite::Statement<'_>, values: &[Value]) -> Result<(), rusqlite::Error> {
    for at in 1..=statement.parameter_count() {
        let name = statement.parameter_name(at).and_then(|it| it.strip_prefix('$'));
        let number = name.and_then(|it| it.parse::<usize>().ok()).unwrap_or(at);
        match number.checked_sub(1).and_then(|it| values.get(it)) {
            Some(Value::Text(text)) => statement.raw_bind_parameter(at, text)?,
            Some(Value::Int(number)) => statement.raw_bind_parameter(at, number)?,
            None => return Err(rusqlite::Error::InvalidParameterCount(values.len(), number)),
        }
    }
    Ok(())
}

fn take(value: ValueRef<'_>) -> Result<Value, &'static str> {
    Ok(match value {
        ValueRef::Null => Value::Text(None),
        ValueRef::Integer(number) => Value::Int(Some(number)),
        ValueRef::Text(text) => {
            let text = str::from_utf8(text).map_err(|_| "is no text")?;
            Value::Text(Some(text.to_owned()))
        }
        ValueRef::Real(_) | ValueRef::Blob(_) => return Err("is neither text nor a whole number"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2) \
         SELECT COUNT(*) AS n, $1 AS said FROM n";

    fn readers() -> (tempfile::TempDir, Readers) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('x')",
            )
            .unwrap();
        (folder, Readers::new(&path))
    }

    #[tokio::test]
    async fn what_takes_long_is_read_whole_and_leaves_no_connection_that_was_stopped() {
        let (_folder, readers) = readers();
        let rows = readers.fetch("SELECT a FROM t WHERE a = $1", &["x".into()]).await.unwrap();
        assert_eq!(rows.first().unwrap().text("a").unwrap(), "x");
        assert_eq!(lock(&readers.0.threaded).len(), 0);
        let rows = readers.fetch(LONG, &["it".into(), 1_000_000.into()]).await.unwrap();
        let row = rows.first().unwrap();
        assert_eq!((row.int("n").unwrap(), row.text("said").unwrap().as_str()), (1_000_000, "it"));
        assert_eq!(lock(&readers.0.threaded).len(), 1);
        assert!(lock(&readers.0.inline).iter().all(|it| !it.was_stopped()));
        readers.close().await;
        assert!(readers.fetch("SELECT a FROM t", &[]).await.is_err());
    }

    #[tokio::test]
    async fn nothing_is_written_and_wrong_statements_are_not_outages() {
        let (_folder, readers) = readers();
        let refused = readers.fetch("INSERT INTO t VALUES ('y') RETURNING a", &[]).await;
        assert!(refused.is_err_and(|it| !it.is_outage()));
        let refused = readers.fetch("SELECT b FROM t", &[]).await;
        assert!(matches!(refused, Err(DbError::Statement(_))), "{refused:?}");
        let refused = readers.fetch("SELECT a FROM t WHERE a = $2", &["x".into()]).await;
        assert!(matches!(refused, Err(DbError::Statement(_))), "{refused:?}");
        let refused = readers.fetch("SELECT 1.5 AS half", &[]).await;
        assert!(matches!(refused, Err(DbError::Column { .. })), "{refused:?}");
    }

    /// Whoever holds the file for himself is waited for, and not by the thread that runs requests.
    #[tokio::test]
    async fn a_lock_is_waited_for_on_a_thread() {
        let (folder, readers) = readers();
        let other = Connection::open(folder.path().join("it.db")).unwrap();
        other
            .execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; INSERT INTO t VALUES ('y')",
            )
            .unwrap();
        let reading = readers.fetch("SELECT a FROM t", &[]);
        tokio::pin!(reading);
        let soon = tokio::time::timeout(Duration::from_millis(50), reading.as_mut());
        assert!(soon.await.is_err());
        other.execute_batch("COMMIT").unwrap();
        drop(other);
        assert_eq!(reading.await.unwrap().len(), 2);
    }
}
