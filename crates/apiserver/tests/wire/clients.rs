//! The client library our controllers use, as it is.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{finalizer, wait};
use kube::{Discovery, ResourceExt};
use serde_json::json;

use crate::support::World;

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn watchers_list_first_and_follow_then_in_both_modes() {
    let world = World::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.kube());
    let create = async |name: &str| api.create(&PostParams::default(), &map(name)).await.unwrap();
    create("one").await;
    for (index, config) in
        [watcher::Config::default(), watcher::Config::default().streaming_lists()]
            .iter()
            .enumerate()
    {
        let stream = watcher::watcher(api.clone(), config.clone().labels("a=b"));
        let mut stream = std::pin::pin!(stream);
        let mut initial = Vec::new();
        loop {
            match stream.next().await.unwrap().unwrap() {
                Event::Init => {}
                Event::InitApply(object) => initial.push(object.name_any()),
                Event::InitDone => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(initial, ["one"]);
        let name = format!("live{index}");
        create(&name).await;
        match stream.next().await.unwrap().unwrap() {
            Event::Apply(object) => assert_eq!(object.name_any(), name),
            other => panic!("{other:?}"),
        }
        api.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        match stream.next().await.unwrap().unwrap() {
            Event::Delete(object) => assert_eq!(object.name_any(), name),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn metadata_is_listed_and_watched_alone() {
    let world = World::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.kube());
    api.create(&PostParams::default(), &map("one")).await.unwrap();
    let list = api.list_metadata(&ListParams::default().labels("a=b")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let config = watcher::Config::default().labels("a=b");
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(world.kube());
    let mut stream = std::pin::pin!(watcher::watcher(metadata, config));
    let mut seen = Vec::new();
    while seen.is_empty() {
        if let Event::InitApply(object) = stream.next().await.unwrap().unwrap() {
            seen.push(object);
        }
    }
    assert_eq!(seen[0].name_any(), "one");
}

#[tokio::test]
async fn discovery_runs_plain_and_aggregated() {
    let world = World::start().await;
    world.widgets().await;
    let plain = Discovery::new(world.kube()).run().await.unwrap();
    let aggregated = Discovery::new(world.kube()).run_aggregated().await.unwrap();
    for found in [plain, aggregated] {
        let group = found.get("example.com").unwrap();
        let (resource, capabilities) = group.recommended_kind("Widget").unwrap();
        assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("widgets", "v1"));
        assert!(capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status")));
    }
}

#[tokio::test]
async fn finalizers_and_conditions_work() {
    let world = World::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.kube());
    api.create(&PostParams::default(), &map("f")).await.unwrap();
    let step = async || {
        let object = std::sync::Arc::new(api.get("f").await.unwrap());
        finalizer(&api, "example.com/hold", object, |_| async {
            Ok::<_, std::io::Error>(kube::runtime::controller::Action::await_change())
        })
        .await
        .unwrap();
    };
    step().await;
    assert_eq!(api.get("f").await.unwrap().finalizers(), ["example.com/hold"]);
    let uid = api.delete("f", &kube::api::DeleteParams::default()).await.unwrap();
    let uid = uid.left().unwrap().uid().unwrap();
    let gone = wait::await_condition(api.clone(), "f", wait::conditions::is_deleted(&uid));
    let (gone, ()) = tokio::join!(gone, step());
    gone.unwrap();
}

#[tokio::test]
async fn one_page_after_the_other_makes_the_whole() {
    let world = World::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.kube());
    for index in 0..7 {
        api.create(&PostParams::default(), &map(&format!("m{index}"))).await.unwrap();
    }
    let mut names = Vec::new();
    let mut parameters = ListParams::default().labels("a=b").limit(3);
    loop {
        let page = api.list(&parameters).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => break,
            Some(token) => parameters = parameters.continue_token(&token),
        }
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4", "m5", "m6"]);
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}});
    let parameters = PatchParams::apply("test").force();
    api.patch("m0", &parameters, &Patch::Apply(&patch)).await.unwrap();
    let watch = kube::api::WatchParams::default().labels("a=b").timeout(4);
    let events: Vec<_> = api.watch(&watch, "0").await.unwrap().try_collect().await.unwrap();
    assert!(events.len() >= 7);
}
