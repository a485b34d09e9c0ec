//! Azure's listing with tags and immutability policies.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use object_store::CredentialProvider;
use object_store::azure::{AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequestBody, HttpService as _};
use serde::Deserialize;
use url::Url;

use super::s3::TagSet;
use super::{Folder, Held, Holds, LISTING_MAX_BYTES, PAGE, bad_listing, listing};
use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::remote::RemoteStore;
use crate::store::{Meta, Store, Version, list_all};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault};

/// What is asked for beside names; accounts of some kinds know none, or not both.
const INCLUDES: [&str; 3] = ["tags,immutabilitypolicy", "immutabilitypolicy", "tags"];

#[derive(Debug)]
pub(crate) struct AzureHolds {
    pub(crate) store: Arc<RemoteStore>,
    pub(crate) client: Waiting,
    pub(crate) credentials: Arc<dyn CredentialProvider<Credential = AzureCredential>>,
    pub(crate) account: String,
    /// Of the container.
    pub(crate) url: Url,
    pub(crate) is_anonymous: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    blobs: Blobs,
    next_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Blobs {
    #[serde(default, rename = "Blob")]
    blobs: Vec<Item>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Item {
    name: String,
    properties: Properties,
    tags: Option<Tags>,
}

#[derive(Debug, Deserialize)]
struct Properties {
    #[serde(rename = "Last-Modified")]
    last_modified: String,
    #[serde(rename = "Content-Length")]
    content_length: u64,
    #[serde(rename = "Etag")]
    e_tag: Option<String>,
    #[serde(rename = "ImmutabilityPolicyUntilDate")]
    immutable_until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tags {
    #[serde(default)]
    tag_set: TagSet,
}

fn time(text: &str) -> Option<Timestamp> {
    rfc2822::parse(text).ok().map(|it| it.timestamp()).or_else(|| text.parse().ok())
}

impl Item {
    fn held(self, folder: &Folder, mark: &str) -> Option<Held> {
        let key = folder.below(&self.name)?;
        let Properties { last_modified, content_length, e_tag, immutable_until } = self.properties;
        let version = Version { e_tag, number: None };
        let meta =
            Meta { key, len_bytes: content_length, version, modified: time(&last_modified)? };
        let is_excluded = self.tags.is_some_and(|tags| tags.tag_set.marks(mark));
        let locked_until = immutable_until.as_deref().and_then(time);
        Some(Held { meta, version: None, locked_until, is_excluded })
    }
}

impl AzureHolds {
    async fn page(&self, prefix: &str, include: &str, marker: &str) -> Result<Results, Fault> {
        let mut url = self.url.clone();
        let all = [
            ("restype", "container"),
            ("comp", "list"),
            ("prefix", prefix),
            ("maxresults", PAGE),
            ("include", include),
            ("marker", marker),
        ];
        url.query_pairs_mut().extend_pairs(all.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = http::Request::get(url.as_str())
            .body(HttpRequestBody::empty())
            .map_err(|_| Fault::Url)?;
        if !self.is_anonymous {
            let credential = self.credentials.get_credential().await;
            let credential = credential.map_err(|error| Fault::of_library(&error))?;
            let authorizer = AzureAuthorizer::new(&credential, &self.account);
            authorizer.try_authorize(&mut request).map_err(|error| Fault::of_library(&error))?;
        }
        let answer = self.client.call(request).await.map_err(|error| Fault::of_call(&error))?;
        let status = answer.status().as_u16();
        if !answer.status().is_success() {
            return Err(Fault::Answer { status, what: "the container could not be listed" });
        }
        let body = wire::body(answer, LISTING_MAX_BYTES).await?;
        let bad = Fault::Answer { status, what: "no XML of a listing" };
        let text = std::str::from_utf8(&body).map_err(|_| Fault::Url)?;
        quick_xml::de::from_str(text.trim_start_matches('\u{feff}')).map_err(|_| bad)
    }

    async fn list_with(&self, prefix: &str, include: &str, mark: &str) -> Result<Vec<Held>, Fault> {
        let folder = Folder(self.store.folder().cloned());
        let (mut held, mut marker) = (Vec::new(), String::new());
        loop {
            let page = self.page(prefix, include, &marker).await?;
            held.extend(page.blobs.blobs.into_iter().filter_map(|it| it.held(&folder, mark)));
            match page.next_marker {
                Some(next) if next == marker && !next.is_empty() => {
                    return Err(Fault::Answer { status: 200, what: "a listing that never ends" });
                }
                Some(next) if !next.is_empty() => marker = next,
                Some(_) | None => return Ok(held),
            }
        }
    }
}

#[async_trait]
impl Holds for AzureHolds {
    async fn list(&self, prefix: &Prefix, mark: &str) -> Result<Vec<Held>, Error> {
        let text = Folder(self.store.folder().cloned()).prefix(prefix);
        for include in INCLUDES {
            match self.list_with(&text, include, mark).await {
                Ok(held) => return Ok(held),
                // This account does not know what was asked for.
                Err(Fault::Answer { status: 400 | 409, .. }) => {}
                Err(fault) => return Err(fault.into_error(listing(&text))),
            }
        }
        let found = list_all(self.store.as_ref(), prefix).await.map_err(|error| match error {
            Error::ForeignName { .. } => bad_listing(&text),
            other => other,
        })?;
        Ok(found.into_iter().map(Held::plain).collect())
    }

    fn reading(&self, _: &str) -> Option<Arc<dyn Store>> {
        None
    }

    async fn delete(&self, key: &Key, _: &str) -> Result<(), Error> {
        self.store.delete(key).await
    }

    async fn sweep_uploads(&self, _: &Prefix, _: Timestamp) -> Result<u64, Error> {
        // The service lets go of parts that no list names after a week.
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_tags_are_read_from_a_listing() {
        let text = "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>f/a</Name>\
            <Properties><Last-Modified>Mon, 16 Nov 2026 06:00:00 GMT</Last-Modified>\
            <Etag>0x1</Etag><Content-Length>3</Content-Length>\
            <ImmutabilityPolicyUntilDate>Wed, 16 Dec 2026 06:00:00 GMT</ImmutabilityPolicyUntilDate>\
            <ImmutabilityPolicyMode>unlocked</ImmutabilityPolicyMode></Properties>\
            <Tags><TagSet><Tag><Key>mark</Key><Value>true</Value></Tag></TagSet></Tags></Blob>\
            <Blob><Name>f/b</Name><Properties><Last-Modified>Mon, 16 Nov 2026 06:00:00 GMT\
            </Last-Modified><Content-Length>4</Content-Length></Properties></Blob></Blobs>\
            <NextMarker /></EnumerationResults>";
        let page: Results = quick_xml::de::from_str(text).unwrap();
        let folder = Folder(Some(Key::parse("f").unwrap()));
        let held: Vec<Held> =
            page.blobs.blobs.into_iter().filter_map(|it| it.held(&folder, "mark")).collect();
        assert_eq!(held[0].locked_until.unwrap().to_string(), "2026-12-16T06:00:00Z");
        assert_eq!((held[0].is_excluded, held[1].is_excluded), (true, false));
        assert!(page.next_marker.is_none_or(|it| it.is_empty()));
    }
}
