//! Single requests: what is sent, answered and refused.

use e2e::Server;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Api, Discovery, ResourceExt};
use serde_json::json;

use super::{Garden, GardenSpec, config_map, with_gardens};

/// The HTTP code of a refused request, and the reason the server gave.
fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let created = api.create(&PostParams::default(), &config_map("one", "1")).await.unwrap();
    assert!(created.uid().is_some() && created.resource_version().is_some());
    let twice = api.create(&PostParams::default(), &config_map("one", "1")).await;
    assert_eq!(refused(twice), (409, "AlreadyExists".to_owned()));

    let mut read = api.get("one").await.unwrap();
    assert_eq!(read, created);
    read.data = Some([("value".to_owned(), "2".to_owned())].into());
    let replaced = api.replace("one", &PostParams::default(), &read).await.unwrap();
    assert_ne!(replaced.resource_version(), created.resource_version());
    let stale = api.replace("one", &PostParams::default(), &created).await;
    assert_eq!(refused(stale), (409, "Conflict".to_owned()));

    let elsewhere = Preconditions { uid: Some("another".to_owned()), resource_version: None };
    let guarded = DeleteParams { preconditions: Some(elsewhere), ..DeleteParams::default() };
    assert_eq!(refused(api.delete("one", &guarded).await).0, 409);
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused(api.get("one").await), (404, "NotFound".to_owned()));
    assert!(api.get_opt("one").await.unwrap().is_none());
}

#[tokio::test]
async fn lists_come_in_pages_and_by_selector() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    for number in 0..25 {
        let mut one = config_map(&format!("page-{number:02}"), "x");
        let parity = if number % 2 == 0 { "even" } else { "odd" };
        one.metadata.labels = Some([("parity".to_owned(), parity.to_owned())].into());
        api.create(&PostParams::default(), &one).await.unwrap();
    }
    let mut names = Vec::new();
    let mut params = ListParams::default().labels("parity").limit(10);
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).map(|number| format!("page-{number:02}")).collect();
    assert_eq!(names, expected);
    let even = api.list(&ListParams::default().labels("parity=even")).await.unwrap();
    assert_eq!(even.items.len(), 13);
    let one = api.list(&ListParams::default().fields("metadata.name=page-07")).await.unwrap();
    assert_eq!(one.items.len(), 1);
    let removed = api
        .delete_collection(&DeleteParams::default(), &ListParams::default().labels("parity=odd"))
        .await;
    assert!(removed.is_ok(), "{removed:?}");
    assert_eq!(api.list(&ListParams::default().labels("parity")).await.unwrap().items.len(), 13);
}

#[tokio::test]
async fn every_kind_of_patch_works_and_dry_runs_change_nothing() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    api.create(&PostParams::default(), &config_map("one", "1")).await.unwrap();
    let params = PatchParams::default();
    let merge = Patch::Merge(json!({"data": {"merged": "yes"}}));
    api.patch("one", &params, &merge).await.unwrap();
    let strategic = Patch::Strategic(json!({"metadata": {"labels": {"a": "b"}}}));
    api.patch("one", &params, &strategic).await.unwrap();
    let operations = serde_json::from_value(json!([
        {"op": "test", "path": "/data/value", "value": "1"},
        {"op": "replace", "path": "/data/value", "value": "2"},
    ]));
    let json_patch = Patch::Json::<()>(operations.unwrap());
    api.patch("one", &params, &json_patch).await.unwrap();
    let again = api.patch("one", &params, &json_patch).await;
    assert_eq!(refused(again).0, 422);
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let answered = api.patch("one", &dry, &Patch::Merge(json!({"data": {"dry": "run"}}))).await;
    assert!(answered.unwrap().data.unwrap().contains_key("dry"));
    let stored = api.get("one").await.unwrap();
    let data = stored.data.clone().unwrap();
    assert_eq!(data.get("merged").map(String::as_str), Some("yes"));
    assert_eq!(data.get("value").map(String::as_str), Some("2"));
    assert!(!data.contains_key("dry"));
    assert_eq!(stored.labels().get("a").map(String::as_str), Some("b"));
}

