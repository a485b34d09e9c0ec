//! A Glance that takes only tokens it knows, and an NBD server for the volumes of the simulated
//! backend.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use wire::nbd::{
    BlockSize, Command, Export, Exports, MAX_PAYLOAD, Negotiation, Policy, Session, Step, Tls,
    TransmissionFlags, decode_request,
};

use crate::auth::{AuthError, Caller, Identity, NoAuth, Tokens};
use crate::images::{Glance, Images};
use crate::tests::rig::Rig;

/// What volumes hold that nobody wrote to.
pub(super) const FILL: u8 = 0x5a;
pub(super) const EXPORT_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
struct Inner {
    /// By id: what is told of it, and its data.
    images: HashMap<String, (Value, Vec<u8>)>,
    /// Tokens it takes.
    tokens: HashSet<String>,
    disks: HashMap<String, Vec<u8>>,
    given: usize,
    /// Connections to volumes that are open.
    open: usize,
}

type Shared = Arc<Mutex<Inner>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Inner> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct World {
    inner: Shared,
    hold: tokio::sync::watch::Sender<bool>,
    _tasks: tasks::Tasks,
}

#[derive(Debug)]
struct Who(Shared);

#[async_trait]
impl Identity for Who {
    async fn caller(&self, tokens: Tokens<'_>) -> Result<Caller, AuthError> {
        NoAuth.caller(tokens).await
    }

    async fn service_token(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        let mut inner = lock(&self.0);
        if refused.is_some() || inner.given == 0 {
            inner.given += 1;
            let token = format!("service-{}", inner.given);
            inner.tokens.insert(token);
        }
        Ok(Some(format!("service-{}", inner.given)))
    }
}

#[derive(Clone)]
struct Door {
    inner: Shared,
    hold: tokio::sync::watch::Receiver<bool>,
}

impl Door {
    fn knows(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let token = headers.get("x-auth-token").and_then(|it| it.to_str().ok());
        let known = token.is_some_and(|it| lock(&self.inner).tokens.contains(it));
        if known { Ok(()) } else { Err(StatusCode::UNAUTHORIZED) }
    }
}

