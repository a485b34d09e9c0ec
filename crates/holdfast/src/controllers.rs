//! `holdfast controllers`: the controllers as a process of their own, against any cluster, of which
//! one at a time works. In `holdfast up` the same controllers run beside the API server.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
pub(crate) use apiserver::auth::controller::Controller as Identity;
use apiserver::auth::controller::Near;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use reconcile::{Controller, Grant, Metrics};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::config::{Config as ProcessConfig, Settings};
use crate::health::{self, Health};
use crate::leader::{Candidate, Terms};
use ::cli::output::{self, Hint};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The field manager of what controllers write.
pub(crate) const MANAGER: &str = "holdfast-controllers";
/// What the lease of the leader is called; the rights in `deploy/` are for this name.
pub(crate) const LEASE_NAME: &str = "holdfast-controllers";
/// Definitions somebody else changed are brought back this often.
const REPAIR_EVERY: Duration = Duration::from_mins(5);
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    health: health::Args,
    /// Print what a cluster has to allow the controllers and the nodes, for `kubectl apply -f -`, and end.
    #[arg(long)]
    roles: bool,
    /// The cluster to work for; without it, the usual places: $KUBECONFIG, ~/.kube/config, or the
    /// service account of a pod.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
    /// Where the Lease of the election lives.
    #[arg(long, default_value = "kube-system")]
    lease_namespace: String,
    /// The name of the Lease.
    #[arg(long, default_value = LEASE_NAME)]
    lease_name: String,
    /// A leader silent for this many seconds is replaced.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3600))]
    lease_seconds: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = cli::resolve(&args.settings)?;
    if args.roles {
        output::say(crate::roles::manifest(&config.admin_namespace).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = cli::runtime()?;
    runtime.block_on(async {
        let _guard = cli::telemetry(&config)?;
        serve(args, &config).await
    })
}

async fn serve(args: &Args, config: &ProcessConfig) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let door = tasks::Tasks::new();
    let health = Health::start(&args.health, &door).await?;
    let client = connect(args.kubeconfig.as_ref(), args.context.as_deref()).await?;
    let version = client
        .apiserver_version()
        .await
        .hint("is the cluster up, and is it the one the kubeconfig names?")?;
    // Host and process are for people; containers may share both.
    let (host, process) = (host_name(), std::process::id());
    let identity = format!("{host}_{process}_{}", uuid::Uuid::new_v4());
    output::say(&format!(
        "Holdfast controllers for a cluster of version {}, candidate {identity}, lease {}/{}",
        version.git_version, args.lease_namespace, args.lease_name
    ))?;
    let terms = Terms {
        name: args.lease_name.clone(),
        identity,
        lease: Duration::from_secs(args.lease_seconds),
        renew: Duration::from_secs(args.lease_seconds) / 5,
    };
    let api = Api::namespaced(client.clone(), &args.lease_namespace);
    let drain = terms.drain();
    let mut candidate = Candidate::new(api, terms);
    let executor = executor(config);
    let over = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let mut registry = telemetry::Registry::new("holdfast");
    let gauges = Gauges::new(&mut registry);
    health.ready(registry);
    let end = campaign(&mut candidate, over, drain, &gauges, |tasks, metrics| {
        let admin = &config.admin_namespace;
        let place = tenants::Place {
            executor: executor_of(executor.as_ref()),
            ..tenants::Place::ELSEWHERE
        };
        spawn(place, tasks, metrics, admin, executor.as_ref(), |_| client.clone());
        if let Some(rate) = config.backup_rate {
            tasks.spawn("backup-rate", keep_trying_to_set(client.clone(), rate));
        }
    });
    match end.await {
        // Nobody is let in while something of ours may still write.
        End::Late => return Ok(ExitCode::FAILURE),
        End::Stopped => {}
    }
    if tokio::time::timeout(TIMEOUT, candidate.release()).await.is_err() {
        tracing::warn!("the lease was not released in time; it will run out");
    }
    let _ = door.stop(TIMEOUT).await;
    Ok(ExitCode::SUCCESS)
}

