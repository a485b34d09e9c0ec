//! Waiting for an object to become what was asked for, with a word on how far it is.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;

use crate::listing::Object;
use crate::output::Hint;
use people::units::parse_duration;

#[derive(Debug, Clone, clap::Args)]
pub struct Wait {
    /// Stay until it is done, and say how far it is.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to stay at most, as 90s, 10m or 1h; a bare number is seconds.
    #[arg(long, value_name = "DURATION", default_value = "10m", requires = "wait")]
    #[arg(value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

impl Wait {
    /// Ask, and stay for nothing.
    pub(crate) const NOT: Self = Self { wait: false, timeout: Duration::ZERO };

    /// Stay, but no longer than that.
    pub(crate) const fn up_to(timeout: Duration) -> Self {
        Self { wait: true, timeout }
    }
}

/// How an object stands, measured by what is waited for.
pub(crate) enum Stand {
    Done,
    /// How far it is, in a few words.
    Going(String),
    /// How much of it is done, in percent.
    Part(i32, String),
    Failed(String),
}

impl Stand {
    /// With how much is done, where that is known.
    pub(crate) fn part(percent: Option<i32>, how: String) -> Self {
        match percent {
            Some(percent) => Self::Part(percent, how),
            None => Self::Going(how),
        }
    }
}

/// What says how far something is while its own object does not: asked once a second.
pub(crate) trait Beside {
    async fn look(&self) -> Option<(i32, String)>;
}

struct Nobody;

impl Beside for Nobody {
    async fn look(&self) -> Option<(i32, String)> {
        std::future::pending().await
    }
}

impl Wait {
    /// `None` is an object that is not there.
    pub(crate) async fn until<K: Object>(
        &self,
        api: &Api<K>,
        name: &str,
        stand: impl Fn(Option<&K>) -> Stand,
    ) -> anyhow::Result<()> {
        self.until_seen(api, name, stand, &Nobody).await
    }

    /// The same, where another object knows how far it is.
    pub(crate) async fn until_seen<K: Object>(
        &self,
        api: &Api<K>,
        name: &str,
        stand: impl Fn(Option<&K>) -> Stand,
        beside: &impl Beside,
    ) -> anyhow::Result<()> {
        if !self.wait {
            return Ok(());
        }
        let kind = K::kind(&()).to_lowercase();
        let mut progress = Progress::new(format!("{kind} {name}"));
        let mut changes = std::pin::pin!(watch_object(api.clone(), name).default_backoff());
        let watching = async {
            loop {
                let object = tokio::select! {
                    object = changes.try_next() => object?,
                    seen = after(EVERY, beside) => {
                        if let Some((percent, how)) = seen {
                            progress.part(percent, &how);
                        }
                        continue;
                    }
                };
                let Some(object) = object else {
                    anyhow::bail!("the watch of {kind} {name} ended");
                };
                match stand(object.as_ref()) {
                    Stand::Done => return Ok(()),
                    Stand::Going(how) => progress.say(&how),
                    Stand::Part(percent, how) => progress.part(percent, &how),
                    Stand::Failed(why) => anyhow::bail!("{kind} {name}: {why}"),
                }
            }
        };
        let result = tokio::time::timeout(self.timeout, watching).await;
        progress.end();
        if let Ok(ended) = result {
            return ended;
        }
        let (seconds, last) = (self.timeout.as_secs(), progress.last);
        let last = if last.is_empty() { last } else { format!(" ({last})") };
        Err(anyhow::anyhow!("{kind} {name} was not done after {seconds} s{last}"))
            .hint("it goes on by itself; look with `holdfast status`")
    }
}

/// How often another object is asked.
const EVERY: Duration = Duration::from_secs(1);

async fn after(pause: Duration, beside: &impl Beside) -> Option<(i32, String)> {
    tokio::time::sleep(pause).await;
    beside.look().await
}

/// One line on a terminal that is written over, a line for each change elsewhere.
pub(crate) struct Progress {
    what: String,
    last: String,
    terminal: bool,
}

/// How wide a bar is.
const CELLS: usize = 20;

impl Progress {
    pub(crate) fn new(what: String) -> Self {
        Self { what, last: String::new(), terminal: std::io::stderr().is_terminal() }
    }

    pub(crate) fn say(&mut self, how: &str) {
        self.draw(how, "");
    }

    pub(crate) fn part(&mut self, percent: i32, how: &str) {
        let bar = if self.terminal { bar(percent) + " " } else { String::new() };
        self.draw(how, &bar);
    }

    fn draw(&mut self, how: &str, bar: &str) {
        if how == self.last {
            return;
        }
        how.clone_into(&mut self.last);
        let how = crate::output::plain(how);
        let mut out = std::io::stderr().lock();
        // A reader that is gone has seen enough; the work is not about this line.
        let _ = if self.terminal {
            write!(out, "\r\x1b[K{bar}{}: {how}", self.what).and_then(|()| out.flush())
        } else {
            writeln!(out, "{}: {how}", self.what)
        };
    }

    pub(crate) fn end(&self) {
        if self.terminal && !self.last.is_empty() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn bar(percent: i32) -> String {
    let share = usize::try_from(percent.clamp(0, 100)).unwrap_or(0);
    let done = share * CELLS / 100;
    format!("[{}{}] {share:>3} %", "█".repeat(done), "░".repeat(CELLS - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_wide_as_any_other() {
        assert_eq!(bar(0), "[░░░░░░░░░░░░░░░░░░░░]   0 %");
        assert_eq!(bar(55), "[███████████░░░░░░░░░]  55 %");
        for percent in [-5, 0, 1, 99, 100, 250] {
            assert_eq!(bar(percent).chars().count(), CELLS + 8, "{percent}");
        }
    }
}
