//! An embedded server of the Kubernetes resource API, kept in one SQLite file.
//!
//! Owns: the protocol (discovery, verbs, watches, tables, patches, apply), who may do what, the
//! objects and their history, and what a cluster's own controllers would do for them (garbage
//! collection, namespace and definition clean-up).
//! Never: knows what the stored objects mean to Holdfast's controllers; those are clients like any
//! other, over a socket or through [`ApiServer::client_service`].
//!
//! Start reading at [`dispatch`]: a request goes from there to one file of [`rest`], and from there
//! to the [`store`].

mod access;
mod addresses;
mod admission;
pub mod auth;
mod body;
mod clock;
mod definitions;
mod discovery;
pub mod dispatch;
mod doors;
pub mod failure;
mod finish;
mod flow;
mod health;
mod heavy;
mod home;
mod install;
mod intake;
mod internal;
mod metrics;
mod negotiate;
mod openapi;
pub mod pki;
mod registry;
mod request;
mod rest;
mod server;
pub mod store;
mod transport;
mod upkeep;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures::future::BoxFuture;
use http::Request;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub use addresses::{AddressRange, ServiceRanges};
use auth::audit::{AuditLog, Limits};
use auth::controller::{Controller, Near};
use auth::service_account::Signer;
use auth::{Authenticator, User, tokens::StaticTokens};
use dispatch::Insider;
pub use doors::Limits as ConnectionLimits;
pub use home::HomeError;
use metrics::Metrics;
use pki::Pki;
use server::{Server, StoredAccounts};
use store::Store;

/// Larger request bodies are refused.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// The Kubernetes version whose behaviour is served.
const KUBERNETES_VERSION: &str = concat!("v1.33.0-holdfast.", env!("CARGO_PKG_VERSION"));
/// Part of the hash of OpenAPI documents: built-in types change only with the build.
const BUILD_HASH: &str = env!("CARGO_PKG_VERSION");

/// How the server is set up.
#[derive(Debug)]
pub struct Options {
    /// Where keys, certificates, objects and the audit log are kept.
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// More names and addresses for the server certificate.
    pub tls_sans: Vec<String>,
    pub tokens: StaticTokens,
    pub audit: bool,
    /// Custom resource definitions that exist from the start.
    pub definitions: Vec<Value>,
    /// Where services get their addresses and node ports.
    pub services: ServiceRanges,
    /// Controllers that will act through [`ApiServer::client_service`]; their roles exist from the
    /// start.
    pub controllers: Vec<Controller>,
    /// What some of them may do in one namespace only; it exists from the start, too.
    pub near: Vec<Near>,
}

/// What may be had of a server.
#[derive(Debug, Default)]
pub struct ServerLimits {
    pub connections: ConnectionLimits,
    pub stored: store::Quota,
}

