//! Which namespace a tenant's backup or restore was asked for in. While it waits or runs, the name may
//! become somebody else's: nothing of the one is then taken for the other, or given to it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::names;

/// The namespace that is as old as its cluster.
const FIRST_NAMESPACE: &str = "kube-system";

/// A namespace of this cluster, and not only its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    namespace: String,
    uid: String,
}

impl Home {
    /// What an object says of it; `tenant` is the annotation with the name. Nothing for what no tenant
    /// asked for, and for what comes from another cluster, where names decide.
    pub(crate) async fn of(
        client: &Client,
        notes: Option<&BTreeMap<String, String>>,
        tenant: &str,
    ) -> Result<Option<Self>, kube::Error> {
        let note = |key: &str| notes.and_then(|it| it.get(key));
        let (Some(namespace), Some(uid), Some(cluster)) =
            (note(tenant), note(names::NAMESPACE_UID), note(names::CLUSTER_UID))
        else {
            return Ok(None);
        };
        let first = uid_of(client, FIRST_NAMESPACE).await?;
        let is_here = first.as_ref() == Some(cluster);
        Ok(is_here.then(|| Self { namespace: namespace.clone(), uid: uid.clone() }))
    }

    /// Why there is nothing to go on with, if the namespace of that name is not this one any more.
    pub(crate) async fn loss(&self, client: &Client) -> Result<Option<String>, kube::Error> {
        let now = uid_of(client, &self.namespace).await?;
        Ok(self.lost(now.as_deref()))
    }

    fn lost(&self, now: Option<&str>) -> Option<String> {
        let Self { namespace, uid } = self;
        match now {
            Some(now) if now == uid => None,
            Some(_) => Some(format!(
                "the namespace {namespace} that this was asked for in was deleted, and another has its \
                 name now"
            )),
            None => Some(format!("the namespace {namespace} is not there any more")),
        }
    }
}

async fn uid_of(client: &Client, namespace: &str) -> Result<Option<String>, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    Ok(api.get_metadata_opt(namespace).await?.and_then(|it| it.metadata.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_given_away_is_another_namespace() {
        let home = Home { namespace: "team-a".to_owned(), uid: "1".to_owned() };
        assert_eq!(home.lost(Some("1")), None);
        assert!(home.lost(Some("2")).is_some_and(|it| it.contains("another has its name")));
        assert!(home.lost(None).is_some_and(|it| it.contains("not there any more")));
    }
}
