//! `holdfast block-api db …` and `holdfast block-api upgrade check`: what operators do to the
//! database, with the exit codes of the dialect's own tools.

use std::io::Write;

use futures::future::BoxFuture;

use crate::sql::{Db, DbError, SchemaState};
use crate::store::{Store, stamp_in};
use crate::upgrade::{self, SPLIT, UpgradeError};

/// What is done to the database.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum DbCommand {
    /// Bring the schema up to date. Rows stay as they are.
    Sync {
        /// Stop at this revision.
        version: Option<String>,
    },
    /// Print the revision of the schema.
    Version,
    /// Bring rows up to date while services run. 0: nothing is left; 1: call again; 2: it failed.
    #[command(alias = "online_data_migrations")]
    OnlineDataMigrations {
        /// At most this many rows; all without it.
        #[arg(long, alias = "max_count", value_name = "N", allow_hyphen_values = true)]
        max_count: Option<i64>,
        /// For a way back: put both status fields into one again. Stop services of this release
        /// first.
        #[arg(long)]
        revert: bool,
    },
    /// Forget a service that is gone for good, so that it no longer keeps rows from being migrated.
    RemoveService {
        /// As `upgrade check` names it, after the @.
        host: String,
        /// As `upgrade check` names it, before the @.
        binary: String,
    },
    /// Remove rows that were deleted some days ago.
    Purge {
        /// Days.
        age_in_days: i64,
    },
}

/// What is checked.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum UpgradeCommand {
    /// Whether this release can do its work on the database. 0: yes; 1: with warnings; 2: no.
    Check,
}

const MISUSE: u8 = 127;
const FAILED: u8 = 2;

/// Runs a command on the database; its exit code. Boxed: whoever waits for it would otherwise compile
/// the database anew.
pub fn db<'a>(
    address: &'a str,
    command: &'a DbCommand,
    out: &'a mut (dyn Write + Send),
) -> BoxFuture<'a, Result<u8, DbError>> {
    Box::pin(run(address, command, out))
}

async fn run(
    address: &str,
    command: &DbCommand,
    out: &mut (dyn Write + Send),
) -> Result<u8, DbError> {
    let migrates = matches!(command, DbCommand::OnlineDataMigrations { .. });
    match run_on(address, command, out).await {
        // Neither "call again" nor a mere warning.
        Err(error) if migrates => {
            say(out, &format!("Error attempting to run {SPLIT}: {}", telemetry::Chain(&error)));
            Ok(FAILED)
        }
        other => other,
    }
}

async fn run_on(
    address: &str,
    command: &DbCommand,
    out: &mut (dyn Write + Send),
) -> Result<u8, DbError> {
    let db = Db::open(address).await?;
    let store = Store::new(db.clone());
    let code = match command {
        DbCommand::Sync { version } => sync(&db, version.as_deref(), out).await?,
        DbCommand::Version => {
            say(out, &db.revision().await?.unwrap_or_else(|| "none".to_owned()));
            0
        }
        DbCommand::OnlineDataMigrations { revert: true, .. } => {
            let joined = upgrade::join(&store).await?;
            say(out, &format!("{joined} volumes keep both states in one field again"));
            0
        }
        DbCommand::OnlineDataMigrations { max_count, .. } => migrate(&store, *max_count, out).await,
        DbCommand::RemoveService { host, binary } => {
            let gone = store.remove_service(host, binary).await?;
            say(out, if gone { "removed" } else { "there is no such service" });
            u8::from(!gone)
        }
        DbCommand::Purge { age_in_days } => {
            if *age_in_days < 0 {
                say(out, "Must supply a positive value for age in days.");
                return Ok(1);
            }
            let before = stamp_in(-age_in_days.saturating_mul(24 * 3600));
            say(out, &format!("{} rows removed", upgrade::purge(&store, &before).await?));
            0
        }
    };
    db.close().await;
    Ok(code)
}

fn say(out: &mut (dyn Write + Send), line: &str) {
    // A reader that went away changes nothing about what was done.
    let _ = writeln!(out, "{line}");
}

async fn sync(db: &Db, version: Option<&str>, out: &mut (dyn Write + Send)) -> Result<u8, DbError> {
    let taken = db.sync(version).await?;
    for step in &taken {
        say(out, &format!("applied {step}"));
    }
    if taken.is_empty() {
        say(out, "nothing to do");
    }
    Ok(0)
}

async fn migrate(store: &Store, max_count: Option<i64>, out: &mut (dyn Write + Send)) -> u8 {
    if max_count.is_some_and(|it| it < 1) {
        say(out, "Must supply a positive value for max_count.");
        return MISUSE;
    }
    match upgrade::split(store, max_count.unwrap_or(i64::MAX)).await {
        Ok((found, done)) => {
            say(out, &format!("{found} rows matched query {SPLIT}, {done} migrated"));
            say(out, &format!("{:<50} {:>12} {:>10}", "Migration", "Total Needed", "Completed"));
            say(out, &format!("{SPLIT:<50} {found:>12} {done:>10}"));
            u8::from(max_count.is_some() && done > 0)
        }
        Err(error) => {
            say(out, &format!("Error attempting to run {SPLIT}: {}", telemetry::Chain(&error)));
            FAILED
        }
    }
}

/// Looks whether this release can work on a database; the exit code.
pub fn check<'a>(
    address: &'a str,
    out: &'a mut (dyn Write + Send),
) -> BoxFuture<'a, Result<u8, DbError>> {
    Box::pin(async move {
        Ok(match look(address, out).await {
            Ok(code) => code,
            Err(error) => {
                say(out, &format!("Database: Failure: {}", telemetry::Chain(&error)));
                FAILED
            }
        })
    })
}

async fn look(address: &str, out: &mut (dyn Write + Send)) -> Result<u8, DbError> {
    let db = Db::open(address).await?;
    let store = Store::new(db.clone());
    let state = db.schema_state().await?;
    if !matches!(state, SchemaState::Head | SchemaState::Ahead(_)) {
        say(out, &format!("Schema: Failure: {state:?}; run `holdfast block-api db sync`"));
        return Ok(FAILED);
    }
    say(out, "Schema: Success");
    let mut code = 0;
    let rows = upgrade::old_rows(&store).await?;
    if rows > 0 {
        say(
            out,
            &format!(
                "Volumes: Failure: {rows} keep a backup's state in status; run `holdfast block-api db \
                 online-data-migrations`"
            ),
        );
        code = FAILED;
    } else {
        say(out, "Volumes: Success");
    }
    let old = upgrade::old_services(&store).await?;
    if old.is_empty() {
        say(out, "Services: Success");
    } else {
        let error = UpgradeError::OldServices { count: old.len(), names: old.join(", ") };
        say(out, &format!("Services: Warning: {error}"));
        code = code.max(1);
    }
    db.close().await;
    Ok(code)
}
