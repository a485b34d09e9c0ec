//! Watch: a stream of changes as JSON lines or protobuf frames, from now, from a revision, or with
//! everything that is there first.
//!
//! A watcher has no buffer of its own: it reads the store's log at its own pace, and is told
//! `410 Expired` when the log has moved on. Never: skips an event.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use objects::cause::Cause;
use rand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::options::invalid_options;
use super::read::{self, Revision};
use super::select::Selection;
use super::view::{self, ListMeta, RowObject};
use super::{Call, Proof, admit, recheck};
use crate::auth::User;
use crate::clock;
use crate::failure::Failure;
use crate::negotiate::{Answer, Shape, Syntax};
use crate::registry::Resource;
use crate::request::{Query, ResourcePath, Verb};
use crate::server::Server;
use crate::set_member;
use crate::store::{Event, EventKind, Stored, Watcher};

/// Quiet watches learn a fresh revision this often.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Those who watch are asked again who they are this often, and after every change of rights at once.
const LOOK_EVERY: Duration = Duration::from_mins(1);
const DEFAULT_TIMEOUT_SECONDS: std::ops::Range<u64> = 1800..3600;
const MAX_TIMEOUT_SECONDS: u64 = 24 * 3600;
/// Objects of an initial list are encoded in chunks of about this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// How a watch begins.
enum Start {
    /// Changes after this revision.
    After(u64),
    /// Changes from this moment on.
    Now,
    /// Everything that is there, then changes.
    Snapshot { end_mark: bool },
}

pub(crate) async fn watch(server: &Arc<Server>, call: &Call) -> Result<Response, Failure> {
    let resource = &call.resource;
    let selection = Selection::parse(resource, &call.query)?;
    if call.answer.shape == Shape::PartialList {
        return Err(Failure::not_acceptable("application/json"));
    }
    // It means nothing here, but it has a type.
    call.query.integer("limit")?;
    let start = start(server, call).await?;
    let timeout = timeout(call)?;
    let mut queue = VecDeque::new();
    let lines = Lines {
        resource: resource.clone(),
        answer: call.answer,
        row: RowObject::of(call)?,
        columns_sent: false,
        broken: false,
    };
    let mut stream = Stream {
        lines,
        selection,
        watcher: None,
        bookmarks: call.query.flag("allowWatchBookmarks"),
        ends_at: Instant::now() + timeout,
        next_bookmark: Instant::now() + BOOKMARK_EVERY.min(before_end(timeout)),
        last_bookmark_done: false,
        initial: VecDeque::new(),
        end_mark: None,
        alarm: Box::pin(tokio::time::sleep_until(Instant::now() + timeout)),
        stop: server.tasks.token(),
        gone: server.registry_changes(),
        guard: Guard::new(server, call),
        server: server.clone(),
    };
    let from = match start {
        Start::After(revision) => revision,
        Start::Now => server.store.revision(),
        Start::Snapshot { end_mark } => {
            let snapshot = server.store.list(&resource.id, call.namespace());
            stream.initial = snapshot
                .items
                .into_iter()
                .filter(|one| stream.selection.matches(resource, one))
                .collect();
            stream.end_mark = end_mark.then_some(snapshot.revision);
            snapshot.revision
        }
    };
    let newest = server.store.revision();
    match server.store.watch(&resource.id, call.namespace(), from) {
        Ok(_) if from > newest => {
            let why = read::not_of_this_history(Some(from), newest);
            queue.push_back(stream.lines.give_up(&Failure::expired(why)));
        }
        Ok(watcher) => stream.watcher = Some(watcher),
        // Inside the stream, with code 200: some clients never recover from an HTTP 410 here.
        Err(too_old) => {
            queue.push_back(stream.lines.give_up(&Failure::expired(too_old.to_string())));
        }
    }
    // The type may have gone between the look-up and the subscription to such news.
    if !stream.is_served() {
        return Err(Failure::no_such_path());
    }
    // The beginning may have waited for a revision: what was taken away meanwhile counts.
    stream.guard.check(server)?;
    Ok(response(stream, queue))
}

