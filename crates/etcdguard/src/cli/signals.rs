//! The first signal asks to end, the second one does not ask.

use tasks::Tasks;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::error::CommandError;

/// Begins the stop of `tasks` at the first signal.
pub(crate) fn listen(tasks: &Tasks) -> Result<(), CommandError> {
    let open = |kind| signal(kind).map_err(CommandError::Start);
    let mut terminate = open(SignalKind::terminate())?;
    let mut interrupt = open(SignalKind::interrupt())?;
    let root = tasks.clone();
    // In a tree of its own: it listens until the very end, and nobody waits for it.
    Tasks::new().spawn_draining("signals", move |_stop| async move {
        either(&mut terminate, &mut interrupt).await;
        tracing::info!("told to end");
        root.begin_stop();
        either(&mut terminate, &mut interrupt).await;
        std::process::exit(1);
    });
    Ok(())
}

async fn either(first: &mut Signal, second: &mut Signal) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
