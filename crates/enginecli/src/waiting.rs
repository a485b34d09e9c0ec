//! Waiting for work that a server does, with how far it is for whoever watches.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::backup_table::flags as b;
use super::console::Console;
use super::error::Error;
use super::parse::Line;
use super::{progress, value};

/// Between two questions.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Where nobody watches a line that changes, a line is written so often.
const WORD_EVERY: Duration = Duration::from_secs(30);

/// What was seen of the work.
#[derive(Debug)]
pub(super) enum Seen<T> {
    /// So many percent of it are done.
    Running(i32),
    Ended(T),
}

/// One wait and its limit.
#[derive(Debug)]
pub(super) struct Waiting<'w> {
    what: &'w str,
    limit: Duration,
}

impl<'w> Waiting<'w> {
    pub(super) fn new(line: &Line, what: &'w str) -> Result<Self, Error> {
        let text = line.flags.text(&b::WAIT_TIMEOUT);
        let limit = value::duration(&text).ok_or_else(|| {
            Error::refused(format!("--wait-timeout: {text:?} is not a time, as in 90s or 12h"))
        })?;
        Ok(Self { what, limit })
    }

    /// Asks until it has ended, cannot be asked, or takes longer than the limit.
    pub(super) async fn until<T>(
        &self,
        console: &mut Console<'_>,
        mut look: impl AsyncFnMut() -> Result<Seen<T>, Error>,
    ) -> Result<T, Error> {
        let begin = Instant::now();
        let mut word = begin;
        let ended = loop {
            match look().await {
                Ok(Seen::Ended(ended)) => break Ok(ended),
                Ok(Seen::Running(_)) if begin.elapsed() > self.limit => {
                    let text = format!(
                        "{} takes longer than --wait-timeout allows; it goes on",
                        self.what
                    );
                    break Err(Error::Refused(text));
                }
                Ok(Seen::Running(percent)) if console.shows_progress => {
                    progress::show(console, &format!("{}: {percent} %", self.what));
                }
                Ok(Seen::Running(percent)) if word.elapsed() > WORD_EVERY => {
                    word = Instant::now();
                    console.log("info", &format!("{}: {percent} %", self.what), &[]);
                }
                Ok(Seen::Running(_)) => {}
                Err(error) => break Err(error),
            }
            sleep(LOOK_EVERY).await;
        };
        if console.shows_progress {
            progress::show(console, "");
        }
        ended
    }
}
