//! Reading objects as far as the caller's rights reach.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Client};
use people::NAMESPACE;
use serde::de::DeserializeOwned;

use crate::session::Standing;

/// What one page shows of one kind; commands list all.
const SHOWN: usize = 1000;
/// What is read to judge the whole, or to find the newest.
const JUDGED: usize = 10_000;
/// What one call reads.
const PAGE: u32 = 1000;

pub(crate) trait Object:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

/// Objects of a kind.
#[derive(Debug)]
pub(crate) struct Listed<K> {
    pub(crate) items: Vec<K>,
    /// There are others that were not read.
    pub(crate) has_more: bool,
    /// The caller may not see any.
    pub(crate) is_hidden: bool,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self { items: Vec::new(), has_more: false, is_hidden: false }
    }
}

impl<K: Object> Listed<K> {
    /// What to say beneath a table of them.
    pub(crate) fn foot(&self) -> Option<String> {
        let plural = K::plural(&());
        if self.is_hidden {
            return Some(format!("You may not list {plural} here."));
        }
        let count = self.items.len();
        self.has_more.then(|| format!("There are more {plural}; these are the first {count}."))
    }

    /// Its plural, if it is hidden, and what is missing if not all was read.
    pub(crate) fn hidden(&self) -> Option<String> {
        let plural = K::plural(&());
        if self.is_hidden {
            return Some(plural.into_owned());
        }
        let count = self.items.len();
        self.has_more.then(|| format!("{plural} beyond the first {count}"))
    }
}

/// The API, as one caller sees it.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) standing: &'a Standing,
    most: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(client: &'a Client, standing: &'a Standing) -> Self {
        Self { client, standing, most: SHOWN }
    }

    /// Reads as much as it takes to judge the whole.
    pub(crate) fn deep(self) -> Self {
        Self { most: JUDGED, ..self }
    }

    /// Volumes and what belongs to them.
    pub(crate) async fn volumes<K: Object>(self) -> Result<Listed<K>, kube::Error> {
        list(&Api::namespaced(self.client.clone(), NAMESPACE), self.most).await
    }

    /// Those of all namespaces, or of the caller's own.
    pub(crate) async fn everywhere<K: Object>(self) -> Result<Listed<K>, kube::Error> {
        let all = list(&Api::all(self.client.clone()), self.most).await?;
        if !all.is_hidden || self.standing.namespaces.is_empty() {
            return Ok(all);
        }
        let mut own = Listed::default();
        for namespace in &self.standing.namespaces {
            let api = Api::namespaced(self.client.clone(), namespace);
            let one = list::<K>(&api, self.most).await?;
            own.items.extend(one.items);
            own.has_more |= one.has_more;
            own.is_hidden |= one.is_hidden;
        }
        Ok(own)
    }

    pub(crate) async fn volume_named<K: Object>(self, name: &str) -> Result<K, kube::Error> {
        Api::namespaced(self.client.clone(), NAMESPACE).get(name).await
    }
}

async fn list<K: Object>(api: &Api<K>, most: usize) -> Result<Listed<K>, kube::Error> {
    let mut listed = Listed::default();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        match api.list(&page).await {
            Ok(found) => {
                listed.items.extend(found.items);
                let next = found.metadata.continue_.filter(|it| !it.is_empty());
                listed.has_more = next.is_some();
                match next.filter(|_| listed.items.len() < most) {
                    Some(next) => page = page.continue_token(&next),
                    None => return Ok(listed),
                }
            }
            // Not for this caller, or unknown to this cluster.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                return Ok(Listed { is_hidden: true, ..Listed::default() });
            }
            // It has moved on while we read: what is read is not all.
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(listed),
            Err(error) => return Err(error),
        }
    }
}
