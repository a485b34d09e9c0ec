//! The requests of Swift, and the store over them. Retries nothing but a token that has ended.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{Method, StatusCode};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use object_store::client::{HttpRequest, HttpResponse};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::keystone::{Keystone, Session};
use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::rejection::{Asked, Reason, Rejection};
use crate::store::{
    Blob, Capabilities, LIST_PAGE_MAX, Level, Listing, Meta, Page, Store, Times, Version,
};
use crate::stream::{Body, Parts};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault, header, refused};

/// Of a page of a listing.
const LISTING_MAX_BYTES: usize = 8 << 20;

pub(super) struct SwiftStore {
    client: Waiting,
    keystone: Keystone,
    container: String,
    folder: Option<Key>,
    session: Mutex<Option<Arc<Session>>>,
}

impl fmt::Debug for SwiftStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SwiftStore")
            .field("container", &self.container)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// What is asked of the container, or of an object in it.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// The whole name; none for the container itself.
    pub(super) name: Option<&'a str>,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: Bytes,
}

/// An answer, and to what.
struct Answered {
    asked: Asked,
    answer: HttpResponse,
}

impl Answered {
    fn refused(self) -> Fault {
        refused(self.asked, &self.answer)
    }

    /// What is not there where something is put or listed is the container.
    fn no_container(self) -> Fault {
        let said = "status 404".to_owned();
        Fault::Refused(Box::new(Rejection { reason: Reason::NoBucket, asked: self.asked, said }))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) name: Option<String>,
    subdir: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    hash: String,
    #[serde(default)]
    last_modified: String,
}

impl SwiftStore {
    pub(super) fn new(
        client: Waiting,
        keystone: Keystone,
        container: &str,
        folder: Option<&Key>,
    ) -> Self {
        let (container, folder) = (container.to_owned(), folder.cloned());
        Self { client, keystone, container, folder, session: Mutex::new(None) }
    }

    pub(super) fn container(&self) -> &str {
        &self.container
    }

    /// As it is called in the container.
    pub(super) fn whole_name(&self, key: &Key) -> String {
        self.folder.as_ref().map_or_else(|| key.to_string(), |folder| format!("{folder}/{key}"))
    }