/// The stream as a body without a length, after the lines that come first.
fn response(stream: Stream, queue: VecDeque<Bytes>) -> Response {
    let media = match stream.lines.answer.syntax {
        Syntax::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Syntax::Json | Syntax::Yaml => "application/json",
    };
    let body = Body::from_stream(futures::stream::unfold(
        (stream, queue),
        |(mut stream, mut queue)| async move {
            if let Some(line) = queue.pop_front() {
                return Some((Ok::<Bytes, std::io::Error>(line), (stream, queue)));
            }
            let chunk = stream.next().await?;
            Some((Ok(chunk), (stream, queue)))
        },
    ));
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

async fn start(server: &Server, call: &Call) -> Result<Start, Failure> {
    let query = &call.query;
    let revision = Revision::parse(query.get("resourceVersion"))?;
    let initial = query.choice("sendInitialEvents");
    check_match(query, initial.is_some())?;
    Ok(match (initial, revision) {
        (Some(true), revision) => {
            if let Revision::At(revision) = revision {
                // What is there must not be older than what the client has seen elsewhere.
                read::reach(server, call, revision).await?;
            }
            Start::Snapshot { end_mark: query.flag("allowWatchBookmarks") }
        }
        (_, Revision::At(revision)) => Start::After(revision),
        (Some(false), Revision::Newest | Revision::Any) => Start::Now,
        (None, Revision::Newest | Revision::Any) => Start::Snapshot { end_mark: false },
    })
}

/// Which combinations of `sendInitialEvents` and `resourceVersionMatch` make sense for a watch.
/// Refusing the others matters: clients fall back to a list, where silence would make them wait.
fn check_match(query: &Query, initial: bool) -> Result<(), Failure> {
    let field = "resourceVersionMatch";
    let wanted = query.get(field);
    let mut causes = Vec::new();
    if initial && wanted != Some("NotOlderThan") {
        let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(field, text));
    }
    if let Some(wanted) = wanted {
        if !initial {
            let text =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(field, text));
        }
        if wanted != "NotOlderThan" {
            causes.push(Cause::not_supported(field, &wanted.into(), &["NotOlderThan"]));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_options("ListOptions", &causes)) }
}

fn timeout(call: &Call) -> Result<Duration, Failure> {
    let asked =
        call.query.integer("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let seconds = match asked {
        Some(seconds) if seconds > 0 => seconds.min(MAX_TIMEOUT_SECONDS),
        // Random, so that the watches of one moment do not all come back at one moment.
        _ => rand::rng().random_range(DEFAULT_TIMEOUT_SECONDS),
    };
    Ok(Duration::from_secs(seconds))
}

fn before_end(timeout: Duration) -> Duration {
    timeout.saturating_sub(BOOKMARK_BEFORE_END)
}

