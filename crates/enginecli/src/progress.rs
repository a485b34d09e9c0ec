//! How far something is, in one line that changes, for somebody who watches a terminal.

use std::future::Future;
use std::time::Duration;

use super::console::Console;
use super::session::Agent;

/// Between two looks at how far something is.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits for `work`, and asks the agent now and then how far it is.
pub(crate) async fn watch<T>(
    work: impl Future<Output = T>,
    mut agent: Agent,
    address: &str,
    console: &mut Console<'_>,
) -> T {
    if !console.shows_progress {
        return work.await;
    }
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        // Not knowing how far it is does not matter to the work.
        if let Ok(status) = agent.replica_rebuild_status(()).await {
            let percent = status.into_inner().progress;
            show(console, &format!("rebuilding {address}: {percent} %"));
        }
    };
    show(console, "");
    done
}

/// Replaces the line the cursor is in.
pub(super) fn show(console: &mut Console<'_>, text: &str) {
    // A terminal that is gone does not matter to the work.
    let _ = write!(console.err, "\r\x1b[K{text}").and_then(|()| console.err.flush());
}
