//! Frontend `rest`: reads and writes as JSON over HTTP, for tools that have nothing better.
//!
//! Owns: `POST /v1/volumes/<base64 of the name>?action=readat|writeat`. Numbers are strings and
//! data is base64, both as callers send them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::{FutureExt, LocalBoxFuture};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::guests::Guests;
use super::{Frontend, FrontendError, Site};
use crate::core::{Command, Done, Fault};

/// Longest read or write.
const MOST_BYTES: u32 = 4 << 20;

/// Longest body: the longest write as base64, and what is around it.
const MOST_BODY: usize = 8 << 20;

/// Requests that may wait for the volume.
const QUEUE: usize = 16;

type Ask = (Command, oneshot::Sender<Result<Done, Fault>>);

pub(crate) struct Rest {
    guests: Guests,
    endpoint: String,
    server: LocalBoxFuture<'static, ()>,
}

/// What a request is answered with.
struct Volume {
    name: String,
    asks: mpsc::Sender<Ask>,
}

#[derive(Debug, Deserialize)]
struct ReadAt {
    offset: String,
    length: String,
}

#[derive(Debug, Deserialize)]
struct WriteAt {
    offset: String,
    length: String,
    data: String,
}

impl Rest {
    pub(crate) async fn start(site: &Site) -> Result<Self, FrontendError> {
        let address = &site.host.rest_listen;
        let failed = |error| FrontendError::Failed(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let (asks, mut asked) = mpsc::channel::<Ask>(QUEUE);
        let volume = Arc::new(Volume { name: site.options.volume.clone(), asks });
        let guests = Guests::new(&site.hub, &site.cut);
        let hub = std::rc::Rc::clone(&site.hub);
        let asking = guests.clone();
        guests.hub.spawn(async move {
            while let Some((command, answer)) = asked.recv().await {
                let hub = std::rc::Rc::clone(&hub);
                asking.welcome(async move {
                    // Whoever asked may have gone.
                    let _ = answer.send(hub.call(command).await);
                });
            }
        });
        let stop = guests.stop.clone();
        let (ended, server) = oneshot::channel::<()>();
        guests.hub.spawn(async move {
            let serve = axum::serve(listener, router(volume));
            if let Err(error) = serve.with_graceful_shutdown(stop.cancelled_owned()).await {
                tracing::warn!(%error, "frontend rest failed");
            }
            drop(ended);
        });
        let server = server.map(|_| ()).boxed_local();
        Ok(Self { guests, endpoint: format!("http://localhost:{port}"), server })
    }
}

impl Frontend for Rest {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn resize(&self, _size_bytes: u64) -> LocalBoxFuture<'_, Result<(), FrontendError>> {
        futures::future::ready(Ok(())).boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), FrontendError>> {
        async move {
            self.guests.dismiss().await;
            self.server.await;
            Ok(())
        }
        .boxed_local()
    }
}

fn router(volume: Arc<Volume>) -> Router {
    Router::new()
        .route("/v1/volumes/{id}", post(act))
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(volume)
}

async fn act(
    State(volume): State<Arc<Volume>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    if STANDARD.decode(&id).ok().as_deref() != Some(volume.name.as_bytes()) {
        return refuse(StatusCode::NOT_FOUND, "no such volume");
    }
    let query = query.unwrap_or_default();
    let action = url::form_urlencoded::parse(query.as_bytes())
        .find_map(|(key, value)| (key == "action").then(|| value.into_owned()));
    let command = match action.as_deref() {
        Some("readat") => read_command(&body),
        Some("writeat") => write_command(&body),
        Some(_) | None => Err("action must be readat or writeat".to_owned()),
    };
    match command {
        Ok(command) => perform(&volume, command).await,
        Err(text) => refuse(StatusCode::BAD_REQUEST, &text),
    }
}

fn read_command(body: &[u8]) -> Result<Command, String> {
    let ReadAt { offset, length } = parse(body)?;
    let (offset, len) = range(&offset, &length)?;
    Ok(Command::Read { offset, len })
}

fn write_command(body: &[u8]) -> Result<Command, String> {
    let WriteAt { offset, length, data } = parse(body)?;
    let (offset, len) = range(&offset, &length)?;
    let data = STANDARD.decode(data).map_err(|error| format!("data is no base64: {error}"))?;
    if data.len() != len as usize {
        return Err(format!("data has {} bytes, length says {len}", data.len()));
    }
    Ok(Command::Write { offset, data: data.into(), durable: false })
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn range(offset: &str, length: &str) -> Result<(u64, u32), String> {
    let offset = offset.parse().map_err(|_| format!("offset {offset:?} is no number"))?;
    let len = length.parse().map_err(|_| format!("length {length:?} is no number"))?;
    if len == 0 || len > MOST_BYTES {
        return Err(format!("length must be between 1 and {MOST_BYTES}"));
    }
    Ok((offset, len))
}

async fn perform(volume: &Volume, command: Command) -> Response {
    let (sender, receiver) = oneshot::channel();
    if volume.asks.send((command, sender)).await.is_err() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the frontend is stopping");
    }
    match receiver.await {
        Ok(Ok(Done::Data(data))) => {
            answer(&json!({ "type": "readOutput", "data": STANDARD.encode(data) }))
        }
        Ok(Ok(Done::Count(_) | Done::Runs(_))) => answer(&json!({ "type": "writeOutput" })),
        Ok(Err(fault)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &fault.to_string()),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the frontend is stopping"),
    }
}

fn answer(body: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn refuse(status: StatusCode, text: &str) -> Response {
    let body = json!({ "type": "error", "status": status.as_u16(), "message": text });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