async fn show(
    State(door): State<Door>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<String, StatusCode> {
    door.knows(&headers)?;
    let inner = lock(&door.inner);
    inner.images.get(&id).map(|(told, _)| told.to_string()).ok_or(StatusCode::NOT_FOUND)
}

async fn file(
    State(mut door): State<Door>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Vec<u8>, StatusCode> {
    door.knows(&headers)?;
    door.hold.wait_for(|held| !held).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let inner = lock(&door.inner);
    inner.images.get(&id).map(|(_, data)| data.clone()).ok_or(StatusCode::NOT_FOUND)
}

async fn make(
    State(door): State<Door>,
    headers: HeaderMap,
    body: String,
) -> Result<(StatusCode, String), StatusCode> {
    door.knows(&headers)?;
    let mut told: Value = serde_json::from_str(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let id = uuid::Uuid::new_v4().to_string();
    told["id"] = json!(id);
    told["status"] = json!("queued");
    lock(&door.inner).images.insert(id, (told.clone(), Vec::new()));
    Ok((StatusCode::CREATED, told.to_string()))
}

async fn give(
    State(door): State<Door>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, StatusCode> {
    door.knows(&headers)?;
    let announced = headers.get("content-length").and_then(|it| it.to_str().ok());
    if announced != Some(body.len().to_string().as_str()) {
        return Err(StatusCode::BAD_REQUEST);
    }
    let mut inner = lock(&door.inner);
    let (told, data) = inner.images.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    if told["status"] != "queued" {
        return Err(StatusCode::CONFLICT);
    }
    told["status"] = json!("active");
    *data = body.to_vec();
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(
    State(door): State<Door>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, StatusCode> {
    door.knows(&headers)?;
    let gone = lock(&door.inner).images.remove(&id);
    gone.map(|_| StatusCode::NO_CONTENT).ok_or(StatusCode::NOT_FOUND)
}

impl World {
    /// Gives a rig an image service, and volumes with bytes.
    pub(super) async fn beside(rig: &mut Rig) -> Self {
        Self::with(rig, None).await
    }

    /// The same, volumes inside TLS.
    pub(super) async fn inside_tls(rig: &mut Rig) -> Self {
        let (authority, acceptor) = papers();
        rig.backend.mood(|moods| moods.authority = Some(authority));
        Self::with(rig, Some(acceptor)).await
    }

    async fn with(rig: &mut Rig, acceptor: Option<TlsAcceptor>) -> Self {
        let inner = Shared::default();
        lock(&inner).tokens.insert(rig.token.clone());
        let (hold, is_held) = tokio::sync::watch::channel(false);
        let tasks = tasks::Tasks::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new()
            .route("/v2/images", post(make))
            .route("/v2/images/{id}", get(show).delete(remove))
            .route("/v2/images/{id}/file", get(file).put(give))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Door { inner: inner.clone(), hold: is_held });
        tasks.spawn("glance", async move {
            let _ = axum::serve(listener, router).await;
        });
        let disks = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = disks.local_addr().unwrap().to_string();
        rig.backend.mood(|moods| moods.disks = Some(address));
        let (shared, below) = (inner.clone(), tasks.clone());
        tasks.spawn("disks", async move {
            while let Ok((stream, _)) = disks.accept().await {
                let (shared, acceptor) = (shared.clone(), acceptor.clone());
                below.spawn("disk", async move {
                    lock(&shared).open += 1;
                    // A client that goes away in the middle is no fault of the server.
                    let _ = meet(stream, acceptor, &shared).await;
                    lock(&shared).open -= 1;
                });
            }
        });
        let identity = Arc::new(Who(inner.clone()));
        let images = Arc::new(Images { glance: Glance::new(&url).unwrap(), identity });
        rig.service.images = Some(images.clone());
        rig.worker.images = Some(images);
        Self { inner, hold, _tasks: tasks }
    }

    /// An image with these bytes; `fields` replace what would be told of it.
    pub(super) fn image(&self, data: &[u8], fields: &Value) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        let hash = crate::store::hex(&Sha512::digest(data));
        let mut told = json!({
            "id": id, "name": "image", "status": "active", "size": data.len(), "min_disk": 0,
            "disk_format": "raw", "container_format": "bare", "os_hash_algo": "sha512",
            "os_hash_value": hash,
        });
        for (key, value) in fields.as_object().unwrap() {
            told[key] = value.clone();
        }
        lock(&self.inner).images.insert(id.clone(), (told, data.to_vec()));
        id
    }

    /// From now on this is sent for an image, whatever is told of it.
    pub(super) fn send_instead(&self, image: &str, data: &[u8]) {
        if let Some(known) = lock(&self.inner).images.get_mut(image) {
            known.1 = data.to_vec();
        }
    }

    pub(super) fn hold(&self, held: bool) {
        self.hold.send_replace(held);
    }

    /// What it gave to services so far is taken no more.
    pub(super) fn end_tokens(&self) {
        let mut inner = lock(&self.inner);
        inner.given = 1;
        inner.tokens.retain(|it| !it.starts_with("service-"));
    }

    pub(super) fn held(&self, volume: &str) -> Vec<u8> {
        lock(&self.inner).disks.get(volume).cloned().unwrap_or_default()
    }

    pub(super) fn data_of(&self, image: &str) -> Vec<u8> {
        lock(&self.inner).images.get(image).map(|it| it.1.clone()).unwrap_or_default()
    }

    pub(super) fn images(&self) -> usize {
        lock(&self.inner).images.len()
    }

    /// Returns when nobody is connected to a volume.
    pub(super) async fn served(&self) {
        let began = std::time::Instant::now();
        while lock(&self.inner).open > 0 {
            assert!(began.elapsed() < super::TIMEOUT, "somebody stays");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

struct Any;

impl Exports for Any {
    fn find(&self, name: &str) -> Option<Export> {
        let sizes = BlockSize::new(512, 4096, MAX_PAYLOAD).ok()?;
        Export::new(name, EXPORT_BYTES as u64, TransmissionFlags::VOLUME, sizes).ok()
    }

    fn list(&self) -> Option<Vec<Export>> {
        None
    }
}

/// A certificate authority, and a server of 127.0.0.1 that it knows.
fn papers() -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        );
    (authority.pem(), TlsAcceptor::from(Arc::new(config.unwrap())))
}

async fn meet(
    mut stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut output = BytesMut::new();
    let tls = if acceptor.is_some() { Tls::Required } else { Tls::Off };
    let mut negotiation = Negotiation::new(Policy { tls }, &mut output);
    match (negotiate(&mut stream, &mut negotiation, output).await?, acceptor) {
        (Met::Session(session, input), _) => serve(stream, session, input, shared).await,
        (Met::Tls, Some(acceptor)) => {
            let mut stream = acceptor.accept(stream).await?;
            negotiation.encrypted();
            match negotiate(&mut stream, &mut negotiation, BytesMut::new()).await? {
                Met::Session(session, input) => serve(stream, session, input, shared).await,
                Met::Tls | Met::Gone => Ok(()),
            }
        }
        (Met::Tls | Met::Gone, _) => Ok(()),
    }
}

enum Met {
    Session(Session, BytesMut),
    Tls,
    Gone,
}

async fn negotiate(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    negotiation: &mut Negotiation,
    mut output: BytesMut,
) -> std::io::Result<Met> {
    let mut input = BytesMut::new();
    loop {
        let step = negotiation.feed(&mut input, &Any, &mut output);
        stream.write_all(&output.split()).await?;
        stream.flush().await?;
        match step {
            Step::Again => {}
            Step::NeedMore => {
                if stream.read_buf(&mut input).await? == 0 {
                    return Ok(Met::Gone);
                }
            }
            Step::Done(session) => return Ok(Met::Session(session, input)),
            Step::StartTls => return Ok(Met::Tls),
            Step::Close(_) => return Ok(Met::Gone),
        }
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    session: Session,
    mut input: BytesMut,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut output = BytesMut::new();
    let name = session.export.name().to_owned();
    lock(shared).disks.entry(name.clone()).or_insert_with(|| vec![FILL; EXPORT_BYTES]);
    loop {
        let Some(request) =
            decode_request(&mut input, MAX_PAYLOAD).map_err(std::io::Error::other)?
        else {
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            continue;
        };
        if request.command == Command::Disconnect {
            return Ok(());
        }
        answer(&session, &request, &mut lock(shared).disks, &mut output)?;
        stream.write_all(&output.split()).await?;
        stream.flush().await?;
    }
}

fn answer(
    session: &Session,
    request: &wire::nbd::Request,
    disks: &mut HashMap<String, Vec<u8>>,
    output: &mut BytesMut,
) -> std::io::Result<()> {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let disk = disks.get_mut(session.export.name()).unwrap();
    let frame = match (session.check(request), &request.command) {
        (Err(errno), _) => session.failed(request, errno, "no"),
        (Ok(()), Command::Write { offset, data }) => {
            disk[at(*offset)..at(*offset) + data.len()].copy_from_slice(data);
            session.done(request.cookie)
        }
        (Ok(()), Command::Read { offset, len }) => {
            let data = disk[at(*offset)..at(*offset) + *len as usize].to_vec();
            session.data(request.cookie, *offset, data.into()).map_err(std::io::Error::other)?
        }
        (Ok(()), _) => session.done(request.cookie),
    };
    frame.put(output);
    Ok(())
}
