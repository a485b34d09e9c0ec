//! A long operation on a store that somebody waits for: it says what it waits for and how far it is,
//! and a signal ends it in order, so that it leaves no lock and no temporary file behind.

use std::future::Future;
use std::io;

use backupstore::{Control, Locked, Wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::console::Console;
use super::error::Error;
use super::progress::{self, LOOK_EVERY};

/// Waits for `work`, which `control` watches and ends. The first signal cancels it; a second one
/// does not wait for it any more.
pub(super) async fn watched<T>(
    what: &str,
    control: &Control,
    console: &mut Console<'_>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut stops = Stops::listen().map_err(Error::Start)?;
    let mut waits_for = control.waits_for();
    let mut work = std::pin::pin!(work);
    let mut stopped = None;
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done,
            signal = stops.next() => {
                if stopped.is_some() {
                    return Err(Error::Interrupted { signal });
                }
                stopped = Some(signal);
                control.cancel();
            }
            Ok(()) = waits_for.changed() => {
                let wait = waits_for.borrow_and_update().clone();
                tell(wait.as_ref(), console);
            }
            () = tokio::time::sleep(LOOK_EVERY), if console.shows_progress => {
                progress::show(console, &format!("{what}: {} %", control.percent()));
            }
        }
    };
    if console.shows_progress {
        progress::show(console, "");
    }
    match (done, stopped) {
        // What was finished is finished, whoever wanted it stopped.
        (Ok(done), _) => Ok(done),
        (Err(_), Some(signal)) => Err(Error::Interrupted { signal }),
        (Err(error), None) => Err(error),
    }
}

fn tell(wait: Option<&Wait>, console: &mut Console<'_>) {
    let Some(wait) = wait else { return };
    if console.shows_progress {
        progress::show(console, "");
    }
    let locked = match wait {
        Wait::Lock(locked) => locked,
        Wait::Calls { .. } => return console.log("info", &wait.to_string(), &[]),
    };
    let Locked { holder, holder_kind, renewed, until, path, .. } = locked;
    let kind = holder_kind.number().to_string();
    console.log(
        "info",
        "waiting for a lock",
        &[
            ("lock", path),
            ("holder", holder),
            ("type", &kind),
            ("renewed", &renewed.to_string()),
            ("until", &until.to_string()),
        ],
    );
}

/// The signals by which people and their tools end a command.
struct Stops {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stops {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Its number.
    async fn next(&mut self) -> u8 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or(u8::MAX)
    }
}
