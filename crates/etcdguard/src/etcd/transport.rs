//! One call on one of several endpoints: which is asked, with what token, for how long.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tonic::codegen::InterceptedService;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::tls::Connector;
use super::wire::AuthenticateRequest;
use super::wire::auth_client::AuthClient;
use super::{ConnectionConfig, EtcdError, Rejection};

/// A connection attempt that takes longer is to somebody who is not there.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Below what etcd takes for an abuse (5s), and only while a call is open.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// What a stream may have under way: this is all that a slow reader makes us keep.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// The header etcd looks for a token in.
const TOKEN: &str = "token";

/// A connection that sends the token along; hand it to a generated client.
pub(super) type Peer = InterceptedService<Channel, Credential>;

#[derive(Debug, Clone)]
pub(super) struct Credential(Option<AsciiMetadataValue>);

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        Ok(request)
    }
}

/// The endpoints of one client.
#[derive(Debug)]
pub(super) struct Transport {
    endpoints: Vec<(String, Channel)>,
    login: Option<AuthenticateRequest>,
    token: Mutex<Option<AsciiMetadataValue>>,
}

impl Transport {
    pub(super) fn new(config: &ConnectionConfig, endpoints: &[String]) -> Result<Self, EtcdError> {
        if endpoints.is_empty() {
            return Err(EtcdError::Setup("no etcd endpoint is given".to_owned()));
        }
        let connector = Connector {
            files: Arc::new(config.tls.clone()),
            skip_verify: config.insecure_skip_verify,
        };
        let endpoints = endpoints
            .iter()
            .map(|endpoint| open(config, &connector, endpoint))
            .collect::<Result<_, _>>()?;
        let password = config.password.expose_secret();
        let login = (!config.username.is_empty() && !password.is_empty()).then(|| {
            AuthenticateRequest { name: config.username.clone(), password: password.to_owned() }
        });
        Ok(Self { endpoints, login, token: Mutex::new(None) })
    }

    pub(super) fn first(&self) -> &str {
        self.endpoints.first().map_or("", |(name, _)| name)
    }

    /// Makes one call, on the next endpoint if the one before cannot be used.
    pub(super) async fn call<T, F, O>(&self, deadline: Duration, make: F) -> Result<T, EtcdError>
    where
        F: Fn(Peer) -> O,
        O: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut last = EtcdError::Setup("no etcd endpoint is given".to_owned());
        for (endpoint, channel) in &self.endpoints {
            let attempt = self.on(endpoint, channel, &make);
            last = match tokio::time::timeout(deadline, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error @ EtcdError::Unavailable { .. })) => error,
                Ok(Err(error)) => return Err(error),
                Err(_) => EtcdError::Timeout { endpoint: endpoint.clone(), after: deadline },
            };
        }
        Err(last)
    }

    /// One call on one endpoint, once more with a fresh token if the old one has run out.
    async fn on<T, F, O>(&self, endpoint: &str, channel: &Channel, make: &F) -> Result<T, EtcdError>
    where
        F: Fn(Peer) -> O,
        O: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        for fresh in [false, true] {
            let credential = self.credential(endpoint, channel, fresh).await?;
            let peer = InterceptedService::new(channel.clone(), credential);
            match make(peer).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => {
                    let error = EtcdError::from_status(endpoint, &status);
                    let stale = error.rejection() == Some(Rejection::StaleToken);
                    if fresh || !stale || self.login.is_none() {
                        return Err(error);
                    }
                }
            }
        }
        Err(EtcdError::Setup("no token was accepted".to_owned()))
    }

    async fn credential(
        &self,
        endpoint: &str,
        channel: &Channel,
        fresh: bool,
    ) -> Result<Credential, EtcdError> {
        let Some(login) = &self.login else { return Ok(Credential(None)) };
        let kept = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(token) = kept.filter(|_| !fresh) {
            return Ok(Credential(Some(token)));
        }
        let answer = match AuthClient::new(channel.clone()).authenticate(login.clone()).await {
            Ok(answer) => answer.into_inner(),
            // Names are given also to an etcd that asks for none yet.
            Err(status) if status.message().contains("authentication is not enabled") => {
                return Ok(Credential(None));
            }
            Err(status) => return Err(EtcdError::from_status(endpoint, &status)),
        };
        let mut token: AsciiMetadataValue =
            answer.token.parse().map_err(|_| EtcdError::Broken {
                endpoint: endpoint.to_owned(),
                message: "its token is not text".to_owned(),
            })?;
        token.set_sensitive(true);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(Credential(Some(token)))
    }
}

fn open(
    config: &ConnectionConfig,
    connector: &Connector,
    endpoint: &str,
) -> Result<(String, Channel), EtcdError> {
    let uri = config.with_scheme(endpoint);
    let built = Endpoint::from_shared(uri.clone())
        .map_err(|error| EtcdError::Setup(format!("{uri} is not an etcd endpoint: {error}")))?;
    let channel = built
        .connect_timeout(config.connection_timeout.min(CONNECT_MAX))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .connect_with_connector_lazy(connector.clone());
    Ok((uri, channel))
}
