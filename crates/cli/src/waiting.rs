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
    Failed(String),
}

impl Wait {
    /// `None` is an object that is not there.
    pub(crate) async fn until<K: Object>(
        &self,
        api: &Api<K>,
        name: &str,
        stand: impl Fn(Option<&K>) -> Stand,
    ) -> anyhow::Result<()> {
        if !self.wait {
            return Ok(());
        }
        let kind = K::kind(&()).to_lowercase();
        let mut progress = Progress::new(format!("{kind} {name}"));
        let mut changes = std::pin::pin!(watch_object(api.clone(), name).default_backoff());
        let watching = async {
            while let Some(object) = changes.try_next().await? {
                match stand(object.as_ref()) {
                    Stand::Done => return Ok(()),
                    Stand::Going(how) => progress.say(&how),
                    Stand::Failed(why) => anyhow::bail!("{kind} {name}: {why}"),
                }
            }
            anyhow::bail!("the watch of {kind} {name} ended")
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

/// One line on a terminal that is written over, a line for each change elsewhere.
struct Progress {
    what: String,
    last: String,
    terminal: bool,
}

impl Progress {
    fn new(what: String) -> Self {
        Self { what, last: String::new(), terminal: std::io::stderr().is_terminal() }
    }

    fn say(&mut self, how: &str) {
        if how == self.last {
            return;
        }
        how.clone_into(&mut self.last);
        let how = crate::output::plain(how);
        let mut out = std::io::stderr().lock();
        // A reader that is gone has seen enough; the work is not about this line.
        let _ = if self.terminal {
            write!(out, "\r\x1b[K{}: {how}", self.what).and_then(|()| out.flush())
        } else {
            writeln!(out, "{}: {how}", self.what)
        };
    }

    fn end(&self) {
        if self.terminal && !self.last.is_empty() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
