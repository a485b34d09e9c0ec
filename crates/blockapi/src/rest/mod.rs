//! The Block Storage v3 dialect over HTTP. A request: [`serve`] (version, caller, faults) →
//! [`route`] (which handler) → one file of handlers → the store.

mod actions;
mod attachments;
mod backups;
mod connections;
pub(crate) mod fault;
mod images;
mod input;
mod listing;
mod literal;
mod openapi;
mod origin;
mod qos;
mod quotas;
mod request;
mod route;
mod small;
mod snapshots;
mod transfers;
mod types;
mod version;
mod views;
mod volumes;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;
use tasks::Tasks;
use tokio::sync::Semaphore;

use crate::auth::{AuthError, Caller, Identity, Tokens};
use crate::figures::Figures;
use crate::images::Images;
use crate::store::Store;
use crate::worker::backend::Backend;
use fault::{Fault, Shape};
use request::{Links, Reply, Request};
use version::Version;

/// The longest body a request may have.
const BODY_BYTES: usize = 112 * 1024;
/// All of it must be there by then.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(1);

/// What operators choose.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// The one availability zone.
    pub zone: String,
    /// As in `node@backend#pool`.
    pub host: String,
    /// In place of the address clients used, in links.
    pub public_endpoint: Option<String>,
    /// Requests below 3.72 find a volume blocked by its backup, as they did before.
    pub legacy_backup_serialization: bool,
    /// Requests below 3.72 do not see that a backup failed.
    pub legacy_hide_backup_error: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            zone: "nova".to_owned(),
            host: "localhost@holdfast#holdfast".to_owned(),
            public_endpoint: None,
            legacy_backup_serialization: false,
            legacy_hide_backup_error: false,
        }
    }
}

/// Everything handlers work with.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) identity: Arc<dyn Identity>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) behaviour: Arc<Behaviour>,
    /// Nothing where no image service is configured.
    pub(crate) images: Option<Arc<Images>>,
    pub(crate) figures: Figures,
}

/// Changes under way at once, those of clients that have left among them.
const REQUESTS: usize = 1024;

impl Service {
    pub(crate) fn router(self, tasks: Tasks) -> axum::Router {
        let places = Arc::new(Semaphore::new(REQUESTS));
        axum::Router::new().fallback(move |request: http::Request<Body>| {
            let (service, tasks, places) = (self.clone(), tasks.clone(), places.clone());
            async move {
                if request.method().is_safe() {
                    return service.serve(request).await;
                }
                service.serve_to_the_end(request, &tasks, places).await
            }
        })
    }

    /// Also for a client that leaves meanwhile: half of a change is nobody's to finish.
    async fn serve_to_the_end(
        self,
        request: http::Request<Body>,
        tasks: &Tasks,
        places: Arc<Semaphore>,
    ) -> Response<Body> {
        let busy = || {
            let busy = "The service is busy; nothing was changed. Try again in a few seconds.";
            finish(Err(Fault::unavailable(busy)), None, None)
        };
        let Ok(place) = places.try_acquire_owned() else { return busy() };
        let (tell, told) = tokio::sync::oneshot::channel();
        tasks.spawn_draining("block-request", move |_| async move {
            // Nobody may be there to hear it.
            let _ = tell.send(self.serve(request).await);
            drop(place);
        });
        told.await.unwrap_or_else(|_| busy())
    }

    pub(crate) async fn serve(&self, request: http::Request<Body>) -> Response<Body> {
        let begin = std::time::Instant::now();
        let id = format!("req-{}", crate::store::new_id());
        let (head, body) = request.into_parts();
        let answered = std::panic::AssertUnwindSafe(self.answer(&head, body, &id)).catch_unwind();
        let mut response = answered.await.unwrap_or_else(|_| {
            tracing::error!(request = %id, "a handler broke; the request is answered with 500");
            finish(Err(Fault::internal()), None, None)
        });
        let headers = response.headers_mut();
        set(headers, "x-openstack-request-id", &id);
        self.figures.answered(&head.method, response.status().as_u16(), begin.elapsed());
        response
    }

