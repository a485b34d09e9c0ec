//! Versions of S3: where a bucket keeps them, the oldest of each object is the one that was written
//! as a backup, and stays what it is, whoever writes or removes after.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use object_store::CredentialProvider;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequestBody, HttpResponse, HttpService as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::{Folder, Held, Holds, LISTING_MAX_BYTES, PAGE, listing};
use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::remote::RemoteStore;
use crate::store::{Meta, Store, Version};
use crate::timeouts::Waiting;
use crate::wire::{self, Fault};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const DAYS_OF_A_YEAR: i32 = 365;
/// Given up in one round; the others wait for the next.
const UPLOADS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct S3Holds {
    pub(crate) store: Arc<RemoteStore>,
    pub(crate) client: Waiting,
    pub(crate) credentials: Arc<dyn CredentialProvider<Credential = AwsCredential>>,
    /// Of the bucket.
    pub(crate) url: Url,
    pub(crate) region: String,
    pub(crate) is_anonymous: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Versioning {
    status: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LockConfiguration {
    object_lock_enabled: Option<String>,
    rule: Option<LockRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LockRule {
    default_retention: Option<Retention>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Retention {
    days: Option<i32>,
    years: Option<i32>,
}

impl LockConfiguration {
    /// How long what is written now is kept.
    fn time(&self) -> Option<SignedDuration> {
        if self.object_lock_enabled.as_deref() != Some("Enabled") {
            return None;
        }
        let retention = self.rule.as_ref()?.default_retention.as_ref()?;
        let days = match (retention.days, retention.years) {
            (Some(days), _) => days,
            (None, Some(years)) => years.checked_mul(DAYS_OF_A_YEAR)?,
            (None, None) => return None,
        };
        DAY.checked_mul(days)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Versions {
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_version_id_marker: Option<String>,
    #[serde(default, rename = "Version")]
    rows: Vec<Row>,
    #[serde(default, rename = "DeleteMarker")]
    markers: Vec<Marker>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    key: String,
    version_id: String,
    last_modified: Timestamp,
    #[serde(rename = "ETag")]
    e_tag: Option<String>,
    #[serde(default)]
    size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Marker {
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tagging {
    #[serde(default)]
    tag_set: TagSet,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct TagSet {
    #[serde(default, rename = "Tag")]
    tags: Vec<Tag>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    key: String,
    value: String,
}

impl TagSet {
    pub(super) fn marks(&self, mark: &str) -> bool {
        self.tags.iter().any(|tag| tag.key == mark && tag.value == "true")
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Uploads {
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    #[serde(default, rename = "Upload")]
    rows: Vec<Unfinished>,
}

/// An object that is being sent in parts, or was.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Unfinished {
    key: String,
    upload_id: String,
    initiated: Timestamp,
}

/// One name, and what was found of it.
#[derive(Debug)]
struct Found {
    oldest: Row,
    /// Somebody removed it, and the versions stayed.
    is_removed: bool,
}

/// Where a bucket is asked.
pub(crate) fn bucket_url(
    endpoint: Option<&str>,
    path_style: bool,
    region: &str,
    bucket: &str,
) -> Option<Url> {
    let text = match (endpoint, path_style) {
        (Some(endpoint), true) => format!("{endpoint}/{bucket}"),
        // It has the name of the bucket in it.
        (Some(endpoint), false) => endpoint.to_owned(),
        (None, true) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        (None, false) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
    };
    Url::parse(&text).ok()
}

impl S3Holds {
    fn folder(&self) -> Folder {
        Folder(self.store.folder().cloned())
    }

    async fn ask(
        &self,
        method: Method,
        name: Option<&str>,
        query: &[(&str, &str)],
    ) -> Result<HttpResponse, Fault> {
        let mut url = self.url.clone();
        if let Some(name) = name {
            let mut parts = url.path_segments_mut().map_err(|()| Fault::Url)?;
            parts.pop_if_empty().extend(name.split('/'));
        }
        url.query_pairs_mut().extend_pairs(query);
        let mut request = http::Request::builder()
            .method(method)
            .uri(url.as_str())
            .body(HttpRequestBody::empty())
            .map_err(|_| Fault::Url)?;
        if !self.is_anonymous {
            let failed = |error: object_store::Error| Fault::of_library(&error);
            let credential = self.credentials.get_credential().await.map_err(failed)?;
            let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
            authorizer.try_authorize(&mut request, None).map_err(failed)?;
        }
        self.client.call(request).await.map_err(|error| Fault::of_call(&error))
    }

    async fn xml<T: DeserializeOwned>(
        &self,
        name: Option<&str>,
        query: &[(&str, &str)],
    ) -> Result<T, Fault> {
        let answer = self.ask(Method::GET, name, query).await?;
        let status = answer.status().as_u16();
        if !answer.status().is_success() {
            return Err(Fault::Answer { status, what: "it did not do what it was asked" });
        }
        let body = wire::body(answer, LISTING_MAX_BYTES).await?;
        let bad = Fault::Answer { status, what: "no XML that can be read" };
        let text = std::str::from_utf8(&body).map_err(|_| Fault::Url);
        quick_xml::de::from_str(text?).map_err(|_| bad)
    }

    /// Whether versions are kept. Services that do not know the question keep none; one who may not
    /// ask is told, and served as before.
    async fn keeps_versions(&self) -> Result<bool, Fault> {
        match self.xml::<Versioning>(None, &[("versioning", "")]).await {
            Ok(versioning) => Ok(versioning.status.as_deref() == Some("Enabled")),
            Err(Fault::Answer { .. }) => Ok(false),
            Err(Fault::Refused(rejection)) if rejection.is_denial() => {
                tracing::warn!("whether the bucket keeps versions cannot be asked: {rejection}");
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    async fn lock_time(&self) -> Result<Option<SignedDuration>, Fault> {
        match self.xml::<LockConfiguration>(None, &[("object-lock", "")]).await {
            Ok(configuration) => Ok(configuration.time()),
            Err(Fault::Answer { .. }) => Ok(None),
            Err(Fault::Refused(rejection)) if rejection.is_denial() => {
                tracing::warn!("how long the bucket keeps objects cannot be asked: {rejection}");
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The oldest version of each name; within a name, newer ones come first.
    async fn oldest(&self, prefix: &str) -> Result<BTreeMap<String, Found>, Fault> {
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        let mut removed = Vec::new();
        let (mut key, mut version) = (String::new(), String::new());
        loop {
            let all = [
                ("versions", ""),
                ("prefix", prefix),
                ("max-keys", PAGE),
                ("key-marker", &key),
                ("version-id-marker", &version),
            ];
            let is_asked = |(name, value): &(&str, &str)| *name == "versions" || !value.is_empty();
            let query: Vec<(&str, &str)> = all.into_iter().filter(is_asked).collect();
            let page: Versions = self.xml(None, &query).await?;
            for oldest in page.rows {
                found.insert(oldest.key.clone(), Found { oldest, is_removed: false });
            }
            removed.extend(page.markers.into_iter().map(|marker| marker.key));
            match (page.is_truncated, page.next_key_marker) {
                (true, Some(next)) if next > key || page.next_version_id_marker.is_some() => {
                    (key, version) = (next, page.next_version_id_marker.unwrap_or_default());
                }
                _ => break,
            }
        }
        for name in removed {
            if let Some(found) = found.get_mut(&name) {
                found.is_removed = true;
            }
        }
        Ok(found)
    }

    /// Those under `prefix`. Services that do not know the question have none.
    async fn unfinished(&self, prefix: &str) -> Result<Vec<Unfinished>, Fault> {
        let mut found = Vec::new();
        let (mut key, mut id) = (String::new(), String::new());
        while found.len() < UPLOADS_MAX {
            let all = [
                ("uploads", ""),
                ("prefix", prefix),
                ("max-uploads", PAGE),
                ("key-marker", &key),
                ("upload-id-marker", &id),
            ];
            let is_asked = |(name, value): &(&str, &str)| *name == "uploads" || !value.is_empty();
            let query: Vec<(&str, &str)> = all.into_iter().filter(is_asked).collect();
            let page: Uploads = match self.xml(None, &query).await {
                Ok(page) => page,
                Err(Fault::Answer { .. }) => break,
                Err(fault) => return Err(fault),
            };
            found.extend(page.rows);
            let next = (
                page.next_key_marker.unwrap_or_default(),
                page.next_upload_id_marker.unwrap_or_default(),
            );
            if !page.is_truncated || next <= (key.clone(), id.clone()) {
                break;
            }
            (key, id) = next;
        }
        // Whatever the service lists: a sibling's name may begin as ours does.
        found.retain(|upload| upload.key.starts_with(prefix));
        Ok(found)
    }

    /// Asked only of names that somebody removed: no other is ever left out.
    async fn is_excluded(&self, found: &Found, mark: &str) -> Result<bool, Fault> {
        if !found.is_removed {
            return Ok(false);
        }
        let Row { key, version_id, .. } = &found.oldest;
        let query = [("tagging", ""), ("versionId", version_id.as_str())];
        match self.xml::<Tagging>(Some(key), &query).await {
            Ok(tagging) => Ok(tagging.tag_set.marks(mark)),
            Err(Fault::Answer { .. }) => Ok(false),
            Err(fault) => Err(fault),
        }
    }
}

#[async_trait]
impl Holds for S3Holds {
    async fn list(&self, prefix: &Prefix, mark: &str) -> Result<Vec<Held>, Error> {
        let (folder, text) = (self.folder(), self.folder().prefix(prefix));
        let failed = |fault: Fault| fault.into_error(listing(&text));
        if !self.keeps_versions().await.map_err(failed)? {
            let found = crate::store::list_all(self.store.as_ref(), prefix).await?;
            return Ok(found.into_iter().map(Held::plain).collect());
        }
        let lock = self.lock_time().await.map_err(failed)?;
        let mut held = Vec::new();
        for (name, found) in self.oldest(&text).await.map_err(failed)? {
            let Some(key) = folder.below(&name) else { continue };
            let is_excluded = self.is_excluded(&found, mark).await.map_err(failed)?;
            let Row { version_id, last_modified, e_tag, size, .. } = found.oldest;
            let version = Version { e_tag, number: Some(version_id.clone()) };
            let meta = Meta { key, len_bytes: size, version, modified: last_modified };
            // Counted by the service from the write, whatever the name says.
            let locked_until = lock.and_then(|lock| last_modified.checked_add(lock).ok());
            held.push(Held { meta, version: Some(version_id), locked_until, is_excluded });
        }
        Ok(held)
    }

    fn reading(&self, version: &str) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.store.at_version(version)))
    }

    async fn delete(&self, key: &Key, version: &str) -> Result<(), Error> {
        let failed = |fault: Fault| fault.into_error(key.to_string());
        let name = self.folder().whole(key);
        let query = [("versionId", version)];
        let answer = self.ask(Method::DELETE, Some(&name), &query).await.map_err(failed)?;
        gone(answer.status(), "the version was not removed").map_err(failed)
    }

    async fn sweep_uploads(&self, prefix: &Prefix, time: Timestamp) -> Result<u64, Error> {
        let text = self.folder().prefix(prefix);
        let failed = |fault: Fault| fault.into_error(listing(&text));
        let mut swept = 0;
        for upload in self.unfinished(&text).await.map_err(failed)? {
            if upload.initiated >= time {
                continue;
            }
            let failed = |fault: Fault| fault.into_error(upload.key.clone());
            let query = [("uploadId", upload.upload_id.as_str())];
            let answer = self.ask(Method::DELETE, Some(&upload.key), &query).await;
            let status = answer.map_err(failed)?.status();
            gone(status, "the upload was not given up").map_err(failed)?;
            swept += 1;
        }
        Ok(swept)
    }
}

/// What is not there is removed already.
fn gone(status: StatusCode, otherwise: &'static str) -> Result<(), Fault> {
    if status.is_success() || status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    Err(Fault::Answer { status: status.as_u16(), what: otherwise })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(inside: &str) -> Option<SignedDuration> {
        let text = format!("<ObjectLockConfiguration>{inside}</ObjectLockConfiguration>");
        quick_xml::de::from_str::<LockConfiguration>(&text).unwrap().time()
    }

    #[test]
    fn a_lock_is_so_many_days_or_years() {
        let on = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
        let rule = |it: &str| {
            format!(
                "{on}<Rule><DefaultRetention><Mode>COMPLIANCE</Mode>{it}</DefaultRetention></Rule>"
            )
        };
        assert_eq!(lock(&rule("<Days>3</Days>")), DAY.checked_mul(3));
        assert_eq!(lock(&rule("<Years>1</Years>")), DAY.checked_mul(365));
        assert_eq!(lock(on), None);
        assert_eq!(lock(""), None);
        assert_eq!(lock(&rule("<Years>2147483647</Years>")), None);
    }

    #[test]
    fn a_listing_of_versions_mixes_them_with_marks_of_removal() {
        let row = |kind: &str, key: &str, id: &str| {
            format!(
                "<{kind}><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>true</IsLatest>\
                 <LastModified>2026-11-16T06:00:00.000Z</LastModified><ETag>\"x\"</ETag>\
                 <Size>3</Size></{kind}>"
            )
        };
        let text = format!(
            "<ListVersionsResult xmlns=\"x\"><Name>b</Name><IsTruncated>false</IsTruncated>{}{}{}\
             </ListVersionsResult>",
            row("Version", "a", "2"),
            row("DeleteMarker", "a", "1"),
            row("Version", "a", "0")
        );
        let page: Versions = quick_xml::de::from_str(&text).unwrap();
        assert_eq!((page.rows.len(), page.markers.len()), (2, 1));
        assert_eq!(page.rows.last().unwrap().version_id, "0");
    }
}
