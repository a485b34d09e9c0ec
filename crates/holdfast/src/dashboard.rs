//! The dashboard beside the embedded API server, and the token an administrator signs in with.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::ApiServer;
use apiserver::auth::User;
use apiserver::auth::tokens::StaticTokens;
use apiserver::auth::user::MASTERS;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dashboard::{Dashboard, Options, Reach, StartError};
use rand::RngCore as _;
use secrecy::SecretString;

use crate::config::Config;

/// Who the owner of the token in the data directory is.
const ADMIN: &str = "holdfast-admin";
const TOKEN_BYTES: usize = 32;

/// The embedded server, reached with the credentials of whoever asks.
#[derive(Debug)]
struct Embedded(ApiServer);

impl Reach for Embedded {
    fn client(&self, token: &SecretString) -> Option<kube::Client> {
        let service = dashboard::bearer(self.0.caller_service(), token)?;
        Some(kube::Client::new(service, "default"))
    }
}

pub(crate) fn token_file(data_dir: &Path) -> PathBuf {
    data_dir.join("dashboard-token")
}

/// Adds a token for the administrator: a new one at each start, in a file that only the owner of the
/// data directory can read, as is the kubeconfig beside it.
pub(crate) fn with_token(config: &Config, tokens: StaticTokens) -> anyhow::Result<StaticTokens> {
    if config.dashboard_listen.is_none() {
        return Ok(tokens);
    }
    let mut bytes = [0; TOKEN_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let path = token_file(&config.data_dir);
    match durable::replace_private(&path, format!("{token}\n").as_bytes()) {
        // The server starts on a full disk too.
        Err(error) if error.kind() == Some(std::io::ErrorKind::StorageFull) => {
            let path = path.display();
            tracing::warn!(%path, "the disk is full: there is no new token for the dashboard");
            return Ok(tokens);
        }
        other => other?,
    }
    Ok(tokens.with(&token, User::authenticated(ADMIN, "", [MASTERS.to_owned()])))
}

/// What became of the dashboard in `up`.
pub(crate) enum Beside {
    Off,
    Blocked(SocketAddr),
    Failed(String),
    Serves(Dashboard),
}

/// Starts it. One that cannot start does not keep the rest from running: it is told, with what to do.
pub(crate) async fn beside(
    config: &Config,
    server: &ApiServer,
    blocks: Option<String>,
    tasks: &tasks::Tasks,
) -> Beside {
    let Some(listen) = config.dashboard_listen else { return Beside::Off };
    let options = Options {
        listen,
        tls: (!listen.ip().is_loopback()).then(|| server.pki().web_config()),
        reach: Arc::new(Embedded(server.clone())),
        blocks,
    };
    match Dashboard::start(options, tasks).await {
        Ok(dashboard) => Beside::Serves(dashboard),
        Err(error) => {
            tracing::warn!(%listen, error = %telemetry::Chain(&error), "the dashboard is not served");
            match error {
                StartError::Listen { address, .. } => Beside::Blocked(address),
                StartError::Clear(_) | StartError::Blocks(_) => Beside::Failed(error.to_string()),
            }
        }
    }
}

impl Beside {
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            Self::Serves(dashboard) => Some(dashboard.url()),
            Self::Off | Self::Blocked(_) | Self::Failed(_) => None,
        }
    }

    /// A line for people.
    pub(crate) fn told(&self, config: &Config) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Blocked(address) => {
                format!("not served: {address} is taken; choose another with --dashboard-listen")
            }
            Self::Failed(why) => format!("not served: {why}; the log tells more"),
            Self::Serves(dashboard) => format!(
                "{} (sign in with the token in {})",
                dashboard.url(),
                token_file(&config.data_dir).display()
            ),
        }
    }
}
