//! `/livez`, `/readyz` and `/healthz`: what a probe is told, by all checks or by one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::request::Query;
use crate::server::Server;
use crate::store::Condition;

/// What a prober asks: is it to be started again, is it to be sent requests, or both at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    Live,
    Ready,
    /// The oldest of the three.
    Health,
}

/// One thing that is looked at. The names are those of kube-apiserver, where it has the same check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// An answer at all says that the server lives.
    Ping,
    /// The thread of the audit log.
    Log,
    /// The store, which stands where others have an etcd.
    Store,
    /// Whether it is about to end.
    Shutdown,
}

/// What the checks look at, seen once for all of them.
#[derive(Debug, Clone, Copy)]
struct Seen {
    store: Condition,
    is_logging: bool,
    is_stopping: bool,
}

impl Probe {
    fn parse(name: &str) -> Option<Self> {
        [Self::Live, Self::Ready, Self::Health].into_iter().find(|probe| probe.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Live => "livez",
            Self::Ready => "readyz",
            Self::Health => "healthz",
        }
    }

    fn checks(self) -> &'static [Check] {
        match self {
            Self::Live | Self::Health => &[Check::Ping, Check::Log, Check::Store],
            Self::Ready => &[Check::Ping, Check::Log, Check::Store, Check::Shutdown],
        }
    }
}

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Log => "log",
            Self::Store => "etcd",
            Self::Shutdown => "shutdown",
        }
    }

    /// What keeps this check from passing.
    fn trouble(self, probe: Probe, seen: Seen) -> Option<String> {
        match self {
            Self::Ping => None,
            Self::Log => {
                (!seen.is_logging).then(|| "the thread of the audit log has ended".to_owned())
            }
            Self::Store => store_trouble(probe, seen.store),
            Self::Shutdown => seen.is_stopping.then(|| "the process is shutting down".to_owned()),
        }
    }
}

fn store_trouble(probe: Probe, condition: Condition) -> Option<String> {
    match condition {
        Condition::Well | Condition::Full => None,
        Condition::Ended => Some("the writer has ended".to_owned()),
        // To be started again would not help, and would end what can still be read.
        Condition::Failing | Condition::Hanging(_) if probe == Probe::Live => None,
        Condition::Failing => Some("the last commit failed".to_owned()),
        Condition::Hanging(time) => {
            Some(format!("the disk has not answered for {} s", time.as_secs()))
        }
    }
}

pub(crate) fn is_probe(path: &str) -> bool {
    Probe::parse(path.trim_start_matches('/').split('/').next().unwrap_or_default()).is_some()
}

/// The answer to a probe of all checks (`/readyz`) or of one (`/readyz/etcd`); none if there is no
/// such check.
pub(crate) fn answer(server: &Server, query: &Query, segments: &[&str]) -> Option<Response> {
    let (name, rest) = segments.split_first()?;
    let probe = Probe::parse(name)?;
    let check = match rest {
        [] => None,
        rest => {
            let name = rest.join("/");
            Some(*probe.checks().iter().find(|check| check.name() == name)?)
        }
    };
    let seen = Seen {
        store: server.store.condition(),
        is_logging: server.audit.as_ref().is_none_or(crate::auth::audit::AuditLog::is_writing),
        is_stopping: server.tasks.stop_signal().is_stopping(),
    };
    if seen.store == Condition::Failing {
        // Nobody may write to a server that says it is not ready, so this is a reason to try.
        server.store.recover();
    }
    let (passed, text) = match check {
        Some(check) => tell_one(probe, check, seen),
        None => tell_all(probe, query, seen),
    };
    Some(plain_text(passed, text))
}

fn tell_one(probe: Probe, check: Check, seen: Seen) -> (bool, String) {
    match check.trouble(probe, seen) {
        None => (true, "ok".to_owned()),
        Some(why) => (false, format!("internal server error: {why}\n")),
    }
}

/// One line a check, if one failed or the caller wants to see them.
fn tell_all(probe: Probe, query: &Query, seen: Seen) -> (bool, String) {
    let mut excluded: BTreeSet<&str> =
        query.all("exclude").flat_map(|names| names.split(',')).collect();
    excluded.remove("");
    let mut lines = String::new();
    let mut passed = true;
    for check in probe.checks() {
        let name = check.name();
        let verdict = if excluded.remove(name) {
            format!("[+]{name} excluded: ok")
        } else if let Some(why) = check.trouble(probe, seen) {
            passed = false;
            format!("[-]{name} failed: {why}")
        } else if *check == Check::Store && seen.store == Condition::Full {
            format!("[+]{name} ok, full: only deletions are written")
        } else {
            format!("[+]{name} ok")
        };
        lines.push_str(&verdict);
        lines.push('\n');
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(", ")
        );
    }
    if passed && query.all("verbose").next().is_none() {
        return (true, "ok".to_owned());
    }
    let _ = writeln!(lines, "{} check {}", probe.name(), if passed { "passed" } else { "failed" });
    (passed, lines)
}

fn plain_text(passed: bool, text: String) -> Response {
    let code = if passed { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let form = HeaderValue::from_static("text/plain; charset=utf-8");
    let literally = HeaderValue::from_static("nosniff");
    let headers = [(header::CONTENT_TYPE, form), (header::X_CONTENT_TYPE_OPTIONS, literally)];
    (code, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WELL: Seen = Seen { store: Condition::Well, is_logging: true, is_stopping: false };

    fn all(probe: Probe, query: &str, seen: Seen) -> (bool, String) {
        tell_all(probe, &Query::parse(query), seen)
    }

    #[test]
    fn probes_look_at_the_writer() {
        let hanging = Condition::Hanging(Duration::from_secs(31));
        for (store, live, ready) in [
            (Condition::Well, true, true),
            (Condition::Full, true, true),
            (Condition::Failing, true, false),
            (hanging, true, false),
            (Condition::Ended, false, false),
        ] {
            let seen = Seen { store, ..WELL };
            for (probe, wanted) in
                [(Probe::Live, live), (Probe::Ready, ready), (Probe::Health, ready)]
            {
                assert_eq!(all(probe, "", seen).0, wanted, "{store:?}");
                assert_eq!(tell_one(probe, Check::Store, seen).0, wanted, "{store:?}");
                assert!(tell_one(probe, Check::Ping, seen).0);
                assert!(all(probe, "exclude=etcd", seen).0, "{store:?}");
            }
        }
    }

    #[test]
    fn one_that_is_about_to_end_is_alive_and_not_ready() {
        let seen = Seen { is_stopping: true, ..WELL };
        assert!(all(Probe::Live, "", seen).0);
        let (passed, text) = all(Probe::Ready, "", seen);
        assert!(!passed && text.contains("[-]shutdown failed: the process is shutting down\n"));
        assert!(text.ends_with("readyz check failed\n"), "{text}");
    }

    #[test]
    fn an_audit_log_without_its_thread_is_told() {
        let seen = Seen { is_logging: false, ..WELL };
        let (passed, text) = tell_one(Probe::Live, Check::Log, seen);
        assert!(!passed);
        assert_eq!(text, "internal server error: the thread of the audit log has ended\n");
    }

    #[test]
    fn a_full_store_is_well_and_says_so() {
        let (passed, text) = all(Probe::Ready, "verbose", Seen { store: Condition::Full, ..WELL });
        assert!(
            passed && text.contains("[+]etcd ok, full: only deletions are written\n"),
            "{text}"
        );
    }
}
