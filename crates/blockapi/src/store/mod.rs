//! The rows: reading them whole, changing them by compare-and-set. Every method that is given a
//! project sees that project's rows only.

pub(crate) mod attachments;
pub(crate) mod backups;
pub(crate) mod guard;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod messages;
pub(crate) mod qos;
mod rows;
pub(crate) mod services;
pub(crate) mod snapshots;
pub(crate) mod statement;
pub(crate) mod transfers;
pub(crate) mod types;
pub(crate) mod volumes;
pub(crate) mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sql::{Db, DbError, Row, Tx};

pub(crate) type Metadata = BTreeMap<String, String>;

/// All the rows of one database.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) db: Db,
    /// Services of the release before run beside this one: write what they understand.
    pinned: Arc<AtomicBool>,
    /// How often work was added, for workers of this process.
    added: tokio::sync::watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new(db: Db) -> Self {
        let (added, _) = tokio::sync::watch::channel(0);
        Self { db, pinned: Arc::default(), added }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pinned(&self, pinned: bool) {
        self.pinned.store(pinned, Ordering::Relaxed);
    }

    /// Tells workers of this process that there is work.
    pub(crate) fn wake(&self) {
        self.added.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn work_added(&self) -> tokio::sync::watch::Receiver<u64> {
        self.added.subscribe()
    }

    /// A transaction that holds one volume.
    pub(crate) async fn on_volume(&self, id: &str) -> Result<Tx, DbError> {
        let mut tx = self.db.begin().await?;
        tx.lock("volumes", id).await?;
        Ok(tx)
    }
}

/// Now, as columns keep it.
pub(crate) fn now() -> String {
    stamp(jiff::Timestamp::now())
}

/// A time as columns keep it: UTC, microseconds, a fixed width, so that text sorts by time.
pub(crate) fn stamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// The next time after one that a column can tell from it; itself if it cannot be read.
pub(crate) fn just_after(time: &str) -> String {
    let read = time.parse::<jiff::civil::DateTime>().ok();
    let next = read.and_then(|it| it.checked_add(jiff::SignedDuration::from_micros(1)).ok());
    next.map_or_else(|| time.to_owned(), |it| it.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string())
}

/// How many seconds ago a time of a column was; none if it cannot be read.
pub(crate) fn seconds_since(stamp: &str) -> i64 {
    let time = stamp.parse::<jiff::civil::DateTime>().ok();
    let time = time.and_then(|it| it.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map_or(0, |it| jiff::Timestamp::now().duration_since(it.timestamp()).as_secs())
}

/// A time some seconds from now.
pub(crate) fn stamp_in(seconds: i64) -> String {
    let now = jiff::Timestamp::now();
    let end = if seconds < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    stamp(now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(end))
}

pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, it| {
        use std::fmt::Write as _;
        let _ = write!(text, "{it:02x}");
        text
    })
}

/// Rows of (owner, key, value) by their owner.
pub(crate) fn by_owner(rows: &[Row], owner: &str) -> Result<BTreeMap<String, Metadata>, DbError> {
    let mut found: BTreeMap<String, Metadata> = BTreeMap::new();
    for row in rows {
        let entry = found.entry(row.text(owner)?).or_default();
        entry.insert(row.text("key")?, row.text("value")?);
    }
    Ok(found)
}

/// Tables of keys and values, and the column that says whose they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pairs {
    Volume,
    VolumeAdmin,
    VolumeImage,
    Snapshot,
    Backup,
    Qos,
    Type,
}

impl Pairs {
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Volume => ("volume_metadata", "volume_id"),
            Self::VolumeAdmin => ("volume_admin_metadata", "volume_id"),
            Self::VolumeImage => ("volume_glance_metadata", "volume_id"),
            Self::Snapshot => ("snapshot_metadata", "snapshot_id"),
            Self::Backup => ("backup_metadata", "backup_id"),
            Self::Qos => ("qos_spec_values", "qos_specs_id"),
            Self::Type => ("volume_type_extra_specs", "volume_type_id"),
        }
    }

    pub(crate) async fn put(
        self,
        tx: &mut Tx,
        owner: &str,
        pairs: &Metadata,
    ) -> Result<(), DbError> {
        let (table, column) = self.names();
        let sql = format!(
            "INSERT INTO {table} ({column}, key, value) VALUES ($1, $2, $3) \
             ON CONFLICT ({column}, key) DO UPDATE SET value = excluded.value"
        );
        for (key, value) in pairs {
            tx.execute(&sql, &[owner.into(), key.into(), value.into()]).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove(self, tx: &mut Tx, owner: &str, key: &str) -> Result<bool, DbError> {
        let (table, column) = self.names();
        let sql = format!("DELETE FROM {table} WHERE {column} = $1 AND key = $2");
        Ok(tx.execute(&sql, &[owner.into(), key.into()]).await? > 0)
    }

    pub(crate) async fn clear(self, tx: &mut Tx, owner: &str) -> Result<(), DbError> {
        let (table, column) = self.names();
        let sql = format!("DELETE FROM {table} WHERE {column} = $1");
        tx.execute(&sql, &[owner.into()]).await.map(drop)
    }

    pub(crate) async fn get_in(self, tx: &mut Tx, owner: &str) -> Result<Metadata, DbError> {
        let (table, column) = self.names();
        let sql = format!("SELECT {column}, key, value FROM {table} WHERE {column} = $1");
        let rows = tx.fetch(&sql, &[owner.into()]).await?;
        Ok(by_owner(&rows, column)?.remove(owner).unwrap_or_default())
    }

    pub(crate) async fn get(self, store: &Store, owner: &str) -> Result<Metadata, DbError> {
        Ok(self.get_all(store, [owner]).await?.remove(owner).unwrap_or_default())
    }

    /// Of many owners, by one statement.
    pub(crate) async fn get_all<'a>(
        self,
        store: &Store,
        owners: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, Metadata>, DbError> {
        let (table, column) = self.names();
        let mut sql = statement::Statement::new(&format!(
            "SELECT {column}, key, value FROM {table} WHERE {column} IN "
        ));
        sql.bind_list(owners);
        let rows = store.db.fetch(&sql.text, &sql.values).await?;
        by_owner(&rows, column)
    }
}