/// One event as it is sent.
fn line(syntax: Syntax, kind: &str, object: &Value) -> Result<Bytes, Failure> {
    if syntax == Syntax::Protobuf {
        let object = objects::proto::encode(object).map_err(|error| view::no_protobuf(&error))?;
        return Ok(objects::proto::watch_frame(kind, &object).into());
    }
    Ok(Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")))
}

/// One open watch.
struct Stream {
    lines: Lines,
    selection: Selection,
    /// `None` once the stream has said its last word.
    watcher: Option<Watcher>,
    bookmarks: bool,
    ends_at: Instant,
    next_bookmark: Instant,
    last_bookmark_done: bool,
    initial: VecDeque<Arc<Stored>>,
    /// The snapshot's revision, to be announced after the initial objects.
    end_mark: Option<u64>,
    /// Rings at the next moment something is due. Kept from event to event: setting one up for each
    /// costs more than looking at it.
    alarm: Pin<Box<Sleep>>,
    stop: CancellationToken,
    gone: tokio::sync::watch::Receiver<u64>,
    guard: Guard,
    server: Arc<Server>,
}

impl Stream {
    /// The next piece of the body; `None` ends it. Cancel-safe: state changes only between awaits.
    async fn next(&mut self) -> Option<Bytes> {
        if self.stop.is_cancelled() || self.lines.broken {
            return None;
        }
        loop {
            if let Err(failure) = self.guard.check(&self.server) {
                return Some(self.end(&failure));
            }
            if let Some(chunk) = self.initial_chunk() {
                return Some(chunk);
            }
            self.set_alarm();
            let watcher = self.watcher.as_mut()?;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                // Before what was written since: it may be what nobody should see any more.
                () = self.guard.changed() => {}
                events = watcher.next() => match events {
                    Ok(events) => {
                        let chunk = self.encode(&events);
                        if !chunk.is_empty() {
                            return Some(chunk);
                        }
                    }
                    Err(too_old) => return Some(self.end(&Failure::expired(too_old.to_string()))),
                },
                // A type that is no longer served has no more events: its last ones were sent.
                changed = self.gone.changed() => {
                    if changed.is_err() || !self.is_served() {
                        return None;
                    }
                    self.follow_type();
                }
                () = self.alarm.as_mut() => {
                    let now = Instant::now();
                    if now >= self.ends_at {
                        return None;
                    }
                    if now >= self.next_bookmark && let Some(chunk) = self.bookmark() {
                        return Some(chunk);
                    }
                }
            }
        }
    }

    fn set_alarm(&mut self) {
        let wake = self.next_bookmark.min(self.ends_at).min(self.guard.next_look);
        if self.alarm.deadline() != wake {
            self.alarm.as_mut().reset(wake);
        }
    }

    /// The last word.
    fn end(&mut self, failure: &Failure) -> Bytes {
        self.watcher = None;
        self.lines.give_up(failure)
    }

    /// Objects written since a definition changed are stored as the new one says.
    fn follow_type(&mut self) {
        let now = &self.lines.resource;
        let registry = self.server.registry();
        if let Some(next) = registry.resource(&now.group, &now.version, &now.plural) {
            self.lines.resource = next.clone();
        }
    }

    fn is_served(&self) -> bool {
        let resource = &self.lines.resource;
        let registry = self.server.registry();
        registry.resource(&resource.group, &resource.version, &resource.plural).is_some()
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        if self.initial.is_empty() && self.end_mark.is_none() {
            return None;
        }
        let now = clock::now();
        let mut chunk = BytesMut::new();
        while chunk.len() < CHUNK_BYTES
            && !self.lines.broken
            && let Some(stored) = self.initial.pop_front()
        {
            chunk.put_slice(&self.lines.object("ADDED", &stored, now));
        }
        if self.initial.is_empty()
            && let Some(revision) = self.end_mark.take()
        {
            chunk.put_slice(&self.lines.bookmark(revision, true));
        }
        (!chunk.is_empty()).then(|| chunk.freeze())
    }

    fn bookmark(&mut self) -> Option<Bytes> {
        let now = Instant::now();
        let last_at = self.ends_at.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.ends_at);
        if now >= last_at {
            self.next_bookmark = self.ends_at;
            if std::mem::replace(&mut self.last_bookmark_done, true) {
                return None;
            }
        } else {
            self.next_bookmark = (now + BOOKMARK_EVERY).min(last_at);
        }
        let revision = self.watcher.as_ref()?.progress();
        self.bookmarks.then(|| self.lines.bookmark(revision, false))
    }

    fn encode(&mut self, events: &[Arc<Event>]) -> Bytes {
        if self.gone.has_changed().unwrap_or(false) {
            self.follow_type();
        }
        let now = clock::now();
        let mut lines = Vec::with_capacity(events.len());
        for event in events {
            if self.lines.broken {
                break;
            }
            lines.extend(self.event(event, now));
        }
        // One line, the usual case, is shared with the other watchers; several leave as one piece.
        match lines.len() {
            0 | 1 => lines.pop().unwrap_or_default(),
            _ => lines.concat().into(),
        }
    }

    /// What this watcher sees of a change: an object may come into or go out of its selection.
    fn event(&mut self, event: &Event, now: Timestamp) -> Option<Bytes> {
        if self.selection.is_everything() {
            return Some(self.lines.event(event, now));
        }
        let matches = |stored: &Stored| self.selection.matches(&self.lines.resource, stored);
        let before = event.previous.as_ref().is_some_and(|previous| matches(previous));
        let after = event.kind == EventKind::Put && matches(&event.object);
        match (before, after) {
            (false, false) => None,
            (false, true) if event.is_creation() => Some(self.lines.event(event, now)),
            (false, true) => Some(self.lines.object("ADDED", &event.object, now)),
            (true, true) => Some(self.lines.event(event, now)),
            (true, false) if event.kind == EventKind::Delete => Some(self.lines.event(event, now)),
            (true, false) => {
                let previous = event.previous.as_ref()?;
                Some(self.lines.left(previous, event.revision, now))
            }
        }
    }
}

/// Whether the one who watches may still do so. A watch lasts for hours: rights that are taken away,
/// and tokens that end, must not live on in it.
struct Guard {
    user: User,
    path: ResourcePath,
    query: Query,
    /// What showed who watches. Never judged anew where it is taken over: what does not hold any
    /// more is not nothing.
    proof: Proof,
    rules: tokio::sync::watch::Receiver<u64>,
    next_look: Instant,
}

impl Guard {
    fn new(server: &Server, call: &Call) -> Self {
        let mut rules = server.access_changes();
        // What changed between the check of this request and now counts.
        rules.mark_changed();
        Self {
            user: call.user.clone(),
            path: call.path.clone(),
            query: call.query.clone(),
            proof: call.proof.clone(),
            rules,
            next_look: Instant::now() + LOOK_EVERY,
        }
    }

    /// Ends when the rules have changed; [`Self::check`] then looks at them. Cancel-safe.
    async fn changed(&mut self) {
        match self.rules.changed().await {
            Ok(()) => self.rules.mark_changed(),
            Err(_) => std::future::pending().await,
        }
    }

