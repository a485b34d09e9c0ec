//! Waiting for an object to become what was asked for, with a word on how far it is.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use futures::TryStreamExt as _;
use kube::Api;
use kube::runtime::watcher::{self, watch_object};

use crate::listing::Object;
use crate::output::Hint;
use people::units::parse_duration;

#[derive(Debug, Clone, clap::Args)]
pub struct Wait {
    /// Wait until it is done, and show the progress.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait at most, for example 90s, 10m or 1h; a bare number is seconds.
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
        let watch = || watch_object(api.clone(), name);
        let mut changes = std::pin::pin!(watch());
        let watching = async {
            let mut is_known = false;
            loop {
                let object = tokio::select! {
                    object = changes.try_next() => object,
                    seen = after(EVERY, beside) => {
                        if let Some((percent, how)) = seen {
                            progress.part(percent, &how);
                        }
                        continue;
                    }
                };
                let object = match object {
                    Ok(Some(object)) => object,
                    Ok(None) => anyhow::bail!("the watch of {kind} {name} ended"),
                    Err(error) if is_known && passes(&error) => {
                        // From the beginning: what went on from a history that is gone would never end.
                        tokio::time::sleep(EVERY).await;
                        changes.set(watch());
                        continue;
                    }
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("cannot wait for {kind} {name}"));
                    }
                };
                is_known = true;
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

/// Whether a server that answered before may answer again: it is away, or started anew and has another
/// history.
fn passes(error: &watcher::Error) -> bool {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let code = match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => status.code,
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) => return true,
        NoResourceVersion => return false,
    };
    matches!(code, 408 | 410 | 429) || code >= 500
}

/// How often another object is asked, and a server that is away.
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
    use std::sync::{Arc, Mutex};

    use api::longhorn::Volume;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// What a server answers to one request: to a list, or to a watch.
    enum Answer {
        Label(&'static str),
        Code(u16),
        Gone,
    }

    /// A server of one volume, whose label says how it stands. When it has no more to answer, it answers
    /// nothing.
    fn server(answers: Vec<Answer>) -> Api<Volume> {
        let answers = Arc::new(Mutex::new(answers.into_iter()));
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let answer = answers.lock().unwrap().next();
            async move {
                let failed = |code: u16| {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": code, "message": "no", "reason": "x"})
                };
                let (code, body): (u16, Value) = match answer {
                    None => std::future::pending().await,
                    Some(Answer::Gone) => return Err(std::io::Error::other("connection refused")),
                    Some(Answer::Code(code)) => (code, failed(code)),
                    Some(Answer::Label(stand)) => (
                        200,
                        json!({
                            "apiVersion": "longhorn.io/v1beta2", "kind": "VolumeList",
                            "metadata": {"resourceVersion": "5"},
                            "items": [{"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
                                "metadata": {"name": "v", "labels": {"stand": stand}}, "spec": {}}],
                        }),
                    ),
                };
                let body = Body::from(body.to_string().into_bytes());
                Ok(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Api::namespaced(kube::Client::new(service, "n"), "n")
    }

    async fn waited(answers: Vec<Answer>) -> anyhow::Result<()> {
        let api = server(answers);
        let wait = Wait::up_to(Duration::from_mins(10));
        wait.until(&api, "v", |it| {
            let labels = it.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
            match labels.get("stand").map(String::as_str) {
                Some("done") => Stand::Done,
                _ => Stand::Going("going".to_owned()),
            }
        })
        .await
    }

    /// As when a server is started anew: its history is not what it was, and for a while nobody listens.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_for_a_while_ends_no_wait() {
        use Answer::{Code, Gone, Label};
        waited(vec![Label("going"), Code(410), Gone, Gone, Code(503), Label("done")])
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_where_there_is_nothing_to_wait_for() {
        use Answer::{Code, Gone, Label};
        // Nobody was ever there.
        waited(vec![Gone]).await.unwrap_err();
        let told = waited(vec![Label("going"), Code(403)]).await.unwrap_err();
        assert!(told.to_string().contains("cannot wait for volume v"), "{told}");
        let told = waited(vec![Label("going")]).await.unwrap_err();
        assert!(told.to_string().contains("was not done after 600 s (going)"), "{told}");
    }

    #[test]
    fn a_bar_is_as_wide_as_any_other() {
        assert_eq!(bar(0), "[░░░░░░░░░░░░░░░░░░░░]   0 %");
        assert_eq!(bar(55), "[███████████░░░░░░░░░]  55 %");
        for percent in [-5, 0, 1, 99, 100, 250] {
            assert_eq!(bar(percent).chars().count(), CELLS + 8, "{percent}");
        }
    }
}
