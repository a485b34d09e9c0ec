//! Waiting, with a limit, until servers listen that were started a moment ago.

use std::time::Duration;

use futures::future::join_all;
use rpc::Address;
use tokio::time::{Instant, sleep, timeout_at};

use super::console::Console;
use super::error::Error;
use super::parse::Line;
use super::session::Session;
use super::table::global;

/// Between two attempts to connect.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Whoever is there sooner is not worth a word.
const QUIET_FOR: Duration = Duration::from_millis(500);

/// Waits for the replicas of a volume, all at once. Those that do not come are left to the start of
/// the volume, which says what becomes of it without them.
pub(crate) async fn replicas(given: &[String], limit: Duration) {
    let addresses = given.iter().filter_map(|text| text.parse::<Address>().ok());
    let waits = addresses.map(|address| async move {
        let told = || tracing::info!(replica = %address, limit_s = limit.as_secs(), "waiting for a replica that does not listen yet");
        if !listens(&address, limit, told).await {
            tracing::warn!(
                replica = %address,
                "a replica did not listen within {} s (--replica-wait)",
                limit.as_secs()
            );
        }
    });
    if !limit.is_zero() {
        join_all(waits).await;
    }
}

/// Waits for one replica that a command is about to add.
pub(super) async fn replica(address: &str, limit: Duration, console: &mut Console<'_>) {
    let Ok(parsed) = address.parse::<Address>() else { return };
    if !limit.is_zero() {
        let told = || console.log("info", "waiting for the replica", &[("address", address)]);
        listens(&parsed, limit, told).await;
    }
}

/// Waits for the controller that a command asks, as long as `--connect-wait` says. Whoever did not
/// come is found missing by the command itself.
pub(super) async fn controller(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let seconds = u64::try_from(line.globals.integer(&global::CONNECT_WAIT));
    let seconds = seconds.map_err(|_| Error::refused("--connect-wait is negative"))?;
    let address = session.controller_address();
    let limit = Duration::from_secs(seconds);
    if seconds > 0 {
        let url = format!("http://{address}");
        let told = || console.log("info", "waiting for the controller", &[("url", &url)]);
        listens(address, limit, told).await;
    }
    Ok(())
}

/// Whether somebody listens there within the limit. Tells if it takes a while.
async fn listens(address: &Address, limit: Duration, told: impl FnOnce()) -> bool {
    let begin = Instant::now();
    let mut told = Some(told);
    loop {
        let end = begin.checked_add(limit).unwrap_or(begin);
        match timeout_at(end, rpc::dial((address.host(), address.port()))).await {
            Ok(Ok(_)) => return true,
            Ok(Err(_)) if Instant::now() < end => {}
            Ok(Err(_)) | Err(_) => return false,
        }
        if begin.elapsed() > QUIET_FOR
            && let Some(told) = told.take()
        {
            told();
        }
        sleep(AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_waited_for_beyond_the_limit() {
        let port = testkit::process::free_port().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = Address::new("127.0.0.1", port);
        assert!(listens(&address, Duration::from_mins(1), || ()).await);
        drop(listener);
        assert!(!listens(&address, Duration::from_millis(20), || ()).await);
    }

    #[tokio::test]
    async fn one_that_comes_late_is_found_and_told_of() {
        let port = testkit::process::free_port().unwrap();
        let wanted = Address::new("127.0.0.1", port);
        let mut late = None;
        // It begins to listen when it is said that it does not.
        let told = || late = Some(std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
        assert!(listens(&wanted, Duration::from_mins(1), told).await);
        assert!(late.is_some());
    }
}
