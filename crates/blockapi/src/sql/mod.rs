//! The one door to SQL: SQLite or `PostgreSQL` behind the same few calls and the same text.
//!
//! Statements use `$1` and `RETURNING`, columns are text and 64-bit integers, times are text of a
//! fixed width: both engines read them alike. Text is never put into a statement, only parameters.

mod file;
mod schema;
mod server;
mod value;

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

pub use file::Readers;
pub use schema::{BASE_REVISION, HEAD_REVISION, SchemaState};
pub use server::Server;
pub(crate) use value::{Row, Value};

const POSTGRES_CONNECTIONS: u32 = 8;
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(25);
/// A server that is away is tried for so long; then the client is told to come again.
const POSTGRES_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is asked whether it still is one.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// A second statement made of the rows of a first, if there is to be one.
pub(crate) type Then = fn(&[Row]) -> Result<Option<Bound>, DbError>;

/// A statement and its parameters.
pub(crate) type Bound = (String, Vec<Value>);

/// What went wrong with the database.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("the database address {0} is not understood; give sqlite:PATH or postgres://…")]
    Address(String),
    #[error("the database cannot be reached")]
    Unreachable(#[source] Cause),
    #[error("the database refused a statement")]
    Statement(#[source] Cause),
    #[error("column {column} of the answer {problem}")]
    Column { column: String, problem: &'static str },
    #[error(
        "the schema of the database is {found}, this build needs {needed}; run `holdfast block-api db sync`"
    )]
    Schema { found: String, needed: &'static str },
}

/// Which driver says why.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum Cause {
    Driver(#[from] sqlx::Error),
    File(#[from] rusqlite::Error),
}

impl DbError {
    /// Whether trying again later may help, without anything being changed.
    pub(crate) const fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }

    /// A row that must be the only one of its kind was there already.
    pub(crate) fn is_duplicate(&self) -> bool {
        match self {
            Self::Statement(Cause::Driver(sqlx::Error::Database(error))) => {
                error.is_unique_violation()
            }
            _ => false,
        }
    }
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Io(_)
            | E::PoolTimedOut
            | E::PoolClosed
            | E::WorkerCrashed
            | E::Protocol(_)
            | E::Tls(_)
            | E::Configuration(_) => Self::Unreachable(error.into()),
            E::Database(inner) if is_outage_code(inner.code().as_deref()) => {
                Self::Unreachable(error.into())
            }
            _ => Self::Statement(error.into()),
        }
    }
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as E;
        match error.sqlite_error_code() {
            Some(
                E::DatabaseBusy
                | E::DatabaseLocked
                | E::SystemIoFailure
                | E::DiskFull
                | E::CannotOpen,
            ) => Self::Unreachable(error.into()),
            _ => Self::Statement(error.into()),
        }
    }
}

/// `PostgreSQL` shutting down, out of connections, or a transaction that lost a race; SQLite busy,
/// full or unable to read and write its file.
fn is_outage_code(code: Option<&str>) -> bool {
    code.is_some_and(|it| {
        it.starts_with("57P")
            || it.starts_with("53")
            || it.starts_with("08")
            || it == "40001"
            || it == "40P01"
            || ["5", "6", "10", "13", "14", "261", "517"].contains(&it)
    })
}

#[cfg(test)]
thread_local! {
    /// How many transactions were asked for, so that tests can tell that a request has looked at what it
    /// looks at before.
    pub(crate) static BEGUN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A database. Clones are the same pools.
#[derive(Debug, Clone)]
pub enum Db {
    /// One writer, so that writers of this process wait for each other and never for a lock.
    Sqlite {
        writer: SqlitePool,
        readers: Readers,
    },
    Postgres(Server),
}

/// A transaction; dropped without [`Tx::commit`], it never happened.
#[derive(Debug)]
pub(crate) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(server::Begun),
}

macro_rules! bind {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match value {
                Value::Text(text) => query.bind(text.clone()),
                Value::Int(number) => query.bind(*number),
            };
        }
        query
    }};
}
use bind;

macro_rules! execute {
    ($on:expr, $sql:expr, $values:expr) => {
        bind!(sqlx::query(AssertSqlSafe($sql.to_owned())), $values)
            .execute($on)
            .await
            .map(|done| done.rows_affected())
            .map_err(DbError::from)
    };
}

macro_rules! fetch {
    ($on:expr, $sql:expr, $values:expr, $read:path) => {
        bind!(sqlx::query(AssertSqlSafe($sql.to_owned())), $values)
            .fetch_all($on)
            .await
            .map_err(DbError::from)
            .and_then(|rows| $read(&rows))
    };
}

