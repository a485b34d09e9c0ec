//! Connections to a `PostgreSQL`.
//!
//! The driver's pool asks each connection that comes back whether it still is one: a second trip to the
//! server for each statement. What only reads takes connections of its own and puts them back as they are
//! when the statement has succeeded; after anything else, or when nobody waits for its end any more, they
//! are closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection as _, Postgres, Transaction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Bound, DbError, POSTGRES_TIMEOUT, Row, TRUSTED_IDLE, Then, Value, bind};

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_mins(10);
/// So that all of them follow a server that has moved.
const LIFETIME: Duration = Duration::from_mins(30);

/// A server. Clones are the same connections.
#[derive(Debug, Clone)]
pub struct Server {
    /// For what writes, and where the others come from.
    pool: PgPool,
    readers: Arc<Mutex<Vec<Reader>>>,
    /// For all connections that are in use.
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Reader {
    connection: PgConnection,
    made: Instant,
    used: Instant,
}

impl Server {
    /// With as many connections in use at once, whatever for.
    pub(crate) fn new(pool: PgPool, connections: usize) -> Self {
        Self { pool, readers: Arc::default(), places: Arc::new(Semaphore::new(connections)) }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, DbError> {
        let place = tokio::time::timeout(POSTGRES_TIMEOUT, self.places.clone().acquire_owned());
        let place = place.await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        Ok(place.map_err(|_| sqlx::Error::PoolClosed)?)
    }

    pub(super) async fn fetch(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let _place = self.place().await?;
        let mut reader = self.reader_in_time().await?;
        let query = bind!(sqlx::query(AssertSqlSafe(sql.to_owned())), values);
        let rows = query.fetch_all(&mut reader.connection).await?;
        self.put_back(reader);
        Row::of_postgres(&rows)
    }

    pub(super) async fn fetch_both(
        &self,
        (sql, values): &Bound,
        then: Then,
    ) -> Result<(Vec<Row>, Vec<Row>), DbError> {
        let _place = self.place().await?;
        let mut reader = self.reader_in_time().await?;
        let connection = &mut reader.connection;
        let begin = AssertSqlSafe("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
        sqlx::raw_sql(begin).execute(&mut *connection).await?;
        let query = bind!(sqlx::query(AssertSqlSafe(sql.as_str())), values);
        let rows = Row::of_postgres(&query.fetch_all(&mut *connection).await?)?;
        let more = match then(&rows)? {
            None => Vec::new(),
            Some((sql, values)) => {
                let query = bind!(sqlx::query(AssertSqlSafe(sql)), &values);
                Row::of_postgres(&query.fetch_all(&mut *connection).await?)?
            }
        };
        sqlx::raw_sql(AssertSqlSafe("COMMIT")).execute(connection).await?;
        self.put_back(reader);
        Ok((rows, more))
    }

    async fn reader_in_time(&self) -> Result<Reader, DbError> {
        let reader = tokio::time::timeout(POSTGRES_TIMEOUT, self.reader()).await;
        Ok(reader.map_err(|_| sqlx::Error::PoolTimedOut)??)
    }

    async fn reader(&self) -> Result<Reader, sqlx::Error> {
        loop {
            let Some(mut reader) = self.idle().pop() else {
                let connection = self.pool.acquire().await?.detach();
                let now = Instant::now();
                return Ok(Reader { connection, made: now, used: now });
            };
            if reader.made.elapsed() > LIFETIME {
                continue;
            }
            if reader.used.elapsed() <= TRUSTED_IDLE || reader.connection.ping().await.is_ok() {
                return Ok(reader);
            }
        }
    }

    fn put_back(&self, mut reader: Reader) {
        reader.used = Instant::now();
        let mut idle = self.idle();
        idle.retain(|it| reader.used.saturating_duration_since(it.used) < IDLE);
        if !self.pool.is_closed() {
            idle.push(reader);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        let _place = self.place().await?;
        let query = bind!(sqlx::query(AssertSqlSafe(sql.to_owned())), values);
        Ok(query.execute(&self.pool).await?.rows_affected())
    }

    pub(super) async fn begin(&self) -> Result<Begun, DbError> {
        let place = self.place().await?;
        Ok(Begun { tx: self.pool.begin().await?, _place: place })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
        let idle = std::mem::take(&mut *self.idle());
        for reader in idle {
            let _ = reader.connection.close().await;
        }
    }
}

/// A transaction and the place of its connection.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(super) tx: Transaction<'static, Postgres>,
    /// Given back after the transaction.
    _place: OwnedSemaphorePermit,
}
