//! Requests of our own, beside those of the library: what went wrong, bodies with a limit, and headers.

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use object_store::client::{HttpError, HttpResponse};

use crate::error::Error;
use crate::key::Key;
use crate::rejection::{Answer, Asked, Rejection};
use crate::store::{Meta, Version};

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Refused(Box<Rejection>),
    #[error("an address of the service is no URL that can be asked")]
    Url,
    #[error("the catalogue of Keystone names no public object-store in {region}")]
    NoObjectStore { region: String },
    #[error("the service answered with status {status}: {what}")]
    Answer { status: u16, what: &'static str },
    #[error("{0}")]
    Http(String),
    /// Who we are could not be said.
    #[error("{0}")]
    Credentials(String),
}

impl Fault {
    /// Without what the library says around it.
    pub(crate) fn of(error: &HttpError) -> Self {
        let mut cause: &dyn std::error::Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        Self::Http(cause.to_string())
    }

    /// Of a call whose rejections are read already.
    pub(crate) fn of_call(error: &HttpError) -> Self {
        rejection_in(error).unwrap_or_else(|| Self::of(error))
    }

    /// Of what the library was asked for: credentials.
    pub(crate) fn of_library(error: &object_store::Error) -> Self {
        rejection_in(error).unwrap_or_else(|| match error {
            object_store::Error::Generic { .. } => Self::Http(error.to_string()),
            _ => Self::Credentials(error.to_string()),
        })
    }

    pub(crate) fn into_error(self, what: String) -> Error {
        match self {
            Self::Refused(rejection) => rejection.into_error(what),
            Self::NoObjectStore { .. } | Self::Url | Self::Credentials(_) => {
                Error::Denied { what, source: self.to_string().into() }
            }
            Self::Answer { status, .. } if !may_pass(status) => {
                Error::Denied { what, source: self.to_string().into() }
            }
            Self::Answer { .. } | Self::Http(_) => {
                Error::Unavailable { what, source: self.to_string().into() }
            }
        }
    }
}

/// Whether the same request may be answered otherwise later: it came too late or too often, met
/// another, or did not arrive as it was sent. Every other fault of the asker stays one.
const fn may_pass(status: u16) -> bool {
    match status {
        408 | 409 | 422 | 425 | 429 | 498 => true,
        400..500 => false,
        _ => true,
    }
}

fn rejection_in(error: &(dyn std::error::Error + 'static)) -> Option<Fault> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let rejection = causes.find_map(|cause| cause.downcast_ref::<Rejection>())?;
    Some(Fault::Refused(Box::new(rejection.clone())))
}

/// What an answer that is not good says. Nothing of its body is shown: it may repeat what was sent.
pub(crate) fn refused(asked: Asked, answer: &HttpResponse) -> Fault {
    let status = answer.status().as_u16();
    let said = Answer { status, ..Answer::default() };
    match Rejection::of(asked, &said, "") {
        Some(rejection) => Fault::Refused(Box::new(rejection)),
        None => Fault::Answer { status, what: meaning(status) },
    }
}

const fn meaning(status: u16) -> &'static str {
    match status {
        404 => "there is no such thing",
        411 => "it takes nothing whose length is not said",
        413 => "the object is too long, or the quota of the container or account is used up",
        422 => "what arrived is not what was sent",
        429 | 498 => "too many requests",
        503 => "it is overloaded",
        507 => "it has no room left",
        _ => "it did not do what it was asked",
    }
}

/// A whole body; one that is longer is an error.
pub(crate) async fn body(answer: HttpResponse, max_bytes: usize) -> Result<Bytes, Fault> {
    let status = answer.status().as_u16();
    let mut bytes = BytesMut::new();
    let mut pieces = answer.into_body().bytes_stream();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece.map_err(|error| Fault::of(&error))?);
        if bytes.len() > max_bytes {
            return Err(Fault::Answer { status, what: "more than such an answer can be" });
        }
    }
    Ok(bytes.freeze())
}

pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// As hashes are compared: without quotes.
pub(crate) fn e_tag(headers: &HeaderMap) -> Option<String> {
    header(headers, ETAG.as_str()).map(|text| text.trim_matches('"').to_ascii_lowercase())
}

/// Of an object, by the headers of an answer.
pub(crate) fn meta(key: &Key, headers: &HeaderMap) -> Result<Meta, Error> {
    let bad = |what: &str| Error::Unavailable { what: key.to_string(), source: what.into() };
    let ranged = header(headers, CONTENT_RANGE.as_str()).and_then(|it| it.rsplit('/').next());
    let length = ranged.or_else(|| header(headers, CONTENT_LENGTH.as_str()));
    let len_bytes = length.and_then(|it| it.parse().ok()).ok_or_else(|| bad("no length came"))?;
    let modified = header(headers, LAST_MODIFIED.as_str())
        .and_then(|it| rfc2822::parse(it).ok())
        .map(|it| it.timestamp())
        .ok_or_else(|| bad("no time came"))?;
    let version = Version { e_tag: e_tag(headers), number: None };
    Ok(Meta { key: key.clone(), len_bytes, version, modified })
}

/// As listings write times: without a zone.
pub(crate) fn listed_time(text: &str) -> Option<Timestamp> {
    let time: jiff::civil::DateTime = text.parse().ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|it| it.timestamp())
}