impl From<ConnectionLimits> for ServerLimits {
    fn from(connections: ConnectionLimits) -> Self {
        Self { connections, ..Self::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Pki(#[from] pki::PkiError),
    #[error(transparent)]
    Store(#[from] store::OpenError),
    #[error(transparent)]
    Audit(#[from] auth::audit::OpenAuditError),
    #[error("cannot use the key that signs service-account tokens")]
    Signer(#[from] auth::service_account::BadKey),
    #[error("cannot install the default objects: {0}")]
    Install(String),
}

/// A running server.
#[derive(Clone, Debug)]
pub struct ApiServer {
    server: Arc<Server>,
    pki: Arc<Pki>,
    address: SocketAddr,
}

impl ApiServer {
    /// Opens the data directory, installs what must be there, and listens.
    pub fn start(
        options: Options,
        tasks: tasks::Tasks,
        registry: &mut telemetry::Registry,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        Self::start_with(options, ConnectionLimits::default(), tasks, registry)
    }

    /// [`Self::start`] with other limits. Boxed: whoever waits for it would otherwise compile the server
    /// anew.
    pub fn start_with(
        options: Options,
        limits: impl Into<ServerLimits>,
        tasks: tasks::Tasks,
        registry: &mut telemetry::Registry,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        Box::pin(Self::open(options, limits.into(), tasks, registry))
    }

    async fn open(
        options: Options,
        limits: ServerLimits,
        tasks: tasks::Tasks,
        registry: &mut telemetry::Registry,
    ) -> Result<Self, StartError> {
        let listener = TcpListener::bind(options.listen)
            .await
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|source| StartError::Listen { address: options.listen, source })?;
        let (address, listener) = listener;
        let mut sans = options.tls_sans;
        if !address.ip().is_unspecified() {
            sans.push(address.ip().to_string());
        }
        home::check(&options.data_dir, std::time::SystemTime::now())?;
        // The objects first: keys without objects are a loss, not a first start that was cut off.
        let ServerLimits { connections: limits, stored: mut quota } = limits;
        quota.own.extend(flow::SERVICE_NAMESPACES.map(str::to_owned));
        quota.own.extend(options.near.iter().map(|near| near.namespace.clone()));
        let stored = store::Options { quota, ..store::Options::default() };
        let store = Store::open(home::objects(&options.data_dir), &stored)?;
        let pki = Pki::open(&home::pki(&options.data_dir), &sans)?;
        let signer = Signer::new(pki.service_account_key().expose_secret(), ISSUER)?;
        let authenticator = Authenticator::new(
            options.tokens,
            Arc::new(signer),
            Arc::new(StoredAccounts(store.clone())),
        );
        let audit = if options.audit {
            Some(AuditLog::open(&options.data_dir.join("audit.log"), Limits::default())?)
        } else {
            None
        };
        let metrics = Metrics::new(registry, store.clone());
        let tls = pki.server_config();
        let server = Arc::new(Server::new(
            store,
            authenticator,
            tasks.clone(),
            metrics,
            audit,
            address.to_string(),
            options.services,
        ));
        let authority = pki.ca_pem().to_owned();
        install::at_start(
            &server,
            options.definitions,
            (options.controllers, options.near),
            authority,
        )
        .await
        .map_err(|failure| StartError::Install(failure.message().to_owned()))?;
        tasks.spawn("upkeep", upkeep::run(server.clone()));
        tasks.spawn(
            "listener",
            transport::serve(server.clone(), listener, tls, pki.clients().clone(), limits),
        );
        Ok(Self { server, pki: Arc::new(pki), address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The server as a tower service for code in this process: no socket, no credentials. Requests
    /// act as `user`.
    pub fn client_service(&self, user: User) -> ClientService {
        ClientService { server: self.server.clone(), user: Some(user) }
    }

    /// The same for code that passes on what others ask: requests carry the credentials of whoever is
    /// behind them, as over the socket, and have no rights but theirs.
    pub fn caller_service(&self) -> ClientService {
        ClientService { server: self.server.clone(), user: None }
    }

    /// Names the definitions, as `plural.group`, of kinds that no controller acts on. Whoever makes
    /// an object of one hears that it is stored and that nothing else happens.
    pub fn declare_unattended(&self, definitions: BTreeSet<String>) {
        self.server.declare_unattended(definitions);
    }

    /// Shows these metrics at `/metrics`; to be called when everything has been registered.
    pub fn publish_metrics(&self, registry: telemetry::Registry) {
        self.server.metrics.publish(registry);
    }

    /// Writes out everything that is still in memory. The task tree must have been stopped.
    pub async fn close(&self, timeout: Duration) {
        if tokio::time::timeout(timeout, self.server.store.close()).await.is_err() {
            tracing::warn!("the object store did not close in time; nothing acknowledged is lost");
        }
        if let Some(audit) = &self.server.audit {
            audit.close();
        }
    }
}

/// Who signs service-account tokens.
const ISSUER: &str = "https://kubernetes.default.svc";

/// See [`ApiServer::client_service`] and [`ApiServer::caller_service`].
#[derive(Clone, Debug)]
pub struct ClientService {
    server: Arc<Server>,
    user: Option<User>,
}

impl<B> tower::Service<Request<B>> for ClientService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        if let Some(user) = &self.user {
            request.extensions_mut().insert(Insider(user.clone()));
        }
        Box::pin(dispatch::handle_infallible(self.server.clone(), request))
    }
}

/// `/version`
fn version() -> Value {
    json!({
        "major": "1",
        "minor": "33",
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/`
fn root_paths(registry: &registry::Registry) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in registry.groups().iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(
            group.versions.iter().map(|one| format!("/apis/{}/{}", group.name, one.version)),
        );
    }
    paths.sort();
    json!({ "paths": paths })
}

/// Sets a member of a JSON object that was just made.
fn set_member(object: &mut Value, member: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(member.to_owned(), value);
    }
}