impl Db {
    /// Opens the database at an address; a SQLite file is made if there is none.
    pub async fn open(address: &str) -> Result<Self, DbError> {
        if address.starts_with("postgres://") || address.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(address)
                .map_err(|_| DbError::Address("postgres://…".to_owned()))?;
            let pool = PgPoolOptions::new()
                .max_connections(POSTGRES_CONNECTIONS)
                .acquire_timeout(POSTGRES_TIMEOUT)
                .test_before_acquire(false)
                .before_acquire(|connection, known| {
                    Box::pin(async move {
                        if known.idle_for > TRUSTED_IDLE {
                            sqlx::Connection::ping(connection).await?;
                        }
                        Ok(true)
                    })
                })
                .connect_lazy_with(options);
            return Ok(Self::Postgres(Server::new(pool, POSTGRES_CONNECTIONS as usize)));
        }
        match address.strip_prefix("sqlite:") {
            Some(path) => Self::open_file(Path::new(path.trim_start_matches("//"))).await,
            None => Err(DbError::Address(address.to_owned())),
        }
    }

    async fn open_file(path: &Path) -> Result<Self, DbError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(256);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options)
            .await?;
        Ok(Self::Sqlite { writer, readers: Readers::new(path) })
    }

    pub(crate) const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Rows of a statement that changes nothing.
    pub(crate) async fn fetch(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        match self {
            Self::Sqlite { readers, .. } => readers.fetch(sql, values).await,
            Self::Postgres(server) => server.fetch(sql, values).await,
        }
    }

    /// Rows, and those of the statement that is made of them, as they were at one moment.
    pub(crate) async fn fetch_both(
        &self,
        first: &Bound,
        then: Then,
    ) -> Result<(Vec<Row>, Vec<Row>), DbError> {
        match self {
            Self::Sqlite { readers, .. } => readers.fetch_both(first, then).await,
            Self::Postgres(server) => server.fetch_both(first, then).await,
        }
    }

    pub(crate) async fn fetch_one(
        &self,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<Row>, DbError> {
        Ok(self.fetch(sql, values).await?.into_iter().next())
    }

    /// One statement that changes rows: how many it changed.
    pub(crate) async fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        match self {
            Self::Sqlite { writer, .. } => execute!(writer, sql, values),
            Self::Postgres(server) => server.execute(sql, values).await,
        }
    }

    /// A transaction that will write.
    pub(crate) async fn begin(&self) -> Result<Tx, DbError> {
        #[cfg(test)]
        BEGUN.set(BEGUN.get() + 1);
        Ok(match self {
            // At once, so that it never finds another writer in between.
            Self::Sqlite { writer, .. } => Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?),
            Self::Postgres(server) => Tx::Postgres(server.begin().await?),
        })
    }

    pub async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(server) => server.close().await,
        }
    }
}

impl Tx {
    pub(crate) async fn fetch(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        match self {
            Self::Sqlite(tx) => fetch!(&mut **tx, sql, values, Row::of_sqlite),
            Self::Postgres(begun) => fetch!(&mut *begun.tx, sql, values, Row::of_postgres),
        }
    }

    pub(crate) async fn fetch_one(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<Row>, DbError> {
        Ok(self.fetch(sql, values).await?.into_iter().next())
    }

    pub(crate) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        match self {
            Self::Sqlite(tx) => execute!(&mut **tx, sql, values),
            Self::Postgres(begun) => execute!(&mut *begun.tx, sql, values),
        }
    }

    /// Holds a row until the end. `PostgreSQL` evaluates sub-selects of a waiting UPDATE on what it saw
    /// before it waited; a lock taken first makes the UPDATE see everything. SQLite has one writer.
    pub(crate) async fn lock(&mut self, table: &'static str, id: &str) -> Result<(), DbError> {
        if let Self::Postgres(_) = self {
            let sql = format!("SELECT id FROM {table} WHERE id = $1 FOR UPDATE");
            self.fetch(&sql, &[id.into()]).await?;
        }
        Ok(())
    }

    /// Holds a row that others may hold so, too: nobody changes it meanwhile.
    pub(crate) async fn share(&mut self, table: &'static str, id: &str) -> Result<(), DbError> {
        if let Self::Postgres(_) = self {
            let sql = format!("SELECT id FROM {table} WHERE id = $1 FOR SHARE");
            self.fetch(&sql, &[id.into()]).await?;
        }
        Ok(())
    }

    /// Holds a name that has no row of its own: of two requests about it one comes after the other.
    pub(crate) async fn lock_name(&mut self, name: &str) -> Result<(), DbError> {
        if let Self::Postgres(_) = self {
            let sql = "SELECT CAST(pg_advisory_xact_lock(hashtext($1)) AS TEXT) AS locked";
            self.fetch(sql, &[name.into()]).await?;
        }
        Ok(())
    }

    pub(crate) async fn commit(self) -> Result<(), DbError> {
        match self {
            Self::Sqlite(tx) => tx.commit().await?,
            Self::Postgres(begun) => begun.tx.commit().await?,
        }
        Ok(())
    }
}
