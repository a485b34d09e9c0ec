//! From an HTTP request to the code that answers it: who is asking, may they, what for.
//!
//! The order is fixed: authenticate, impersonate, authorise, only then look anything up. So a
//! stranger learns nothing from the difference between "forbidden" and "not found".

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, StatusCode, header};
use tokio::time::Instant;
use tracing::Instrument;

use crate::auth::audit::Entry;
use crate::auth::authenticator::Means;
use crate::auth::certificate::CertificateError;
use crate::auth::rbac::Attributes;
use crate::auth::{User, impersonate};
use crate::body::Held;
use crate::doors::Visit;
use crate::failure::Failure;
use crate::flow::{Caller, Permit, Thing};
use crate::negotiate::{self, DiscoveryForm, Packed};
use crate::registry::{Resource, Subresource};
use crate::request::{Query, ResourcePath, Target, Verb, parse_path};
use crate::rest::admit::Endpoint;
use crate::rest::select::Selection;
use crate::rest::{
    Acting, Call, Judged, Proof, Shown, create, delete, read, reviews, scale, update, view, watch,
};
use crate::server::Server;
use crate::{clock, discovery, finish, health, heavy, intake, openapi};

/// The client certificate of the connection.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// One of ours (DER).
    Trusted(Bytes),
    /// Somebody else's, or one that is not for clients.
    Stranger,
}

/// Set by code in this process only: requests from within need no credentials.
#[derive(Debug, Clone)]
pub struct Insider(pub User);

/// Answers any request. Never fails: errors are answers too.
///
/// A write is begun where it is asked for, and mostly ends there: a write that comes alone waits for
/// nothing but the disk, and for that in its place. One that has to wait becomes a task of its own:
/// what follows from a commit (the entry in the audit log, the metrics) happens although the caller
/// has hung up and its connection has dropped this future.
///
/// # Cancel safety
///
/// A write goes on to its end; a read ends.
pub async fn handle(server: Arc<Server>, request: Request<Body>) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return answer(server, request).await;
    }
    // Whoever asks from within may be one of many in a task that waits for all of them at once.
    let is_inside = request.extensions().get::<Insider>().is_some();
    let mut work = Box::pin(answer(Arc::clone(&server), request));
    if !is_inside && let Poll::Ready(response) = futures::poll!(work.as_mut()) {
        return response;
    }
    let (tell, told) = tokio::sync::oneshot::channel();
    server.tasks.spawn_draining("write", move |_stop| async move {
        // Nobody may be there to hear it.
        let _ = tell.send(work.await);
    });
    told.await.unwrap_or_else(|_| Failure::internal("the request was dropped").into_response())
}

async fn answer(server: Arc<Server>, request: Request<Body>) -> Response {
    let began = Instant::now();
    let (parts, mut body) = request.into_parts();
    let mut trail = Trail::new(&parts);
    let _present = Present::new(server.metrics.in_flight.clone());
    let work = route(&server, &parts, &mut body, &mut trail).instrument(span(&parts));
    // A bug in the handling of one request must not take the connection of others with it.
    let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(path = %parts.uri.path(), "a request handler panicked");
        Err(Failure::internal("this request met a bug in the server; its log says more"))
    });
    if result.is_err() {
        intake::discard(parts.version, &parts.headers, body).await;
    }
    let response = result.unwrap_or_else(|failure| {
        let response = finish::failure(failure, &parts);
        trail.holds_answer(&server, &response);
        response
    });
    let took = began.elapsed();
    let code = response.status().as_u16();
    server.metrics.answered(trail.verb, &trail.resource, code, took);
    tracing::debug!(
        verb = trail.verb,
        path = %parts.uri.path(),
        code,
        user = trail.entry.user,
        took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        "request"
    );
    let id = HeaderValue::from_str(&trail.entry.request_id);
    let permits = trail.write(&server, code, took);
    let mut response = finish::answer(&parts, response);
    if let Ok(id) = id {
        response.headers_mut().insert("audit-id", id);
    }
    let visit = parts.extensions.get::<Arc<Visit>>().cloned();
    response.map(|body| Held::body(body, visit, permits))
}

