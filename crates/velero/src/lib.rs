//! The executor of `velero.io` resources, for clusters without a Velero and for `holdfast up`: backups
//! and restores of objects in the object-store layout that Velero has, so that either restores what
//! the other wrote.
//!
//! Owns: the queue of backups (`backup`), restores (`restore`), deletions, downloads, storage
//! locations, schedules, and the format of what is stored (`layout`, [`tarball`]). Never: the
//! resources of tenants, which only meet it in the objects it acts on.
//!
//! Start reading at `backup::machine` and `backup::run`.
#![forbid(unsafe_code)]

mod backup;
mod catalog;
mod deletions;
mod door;
mod downloads;
mod home;
mod journal;
mod keeping;
mod layout;
mod lists;
mod locations;
mod names;
mod order;
mod place;
mod refused;
mod requests;
mod restore;
mod selection;
pub mod tarball;
mod volumes;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use reconcile::{Context, Controller, EVENT_RIGHTS, Grant, Metrics};
use tokio::net::TcpListener;

use downloads::Downloads;
pub use place::DIRECTORY;
pub use world::Settings;
use world::World;

/// Where the resources live unless told otherwise.
pub const NAMESPACE: &str = "openshift-adp";

/// Who the executor is. It reads everything and makes everything again: that is what it is for. A
/// restore for a tenant is carried out with the rights of that tenant.
pub const CONTROLLER: Controller = Controller {
    name: "velero",
    grants: &[Grant { groups: &["*"], resources: &["*"], verbs: &["*"] }, EVENT_RIGHTS],
    acts_on: &[
        "backups.velero.io",
        "restores.velero.io",
        "backupstoragelocations.velero.io",
        "deletebackuprequests.velero.io",
        "downloadrequests.velero.io",
        "schedules.velero.io",
        "serverstatusrequests.velero.io",
    ],
    run: run_with_defaults,
};

fn run_with_defaults(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(run(context, Settings::new(NAMESPACE), None))
}

/// Starts the executor with settings of its own, in a scope of its own.
pub fn spawn(
    settings: Settings,
    downloads: Option<SocketAddr>,
    client: Client,
    tasks: &tasks::Tasks,
    metrics: Metrics,
) {
    let context = Context::new(CONTROLLER.name, client, tasks, metrics);
    let scope = context.tasks.clone();
    scope.spawn("run", run(context, settings, downloads));
}

/// Works until it is dropped. Files of directories are served at `downloads`.
pub async fn run(context: Context, mut settings: Settings, downloads: Option<SocketAddr>) {
    let listener = match downloads {
        Some(address) => listen(address).await,
        None => None,
    };
    settings.downloads = listener.as_ref().and_then(|(_, address)| Downloads::new(*address));
    provide_namespace(&context, &settings.namespace).await;
    let world = World::start(&context, settings);
    if let Some((listener, _)) = listener {
        let serve = downloads::serve(Arc::clone(&world), listener, context.tasks.clone());
        context.tasks.spawn("downloads", serve);
    }
    tokio::join!(
        locations::run(Arc::clone(&world)),
        backup::queue::run(Arc::clone(&world)),
        restore::queue::run_queue(Arc::clone(&world)),
        restore::queue::run_removals(Arc::clone(&world)),
        deletions::run(Arc::clone(&world)),
        keeping::run_expiry(Arc::clone(&world)),
        keeping::run_schedules(Arc::clone(&world)),
        requests::run_downloads(Arc::clone(&world)),
        requests::run_questions(world),
    );
}

async fn listen(address: SocketAddr) -> Option<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await;
    match listener.and_then(|it| Ok((it.local_addr()?, it))) {
        Ok((address, listener)) => Some((listener, address)),
        Err(error) => {
            tracing::error!(%address, %error, "files of backups cannot be downloaded");
            None
        }
    }
}

/// Waits for the namespace, which is made where it is missing.
async fn provide_namespace(context: &Context, name: &str) {
    use k8s_openapi::api::core::v1::Namespace;
    let api: kube::Api<Namespace> = kube::Api::all(context.client.clone());
    loop {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        match api.create(&kube::api::PostParams::default(), &namespace).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => return,
            Err(error) => {
                tracing::warn!(namespace = name, error = %telemetry::Chain(&error), "the namespace is not there yet");
                tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            }
        }
    }
}