    async fn answer(&self, head: &http::request::Parts, body: Body, id: &str) -> Response<Body> {
        let path = head.uri.path();
        if self.identity.offers_token() && !origin::is_a_programs(&head.headers) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "421 Misdirected Request: without an identity service only programs of this machine are served, by its address",
            );
        }
        let links = self.links(head);
        match early(path) {
            Early::Versions(code) => return versions(&links, code),
            Early::Health => return plain(StatusCode::OK, "OK"),
            Early::Gone => return plain(StatusCode::NOT_FOUND, "404 Not Found"),
            Early::OpenApi => {
                return json_response(StatusCode::OK, openapi::document().to_string());
            }
            Early::No => {}
        }
        let caller = match self.caller(&head.headers, &links).await {
            Ok(caller) => caller,
            Err(Refused::Fault(fault)) => {
                return finish(Err(fault), None, self.identity.address());
            }
            Err(Refused::Offer(response)) => return *response,
        };
        let wanted = head.headers.get_all("openstack-api-version").iter();
        let wanted: Vec<&str> = wanted.map(|it| it.to_str().unwrap_or_default()).collect();
        let wanted = (!wanted.is_empty()).then(|| wanted.join(","));
        let version = match version::negotiate(wanted.as_deref()) {
            Ok(version) => version,
            Err(fault) => {
                let mut response = finish(Err(fault), None, None);
                set(response.headers_mut(), "vary", "OpenStack-API-Version");
                return response;
            }
        };
        let reply = self.handle(head, body, id, (caller, version, links)).await;
        let mut response = finish(reply, Some(version), None);
        set(response.headers_mut(), "x-compute-request-id", id);
        response
    }

    async fn handle(
        &self,
        head: &http::request::Parts,
        body: Body,
        id: &str,
        (caller, version, mut links): (Caller, Version, Links),
    ) -> Result<Reply, Fault> {
        let mut path = segments(head.uri.path()).into_iter().skip(1).collect::<Vec<_>>();
        if path.first().is_some_and(|it| is_project(it)) {
            let project = path.remove(0);
            if project != caller.project_id {
                return Err(Fault::bad("Malformed request url"));
            }
            links.project = Some(project);
        }
        // An id that is empty is no id: this is not the list.
        if head.uri.path().ends_with('/') {
            return Err(Fault::no_route());
        }
        let query = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let query = query.map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        let body = read(body).await?;
        let request = Request {
            method: head.method.clone(),
            path,
            query,
            body,
            headers: head.headers.clone(),
            version,
            caller,
            id: id.to_owned(),
            links,
            hides_backup_error: self.behaviour.legacy_hide_backup_error
                && !version.has_backup_status(),
        };
        let in_query = request.query.iter().flat_map(|(key, value)| [key, value]);
        if request.path.iter().chain(in_query).any(|it| it.contains('\0')) {
            return Err(Fault::bad("A path or a query must not contain null characters."));
        }
        // Nothing has a name that long, and no index of it could be kept.
        if request.path.iter().any(|it| it.chars().count() > input::TEXT_CHARS) {
            return Err(Fault::not_yet());
        }
        Box::pin(route::route(self, &request)).await
    }

    fn links(&self, head: &http::request::Parts) -> Links {
        if let Some(base) = &self.behaviour.public_endpoint {
            return Links { base: base.trim_end_matches('/').to_owned(), project: None };
        }
        let text = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok());
        let forwarded = text("x-forwarded-host").and_then(|it| it.rsplit(',').next());
        let host = forwarded.map(str::trim).or_else(|| text("host"));
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let host = host.or(authority).unwrap_or("localhost");
        let scheme = text("x-forwarded-proto").filter(|it| *it == "https").unwrap_or("http");
        Links { base: format!("{scheme}://{host}"), project: None }
    }

    async fn caller(&self, headers: &HeaderMap, links: &Links) -> Result<Caller, Refused> {
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let tokens = Tokens { user: text("x-auth-token"), service: text("x-service-token") };
        if tokens.user.is_none() && self.identity.offers_token() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            set(response.headers_mut(), "x-auth-token", "admin:admin");
            let place = format!("{}/v3/admin", links.base);
            set(response.headers_mut(), "x-server-management-url", &place);
            return Err(Refused::Offer(Box::new(response)));
        }
        self.identity.caller(tokens).await.map_err(|error| match error {
            AuthError::Unauthorized => Refused::Fault(Fault::unauthorized()),
            AuthError::Unavailable(why) => {
                tracing::warn!(why, "tokens cannot be validated");
                let message = "The identity service does not answer now. Nothing was changed; try \
                     again in a few seconds.";
                Refused::Fault(Fault::unavailable(message))
            }
        })
    }
}

enum Refused {
    Fault(Fault),
    /// The token to come with.
    Offer(Box<Response<Body>>),
}

/// What needs no caller.
enum Early {
    Versions(StatusCode),
    Health,
    Gone,
    OpenApi,
    No,
}

fn early(path: &str) -> Early {
    let parts = segments(path);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [] => Early::Versions(StatusCode::MULTIPLE_CHOICES),
        ["v3"] => Early::Versions(StatusCode::OK),
        ["v3", project] if is_project(project) => Early::Versions(StatusCode::OK),
        ["v3", "openapi.json"] => Early::OpenApi,
        ["healthcheck"] => Early::Health,
        ["v3", ..] => Early::No,
        _ => Early::Gone,
    }
}