    fn check(&mut self, server: &Server) -> Result<(), Failure> {
        let is_late = Instant::now() >= self.next_look;
        if !is_late && !self.rules.has_changed().unwrap_or(false) {
            return Ok(());
        }
        self.rules.mark_unchanged();
        self.next_look = Instant::now() + LOOK_EVERY;
        recheck(server, &self.user, &self.proof, Verb::Watch, &self.path, &self.query)
    }
}

/// Encodes events in the shape this watcher asked for.
struct Lines {
    resource: Arc<Resource>,
    answer: Answer,
    row: RowObject,
    columns_sent: bool,
    /// The stream has told of an error and must end.
    broken: bool,
}

impl Lines {
    fn event(&mut self, event: &Event, now: Timestamp) -> Bytes {
        let kind = match (event.kind, event.is_creation()) {
            (EventKind::Delete, _) => "DELETED",
            (EventKind::Put, true) => "ADDED",
            (EventKind::Put, false) => "MODIFIED",
        };
        let shared = self.answer.shape == Shape::Whole
            && self.answer.syntax == Syntax::Json
            && view::is_current(&self.resource, &event.object);
        if shared {
            // All watchers of the stored form send the same bytes: encode them once.
            return event.line(|event| raw_line(kind, &event.object.body));
        }
        self.object(kind, &event.object, now)
    }

    fn object(&mut self, kind: &str, stored: &Stored, now: Timestamp) -> Bytes {
        let shown = match (self.answer.shape, self.answer.syntax) {
            (Shape::Whole, Syntax::Json | Syntax::Yaml) => {
                view::text(&self.resource, stored).map(|text| raw_line(kind, &text))
            }
            (Shape::Partial, Syntax::Json | Syntax::Yaml) => {
                view::partial_text(stored).map(|text| raw_line(kind, &text))
            }
            (Shape::Partial, Syntax::Protobuf) => {
                view::metadata(stored).map(|object| self.shaped(kind, &object, now))
            }
            (Shape::Whole | Shape::Table(_) | Shape::PartialList, _) => {
                view::value(&self.resource, stored).map(|object| self.shaped(kind, &object, now))
            }
        };
        shown.unwrap_or_else(|failure| self.give_up(&failure))
    }

    /// The last word of the stream.
    fn give_up(&mut self, failure: &Failure) -> Bytes {
        self.broken = true;
        line(self.answer.syntax, "ERROR", &failure.to_value()).unwrap_or_default()
    }

    fn line(&mut self, kind: &str, object: &Value) -> Bytes {
        let line = line(self.answer.syntax, kind, object);
        line.unwrap_or_else(|failure| self.give_up(&failure))
    }

    /// The last matching state of an object that left the selection, at the revision it left.
    fn left(&mut self, previous: &Stored, revision: u64, now: Timestamp) -> Bytes {
        match view::value(&self.resource, previous) {
            Ok(mut object) => {
                admit::metadata_mut(&mut object)
                    .insert("resourceVersion".into(), revision.to_string().into());
                self.shaped("DELETED", &object, now)
            }
            Err(failure) => self.give_up(&failure),
        }
    }

    fn shaped(&mut self, kind: &str, object: &Value, now: Timestamp) -> Bytes {
        match self.answer.shape {
            Shape::Whole | Shape::PartialList => self.line(kind, object),
            Shape::Partial => self.line(kind, &view::partial(object)),
            Shape::Table(version) => {
                let revision = admit::metadata_text(object, "resourceVersion").parse().unwrap_or(0);
                let rows = vec![view::table_row(&self.resource, object, now, self.row)];
                let meta = ListMeta { revision, ..ListMeta::default() };
                let first = !std::mem::replace(&mut self.columns_sent, true);
                let table = view::table(&self.resource, version, &meta, rows, first);
                self.line(kind, &table)
            }
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            set_member(&mut metadata, "annotations", json!({"k8s.io/initial-events-end": "true"}));
        }
        let object = match self.answer.shape {
            Shape::Partial => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            }),
            Shape::Table(version) => json!({
                "kind": "Table",
                "apiVersion": version,
                "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [],
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                }}],
            }),
            Shape::Whole | Shape::PartialList => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version,
                "metadata": metadata,
            }),
        };
        self.line("BOOKMARK", &object)
    }
}

fn raw_line(kind: &str, object: &[u8]) -> Bytes {
    let mut text = BytesMut::with_capacity(object.len() + kind.len() + 32);
    text.put_slice(b"{\"type\":\"");
    text.put_slice(kind.as_bytes());
    text.put_slice(b"\",\"object\":");
    text.put_slice(object);
    text.put_slice(b"}\n");
    text.freeze()
}