/// The types of a new cluster are not there at once.
async fn keep_trying_to_set(client: Client, rate: u64) {
    while let Err(error) = volumes::setting::set_backup_rate(&client, rate).await {
        tracing::debug!(error = %telemetry::Chain(&error), "cannot set the rate of backups yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// What a candidate shows.
pub(crate) struct Gauges {
    leads: telemetry::Gauge,
    metrics: Metrics,
}

impl Gauges {
    pub(crate) fn new(registry: &mut telemetry::Registry) -> Self {
        Self {
            leads: registry.gauge("leader", "Whether this process is the one that works: 1 or 0"),
            metrics: Metrics::new(registry, volumes::figures::FACTS),
        }
    }
}

/// How a campaign ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All work has stopped.
    Stopped,
    /// Some work does not stop, and the lead is over.
    Late,
}

/// On a cluster a Velero may run already: ours begins only where it is asked for.
fn executor(config: &ProcessConfig) -> Option<Executor> {
    config.velero.unwrap_or(false).then(|| {
        let mut settings = velero::Settings::new(&config.admin_namespace);
        settings.concurrent_backups = config.concurrent_backups;
        Executor { settings, downloads: None }
    })
}

/// Leads, works, and starts over when the lead is lost. Work has stopped before this is over.
async fn campaign(
    candidate: &mut Candidate,
    over: impl Future<Output = ()>,
    drain: Duration,
    gauges: &Gauges,
    work: impl Fn(&tasks::Tasks, &Metrics),
) -> End {
    let mut over = std::pin::pin!(over);
    loop {
        tokio::select! {
            () = candidate.lead() => {}
            () = &mut over => return End::Stopped,
        }
        tracing::info!("leading: controllers start");
        let tasks = tasks::Tasks::new();
        gauges.leads.set(1);
        work(&tasks, &gauges.metrics);
        let is_over = tokio::select! {
            () = candidate.keep() => false,
            () = &mut over => true,
        };
        if !is_over {
            tracing::warn!("the lead was lost: controllers stop");
        }
        gauges.leads.set(0);
        if let Err(late) = tasks.stop(drain).await {
            // Two leaders at once would be worse than a restart.
            tracing::error!(%late, "controllers do not stop; this process ends");
            return End::Late;
        }
        // What it knew of objects is the next leader's to tell.
        gauges.metrics.forget_objects();
        if is_over {
            return End::Stopped;
        }
    }
}

pub(crate) async fn connect(
    path: Option<&PathBuf>,
    context: Option<&str>,
) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let config = match path {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await?
        }
        None => Config::infer().await.map_err(|_| {
            // Its own words tell of every place twice.
            anyhow::anyhow!(
                "no cluster to connect to: there is no usable $KUBECONFIG or ~/.kube/config, and \
                 this is not a pod with a service account"
            )
        })
        .hint("name a kubeconfig with --kubeconfig FILE")?,
    };
    let builder = kube::client::ClientBuilder::try_from(::cli::proxy::around(config))?;
    Ok(builder.with_layer(&tower::util::MapRequestLayer::new(traced)).build())
}

/// A client of the server in this process.
pub(crate) fn client_of(service: apiserver::ClientService) -> Client {
    Client::new(tower::util::MapRequest::new(service, traced), "default")
}

/// The request, as part of the trace of whoever makes it.
fn traced(mut request: http::Request<kube::client::Body>) -> http::Request<kube::client::Body> {
    let parent = telemetry::traceparent().and_then(|it| it.parse().ok());
    if let Some(parent) = parent {
        request.headers_mut().insert("traceparent", parent);
    }
    request
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Keeps the definitions.
const DEFINITIONS: Controller = Controller {
    name: "definitions",
    grants: &[Grant {
        groups: &["apiextensions.k8s.io"],
        resources: &["customresourcedefinitions"],
        // Applying what is not there is creating it.
        verbs: &["create", "patch"],
    }],
    // Of all kinds the definitions, of none the objects.
    acts_on: &[],
    run: |context| Box::pin(keep_definitions(context.client)),
};

/// Every controller there is: ours, and those each edge exports. One that is here runs, and the kinds
/// it names are attended.
pub(crate) fn all() -> Vec<Controller> {
    let mut all = vec![DEFINITIONS];
    all.append(&mut volumes::controllers());
    all.append(&mut tenants::controllers());
    all.push(velero::CONTROLLER);
    all
}

/// Those that run. Where another program executes the resources of Velero, ours does not.
pub(crate) fn chosen(has_executor: bool) -> impl Iterator<Item = Controller> {
    all().into_iter().filter(move |it| has_executor || it.name != velero::CONTROLLER.name)
}

/// The executor of Velero's resources, as this process has it.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    pub(crate) settings: velero::Settings,
    /// Where files of backups are fetched from, if they are kept on this machine.
    pub(crate) downloads: Option<SocketAddr>,
}

