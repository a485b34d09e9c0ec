//! The processes that serve: their log, their runtime, their end.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::time::Duration;

use engine::ControllerOptions;
use replica::agent::AgentOptions;
use replica::server::ReplicaOptions;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::error::Error;
use super::{log, reach};

/// Threads beside the one that does the I/O: they serve control calls and copy files.
const REPLICA_WORKERS: usize = 2;

pub(crate) fn controller(
    options: ControllerOptions,
    wait: Duration,
    debug: bool,
) -> Result<(), Error> {
    // Control calls only: the volume has a thread of its own.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let ended = runtime.block_on(Box::pin(async {
        let log = log::install(debug, "holdfast-engine");
        reach::replicas(&options.replicas, wait).await;
        let ended = engine::control::run(options).await;
        log::end(log).await;
        ended
    }));
    leave(runtime);
    ended.map_err(|error| Error::Server { exit_code: error.exit_code(), text: chain(&error) })
}

pub(crate) fn replica(options: ReplicaOptions, debug: bool) -> Result<(), Error> {
    let runtime = workers()?;
    let ended = runtime.block_on(Box::pin(async {
        let log = log::install(debug, "holdfast-replica");
        check_directory(&options.dir)?;
        let ended = replica::server::run(options).await.map_err(failed);
        log::end(log).await;
        ended
    }));
    leave(runtime);
    ended
}

pub(crate) fn sync_agent(options: AgentOptions, debug: bool) -> Result<(), Error> {
    let runtime = workers()?;
    let ended = runtime.block_on(Box::pin(async {
        let _log = log::install(debug, "holdfast-sync-agent");
        let stop = CancellationToken::new();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
        let mut served = std::pin::pin!(replica::agent::run(options, stop.clone()));
        tokio::select! {
            _ = interrupt.recv() => stop.cancel(),
            _ = terminate.recv() => stop.cancel(),
            ended = &mut served => return ended.map_err(failed),
        }
        served.await.map_err(failed)
    }));
    leave(runtime);
    ended
}

/// A replica that cannot write where its files belong has nothing to serve, now or later.
fn check_directory(dir: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| {
        let text = format!("cannot use the directory {}: {error}", dir.display());
        Error::Server { exit_code: 1, text }
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let probe = dir.join(format!(".probe-{}", Uuid::new_v4()));
    std::fs::File::create_new(&probe).map_err(failed)?;
    std::fs::remove_file(&probe).map_err(failed)
}

fn workers() -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(REPLICA_WORKERS).enable_all().build().map_err(Error::Start)
}

/// Does not wait for threads that are stuck in a system call: the process ends now.
fn leave(runtime: Runtime) {
    runtime.shutdown_background();
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn failed(error: impl StdError) -> Error {
    Error::Server { exit_code: 1, text: chain(&error) }
}

/// An error with its causes, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        // Some texts have that of their cause in them.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = deeper.source();
    }
    text
}
