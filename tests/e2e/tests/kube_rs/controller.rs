//! A controller as people write them: owned objects, a finalizer, events.

use std::sync::Arc;

use e2e::Server;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Phase, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio::task::JoinSet;

use super::{Garden, GardenSpec, GardenStatus, config_map, soon, with_gardens};

const FINALIZER: &str = "e2e.example.com/gardener";

struct Gardener {
    client: Client,
    recorder: Recorder,
}

#[derive(Debug)]
struct Trouble(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Trouble {}

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        Self(error.into())
    }
}

/// Makes sure of one owned map a garden, says so, and reports in the status.
async fn reconcile(garden: Arc<Garden>, context: Arc<Gardener>) -> Result<Action, Trouble> {
    let api: Api<Garden> = Api::namespaced(context.client.clone(), "default");
    finalizer(&api, FINALIZER, garden, |phase| async {
        match phase {
            Phase::Apply(garden) => plant(&garden, &context).await?,
            Phase::Cleanup(garden) => context.tell(&garden, "Cleared").await?,
        }
        Ok::<_, Trouble>(Action::await_change())
    })
    .await
    .map_err(|error| Trouble(error.into()))
}

async fn plant(garden: &Garden, context: &Gardener) -> Result<(), Trouble> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), "default");
    let mut map = config_map(&format!("{}-beds", garden.name_any()), "planted");
    map.metadata.owner_references = garden.controller_owner_ref(&()).map(|owner| vec![owner]);
    let name = map.name_any();
    let force = PatchParams::apply("gardener").force();
    maps.patch(&name, &force, &Patch::Apply(&map)).await?;
    let gardens: Api<Garden> = Api::namespaced(context.client.clone(), "default");
    let status = GardenStatus { planted: garden.spec.beds };
    let status = Patch::Merge(serde_json::json!({"status": status}));
    gardens.patch_status(&garden.name_any(), &PatchParams::default(), &status).await?;
    context.tell(garden, "Planted").await
}

impl Gardener {
    async fn tell(&self, garden: &Garden, reason: &str) -> Result<(), Trouble> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(format!("{} beds", garden.spec.beds)),
            action: "Gardening".to_owned(),
            secondary: None,
        };
        Ok(self.recorder.publish(&event, &garden.object_ref(&())).await?)
    }
}

/// Runs the controller until the set is dropped.
fn start(client: &Client) -> JoinSet<()> {
    let recorder = Recorder::new(client.clone(), Reporter::from("gardener"));
    let context = Arc::new(Gardener { client: client.clone(), recorder });
    let gardens: Api<Garden> = Api::namespaced(client.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let controller =
        Controller::new(gardens, watcher::Config::default()).owns(maps, watcher::Config::default());
    let soon_again = |_, error: &Trouble, _| {
        println!("reconcile: {error}");
        Action::requeue(std::time::Duration::from_millis(200))
    };
    let mut running = JoinSet::new();
    running.spawn(controller.run(reconcile, soon_again, context).for_each(async |_| ()));
    running
}

#[tokio::test]
async fn a_controller_keeps_owned_objects_and_cleans_up() {
    let server = Server::start();
    let client = server.client().await;
    let gardens = with_gardens(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let controller = start(&client);

    gardens
        .create(&PostParams::default(), &Garden::new("rose", GardenSpec { beds: 4 }))
        .await
        .unwrap();
    let planted = |garden: Option<&Garden>| {
        let status = garden.and_then(|garden| garden.status.as_ref());
        status.is_some_and(|status| status.planted == 4)
    };
    soon("the status", await_condition(gardens.clone(), "rose", planted)).await.unwrap();
    let first = maps.get("rose-beds").await.unwrap();

    // An owned object that is deleted comes back: the controller watches it by its metadata.
    maps.delete("rose-beds", &DeleteParams::default()).await.unwrap();
    let uid = first.uid();
    let again = move |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != uid);
    soon("the map again", await_condition(maps.clone(), "rose-beds", again)).await.unwrap();

    let garden = gardens.get("rose").await.unwrap();
    assert_eq!(garden.finalizers(), [FINALIZER]);
    gardens.delete("rose", &DeleteParams::default()).await.unwrap();
    let uid = garden.uid().unwrap();
    let gone = await_condition(gardens.clone(), "rose", conditions::is_deleted(&uid));
    soon("the end of the garden", gone).await.unwrap();
    let collected = |map: Option<&ConfigMap>| map.is_none();
    soon("garbage collection", await_condition(maps, "rose-beds", collected)).await.unwrap();

    let events: Api<KubeEvent> = Api::namespaced(client, "default");
    let told = events.list(&ListParams::default().fields("regarding.name=rose")).await.unwrap();
    let reasons: Vec<_> = told.items.iter().filter_map(|event| event.reason.clone()).collect();
    for reason in ["Planted", "Cleared"] {
        assert!(reasons.iter().any(|found| found == reason), "{reasons:?}");
    }
    drop(controller);
}
