//! What a server has from its first start: namespaces, default roles, the definitions of every
//! dialect. Repeated at each start, so that a newer build brings its own versions up to date.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use objects::admission::SYSTEM_CLASSES;
use serde_json::{Value, json};

use crate::auth::bootstrap;
use crate::auth::controller::Controller;
use crate::auth::rbac::GROUP;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::admit::{self, Endpoint};
use crate::server::Server;
use crate::upkeep;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Default roles whose owner set this to `false` are left alone.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Enough at once to share commits.
const PARALLEL: usize = 64;
const TRIES: usize = 8;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// One object that must exist, and what of it is ours to keep up to date.
struct Wanted {
    group: &'static str,
    plural: &'static str,
    object: Value,
    /// Members that are brought to our state when they differ.
    ours: &'static [&'static str],
}

/// Installs at a start. On a full disk a server that has been installed before starts all the same,
/// and gets what this build has changed when there is space.
pub(crate) async fn at_start(
    server: &Arc<Server>,
    definitions: Vec<Value>,
    controllers: Vec<Controller>,
) -> Result<(), Failure> {
    let installed = server.store.get("/namespaces", "", "kube-system").is_some();
    match install(server, &definitions, &controllers).await {
        Err(failure) if failure.is_storage_full() && installed => {
            tracing::warn!("the disk is full: what this build changes is installed later");
            server.tasks.spawn("install", later(server.clone(), definitions, controllers));
            Ok(())
        }
        other => other,
    }
}

async fn later(server: Arc<Server>, definitions: Vec<Value>, controllers: Vec<Controller>) {
    loop {
        tokio::time::sleep(TRY_AGAIN_AFTER).await;
        match install(&server, &definitions, &controllers).await {
            Ok(()) => return tracing::info!("what this build changes is installed"),
            Err(failure) if failure.is_storage_full() => {}
            Err(failure) => {
                tracing::error!(error = failure.message(), "cannot install the default objects");
            }
        }
    }
}

/// Makes sure that everything is there.
async fn install(
    server: &Server,
    definitions: &[Value],
    controllers: &[Controller],
) -> Result<(), Failure> {
    let wanted = wanted(server, definitions, controllers);
    let results: Vec<Result<(), Failure>> = futures::stream::iter(wanted)
        .map(|wanted| ensure(server, wanted))
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    results.into_iter().collect()
}

fn wanted(server: &Server, definitions: &[Value], controllers: &[Controller]) -> Vec<Wanted> {
    let namespaces = NAMESPACES.iter().map(|name| Wanted {
        group: "",
        plural: "namespaces",
        object: json!({"metadata": {"name": name}}),
        ours: &[],
    });
    let own = upkeep::controllers::ALL.iter().chain(controllers).flat_map(Controller::objects);
    let roles = bootstrap::objects().into_iter().chain(own).map(|(kind, object)| Wanted {
        group: GROUP,
        plural: kind.resource(),
        ours: if object.get("aggregationRule").is_some() {
            &["aggregationRule"]
        } else {
            &["rules", "roleRef", "subjects"]
        },
        object,
    });
    let definitions = definitions.iter().cloned().map(|object| Wanted {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        object,
        ours: &["spec"],
    });
    let classes = SYSTEM_CLASSES.iter().map(|(name, value)| Wanted {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        object: json!({"metadata": {"name": name}, "value": value,
            "description": "For what the cluster itself cannot do without."}),
        ours: &[],
    });
    // A build without the type knows the classes all the same.
    let has_classes =
        server.registry().resource("scheduling.k8s.io", "v1", "priorityclasses").is_some();
    let classes = classes.filter(|_| has_classes);
    namespaces.chain(roles).chain(definitions).chain(classes).collect()
}

async fn ensure(server: &Server, wanted: Wanted) -> Result<(), Failure> {
    let registry = server.registry();
    let Some(resource) = registry.resource(wanted.group, "v1", wanted.plural) else {
        return Err(Failure::internal(format!("{} is not a served type", wanted.plural)));
    };
    let name = admit::metadata_text(&wanted.object, "name").to_owned();
    for _ in 0..TRIES {
        let done = match server.store.get(&resource.id, "", &name) {
            None => internal::insert(server, resource, None, wanted.object.clone()).await?,
            Some(stored) if stored.meta.deleting => return Ok(()),
            Some(stored) => {
                internal::update(server, None, resource, Endpoint::Main, &stored, |object| {
                    update(object, &wanted);
                })
                .await?
            }
        };
        if done != Done::Overtaken {
            return Ok(());
        }
    }
    Err(Failure::internal(format!("{} {name:?} keeps changing", wanted.plural)))
}

fn update(object: &mut Value, wanted: &Wanted) {
    let keep = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(AUTO_UPDATE))
        .is_some_and(|value| value == "false");
    if keep {
        return;
    }
    for member in wanted.ours {
        if let Some(value) = wanted.object.get(member) {
            admit::object_mut(object).insert((*member).to_owned(), value.clone());
        }
    }
}
