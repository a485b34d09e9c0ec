//! The processes that serve: their log, their runtime, their end.

use std::error::Error as StdError;

use replica::agent::AgentOptions;
use replica::server::ReplicaOptions;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::log;
use crate::ControllerOptions;

pub(crate) fn controller(options: ControllerOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    // One thread: an operation never changes threads on its way.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let ended = runtime.block_on(crate::control::run(options));
    leave(runtime);
    ended.map_err(|error| Error::Server { exit_code: error.exit_code(), text: chain(&error) })
}

pub(crate) fn replica(options: ReplicaOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let ended = runtime.block_on(replica::server::run(options));
    leave(runtime);
    ended.map_err(failed)
}

pub(crate) fn sync_agent(options: AgentOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Error::Start)?;
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
        let served = replica::agent::run(options, stop.clone());
        let mut served = std::pin::pin!(served);
        tokio::select! {
            _ = interrupt.recv() => stop.cancel(),
            _ = terminate.recv() => stop.cancel(),
            ended = &mut served => return ended.map_err(failed),
        }
        served.await.map_err(failed)
    });
    leave(runtime);
    ended
}

/// Does not wait for threads that are stuck in a system call: the process ends now.
fn leave(runtime: Runtime) {
    runtime.shutdown_background();
}

fn failed(error: impl StdError) -> Error {
    Error::Server { exit_code: 1, text: chain(&error) }
}

/// An error with its causes, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = deeper.source();
    }
    text
}
