//! Writes by Google's JSON interface, for emulators of its store: they take none by the XML interface
//! that the library writes with. All else is asked as of Google itself.
//!
//! A long object goes in one session, part after part. A session is not gone on with after a failure:
//! emulators take the same bytes twice. The write fails, and whoever made it makes it again.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{Method, StatusCode};
use md5::{Digest as _, Md5};
use object_store::client::HttpResponse;
use serde::Deserialize;
use url::Url;

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::rejection::{Reason, Rejection};
use crate::remote::RemoteStore;
use crate::store::{Blob, Capabilities, Level, Meta, Page, Store, Version};
use crate::stream::{self, Body, Cutter, First, Parts};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault, header};

/// Parts of a session are a multiple of this, but for the last.
const STEP_BYTES: usize = 256 << 10;
/// Of what is said of an object that was written.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// A part that is not the last is answered with 308, or with 200 and this header.
const STATUS_OVERRIDE: &str = "x-http-status-code-override";

/// What must hold of the object that is there.
#[derive(Debug, Clone, Copy)]
enum Condition<'c> {
    Any,
    None,
    Generation(&'c str),
}

impl Condition<'_> {
    fn generation(&self) -> Option<&str> {
        match self {
            Self::Any => None,
            Self::None => Some("0"),
            Self::Generation(number) => Some(number),
        }
    }

    fn failed(self, key: &Key) -> Error {
        let key = key.clone();
        match self {
            Self::None => Error::Exists { key },
            Self::Any | Self::Generation(_) => Error::Changed { key },
        }
    }
}

/// What is said of an object that was written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    size: String,
    generation: Option<String>,
    md5_hash: Option<String>,
}

impl Written {
    /// Whether it is what was sent.
    fn holds(&self, len_bytes: u64, hash: &str) -> bool {
        self.size == len_bytes.to_string() && self.md5_hash.as_ref().is_none_or(|it| it == hash)
    }
}

/// A store whose writes go by the JSON interface, without credentials.
#[derive(Debug)]
pub(crate) struct JsonWrites {
    pub(crate) store: Arc<RemoteStore>,
    pub(crate) client: Waiting,
    /// Of the service.
    pub(crate) url: Url,
    pub(crate) bucket: String,
}

impl JsonWrites {
    fn url(&self, query: &[(&str, &str)]) -> Result<Url, Fault> {
        let mut url = self.url.clone();
        let path = ["upload", "storage", "v1", "b", &self.bucket, "o"];
        url.path_segments_mut().map_err(|()| Fault::Url)?.pop_if_empty().extend(path);
        url.query_pairs_mut().extend_pairs(query);
        Ok(url)
    }

