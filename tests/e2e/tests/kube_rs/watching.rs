//! Watches: nothing lost, nothing twice, and a fresh start when history has been forgotten.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use e2e::Server;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::client::{Body, ClientBuilder};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use tower::util::MapRequestLayer;

use super::{config_map, soon};

/// What the watcher told, one word each.
fn word(event: &Event<ConfigMap>) -> String {
    match event {
        Event::Init => "init".to_owned(),
        Event::InitApply(one) => format!("there {}", one.name_any()),
        Event::InitDone => "done".to_owned(),
        Event::Apply(one) => format!("apply {}", one.name_any()),
        Event::Delete(one) => format!("delete {}", one.name_any()),
    }
}

#[tokio::test]
async fn a_watcher_sees_every_change_in_order() {
    let server = Server::start();
    for settings in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
        api.create(&PostParams::default(), &config_map("before", "1")).await.unwrap();
        let mut stream = pin!(watcher(api.clone(), settings));
        let mut next = async || word(&soon("an event", stream.try_next()).await.unwrap().unwrap());
        assert_eq!(next().await, "init");
        assert_eq!(next().await, "there before");
        assert_eq!(next().await, "done");
        api.create(&PostParams::default(), &config_map("after", "1")).await.unwrap();
        api.replace("after", &PostParams::default(), &config_map("after", "2")).await.unwrap();
        api.delete("after", &DeleteParams::default()).await.unwrap();
        api.delete("before", &DeleteParams::default()).await.unwrap();
        for expected in ["apply after", "apply after", "delete after", "delete before"] {
            assert_eq!(next().await, expected);
        }
    }
}

#[tokio::test]
async fn a_watcher_whose_history_is_forgotten_starts_afresh() {
    let server = Server::start();
    // The first watch asks for a revision of long ago.
    let aged = Arc::new(AtomicBool::new(false));
    let layer = MapRequestLayer::new({
        let aged = aged.clone();
        move |request: Request<Body>| age_first_watch(request, &aged)
    });
    let config = server.config().await;
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&layer).build();
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    api.create(&PostParams::default(), &config_map("one", "1")).await.unwrap();
    let inits = AtomicUsize::new(0);
    let mut rejections = Vec::new();
    let mut stream = pin!(watcher(api.clone(), watcher::Config::default()));
    while inits.load(Ordering::Relaxed) < 2 {
        match soon("a second start", stream.next()).await.unwrap() {
            Ok(Event::InitDone) => drop(inits.fetch_add(1, Ordering::Relaxed)),
            Ok(_) => {}
            Err(error) => rejections.push(error.to_string()),
        }
    }
    assert!(aged.load(Ordering::Relaxed));
    assert!(rejections.iter().any(|text| text.contains("too old")), "{rejections:?}");
    api.delete("one", &DeleteParams::default()).await.unwrap();
    let event = soon("an event", stream.try_next()).await.unwrap().unwrap();
    assert_eq!(word(&event), "delete one");
}

fn age_first_watch(mut request: Request<Body>, aged: &AtomicBool) -> Request<Body> {
    let text = request.uri().to_string();
    if !text.contains("watch=true") || aged.swap(true, Ordering::Relaxed) {
        return request;
    }
    let pairs = text
        .split('&')
        .map(|pair| if pair.starts_with("resourceVersion=") { "resourceVersion=1" } else { pair });
    *request.uri_mut() = pairs.collect::<Vec<_>>().join("&").parse().unwrap();
    request
}

#[tokio::test]
async fn a_quiet_watch_gets_a_bookmark_before_it_ends() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let listed = api.list(&kube::api::ListParams::default()).await.unwrap();
    let from = listed.metadata.resource_version.unwrap();
    let mut stream = pin!(api.watch(&WatchParams::default().timeout(4), &from).await.unwrap());
    let mut bookmarks = 0;
    while let Some(event) = soon("the end", stream.try_next()).await.unwrap() {
        match event {
            WatchEvent::Bookmark(bookmark) => {
                assert!(!bookmark.metadata.resource_version.is_empty());
                bookmarks += 1;
            }
            other => panic!("a quiet watch said {other:?}"),
        }
    }
    assert!(bookmarks > 0);
}