    /// One that is good, asked for where there is none; never the one that was just refused.
    async fn session(&self, refused: Option<&Arc<Session>>) -> Result<Arc<Session>, Fault> {
        let mut held = self.session.lock().await;
        if let Some(session) = held.as_ref()
            && session.is_good(Timestamp::now())
            && refused.is_none_or(|refused| !Arc::ptr_eq(refused, session))
        {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.keystone.session(&self.client).await?);
        *held = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The answer, whatever it says; a token that is refused is renewed once.
    async fn ask(&self, ask: &Ask<'_>) -> Result<Answered, Fault> {
        let session = self.session(None).await?;
        let answered = self.ask_with(&session, ask).await?;
        if answered.answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answered);
        }
        let session = self.session(Some(&session)).await?;
        self.ask_with(&session, ask).await
    }

    async fn ask_with(&self, session: &Session, ask: &Ask<'_>) -> Result<Answered, Fault> {
        let request = self.request(session, ask)?;
        let mut asked = self.client.asked(&request);
        asked.key_id = Some(self.keystone.identity.name().to_owned());
        let answer = self.client.ask(request).await.map_err(|error| Fault::of(&error))?;
        Ok(Answered { asked, answer })
    }

    fn request(&self, session: &Session, ask: &Ask<'_>) -> Result<HttpRequest, Fault> {
        let mut url: Url = session.storage.clone();
        {
            let mut parts = url.path_segments_mut().map_err(|()| Fault::Url)?;
            parts.pop_if_empty().push(&self.container);
            parts.extend(ask.name.iter().flat_map(|name| name.split('/')));
        }
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let mut request = http::Request::builder()
            .method(ask.method.clone())
            .uri(url.as_str())
            .header("x-auth-token", session.token.expose_secret());
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        if ask.method == Method::PUT && ask.body.is_empty() {
            // A manifest is all header. Nobody says the length of nothing unless told to, and Swift
            // takes no object without.
            request = request.header(http::header::CONTENT_LENGTH, 0);
        }
        request.body(ask.body.clone().into()).map_err(|_| Fault::Url)
    }

    /// An answer that is good, or what it says instead.
    pub(super) async fn good(&self, key: &Key, ask: &Ask<'_>) -> Result<HttpResponse, Error> {
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let answered = self.ask(ask).await.map_err(failed)?;
        match answered.answer.status() {
            status if status.is_success() => Ok(answered.answer),
            StatusCode::NOT_FOUND if ask.method == Method::PUT => {
                Err(failed(answered.no_container()))
            }
            StatusCode::NOT_FOUND => Err(Error::NotFound { key: key.clone() }),
            _ => Err(failed(answered.refused())),
        }
    }

    /// Writes one object, whose hash the service checks; says the hash.
    pub(super) async fn put_one(
        &self,
        key: &Key,
        name: &str,
        body: Bytes,
    ) -> Result<String, Error> {
        let hash = hex(&Md5::digest(&body));
        let headers = [("etag", hash.as_str()), ("content-type", "application/octet-stream")];
        let ask = Ask {
            method: Method::PUT,
            name: Some(name),
            headers: &headers,
            body,
            ..Ask::default()
        };
        let answer = self.good(key, &ask).await?;
        match wire::e_tag(answer.headers()) {
            Some(theirs) if theirs != hash => {
                let source = format!("it holds {theirs} where {hash} was sent").into();
                Err(Error::Unavailable { what: key.to_string(), source })
            }
            Some(_) | None => Ok(hash),
        }
    }

    /// Rows of the container after a name.
    pub(super) async fn rows(
        &self,
        prefix: &str,
        after: &str,
        delimiter: &str,
    ) -> Result<Vec<Row>, Error> {
        let limit = (LIST_PAGE_MAX + 1).to_string();
        let all = [
            ("format", "json"),
            ("limit", limit.as_str()),
            ("prefix", prefix),
            ("marker", after),
            ("delimiter", delimiter),
        ];
        let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let failed = |fault: Fault| fault.into_error(format!("the listing of {prefix}"));
        let ask = Ask { query: &query, ..Ask::default() };
        let answered = self.ask(&ask).await.map_err(failed)?;
        match answered.answer.status() {
            StatusCode::NO_CONTENT => return Ok(Vec::new()),
            StatusCode::NOT_FOUND => return Err(failed(answered.no_container())),
            status if !status.is_success() => return Err(failed(answered.refused())),
            _ => {}
        }
        let body = wire::body(answered.answer, LISTING_MAX_BYTES).await.map_err(failed)?;
        serde_json::from_slice(&body)
            .map_err(|_| failed(Fault::Answer { status: 200, what: "no JSON of a listing" }))
    }

    fn below(&self, name: &str) -> Option<Key> {
        let below = match &self.folder {
            Some(folder) => name.strip_prefix(folder.as_str())?.strip_prefix('/')?,
            None => name,
        };
        Key::parse(below.trim_end_matches('/')).ok()
    }

    fn row_meta(&self, row: &Row) -> Option<Meta> {
        Some(Meta {
            key: self.below(row.name.as_deref()?)?,
            len_bytes: row.bytes,
            version: Version { e_tag: Some(row.hash.clone()), number: None },
            modified: wire::listed_time(&row.last_modified)?,
        })
    }

    /// With a slash at its end, where it is not all of the container.
    fn whole_prefix(&self, prefix: &Prefix) -> String {
        match (prefix.folder(), &self.folder) {
            (Some(key), _) => format!("{}/", self.whole_name(key)),
            (None, Some(folder)) => format!("{folder}/"),
            (None, None) => String::new(),
        }
    }

    pub(super) async fn remove(&self, key: &Key, name: &str) -> Result<(), Error> {
        let ask = Ask { method: Method::DELETE, name: Some(name), ..Ask::default() };
        match self.good(key, &ask).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Store for SwiftStore {
    async fn put_new(&self, _: &Key, _: Bytes) -> Result<Version, Error> {
        Err(no_conditions())
    }

    async fn put_if_match(&self, _: &Key, _: Bytes, _: &Version) -> Result<Version, Error> {
        Err(no_conditions())
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        let e_tag = self.put_one(key, &self.whole_name(key), bytes).await?;
        Ok(Version { e_tag: Some(e_tag), number: None })
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.put_segments(key, body, parts).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        if range.is_empty() {
            return Ok(Blob { meta: self.head(key).await?, bytes: Bytes::new() });
        }
        let name = self.whole_name(key);
        let text = format!("bytes={}-{}", range.start, range.end - 1);
        let headers = [("range", text.as_str())];
        let ask = Ask { name: Some(&name), headers: &headers, ..Ask::default() };
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let answered = self.ask(&ask).await.map_err(failed)?;
        match answered.answer.status() {
            StatusCode::NOT_FOUND => return Err(Error::NotFound { key: key.clone() }),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                return Ok(Blob { meta: self.head(key).await?, bytes: Bytes::new() });
            }
            status if status.is_success() => {}
            _ => return Err(failed(answered.refused())),
        }
        let answer = answered.answer;
        let meta = wire::meta(key, answer.headers())?;
        let wanted = range.end.min(meta.len_bytes).saturating_sub(range.start);
        let max_bytes = usize::try_from(wanted).unwrap_or(usize::MAX);
        let bytes = wire::body(answer, max_bytes).await.map_err(failed)?;
        if bytes.len() as u64 != wanted {
            let source = format!("{} bytes came instead of {wanted}", bytes.len()).into();
            return Err(Error::Unavailable { what: key.to_string(), source });
        }
        Ok(Blob { meta, bytes })
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        let name = self.whole_name(key);
        let answer = self.good(key, &Ask { name: Some(&name), ..Ask::default() }).await?;
        let meta = wire::meta(key, answer.headers())?;
        Ok((meta, Box::pin(answer.into_body().bytes_stream().map_err(io::Error::other))))
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        let name = self.whole_name(key);
        let ask = Ask { method: Method::HEAD, name: Some(&name), ..Ask::default() };
        wire::meta(key, self.good(key, &ask).await?.headers())
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let after = after.map(|key| self.whole_name(key)).unwrap_or_default();
        let rows = self.rows(&self.whole_prefix(prefix), &after, "").await?;
        let is_last = rows.len() <= LIST_PAGE_MAX;
        let named = rows.iter().take(LIST_PAGE_MAX);
        Ok(Page { objects: named.filter_map(|row| self.row_meta(row)).collect(), is_last })
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let prefix = self.whole_prefix(prefix);
        let mut level = Level::default();
        let mut after = String::new();
        loop {
            let rows = self.rows(&prefix, &after, "/").await?;
            let Some(last) = rows.last() else { return Ok(level) };
            let last = last.name.clone().or_else(|| last.subdir.clone()).unwrap_or_default();
            level.objects.extend(rows.iter().filter_map(|row| self.row_meta(row)));
            let folders = rows.iter().filter_map(|row| self.below(row.subdir.as_deref()?));
            level.folders.extend(folders);
            if rows.len() <= LIST_PAGE_MAX || last <= after {
                return Ok(level);
            }
            after = last;
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        self.delete_with_segments(key).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            conditional_put: false,
            durable: true,
            listing: Listing::Later,
            times: Times::OfStore,
        }
    }
}

fn no_conditions() -> Error {
    Error::Unsupported { what: "write with a condition", source: "Swift knows none".into() }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from_digit(u32::from(four), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The manifest of an object in segments, and whether it is one that lists them itself.
pub(super) fn manifest(headers: &http::HeaderMap) -> (Option<String>, bool) {
    let dynamic = header(headers, "x-object-manifest").map(str::to_owned);
    let is_static = header(headers, "x-static-large-object")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    (dynamic, is_static)
}
