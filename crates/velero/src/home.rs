//! Which namespace a tenant's backup or restore was asked for in. While it waits or runs, the name may
//! become somebody else's: nothing of the one is then taken for the other, or given to it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::door::code;
use crate::names;

/// The namespace that is as old as its cluster.
const FIRST_NAMESPACE: &str = "kube-system";

/// How long a server that does not answer is asked whose a namespace is.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(500);

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

/// One answer that did not come says nothing about the namespace: a backup of an hour does not end with it.
async fn uid_of(client: &Client, namespace: &str) -> Result<Option<String>, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let began = Instant::now();
    loop {
        match api.get_metadata_opt(namespace).await {
            Err(error) if !is_rejection(&error) && began.elapsed() < ANSWER_WITHIN => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            answer => return Ok(answer?.and_then(|it| it.metadata.uid)),
        }
    }
}

/// Whether the server said no, rather than nothing.
fn is_rejection(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| (400..500).contains(&code) && code != 429)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A server that fails so often before it answers, and how often it was asked.
    fn stumbling(code: u16, failures: usize) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let fails = counted.fetch_add(1, Ordering::Relaxed) < failures;
            let body = if fails {
                format!(r#"{{"kind":"Status","status":"Failure","message":"","code":{code}}}"#)
            } else {
                r#"{"metadata":{"name":"team-a","uid":"1"}}"#.to_owned()
            };
            let status = if fails { code } else { 200 };
            let answer = http::Response::builder().status(status);
            let answer = answer.body(kube::client::Body::from(body.into_bytes())).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stumbles_takes_nobodys_namespace_away() {
        let home = Home { namespace: "team-a".to_owned(), uid: "1".to_owned() };
        let (client, asked) = stumbling(503, 3);
        assert!(matches!(home.loss(&client).await, Ok(None)));
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        // Who says no is not asked again, and one that is down not for ever.
        let (client, asked) = stumbling(403, 1);
        assert!(home.loss(&client).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let (client, _) = stumbling(503, usize::MAX);
        assert!(home.loss(&client).await.is_err());
    }

    #[test]
    fn a_name_that_was_given_away_is_another_namespace() {
        let home = Home { namespace: "team-a".to_owned(), uid: "1".to_owned() };
        assert_eq!(home.lost(Some("1")), None);
        assert!(home.lost(Some("2")).is_some_and(|it| it.contains("another has its name")));
        assert!(home.lost(None).is_some_and(|it| it.contains("not there any more")));
    }
}
