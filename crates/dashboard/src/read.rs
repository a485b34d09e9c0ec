//! Reading objects as far as the caller's rights reach.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Client};
use people::NAMESPACE;
use serde::de::DeserializeOwned;

use crate::session::Standing;

/// What one page reads of one kind; commands list all.
const MAX_ITEMS: u32 = 1000;

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
        self.has_more.then(|| format!("There are more {plural}; these are the first {MAX_ITEMS}."))
    }

    /// Its plural, if it is hidden.
    pub(crate) fn hidden(&self) -> Option<String> {
        self.is_hidden.then(|| K::plural(&()).into_owned())
    }
}

/// The API, as one caller sees it.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) standing: &'a Standing,
}

impl Reader<'_> {
    /// Volumes and what belongs to them.
    pub(crate) async fn volumes<K: Object>(self) -> Result<Listed<K>, kube::Error> {
        list(&Api::namespaced(self.client.clone(), NAMESPACE)).await
    }

    /// Those of all namespaces, or of the caller's own.
    pub(crate) async fn everywhere<K: Object>(self) -> Result<Listed<K>, kube::Error> {
        let all = list(&Api::all(self.client.clone())).await?;
        if !all.is_hidden || self.standing.namespaces.is_empty() {
            return Ok(all);
        }
        let mut own = Listed::default();
        for namespace in &self.standing.namespaces {
            let one = list::<K>(&Api::namespaced(self.client.clone(), namespace)).await?;
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

async fn list<K: Object>(api: &Api<K>) -> Result<Listed<K>, kube::Error> {
    match api.list(&ListParams::default().limit(MAX_ITEMS)).await {
        Ok(found) => {
            let has_more = found.metadata.continue_.is_some_and(|it| !it.is_empty());
            Ok(Listed { items: found.items, has_more, is_hidden: false })
        }
        // Not for this caller, or unknown to this cluster.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            Ok(Listed { is_hidden: true, ..Listed::default() })
        }
        Err(error) => Err(error),
    }
}
