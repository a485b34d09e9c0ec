//! Failures as sentences for somebody at a terminal: what happened, where, and what to do. Pure.

use tonic::{Code, Status};

use super::error::Error;
use super::parse::{Line, ParseError};
use super::table::{Verb, global};

/// The command that failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// As it was reached: `snapshots ls`.
    pub(super) name: String,
    /// The controller it asks, if it asks one.
    url: Option<String>,
}

impl Failed {
    pub(super) fn of(name: &str) -> Self {
        Self { name: name.to_owned(), url: None }
    }

    pub(super) fn by(line: &Line) -> Self {
        let url = match line.verb {
            Verb::Ask(_) | Verb::Version => Some(line.globals.text(&global::URL)),
            Verb::Serve(_) | Verb::Store(_) => None,
        };
        Self { name: line.name.clone(), url }
    }
}

/// What is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) error: String,
    pub(super) hint: Option<String>,
}

pub(super) fn sentences(error: &Error, failed: &Failed, program: &str) -> Told {
    let help = || format!("`{program} {} --help` shows what it takes", failed.name);
    let plain = |hint: Option<String>| Told { error: error.to_string(), hint };
    match error {
        Error::Usage(usage) => {
            plain(Some(suggestion(usage).unwrap_or_else(|| format!("see `{program} --help`"))))
        }
        Error::Call { doing, status } => call(doing, status, failed),
        Error::Endpoint { .. } | Error::Address(_) => {
            plain(Some("name the controller with --url ADDR, before the command".to_owned()))
        }
        Error::NotFound { hint, .. } => plain(Some(hint.clone())),
        Error::Refused(text) => plain(text.contains("required").then(help)),
        Error::Server { .. } | Error::Interrupted { .. } | Error::Output(_) | Error::Start(_) => {
            plain(None)
        }
    }
}

fn suggestion(usage: &ParseError) -> Option<String> {
    match usage {
        ParseError::UnknownCommand { similar, .. } => {
            similar.map(|similar| format!("did you mean {similar}?"))
        }
        ParseError::UnknownFlag { similar, .. } => similar.clone(),
        ParseError::NoValue(_)
        | ParseError::BadSyntax(_)
        | ParseError::BadValue(_)
        | ParseError::NotText(_) => None,
    }
}

/// Without the words by which programs know a status, and with the address that was tried.
fn call(doing: &str, status: &Status, failed: &Failed) -> Told {
    let mut error = format!("{doing}: {}", status.message());
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !error.contains(&text) {
            error = format!("{error}: {text}");
        }
        source = cause.source();
    }
    match (&failed.url, status.code()) {
        (Some(url), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) => Told {
            error: format!("{error} (the controller was asked at {url})"),
            hint: Some(
                "is it running? Name it with --url ADDR, before the command; --connect-wait \
                 SECONDS waits for one that is starting"
                    .to_owned(),
            ),
        },
        (_, _) => Told { error, hint: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Failed {
        Failed { name: "info".to_owned(), url: Some("http://localhost:9501".to_owned()) }
    }

    #[test]
    fn a_status_is_a_sentence_with_the_address_that_was_tried() {
        let status = Box::new(Status::unavailable("tcp connect error"));
        let error = Error::Call { doing: "failed to get volume".to_owned(), status };
        let told = sentences(&error, &failed(), "holdfast engine");
        let wanted = "failed to get volume: tcp connect error (the controller was asked at \
                      http://localhost:9501)";
        assert_eq!(told.error, wanted);
        assert!(told.hint.unwrap().contains("--url"));
        let status = Box::new(Status::failed_precondition("incorrect volume name x"));
        let error = Error::Call { doing: "failed to get volume".to_owned(), status };
        let told = sentences(&error, &failed(), "holdfast engine");
        assert_eq!(told.error, "failed to get volume: incorrect volume name x");
    }

    #[test]
    fn what_is_missing_from_a_command_line_is_pointed_at() {
        let told = sentences(&Error::refused("--size is required"), &failed(), "holdfast engine");
        assert_eq!(told.hint.as_deref(), Some("`holdfast engine info --help` shows what it takes"));
        let usage = ParseError::UnknownFlag {
            name: "sise".to_owned(),
            similar: Some("did you mean --size?".to_owned()),
        };
        let told = sentences(&Error::Usage(usage), &failed(), "holdfast engine");
        assert_eq!(told.error, "flag provided but not defined: -sise");
        assert_eq!(told.hint.as_deref(), Some("did you mean --size?"));
    }
}