    /// The answer, if it is good; none where the condition does not hold.
    async fn send(
        &self,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Option<HttpResponse>, Fault> {
        let request = request.body(body.into()).map_err(|_| Fault::Url)?;
        let asked = self.client.asked(&request);
        let answer = self.client.ask(request).await.map_err(|error| Fault::of(&error))?;
        match answer.status() {
            StatusCode::PRECONDITION_FAILED => Ok(None),
            // What is not there where something is put is the bucket.
            StatusCode::NOT_FOUND => {
                let (reason, said) = (Reason::NoBucket, "status 404".to_owned());
                Err(Fault::Refused(Box::new(Rejection { reason, asked, said })))
            }
            status if status.is_success() || status == StatusCode::PERMANENT_REDIRECT => {
                Ok(Some(answer))
            }
            _ => Err(wire::refused(asked, &answer)),
        }
    }

    async fn write(
        &self,
        key: &Key,
        bytes: Bytes,
        condition: Condition<'_>,
    ) -> Result<Version, Error> {
        let name = self.store.whole_path(key)?;
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let mut query = vec![("uploadType", "media"), ("name", name.as_ref())];
        query.extend(condition.generation().map(|number| ("ifGenerationMatch", number)));
        let url = self.url(&query).map_err(failed)?;
        let (len_bytes, hash) = (bytes.len() as u64, BASE64_STANDARD.encode(Md5::digest(&bytes)));
        let request =
            http::Request::post(url.as_str()).header(CONTENT_TYPE, "application/octet-stream");
        let answer = self.send(request, bytes).await.map_err(failed)?;
        let answer = answer.ok_or_else(|| condition.failed(key))?;
        self.finish(key, answer, len_bytes, &hash).await
    }

    /// The version that was written; what is not what was sent is removed again.
    async fn finish(
        &self,
        key: &Key,
        answer: HttpResponse,
        len_bytes: u64,
        hash: &str,
    ) -> Result<Version, Error> {
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let status = answer.status().as_u16();
        let bad = |what| failed(Fault::Answer { status, what });
        let body = wire::body(answer, ANSWER_MAX_BYTES).await.map_err(failed)?;
        let written: Written =
            serde_json::from_slice(&body).map_err(|_| bad("no JSON of an object"))?;
        if !written.holds(len_bytes, hash) {
            self.store.delete(key).await?;
            return Err(bad("what arrived is not what was sent"));
        }
        Ok(Version { e_tag: None, number: written.generation })
    }

    async fn write_long(
        &self,
        key: &Key,
        first: Bytes,
        rest: Cutter,
        parts: &Parts,
    ) -> Result<Version, Error> {
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let name = self.store.whole_path(key)?;
        let session =
            stream::again(parts, || async { self.begin(name.as_ref()).await.map_err(failed) })
                .await?;
        let done = self.send_parts(key, &session, first, rest, parts).await;
        if done.is_err() {
            self.give_up(key, &session).await;
        }
        done
    }

    /// The address of a new session. Of what the service says only the id counts: emulators give names
    /// by which they are not always reached.
    async fn begin(&self, name: &str) -> Result<Url, Fault> {
        let url = self.url(&[("uploadType", "resumable"), ("name", name)])?;
        let answer = self.send(http::Request::post(url.as_str()), Bytes::new()).await?;
        let location = answer.as_ref().and_then(|it| header(it.headers(), LOCATION.as_str()));
        let location = location.and_then(|it| Url::parse(it).ok());
        let id = location.as_ref().and_then(|it| it.query_pairs().find(|it| it.0 == "upload_id"));
        let Some((_, id)) = id else {
            return Err(Fault::Answer { status: 200, what: "no session for an upload" });
        };
        self.url(&[("uploadType", "resumable"), ("name", name), ("upload_id", &id)])
    }

    async fn send_parts(
        &self,
        key: &Key,
        session: &Url,
        first: Bytes,
        mut rest: Cutter,
        parts: &Parts,
    ) -> Result<Version, Error> {
        let (mut part, mut sent_bytes, mut hash) = (first, 0_u64, Md5::new());
        for index in 1.. {
            let next = rest.next(key, parts.size_of(index)).await?;
            hash.update(&part);
            let end = sent_bytes + part.len() as u64;
            let total = if next.is_empty() { end.to_string() } else { "*".to_owned() };
            let range = format!("bytes {sent_bytes}-{}/{total}", end - 1);
            let answer = self.send_part(key, session, part, &range).await?;
            if next.is_empty() {
                let hash = BASE64_STANDARD.encode(hash.finalize());
                return self.finish(key, answer, end, &hash).await;
            }
            taken(&answer, end).map_err(|fault| fault.into_error(key.to_string()))?;
            (part, sent_bytes) = (next, end);
        }
        Err(Fault::Url.into_error(key.to_string()))
    }

    async fn send_part(
        &self,
        key: &Key,
        session: &Url,
        part: Bytes,
        range: &str,
    ) -> Result<HttpResponse, Error> {
        let request = http::Request::put(session.as_str())
            .header(CONTENT_RANGE, range)
            .header("x-guploader-no-308", "yes");
        let answer = self.send(request, part).await;
        let answer = answer.map_err(|fault| fault.into_error(key.to_string()))?;
        answer.ok_or_else(|| Condition::Any.failed(key))
    }

    async fn give_up(&self, key: &Key, session: &Url) {
        let request = http::Request::builder().method(Method::DELETE).uri(session.as_str());
        // Some answer 499 to say that it is done; what is left of it is no object.
        if let Err(fault) = self.send(request, Bytes::new()).await {
            tracing::debug!("the upload of {key} was given up: {fault}");
        }
    }
}

/// That all bytes so far were taken.
fn taken(answer: &HttpResponse, end: u64) -> Result<(), Fault> {
    let status = answer.status().as_u16();
    let goes_on = status == 308 || header(answer.headers(), STATUS_OVERRIDE) == Some("308");
    let range = header(answer.headers(), RANGE.as_str());
    let last = range.and_then(|range| range.strip_prefix("bytes=0-")?.parse::<u64>().ok());
    if goes_on && last.is_some_and(|last| last.checked_add(1) == Some(end)) {
        return Ok(());
    }
    Err(Fault::Answer { status, what: "it did not take all of a part" })
}

#[async_trait]
impl Store for JsonWrites {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.write(key, bytes, Condition::None).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        let Some(number) = &version.number else { return Err(Error::Changed { key: key.clone() }) };
        self.write(key, bytes, Condition::Generation(number)).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.write(key, bytes, Condition::Any).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        let part_bytes = parts.part_bytes.max(1).next_multiple_of(STEP_BYTES);
        let parts = &Parts { part_bytes, ..parts.clone() };
        match stream::first_part(key, body, parts).await? {
            First::Whole(bytes) => stream::again(parts, || self.put(key, bytes.clone())).await,
            First::More(first, rest) => self.write_long(key, first, rest, parts).await,
        }
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        self.store.get_range(key, range).await
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        self.store.get_stream(key).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        self.store.head(key).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        self.store.list(prefix, after).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        self.store.list_level(prefix).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        self.store.delete(key).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)]) -> HttpResponse {
        let mut answer = http::Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        answer.body(Bytes::new().into()).unwrap()
    }

    #[test]
    fn a_part_counts_once_all_of_it_was_taken() {
        let all = ("range", "bytes=0-99");
        assert!(taken(&answer(308, &[all]), 100).is_ok());
        assert!(taken(&answer(200, &[all, (STATUS_OVERRIDE, "308")]), 100).is_ok());
        for (status, headers) in [
            (308, vec![]),
            (308, vec![("range", "bytes=0-98")]),
            (308, vec![("range", "bytes=0-18446744073709551615")]),
            // Whole already, while more is to come.
            (200, vec![all]),
        ] {
            assert!(taken(&answer(status, &headers), 100).is_err(), "{status} {headers:?}");
        }
    }

    #[test]
    fn what_was_written_is_what_was_sent() {
        let written = |text: &str| serde_json::from_str::<Written>(text).unwrap();
        assert!(written(r#"{"size":"3","md5Hash":"aGk="}"#).holds(3, "aGk="));
        assert!(written(r#"{"size":"3"}"#).holds(3, "aGk="));
        assert!(!written(r#"{"size":"2","md5Hash":"aGk="}"#).holds(3, "aGk="));
        assert!(!written(r#"{"size":"3","md5Hash":"aG8="}"#).holds(3, "aGk="));
    }
}