/// Under whom a controller acts beside the embedded server.
pub(crate) fn identity(controller: &Controller) -> Identity {
    Identity { name: controller.name, grants: controller.grants }
}

/// What a cluster does by itself and the embedded server does not: runs in `holdfast up` only.
pub(crate) const EMBEDDED: &[Controller] = &[volumes::claim::CONTROLLER];

/// Under whom the defaults of one machine are made.
pub(crate) const DEFAULTS: Identity =
    Identity { name: "volume-defaults", grants: volumes::setting::PREPARE_GRANTS };

/// Everybody who acts beside the embedded server.
pub(crate) fn identities(has_executor: bool) -> Vec<Identity> {
    let others = [crate::node::IDENTITY, crate::block::IDENTITY, DEFAULTS];
    let all: Vec<Controller> = chosen(has_executor).chain(EMBEDDED.iter().copied()).collect();
    all.iter().map(identity).chain(others).collect()
}

/// What the controllers of tenants may do in the administrators' namespace only.
pub(crate) fn near(admin_namespace: &str) -> Near {
    Near {
        name: tenants::CONTROLLER.name,
        namespace: admin_namespace.to_owned(),
        grants: tenants::ADMIN_GRANTS,
    }
}

/// Who carries out what tenants ask for.
pub(crate) fn executor_of(ours: Option<&Executor>) -> tenants::Executor {
    match ours {
        Some(_) => tenants::Executor::Holdfast,
        None => tenants::Executor::Velero,
    }
}

/// Starts controllers, each with a client of its own.
pub(crate) fn spawn(
    place: tenants::Place,
    tasks: &tasks::Tasks,
    metrics: &Metrics,
    admin_namespace: &str,
    executor: Option<&Executor>,
    client: impl Fn(&Controller) -> Client,
) {
    for controller in chosen(executor.is_some()) {
        let (client, metrics) = (client(&controller), metrics.clone());
        match executor {
            Some(Executor { settings, downloads })
                if controller.name == velero::CONTROLLER.name =>
            {
                velero::spawn(settings.clone(), *downloads, client, tasks, metrics);
            }
            _ if controller.name == tenants::CONTROLLER.name => {
                let context = reconcile::Context::new(controller.name, client, tasks, metrics);
                let scope = context.tasks.clone();
                scope.spawn("run", tenants::run(context, admin_namespace.to_owned(), place));
            }
            _ => controller.spawn(client, tasks, metrics),
        }
    }
}

/// The definitions of ours whose objects are stored and nothing more happens to them, because no
/// controller of this build acts on them: whoever makes one is told.
pub(crate) fn unattended() -> BTreeSet<String> {
    let attended: Vec<&str> = all().iter().flat_map(|it| it.acts_on).copied().collect();
    let definitions = api::crds();
    let names = definitions.iter().filter_map(|it| it.pointer("/metadata/name")?.as_str());
    names.filter(|name| !attended.contains(name)).map(str::to_owned).collect()
}