/// The trace of a request; it goes on from the caller's where there is one.
fn span(parts: &http::request::Parts) -> tracing::Span {
    let span = tracing::debug_span!("request", method = %parts.method, path = %parts.uri.path());
    if let Some(parent) = parts.headers.get("traceparent").and_then(|value| value.to_str().ok()) {
        telemetry::continue_trace(&span, parent);
    }
    span
}

/// Counts a request as being worked on for as long as it lives, however it ends.
struct Present(telemetry::Gauge);

impl Present {
    fn new(gauge: telemetry::Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// [`handle`] in the form a tower service wants.
pub async fn handle_infallible(
    server: Arc<Server>,
    request: Request<Body>,
) -> Result<Response, std::convert::Infallible> {
    Ok(handle(server, request).await)
}

/// What the audit log and the metrics will say about a request.
struct Trail {
    verb: &'static str,
    resource: String,
    is_write: bool,
    entry: Entry,
    caller: Option<Caller>,
    /// What the request has taken; kept until its answer was sent.
    permits: Vec<Permit>,
}

impl Trail {
    fn new(parts: &http::request::Parts) -> Self {
        let source = parts.extensions.get::<SocketAddr>().map(ToString::to_string);
        let entry = Entry {
            time: clock::now(),
            request_id: uuid::Uuid::new_v4().to_string(),
            source: source.unwrap_or_else(|| "process".to_owned()),
            ..Entry::default()
        };
        let (resource, permits) = (String::new(), Vec::new());
        Self { verb: "other", resource, is_write: false, entry, caller: None, permits }
    }

    /// Counts an answer that goes out whatever is left.
    fn holds_answer(&mut self, server: &Server, response: &Response) {
        if let Some(caller) = &self.caller {
            let bytes = finish::whole_bytes(response);
            self.permits.push(server.flow.hold(Thing::AnswerBytes, caller, bytes));
        }
    }

    fn about(&mut self, verb: Verb, path: &ResourcePath) {
        self.verb = verb.as_str();
        self.is_write = verb.is_write();
        verb.as_str().clone_into(&mut self.entry.verb);
        self.entry.group.clone_from(&path.group);
        self.entry.resource.clone_from(&path.resource);
        self.entry.subresource = path.subresource.clone().unwrap_or_default();
        self.entry.namespace = path.namespace.clone().unwrap_or_default();
        self.entry.name = path.name.clone().unwrap_or_default();
    }

    /// Puts the entry into the audit log; what is left is what the request has taken.
    fn write(mut self, server: &Server, code: u16, took: Duration) -> Vec<Permit> {
        if let (true, Some(audit)) = (self.is_write, &server.audit) {
            self.entry.code = code;
            self.entry.latency_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            audit.record(self.entry);
        }
        self.permits
    }
}

async fn route(
    server: &Arc<Server>,
    parts: &http::request::Parts,
    body: &mut Body,
    trail: &mut Trail,
) -> Result<Response, Failure> {
    let judged = Judged::now(server);
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let target = parse_path(parts.uri.path());
    let identified = identify(server, parts, trail);
    if let (Err(failure), Ok(Target::Resource(path))) = (&identified, &target)
        && failure.code() == StatusCode::FORBIDDEN
        && let Some(verb) = Verb::of(&parts.method, path.name.is_some(), &query)
    {
        // Somebody known wanted to be somebody else: what for is worth a line.
        trail.about(verb, path);
    }
    let (user, proof, caller) = identified?;
    trail.caller = Some(caller.clone());
    let mut path = match target {
        Ok(Target::Resource(path)) => path,
        Ok(Target::Path(_) | Target::GroupVersion { .. }) | Err(_) => {
            // Whoever watches over us must not be turned away by a crowd.
            let is_probe = health::is_probe(parts.uri.path());
            if !is_probe {
                trail.permits.push(server.flow.take(Thing::Requests, &caller, 1)?);
            }
            authorize_path(server, &user, &parts.method, parts.uri.path())?;
            let response = path_answer(server, parts, &query, target?)?;
            if !is_probe {
                let bytes = finish::whole_bytes(&response);
                trail.permits.push(server.flow.take(Thing::AnswerBytes, &caller, bytes)?);
            }
            return Ok(response);
        }
    };
    let query = if path.watch {
        only_get(&parts.method)?;
        query.watching(path.name.take().as_deref())
    } else {
        query
    };
    let named = path.name.is_some();
    let verb = Verb::of(&parts.method, named, &query).ok_or_else(|| {
        Failure::method_not_allowed(parts.method.as_str(), &path.group, &path.resource)
    })?;
    trail.about(verb, &path);
    let thing = if verb == Verb::Watch { Thing::Watches } else { Thing::Requests };
    trail.permits.push(server.flow.take(thing, &caller, 1)?);
    authorize_resource(server, &user, verb, &path, &query)?;
    let resource = lookup(server, &path, verb)?;
    trail.resource.clone_from(&resource.plural);
    let packed = Packed::of(resource.built_in().is_some());
    let answer = match verb {
        Verb::Watch => negotiate::stream(&parts.headers, packed)?,
        _ => negotiate::answer_packed(&parts.headers, query.choice("pretty"), packed)?,
    };
    let body = if verb.is_write() {
        let mut room = server.flow.take(Thing::BodyBytes, &caller, 0)?;
        let body = intake::read_body(&parts.headers, body, &mut room).await?;
        trail.permits.push(room);
        body
    } else {
        Bytes::new()
    };
    let call = Call {
        user,
        proof,
        judged,
        verb,
        resource: Arc::clone(&resource),
        path,
        query,
        headers: parts.headers.clone(),
        body,
        answer,
        now: clock::now(),
    };
    let response = carry_out(server, call, &caller, trail).await?;
    if let Some(create::CreatedName(name)) = response.extensions().get() {
        trail.entry.name.clone_from(name);
    }
    let warning = resource.custom().and_then(|custom| custom.warning.as_ref());
    Ok(view::with_warnings(response, warning.map(std::slice::from_ref).unwrap_or_default()))
}

/// Does what was asked, where it holds up nobody, and with room for the answer.
async fn carry_out(
    server: &Arc<Server>,
    call: Call,
    caller: &Caller,
    trail: &mut Trail,
) -> Result<Response, Failure> {
    let verb = call.verb;
    let stored = heavy::stored(server, &call);
    // What is done is told, so room for the answer of a write is taken before it.
    let room = if verb.is_write() {
        let stored_bytes = stored.as_ref().map_or(0, |stored| stored.body.len());
        let about = stored_bytes.saturating_add(call.body.len());
        Some(server.flow.take(Thing::AnswerBytes, caller, about)?)
    } else {
        None
    };
    let is_heavy = heavy::is_heavy(server, verb, &call, stored.as_deref());
    drop(stored);
    let response = if is_heavy {
        heavy::act(server, verb, call, caller).await?
    } else {
        call.check_again(server)?;
        act(server, verb, &call).await?
    };
    let bytes = finish::whole_bytes(&response);
    trail.permits.push(match room {
        Some(mut room) => {
            room.becomes(bytes);
            room
        }
        None => server.flow.take(Thing::AnswerBytes, caller, bytes)?,
    });
    Ok(response)
}

/// Whom a request acts as, what shows who is behind it, and who that is.
fn identify(
    server: &Server,
    parts: &http::request::Parts,
    trail: &mut Trail,
) -> Result<(User, Proof, Caller), Failure> {
    let (caller, shown) = if let Some(Insider(user)) = parts.extensions.get::<Insider>() {
        (user.clone(), Shown::Inside)
    } else {
        let certificate = parts.extensions.get::<PeerCertificate>().map(|one| match one {
            PeerCertificate::Trusted(der) => Ok(&der[..]),
            PeerCertificate::Stranger => Err(CertificateError::Stranger),
        });
        let authorization = match parts.headers.get(header::AUTHORIZATION) {
            None => None,
            Some(value) => Some(value.to_str().map_err(|_| Failure::unauthorized())?),
        };
        let (user, means) = server
            .authenticator
            .identify(certificate, authorization, clock::now())
            .map_err(|refused| {
                tracing::debug!(cause = %refused.cause, source = trail.entry.source, "credentials refused");
                Failure::unauthorized()
            })?;
        (user, shown(means, parts)?)
    };
    trail.entry.user.clone_from(&caller.name);
    trail.entry.groups.clone_from(&caller.groups);
    let wanted = impersonate::parse(&parts.headers)
        .map_err(|error| Failure::bad_request(error.to_string()))?;
    let is_insider = parts.extensions.get::<Insider>().is_some();
    let behind = if is_insider { Caller::inside(&caller) } else { Caller::of(&caller) };
    if let Some(visit) = parts.extensions.get::<Arc<Visit>>() {
        visit.introduce(&behind)?;
    }
    let Some(wanted) = wanted else { return Ok((caller, Proof::of(shown), behind)) };
    let acting = Acting { caller, wanted };
    acting.check(server)?;
    let user = acting.wanted.clone().into_user();
    trail.entry.impersonator = Some(std::mem::take(&mut trail.entry.user));
    trail.entry.user.clone_from(&user.name);
    trail.entry.groups.clone_from(&user.groups);
    let acting = Some(Arc::new(acting));
    Ok((user, Proof { shown, acting }, behind))
}

/// The credentials that counted.
fn shown(means: Means, parts: &http::request::Parts) -> Result<Shown, Failure> {
    let found = match means {
        Means::Nothing => Some(Shown::Nothing),
        Means::Token => parts.headers.get(header::AUTHORIZATION).cloned().map(Shown::Token),
        Means::Certificate => match parts.extensions.get::<PeerCertificate>() {
            Some(PeerCertificate::Trusted(der)) => Some(Shown::Certificate(der.clone())),
            Some(PeerCertificate::Stranger) | None => None,
        },
    };
    found.ok_or_else(Failure::unauthorized)
}

fn authorize_path(
    server: &Server,
    user: &User,
    method: &Method,
    path: &str,
) -> Result<(), Failure> {
    let verb = if method == Method::HEAD {
        "get".to_owned()
    } else {
        method.as_str().to_ascii_lowercase()
    };
    server.authorize(&Attributes { verb: &verb, path: Some(path), ..Attributes::of(user) })
}

/// Also asked again by requests that last.
pub(crate) fn authorize_resource(
    server: &Server,
    user: &User,
    verb: Verb,
    path: &ResourcePath,
    query: &Query,
) -> Result<(), Failure> {
    // A list pinned to one name counts as being about that name.
    let pinned = match (&path.name, verb) {
        (None, Verb::List | Verb::Watch | Verb::DeleteCollection) => Selection::pinned_name(query),
        _ => None,
    };
    let is_namespace = path.group.is_empty() && path.resource == "namespaces";
    let name = path.name.as_deref().or(pinned.as_deref()).unwrap_or_default();
    server.authorize(&Attributes {
        verb: verb.as_str(),
        group: &path.group,
        resource: &path.resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        // Rights on one namespace object may come from a role inside that namespace; a list of
        // one is still a list of all namespaces.
        namespace: match &path.name {
            Some(name) if is_namespace => name,
            _ => path.namespace.as_deref().unwrap_or_default(),
        },
        name,
        ..Attributes::of(user)
    })
}

/// The served type of a path, or what is wrong with asking for it there.
fn lookup(server: &Server, path: &ResourcePath, verb: Verb) -> Result<Arc<Resource>, Failure> {
    let registry = server.registry();
    let resource = registry
        .resource(&path.group, &path.version, &path.resource)
        .ok_or_else(Failure::no_such_path)?;
    if path.namespace.is_some() && !resource.namespaced {
        return Err(Failure::no_such_path());
    }
    if path.namespace.is_none() && resource.namespaced {
        let whole_collection = matches!(verb, Verb::List | Verb::Watch) && path.name.is_none();
        if !whole_collection {
            return Err(match resource.built_in() {
                Some(_) => {
                    Failure::method_not_allowed(verb.as_str(), &resource.group, &resource.plural)
                }
                None => Failure::no_such_path(),
            });
        }
    }
    Ok(resource.clone())
}

pub(crate) async fn act(
    server: &Arc<Server>,
    verb: Verb,
    call: &Call,
) -> Result<Response, Failure> {
    let resource = &*call.resource;
    if let (Some(name), Some(sub)) = (&call.path.name, &call.path.subresource) {
        let sub = resource.subresource(sub).ok_or_else(Failure::no_such_path)?;
        return act_on_part(server, verb, call, name, sub).await;
    }
    if !resource.verbs.contains(&verb.as_str()) {
        return Err(Failure::method_not_allowed(verb.as_str(), &resource.group, &resource.plural));
    }
    match (verb, &call.path.name) {
        // The rights asked for were those at that name, and the body may name another: in their own
        // namespace, tenants have the right to create namespaces.
        (Verb::Create, Some(_)) if resource.built_in().is_some() => {
            Err(Failure::method_not_allowed("POST", &resource.group, &resource.plural))
        }
        (Verb::Create, _) if !resource.is_stored() => reviews::answer(server, call),
        (Verb::Create, _) => create::create(server, call).await,
        (Verb::Watch, _) => watch::watch(server, call).await,
        (Verb::List | Verb::Get, None) => read::list(server, call).await,
        (Verb::List | Verb::Get, Some(name)) => read::get(server, call, name).await,
        (Verb::Update, Some(name)) => update::put(server, call, name, Endpoint::Main).await,
        (Verb::Patch, Some(name)) => update::patch(server, call, name, Endpoint::Main).await,
        (Verb::Delete, Some(name)) => delete::delete(server, call, name).await,
        (Verb::Delete | Verb::DeleteCollection, _) => delete::delete_collection(server, call).await,
        (Verb::Update | Verb::Patch, None) if resource.built_in().is_some() => {
            Err(Failure::method_not_allowed(verb.as_str(), &resource.group, &resource.plural))
        }
        (Verb::Update | Verb::Patch, None) => Err(Failure::bad_request("name must be provided")),
    }
}

async fn act_on_part(
    server: &Arc<Server>,
    verb: Verb,
    call: &Call,
    name: &str,
    part: Subresource,
) -> Result<Response, Failure> {
    match (part, verb) {
        (Subresource::Status, Verb::Get) => read::get(server, call, name).await,
        (Subresource::Status, Verb::Update) => {
            update::put(server, call, name, Endpoint::Status).await
        }
        (Subresource::Status, Verb::Patch) => {
            update::patch(server, call, name, Endpoint::Status).await
        }
        (Subresource::Scale(paths), Verb::Get) => scale::get(server, call, name, &paths),
        (Subresource::Scale(paths), Verb::Update) => scale::put(server, call, name, &paths).await,
        (Subresource::Scale(paths), Verb::Patch) => scale::patch(server, call, name, &paths).await,
        (Subresource::Finalize, Verb::Update) => {
            update::put(server, call, name, Endpoint::Finalize).await
        }
        (Subresource::Approval, Verb::Get) => read::get(server, call, name).await,
        (Subresource::Approval, Verb::Update) => {
            update::put(server, call, name, Endpoint::Approval).await
        }
        (Subresource::Approval, Verb::Patch) => {
            update::patch(server, call, name, Endpoint::Approval).await
        }
        (Subresource::Token, Verb::Create) => reviews::token(server, call, name),
        _ => Err(Failure::method_not_allowed(
            verb.as_str(),
            &call.resource.group,
            &call.resource.plural,
        )),
    }
}

/// Everything that is not about objects.
fn path_answer(
    server: &Server,
    parts: &http::request::Parts,
    query: &Query,
    target: Target,
) -> Result<Response, Failure> {
    let registry = server.registry();
    let path = match target {
        Target::GroupVersion { group, version } => {
            only_get(&parts.method)?;
            let list = discovery::resource_list(&registry, &group, &version)
                .ok_or_else(Failure::no_such_path)?;
            let answer = negotiate::answer(&parts.headers, query.choice("pretty"))?;
            return Ok(view::respond(StatusCode::OK, &list, answer));
        }
        Target::Path(path) => path,
        Target::Resource(_) => return Err(Failure::no_such_path()),
    };
    only_get(&parts.method)?;
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let value = match segments.as_slice() {
        ["livez" | "readyz" | "healthz", ..] => {
            return health::answer(server, query, &segments).ok_or_else(Failure::no_such_path);
        }
        ["metrics"] => return Ok(metrics_page(server)),
        ["version"] => crate::version(),
        ["api" | "apis"] => {
            let core = segments == ["api"];
            match negotiate::discovery(&parts.headers)? {
                DiscoveryForm::Aggregated => {
                    let document = if core {
                        discovery::aggregated_core(&registry)
                    } else {
                        discovery::aggregated_groups(&registry)
                    };
                    return Ok(aggregated(document));
                }
                DiscoveryForm::Plain if core => discovery::core_versions(&server.address),
                DiscoveryForm::Plain => discovery::group_list(&registry),
            }
        }
        ["apis", group] => discovery::group(&registry, group).ok_or_else(Failure::no_such_path)?,
        ["openapi", "v3"] => openapi::index(&registry),
        ["openapi", "v3", "api", version] => return document(&registry, "", version),
        ["openapi", "v3", "apis", group, version] => return document(&registry, group, version),
        ["openapi", "v2"] if negotiate::wants_openapi_protobuf(&parts.headers) => {
            let form = [(header::CONTENT_TYPE, openapi::VERSION_2_PROTOBUF)];
            return Ok(shared((form, openapi::version_2_protobuf(&registry)).into_response()));
        }
        [".well-known", "openid-configuration"] => {
            server.authenticator.signer().discovery(&server.address)
        }
        ["openid", "v1", "jwks"] => {
            let keys = server.authenticator.signer().public_keys();
            let mut response = view::json_response(StatusCode::OK, Bytes::from(keys.to_string()));
            let form = HeaderValue::from_static("application/jwk-set+json");
            response.headers_mut().insert(header::CONTENT_TYPE, form);
            return Ok(response);
        }
        ["openapi", "v2"] if negotiate::accepts_json(&parts.headers) => {
            let document = openapi::version_2(&registry);
            return Ok(shared(view::json_response(StatusCode::OK, document)));
        }
        [] => crate::root_paths(&registry),
        _ => return Err(Failure::no_such_path()),
    };
    let answer = negotiate::answer(&parts.headers, query.choice("pretty"))?;
    Ok(view::respond(StatusCode::OK, &value, answer))
}

fn only_get(method: &Method) -> Result<(), Failure> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Failure::method_not_allowed(method.as_str(), "", "path"))
}

fn document(
    registry: &crate::registry::Registry,
    group: &str,
    version: &str,
) -> Result<Response, Failure> {
    let document = openapi::document(registry, group, version).ok_or_else(Failure::no_such_path)?;
    Ok(shared(view::json_response(StatusCode::OK, document)))
}

/// A document that all who ask for it share.
fn shared(mut response: Response) -> Response {
    response.extensions_mut().insert(finish::Long);
    response
}

fn aggregated(document: Bytes) -> Response {
    let mut response = shared(view::json_response(StatusCode::OK, document));
    let form = HeaderValue::from_static(discovery::AGGREGATED_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, form);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn metrics_page(server: &Server) -> Response {
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, form)], server.metrics.text()).into_response()
}
