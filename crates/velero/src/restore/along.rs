//! What a restore by labels brings along though its labels are others: the claims that the chosen pods mount,
//! and the volumes of claims. Without them the pods would wait for ever.

use std::collections::HashSet;

use serde_json::Value;

use super::edit;
use super::spool::{Contents, Entry};
use crate::backup::collect::mounted_claims;
use crate::selection::RestoreSelection;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Along {
    /// By namespace and name.
    claims: HashSet<(String, String)>,
    volumes: HashSet<String>,
}

impl Along {
    /// `wants` says of a pod or claim whether it comes back if its labels are right. There may be very many:
    /// others have their turn in between.
    pub(crate) async fn of(
        contents: &Contents,
        selection: &RestoreSelection,
        wants: impl Fn(&str, &Entry) -> bool,
    ) -> Self {
        let mut found = Self::default();
        if !selection.has_selectors() {
            return found;
        }
        for entry in contents.of("pods").iter() {
            tokio::task::yield_now().await;
            found.add_pod(contents, selection, entry, wants("pods", entry));
        }
        for entry in contents.of(CLAIMS).iter() {
            tokio::task::yield_now().await;
            found.add_claim(contents, selection, entry, wants(CLAIMS, entry));
        }
        found
    }

    fn add_pod(
        &mut self,
        contents: &Contents,
        selection: &RestoreSelection,
        entry: &Entry,
        is_wanted: bool,
    ) {
        let Some(namespace) = entry.namespace.as_deref().filter(|_| is_wanted) else { return };
        let Ok(pod) = contents.read(entry) else { return };
        if selection.matches(&pod) && edit::skip("pods", &pod).is_none() {
            let claims = mounted_claims(&pod);
            self.claims.extend(claims.map(|it| (namespace.to_owned(), it.to_owned())));
        }
    }

    fn add_claim(
        &mut self,
        contents: &Contents,
        selection: &RestoreSelection,
        entry: &Entry,
        is_wanted: bool,
    ) {
        let Some(claim) = contents.read(entry).ok().filter(|_| is_wanted) else { return };
        if selection.matches(&claim) || self.holds(CLAIMS, entry) {
            let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str);
            self.volumes.extend(volume.map(str::to_owned));
        }
    }

    pub(crate) fn holds(&self, resource: &str, entry: &Entry) -> bool {
        match (resource, &entry.namespace) {
            (CLAIMS, Some(namespace)) => {
                self.claims.contains(&(namespace.to_string(), entry.name.to_string()))
            }
            (VOLUMES, None) => self.volumes.contains(&*entry.name),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spool::tests::contents;
    use super::*;
    use crate::catalog::tests::sample;

    #[tokio::test]
    async fn others_have_their_turn_while_an_archive_is_looked_through() {
        let pods: Vec<(String, String)> = (0..50)
            .map(|number| {
                let object = json!({"metadata": {"name": format!("p{number}"), "namespace": "n"}});
                (format!("resources/pods/namespaces/n/p{number}.json"), object.to_string())
            })
            .collect();
        let members: Vec<(&str, &str)> =
            pods.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let held = contents(&members);
        let spec = json!({"labelSelector": {"matchLabels": {"app": "db"}}});
        let chosen = RestoreSelection::of(&serde_json::from_value(spec).unwrap(), &sample());
        let is_done = std::cell::Cell::new(false);
        let looking = async {
            Along::of(&held, &chosen.unwrap(), |_, _| true).await;
            is_done.set(true);
        };
        let others = async {
            let mut turns = 0;
            while !is_done.get() {
                turns += 1;
                tokio::task::yield_now().await;
            }
            turns
        };
        let ((), turns) = tokio::join!(looking, others);
        assert!(turns >= pods.len(), "{turns}");
    }

    #[tokio::test]
    async fn a_pod_that_is_chosen_brings_its_claims_and_a_claim_its_volume() {
        let pod = |name: &str, app: &str, claim: &str, phase: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
                "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": claim}}]},
                "status": {"phase": phase}});
            (format!("resources/pods/namespaces/n/{name}.json"), object.to_string())
        };
        let claim = |name: &str, app: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
                "spec": {"volumeName": format!("pv-{name}")}});
            (
                format!("resources/persistentvolumeclaims/namespaces/n/{name}.json"),
                object.to_string(),
            )
        };
        let volume = |name: &str| {
            let object = json!({"metadata": {"name": format!("pv-{name}")}});
            (format!("resources/persistentvolumes/cluster/pv-{name}.json"), object.to_string())
        };
        let names = ["data", "cache", "old", "own"];
        let mut members = vec![
            pod("db", "db", "data", "Running"),
            pod("web", "web", "cache", "Running"),
            pod("done", "db", "old", "Succeeded"),
            claim("own", "db"),
        ];
        members.extend(["data", "cache", "old"].map(|it| claim(it, "none")));
        members.extend(names.map(volume));
        let members: Vec<(&str, &str)> =
            members.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let held = contents(&members);
        let select = |spec: Value| {
            RestoreSelection::of(&serde_json::from_value(spec).unwrap(), &sample()).unwrap()
        };
        let chosen = select(json!({"labelSelector": {"matchLabels": {"app": "db"}}}));
        let along = Along::of(&held, &chosen, |_, _| true).await;
        let holds = |resource: &str, namespace: Option<&str>, name: &str| {
            along.holds(resource, held.find(resource, namespace, name).unwrap())
        };
        assert_eq!(names.map(|it| holds(CLAIMS, Some("n"), it)), [true, false, false, false]);
        assert_eq!(
            names.map(|it| holds(VOLUMES, None, &format!("pv-{it}"))),
            [true, false, false, true]
        );
        assert_eq!(Along::of(&held, &chosen, |_, _| false).await, Along::default());
        assert_eq!(Along::of(&held, &select(json!({})), |_, _| true).await, Along::default());
    }
}