/// Keeps the definitions of every dialect in the cluster as this build knows them, so that the
/// other controllers find their types.
async fn keep_definitions(client: Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    loop {
        let pause = match apply_definitions(&api).await {
            Ok(()) => REPAIR_EVERY,
            Err(error) => {
                tracing::warn!(
                    error = %telemetry::Chain(&error),
                    "cannot apply the custom resource definitions, will try again"
                );
                RETRY_AFTER
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn apply_definitions(api: &Api<CustomResourceDefinition>) -> Result<(), kube::Error> {
    let params = PatchParams::apply(MANAGER).force();
    for definition in api::crds() {
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        api.patch(name, &params, &Patch::Apply(&definition)).await?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use apiserver::auth::tokens::StaticTokens;
    use apiserver::{ApiServer, Options, ServiceRanges};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};

    use super::*;

    pub(crate) async fn server(
        folder: &Path,
        controllers: Vec<Identity>,
    ) -> (ApiServer, tasks::Tasks) {
        let options = Options {
            data_dir: folder.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            tls_sans: Vec::new(),
            tokens: StaticTokens::default(),
            audit: false,
            definitions: Vec::new(),
            services: ServiceRanges::default(),
            controllers,
            near: vec![near(tenants::names::ADMIN_NAMESPACE)],
        };
        let tasks = tasks::Tasks::new();
        let mut metrics = telemetry::Registry::new("test");
        let server = ApiServer::start(options, tasks.clone(), &mut metrics).await.unwrap();
        (server, tasks)
    }

    /// What the controller of definitions does, once.
    async fn work(server: &ApiServer) -> Result<(), kube::Error> {
        let identity = all().iter().map(identity).find(|one| one.name == "definitions");
        let service = server.client_service(identity.unwrap().user());
        apply_definitions(&Api::all(Client::new(service, "default"))).await
    }

    #[tokio::test]
    async fn a_controller_can_do_its_work_with_its_role_and_nothing_without() {
        let folder = tempfile::tempdir().unwrap();
        let (running, tasks) = server(folder.path(), all().iter().map(identity).collect()).await;
        work(&running).await.unwrap();
        // What is there already needs no more rights.
        work(&running).await.unwrap();
        let _ = tasks.stop(TIMEOUT).await;
        running.close(TIMEOUT).await;
        let folder = tempfile::tempdir().unwrap();
        let (running, tasks) = server(folder.path(), Vec::new()).await;
        let refused = work(&running).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
        let _ = tasks.stop(TIMEOUT).await;
        running.close(TIMEOUT).await;
    }

    #[tokio::test]
    async fn the_controllers_of_tenants_read_no_secret_or_settings_of_others() {
        use k8s_openapi::api::core::v1::{ConfigMap, Secret};
        let folder = tempfile::tempdir().unwrap();
        let (running, tasks) = server(folder.path(), all().iter().map(identity).collect()).await;
        let tenants = identity(&tenants::CONTROLLER).user();
        let client = Client::new(running.client_service(tenants), "default");
        let code = |done: Result<(), kube::Error>| match done {
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
            Ok(()) => 200,
        };
        let all: ListParams = ListParams::default();
        let (post, named) = (PostParams::default(), |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        });
        let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
        let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
        // What it needs: its own namespace, and a Secret that it was told the name of.
        let admin = tenants::names::ADMIN_NAMESPACE;
        let copy = Secret { metadata: named("copy"), ..Secret::default() };
        assert_eq!(code(secrets(admin).create(&post, &copy).await.map(drop)), 200);
        assert_eq!(code(secrets(admin).list(&all).await.map(drop)), 200);
        assert_eq!(code(maps(admin).list(&all).await.map(drop)), 200);
        assert_eq!(code(secrets("default").get("credentials").await.map(drop)), 404);
        // What it does not.
        let everywhere = Api::<Secret>::all(client.clone());
        assert_eq!(code(everywhere.list(&all).await.map(drop)), 403);
        let watch = everywhere.watch(&WatchParams::default(), "0").await.map(drop);
        assert_eq!(code(watch), 403);
        assert_eq!(code(Api::<ConfigMap>::all(client.clone()).list(&all).await.map(drop)), 403);
        for namespace in ["default", "kube-system"] {
            assert_eq!(code(secrets(namespace).list(&all).await.map(drop)), 403, "{namespace}");
            assert_eq!(code(secrets(namespace).create(&post, &copy).await.map(drop)), 403);
            let gone = secrets(namespace).delete("x", &DeleteParams::default()).await.map(drop);
            assert_eq!(code(gone), 403);
            assert_eq!(code(maps(namespace).get("x").await.map(drop)), 403, "{namespace}");
            assert_eq!(code(maps(namespace).list(&all).await.map(drop)), 403, "{namespace}");
        }
        let _ = tasks.stop(TIMEOUT).await;
        running.close(TIMEOUT).await;
    }

    #[test]
    fn controllers_are_told_apart() {
        let names: BTreeSet<&str> = all().iter().map(|one| one.name).collect();
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn what_a_controller_acts_on_is_a_kind_of_ours_and_the_rest_is_unattended() {
        let known: BTreeSet<String> = api::crds()
            .iter()
            .filter_map(|it| Some(it.pointer("/metadata/name")?.as_str()?.to_owned()))
            .collect();
        let attended: BTreeSet<String> =
            all().iter().flat_map(|it| it.acts_on).map(|it| (*it).to_owned()).collect();
        assert!(attended.is_subset(&known), "{attended:?}");
        assert_eq!(unattended(), &known - &attended);
    }
}
