//! What a server has from its first start: namespaces, default roles, the definitions of every
//! dialect. Repeated at each start, so that a newer build brings its own versions up to date.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use objects::admission::SYSTEM_CLASSES;
use serde_json::{Value, json};

use crate::auth::bootstrap;
use crate::auth::controller::{Controller, Near};
use crate::auth::rbac::GROUP;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::admit::{self, Endpoint};
use crate::server::Server;
use crate::upkeep;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Default roles whose owner set this to `false` are left alone.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Where servers beside this one find out whose certificates of clients to believe.
const AUTHENTICATION: &str = "extension-apiserver-authentication";
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

/// Everybody who acts inside the process, and what some of them may do in one namespace only.
type Controllers = (Vec<Controller>, Vec<Near>);

/// Installs at a start. On a full disk a server that has been installed before starts all the same,
/// and gets what this build has changed when there is space.
pub(crate) async fn at_start(
    server: &Arc<Server>,
    definitions: Vec<Value>,
    controllers: Controllers,
    client_authority: String,
) -> Result<(), Failure> {
    let installed = server.store.get("/namespaces", "", "kube-system").is_some();
    match install(server, &definitions, &controllers, &client_authority).await {
        Err(failure) if failure.is_storage_full() && installed => {
            tracing::warn!("the disk is full: what this build changes is installed later");
            let later = later(server.clone(), definitions, controllers, client_authority);
            server.tasks.spawn("install", later);
            Ok(())
        }
        other => other,
    }
}

async fn later(
    server: Arc<Server>,
    definitions: Vec<Value>,
    controllers: Controllers,
    client_authority: String,
) {
    loop {
        tokio::time::sleep(TRY_AGAIN_AFTER).await;
        match install(&server, &definitions, &controllers, &client_authority).await {
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
    controllers: &Controllers,
    client_authority: &str,
) -> Result<(), Failure> {
    let wanted = wanted(definitions, controllers, client_authority);
    // What is in a namespace comes after it.
    let (namespaces, rest): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|one| one.plural == "namespaces");
    for wanted in [namespaces, rest] {
        let results: Vec<Result<(), Failure>> = futures::stream::iter(wanted)
            .map(|wanted| ensure(server, wanted))
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        results.into_iter().collect::<Result<(), Failure>>()?;
    }
    Ok(())
}

fn wanted(definitions: &[Value], controllers: &Controllers, client_authority: &str) -> Vec<Wanted> {
    let (controllers, near) = controllers;
    let homes = near.iter().map(|it| it.namespace.as_str());
    let homes: BTreeSet<&str> = NAMESPACES.into_iter().chain(homes).collect();
    let namespaces = homes.into_iter().map(|name| Wanted {
        group: "",
        plural: "namespaces",
        object: json!({"metadata": {"name": name}}),
        ours: &[],
    });
    let own = upkeep::controllers::ALL.iter().chain(controllers).flat_map(Controller::objects);
    let own = own.chain(near.iter().flat_map(Near::objects));
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
    let trust = Wanted {
        group: "",
        plural: "configmaps",
        object: json!({
            "metadata": {"name": AUTHENTICATION, "namespace": "kube-system"},
            "data": {"client-ca-file": client_authority},
        }),
        ours: &["data"],
    };
    namespaces.chain(roles).chain(definitions).chain(classes).chain([trust]).collect()
}

async fn ensure(server: &Server, wanted: Wanted) -> Result<(), Failure> {
    let registry = server.registry();
    let Some(resource) = registry.resource(wanted.group, "v1", wanted.plural) else {
        return Err(Failure::internal(format!("{} is not a served type", wanted.plural)));
    };
    let name = admit::metadata_text(&wanted.object, "name").to_owned();
    let namespace = admit::metadata_text(&wanted.object, "namespace").to_owned();
    let place = (!namespace.is_empty()).then_some(namespace.as_str());
    for _ in 0..TRIES {
        let done = match server.store.get(&resource.id, &namespace, &name) {
            None => internal::insert(server, resource, place, wanted.object.clone()).await?,
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
