//! Google's listing in JSON, which tells retention and the metadata that users set.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::client::{HttpRequestBody, HttpService as _};
use object_store::gcp::GcpCredential;
use serde::Deserialize;
use url::Url;

use super::{Folder, Held, Holds, LISTING_MAX_BYTES, PAGE, bad_listing, listing};
use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::remote::RemoteStore;
use crate::store::{Meta, Store, Version};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault};

const FIELDS: &str =
    "nextPageToken,items(name,size,updated,etag,generation,metadata,retentionExpirationTime)";

#[derive(Debug)]
pub(crate) struct GoogleHolds {
    pub(crate) store: Arc<RemoteStore>,
    pub(crate) client: Waiting,
    pub(crate) credentials: Arc<dyn CredentialProvider<Credential = GcpCredential>>,
    /// Of the service.
    pub(crate) url: Url,
    pub(crate) bucket: String,
    pub(crate) is_anonymous: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Objects {
    #[serde(default)]
    items: Vec<Item>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    name: String,
    #[serde(default)]
    size: String,
    updated: Timestamp,
    etag: Option<String>,
    generation: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    retention_expiration_time: Option<Timestamp>,
}

impl Item {
    fn held(self, folder: &Folder, mark: &str) -> Option<Held> {
        let key = folder.below(&self.name)?;
        let version = Version { e_tag: self.etag, number: self.generation };
        let len_bytes = self.size.parse().ok()?;
        let meta = Meta { key, len_bytes, version, modified: self.updated };
        let is_excluded = self.metadata.get(mark).is_some_and(|value| value == "true");
        let locked_until = self.retention_expiration_time;
        Some(Held { meta, version: None, locked_until, is_excluded })
    }
}

impl GoogleHolds {
    async fn page(&self, prefix: &str, token: &str) -> Result<Objects, Fault> {
        let mut url = self.url.clone();
        url.path_segments_mut().map_err(|()| Fault::Url)?.pop_if_empty().extend([
            "storage",
            "v1",
            "b",
            &self.bucket,
            "o",
        ]);
        let all =
            [("prefix", prefix), ("maxResults", PAGE), ("fields", FIELDS), ("pageToken", token)];
        url.query_pairs_mut().extend_pairs(all.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = http::Request::get(url.as_str());
        if !self.is_anonymous {
            let credential = self.credentials.get_credential().await;
            let credential = credential.map_err(|error| Fault::of_library(&error))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", credential.bearer));
        }
        let request = request.body(HttpRequestBody::empty()).map_err(|_| Fault::Url)?;
        let answer = self.client.call(request).await.map_err(|error| Fault::of_call(&error))?;
        let status = answer.status().as_u16();
        if !answer.status().is_success() {
            return Err(Fault::Answer { status, what: "the bucket could not be listed" });
        }
        let body = wire::body(answer, LISTING_MAX_BYTES).await?;
        serde_json::from_slice(&body)
            .map_err(|_| Fault::Answer { status, what: "no JSON of a listing" })
    }
}

#[async_trait]
impl Holds for GoogleHolds {
    async fn list(&self, prefix: &Prefix, mark: &str) -> Result<Vec<Held>, Error> {
        let folder = Folder(self.store.folder().cloned());
        let text = folder.prefix(prefix);
        let (mut held, mut token) = (Vec::new(), String::new());
        loop {
            let page = self.page(&text, &token).await;
            let page = page.map_err(|fault| fault.into_error(listing(&text)))?;
            held.extend(page.items.into_iter().filter_map(|item| item.held(&folder, mark)));
            match page.next_page_token {
                Some(next) if next == token => return Err(bad_listing(&text)),
                Some(next) if !next.is_empty() => token = next,
                Some(_) | None => return Ok(held),
            }
        }
    }

    fn reading(&self, _: &str) -> Option<Arc<dyn Store>> {
        None
    }

    async fn delete(&self, key: &Key, _: &str) -> Result<(), Error> {
        self.store.delete(key).await
    }

    async fn sweep_uploads(&self, _: &Prefix, _: Timestamp) -> Result<u64, Error> {
        // A rule of the bucket lets go of them; the listing of its own interface shows none.
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_and_marks_are_read_from_a_listing() {
        let text = r#"{"kind":"storage#objects","items":[
            {"name":"f/a","size":"3","updated":"2026-11-16T06:00:00Z",
             "retentionExpirationTime":"2026-12-16T06:00:00Z","metadata":{"mark":"true"}},
            {"name":"f/b","size":"4","updated":"2026-11-16T06:00:00Z","metadata":{"mark":"false"}},
            {"name":"other","size":"4","updated":"2026-11-16T06:00:00Z"}]}"#;
        let page: Objects = serde_json::from_str(text).unwrap();
        let folder = Folder(Some(Key::parse("f").unwrap()));
        let held: Vec<Held> =
            page.items.into_iter().filter_map(|item| item.held(&folder, "mark")).collect();
        let facts: Vec<_> =
            held.iter().map(|it| (it.locked_until.is_some(), it.is_excluded)).collect();
        assert_eq!(facts, [(true, true), (false, false)]);
    }
}
