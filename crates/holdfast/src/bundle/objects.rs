//! Objects of the installation, with their statuses and events.

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Found;

/// Of one list of objects.
const PAGE: u32 = 500;
const MAX_OBJECTS: usize = 5000;
/// Groups whose objects say what Holdfast does.
const GROUPS: [&str; 4] = ["longhorn.io", "velero.io", "oadp.openshift.io", "coordination.k8s.io"];
/// What else does, of the groups of Kubernetes itself. Of Secrets only their names are shown.
const KINDS: [(&str, &str); 12] = [
    ("", "Namespace"),
    ("", "Event"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "Secret"),
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];
/// Kinds of which only Holdfast's own are taken along: the rest is the users' business.
const OURS: [&str; 3] = ["Pod", "Deployment", "DaemonSet"];

pub(super) async fn collect(client: &Client, found: &mut Found) {
    match client.apiserver_version().await {
        Ok(version) => drop(found.documents.insert("server.json".to_owned(), json!(version))),
        Err(error) => found.missed.push(format!("the server's version: {error}")),
    }
    match metrics(client).await {
        Ok(text) => drop(found.texts.insert("metrics.txt".to_owned(), text)),
        Err(error) => found.missed.push(format!("metrics: {error:#}")),
    }
    let discovery = match Discovery::new(client.clone()).run().await {
        Ok(discovery) => discovery,
        Err(error) => return found.missed.push(format!("objects: {error}")),
    };
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let is_wanted = GROUPS.contains(&group.name())
                || KINDS.contains(&(group.name(), resource.kind.as_str()));
            if !is_wanted || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let place = if group.name().is_empty() { "core" } else { group.name() };
            let path = format!("objects/{place}/{}.json", resource.plural);
            match list(client, &resource).await {
                Ok((items, is_whole)) => {
                    if !is_whole {
                        found.missed.push(format!("{path}: more than {MAX_OBJECTS}"));
                    }
                    found.documents.insert(path, Value::Array(items));
                }
                Err(error) => found.missed.push(format!("{path}: {error}")),
            }
        }
    }
}

/// The objects of a kind, and whether they are all of them.
async fn list(client: &Client, resource: &ApiResource) -> anyhow::Result<(Vec<Value>, bool)> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut items = Vec::new();
    let mut next = ListParams::default().limit(PAGE);
    if OURS.contains(&resource.kind.as_str()) {
        next = next.labels(super::logs::PODS);
    }
    loop {
        let page = api.list(&next).await?;
        for object in page.items {
            items.push(shown(serde_json::to_value(object)?, &resource.kind));
        }
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(_) if items.len() >= MAX_OBJECTS => return Ok((items, false)),
            Some(token) => next = next.continue_token(&token),
            None => return Ok((items, true)),
        }
    }
}

/// An object as it is taken along.
fn shown(mut object: Value, kind: &str) -> Value {
    // Members of a list do not say what they are, and secrets are known by that.
    if let Some(members) = object.as_object_mut() {
        members.insert("kind".to_owned(), json!(kind));
    }
    // Of a definition, which versions there are; its schema is part of the build.
    if let Some(versions) = object.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            version.remove("schema");
        }
    }
    object
}

async fn metrics(client: &Client) -> anyhow::Result<String> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(client.request_text(request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_says_what_it_is_and_a_definition_leaves_its_schema() {
        let object = json!({"spec": {"versions": [{"name": "v1", "schema": {"a": 1}}]}});
        let shown = shown(object, "CustomResourceDefinition");
        let wanted = json!({"kind": "CustomResourceDefinition",
            "spec": {"versions": [{"name": "v1"}]}});
        assert_eq!(shown, wanted);
    }
}
