//! `/livez`, `/readyz` and `/healthz`: what a probe is told.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use crate::request::Query;
use crate::server::Server;
use crate::store::Condition;

pub(crate) fn is_probe(path: &str) -> bool {
    ["/livez", "/readyz", "/healthz"].iter().any(|probe| path.starts_with(probe))
}

/// An answer at all says that the server lives; whether it can be relied on, its writer says.
pub(crate) fn answer(server: &Server, query: &Query, path: &str) -> Response {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let (name, check) = (segments.next().unwrap_or_default(), segments.next());
    let condition = server.store.condition();
    if condition == Condition::Failing {
        // Nobody may write to a server that says it is not ready, so this is a reason to try.
        server.store.recover();
    }
    let trouble = trouble(name, condition).filter(|_| check != Some("ping"));
    if trouble.is_none() && !query.flag("verbose") {
        return plain_text("ok".to_owned());
    }
    let store = match (&trouble, condition) {
        (Some(why), _) => format!("[-]store failed: {why}"),
        (None, Condition::Full) => "[+]store ok, full: only deletions are written".to_owned(),
        (None, _) => format!("[+]store ok, revision {}", server.store.revision()),
    };
    let verdict = if trouble.is_some() { "failed" } else { "passed" };
    let mut response = plain_text(format!("[+]ping ok\n{store}\n{name} check {verdict}\n"));
    if trouble.is_some() {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response
}

/// What keeps a probe of this name from passing.
fn trouble(probe: &str, condition: Condition) -> Option<String> {
    match condition {
        Condition::Well | Condition::Full => None,
        Condition::Ended => Some("the writer has ended".to_owned()),
        // To be started again would not help, and would end what can still be read.
        Condition::Failing | Condition::Hanging(_) if probe == "livez" => None,
        Condition::Failing => Some("the last commit failed".to_owned()),
        Condition::Hanging(time) => {
            Some(format!("the disk has not answered for {} s", time.as_secs()))
        }
    }
}

fn plain_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn probes_look_at_the_writer() {
        let hanging = Condition::Hanging(Duration::from_secs(31));
        for (condition, livez, readyz) in [
            (Condition::Well, true, true),
            (Condition::Full, true, true),
            (Condition::Failing, true, false),
            (hanging, true, false),
            (Condition::Ended, false, false),
        ] {
            assert_eq!(trouble("livez", condition).is_none(), livez, "{condition:?}");
            for probe in ["readyz", "healthz"] {
                assert_eq!(trouble(probe, condition).is_none(), readyz, "{condition:?}");
            }
        }
    }
}