#[tokio::test]
async fn two_appliers_of_one_field_conflict_until_one_forces() {
    let server = Server::start();
    let api = with_gardens(&server.client().await).await;
    let garden = |beds: u32| {
        let mut garden = Garden::new("shared", GardenSpec { beds });
        garden.metadata.managed_fields = None;
        Patch::Apply(garden)
    };
    api.patch("shared", &PatchParams::apply("first"), &garden(1)).await.unwrap();
    let conflict = api.patch("shared", &PatchParams::apply("second"), &garden(2)).await;
    match conflict {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
            assert!(status.message.contains("first"), "{}", status.message);
        }
        other => panic!("no conflict: {other:?}"),
    }
    let forced = PatchParams::apply("second").force();
    let taken = api.patch("shared", &forced, &garden(2)).await.unwrap();
    assert_eq!(taken.spec.beds, 2);
    let managers: Vec<_> =
        taken.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    assert!(managers.contains(&"second".to_owned()), "{managers:?}");
}

#[tokio::test]
async fn status_is_apart_from_spec() {
    let server = Server::start();
    let api = with_gardens(&server.client().await).await;
    api.create(&PostParams::default(), &Garden::new("g", GardenSpec { beds: 3 })).await.unwrap();
    let planted = Patch::Merge(json!({"status": {"planted": 2}}));
    let ignored = api.patch("g", &PatchParams::default(), &planted).await.unwrap();
    assert_eq!(ignored.status, None);
    let changed = api.patch_status("g", &PatchParams::default(), &planted).await.unwrap();
    assert_eq!(changed.status.as_ref().map(|status| status.planted), Some(2));
    assert_eq!(changed.metadata.generation, Some(1));
    let wrong = Patch::Merge(json!({"spec": {"beds": "many"}}));
    let result = api.patch("g", &PatchParams::default(), &wrong).await;
    assert_eq!(refused(result), (422, "Invalid".to_owned()));
}

#[tokio::test]
async fn metadata_can_be_asked_for_alone() {
    let server = Server::start();
    let api: Api<Secret> = Api::default_namespaced(server.client().await);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"},
                        "stringData": {"password": "swordfish"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let created = api.create(&PostParams::default(), &secret).await.unwrap();
    assert!(created.data.unwrap().contains_key("password"));
    let partial: PartialObjectMeta<Secret> = api.get_metadata("hidden").await.unwrap();
    assert_eq!(partial.name_any(), "hidden");
    let all = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(all.items.len(), 1);
}

#[tokio::test]
async fn both_kinds_of_discovery_find_the_same_resources() {
    let server = Server::start();
    let client = server.client().await;
    with_gardens(&client).await;
    let classic = Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    let kinds = |discovery: &Discovery| {
        let mut kinds: Vec<String> = discovery
            .groups()
            .flat_map(kube::discovery::ApiGroup::recommended_resources)
            .map(|(resource, _)| format!("{}/{}", resource.group, resource.kind))
            .collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&classic), kinds(&aggregated));
    for kind in ["/ConfigMap", "e2e.example.com/Garden", "coordination.k8s.io/Lease"] {
        assert!(kinds(&classic).contains(&kind.to_owned()), "{kind}");
    }
    // The dynamic client gets along with nothing but discovery.
    let (_, group) = aggregated
        .groups()
        .map(|group| (group.name(), group))
        .find(|(name, _)| *name == "e2e.example.com")
        .unwrap();
    let (resource, _) = group.recommended_kind("Garden").unwrap();
    let gardens: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    assert!(gardens.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_content_along() {
    let server = Server::start();
    let client = server.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    let created = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(client, "gone");
    inside.create(&PostParams::default(), &config_map("inside", "1")).await.unwrap();
    namespaces.delete("gone", &DeleteParams::default()).await.unwrap();
    let uid = created.uid().unwrap();
    let deleted = kube::runtime::wait::await_condition(
        namespaces,
        "gone",
        kube::runtime::wait::conditions::is_deleted(&uid),
    );
    super::soon("the end of the namespace", deleted).await.unwrap();
    assert!(inside.get_opt("inside").await.unwrap().is_none());
}