fn is_project(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

fn segments(path: &str) -> Vec<String> {
    let decode =
        |it: &str| percent_encoding::percent_decode_str(it).decode_utf8_lossy().into_owned();
    path.split('/').filter(|it| !it.is_empty()).map(decode).collect()
}

async fn read(body: Body) -> Result<Bytes, Fault> {
    let read = Limited::new(body, BODY_BYTES).collect();
    let Ok(read) = tokio::time::timeout(BODY_TIMEOUT, read).await else {
        return Err(Fault::new(408, "The body of the request did not come in time."));
    };
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Fault::new(413, "Request is too large."))
        }
        Err(_) => Err(Fault::malformed()),
    }
}

fn versions(links: &Links, code: StatusCode) -> Response<Body> {
    let document = json!({"versions": [{
        "id": "v3.0",
        "status": "CURRENT",
        "version": Version::MAX.to_string(),
        "min_version": Version::MIN.to_string(),
        "updated": "2026-11-16T00:00:00Z",
        "links": [
            {"rel": "describedby", "type": "application/json", "href": format!("{}/v3/openapi.json", links.base)},
            {"rel": "self", "href": format!("{}/v3/", links.base)},
        ],
        "media-types": [{
            "base": "application/json",
            "type": "application/vnd.openstack.volume+json;version=3",
        }],
    }]});
    let mut response = json_response(code, document.to_string());
    set(response.headers_mut(), "openstack-api-version", &format!("volume {}", Version::MIN));
    set(response.headers_mut(), "vary", "OpenStack-API-Version");
    response
}

fn plain(code: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    set(response.headers_mut(), "content-type", "text/plain; charset=UTF-8");
    response
}

fn json_response(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    set(response.headers_mut(), "content-type", "application/json");
    response
}

fn finish(
    reply: Result<Reply, Fault>,
    version: Option<Version>,
    identity: Option<&str>,
) -> Response<Body> {
    let mut response = match reply {
        Ok(Reply { code, body, etag }) => {
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
            let mut response = if let Some(body) = body {
                json_response(code, body)
            } else {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = code;
                response
            };
            if let Some(etag) = etag {
                set(response.headers_mut(), "etag", &etag);
            }
            response
        }
        Err(fault) => {
            let mut response = json_response(fault.status(), fault.body().to_string());
            if let Some(after) = fault.retry_after {
                set(response.headers_mut(), "retry-after", after);
            }
            if fault.shape == Shape::Unauthorized {
                let place = identity.unwrap_or("none");
                set(
                    response.headers_mut(),
                    "www-authenticate",
                    &format!("Keystone uri=\"{place}\""),
                );
            }
            response
        }
    };
    if let Some(version) = version {
        set(response.headers_mut(), "openstack-api-version", &format!("volume {version}"));
        set(response.headers_mut(), header::VARY.as_str(), "OpenStack-API-Version");
    }
    response
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The document itself.
#[cfg(test)]
pub(crate) fn openapi_document() -> serde_json::Value {
    openapi::document()
}

/// Methods and paths the document tells of.
#[cfg(test)]
pub(crate) fn openapi_paths() -> impl Iterator<Item = (&'static str, &'static str)> {
    openapi::PATHS.iter().map(|(method, path, ..)| (*method, *path))
}

/// How the database finds the page of a list.
#[cfg(test)]
pub(crate) async fn plan_of_page(
    service: &Service,
    list: &str,
    query: &[(&str, &str)],
    token: &str,
) -> String {
    use crate::store;

    let caller = crate::auth::NoAuth.caller(Tokens { user: Some(token), service: None }).await;
    let request = Request {
        method: http::Method::GET,
        path: Vec::new(),
        query: query.iter().map(|(key, it)| ((*key).to_owned(), (*it).to_owned())).collect(),
        body: Bytes::new(),
        headers: HeaderMap::new(),
        version: Version::MAX,
        caller: caller.unwrap_or_else(|_| panic!("nobody is refused")),
        id: String::new(),
        links: Links { base: String::new(), project: None },
        hides_backup_error: false,
    };
    let (page, source) = match list {
        "volumes" => (volumes::page(&request), None),
        "snapshots" => (snapshots::page(&request), Some(store::snapshots::SOURCE)),
        "backups" => (backups::page(&request), Some(store::backups::SOURCE)),
        "attachments" => (attachments::page(&request), Some(store::attachments::SOURCE)),
        "transfers" => (transfers::page(&request), Some(store::transfers::SOURCE)),
        "messages" => (small::page_of_messages(&request), Some(store::messages::SOURCE)),
        other => panic!("there is no list of {other}"),
    };
    let page = page.unwrap_or_else(|fault| panic!("{fault:?}"));
    service.store.plan(source, &page).await.unwrap().join("\n")
}
