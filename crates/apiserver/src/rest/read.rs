//! Get and list.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use objects::cause::Cause;
use objects::page::Token;

use super::options::invalid_options;
use super::select::Selection;
use super::view::{self, ListMeta, RowObject};
use super::{Call, admit, list as listing};
use crate::failure::Failure;
use crate::registry::Resource;
use crate::request::Query;
use crate::server::Server;
use crate::store::{Stored, TooOld};

/// How long a reader may wait for a revision that has not come yet.
const FUTURE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// A `resourceVersion` query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revision {
    Newest,
    Any,
    At(u64),
}

impl Revision {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None => Ok(Self::Newest),
            Some("0") => Ok(Self::Any),
            Some(text) => text.parse().map(Self::At).map_err(|_| {
                Failure::bad_request(format!(
                    "Invalid value: {text:?}: a resourceVersion is a decimal number"
                ))
            }),
        }
    }
}

pub(crate) async fn get(server: &Server, call: &Call, name: &str) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let row = RowObject::of(call)?;
    if let Revision::At(revision) = Revision::parse(call.query.get("resourceVersion"))? {
        reach(server, call, revision).await?;
    }
    let stored = find(server, resource, call.namespace(), name)?;
    view::stored_response(resource, StatusCode::OK, &stored, call.answer, call.now, row)
}

/// The stored object or 404.
pub(crate) fn find(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Arc<Stored>, Failure> {
    server
        .store
        .get(&resource.id, namespace.unwrap_or_default(), name)
        .ok_or_else(|| Failure::not_found(admit::subject(resource, name)))
}

/// Waits a little for a revision this server has not reached.
pub(crate) async fn reach(server: &Server, call: &Call, revision: u64) -> Result<(), Failure> {
    if server.store.revision() >= revision {
        return Ok(());
    }
    if server.store.wait_for(revision, FUTURE_TIMEOUT).await {
        // That very revision may have taken the right away.
        return call.recheck(server);
    }
    Err(Failure::revision_in_the_future(revision, server.store.revision()))
}

/// Which snapshot a list shows, and from where.
struct Page {
    /// `None`: the newest.
    at: Option<u64>,
    after: Option<(String, String)>,
    limit: Option<usize>,
    /// `at` must not be replaced by the newest state when it is forgotten.
    exact: bool,
}

pub(crate) async fn list(server: &Server, call: &Call) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let selection = Selection::parse(resource, &call.query)?;
    let row = RowObject::of(call)?;
    let (items, meta) = select(server, call, &selection).await?;
    listing::respond(server, call, items, &meta, row).await
}

/// The objects that the options of a list choose.
pub(crate) async fn select(
    server: &Server,
    call: &Call,
    selection: &Selection,
) -> Result<(Vec<Arc<Stored>>, ListMeta), Failure> {
    // It means nothing here, but it has a type.
    call.query.integer("timeoutSeconds")?;
    let page = page(server, call).await?;
    collect(server, call, selection, &page)
}

async fn page(server: &Server, call: &Call) -> Result<Page, Failure> {
    let query = &call.query;
    let limit = query.integer("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0);
    let revision = Revision::parse(query.get("resourceVersion"))?;
    check_match(query, revision)?;
    if let Some(text) = query.get("continue") {
        if matches!(revision, Revision::At(_)) {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::decode(text).map_err(|error| Failure::bad_request(error.to_string()))?;
        let newest = server.store.revision();
        if token.revision.is_some_and(|revision| revision > newest) {
            return Err(Failure::expired(not_of_this_history(token.revision, newest)));
        }
        let (namespace, name) = token.start.split_once('/').unwrap_or(("", &token.start));
        let after = Some((namespace.to_owned(), name.to_owned()));
        return Ok(Page { at: token.revision, after, limit, exact: true });
    }
    let exact = query.get("resourceVersionMatch") == Some("Exact");
    let at = match revision {
        Revision::At(revision) => {
            reach(server, call, revision).await?;
            // Pages that begin at a revision show it where they can.
            let pages = limit.is_some() && query.get("resourceVersionMatch").is_none();
            (exact || pages).then_some(revision)
        }
        Revision::Newest | Revision::Any => None,
    };
    Ok(Page { at, after: None, limit, exact })
}

/// No answer has carried a revision above the newest: it is of a store that is no more.
pub(crate) fn not_of_this_history(revision: Option<u64>, newest: u64) -> String {
    let revision = revision.unwrap_or_default();
    format!("the resourceVersion {revision} is not of this history, whose newest is {newest}")
}

/// Which combinations of `resourceVersion` and `resourceVersionMatch` make sense for a list.
fn check_match(query: &Query, revision: Revision) -> Result<(), Failure> {
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    if query.choice("sendInitialEvents").is_some() {
        let text = "sendInitialEvents is forbidden for list";
        causes.push(Cause::forbidden("sendInitialEvents", text));
    }
    if let Some(text) = query.get(field) {
        if revision == Revision::Newest {
            let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(field, text));
        }
        if query.get("continue").is_some() {
            let text = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(field, text));
        }
        if !matches!(text, "Exact" | "NotOlderThan") {
            let all = ["Exact", "NotOlderThan", ""];
            causes.push(Cause::not_supported(field, &text.into(), &all));
        }
        if text == "Exact" && revision == Revision::Any {
            let text = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(field, text));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(invalid_options("ListOptions", &causes)) }
}

fn collect(
    server: &Server,
    call: &Call,
    selection: &Selection,
    page: &Page,
) -> Result<(Vec<Arc<Stored>>, ListMeta), Failure> {
    let resource = &*call.resource;
    let namespace = call.namespace();
    // A pinned name costs one look-up, whatever is stored.
    let scope = if resource.namespaced { namespace } else { Some("") };
    if let (Some(name), None, None, Some(scope)) = (selection.name(), page.at, &page.after, scope) {
        let mut found = server.store.list_one(&resource.id, scope, name);
        found.items.retain(|one| selection.matches(resource, one));
        let meta = ListMeta { revision: found.revision, ..ListMeta::default() };
        return Ok((found.items, meta));
    }
    let after = page.after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    // Without a selector the store cuts the page; with one, everything behind `after` is looked at.
    let limit = page.limit.filter(|_| selection.is_everything()).unwrap_or(usize::MAX);
    let newest = || server.store.list_page(&resource.id, namespace, after, limit);
    let found = match page.at {
        None => newest(),
        Some(at) => match server.store.list_page_at(&resource.id, namespace, at, after, limit) {
            Ok(found) => found,
            Err(_) if !page.exact => newest(),
            Err(too_old) => return Err(expired(&too_old, page)),
        },
    };
    let mut meta = ListMeta { revision: found.revision, ..ListMeta::default() };
    let (mut items, mut remaining) = (found.items, found.remaining);
    if !selection.is_everything() {
        items.retain(|one| selection.matches(resource, one));
        let limit = page.limit.unwrap_or(usize::MAX);
        remaining = items.len().saturating_sub(limit);
        items.truncate(limit);
    }
    if let (true, Some(last)) = (remaining > 0, items.last()) {
        let start = format!("{}/{}", last.key.namespace, last.key.name);
        meta.continue_token = Some(Token { revision: Some(found.revision), start }.encode());
        meta.remaining = selection.is_everything().then_some(remaining);
    }
    Ok((items, meta))
}

fn expired(too_old: &TooOld, page: &Page) -> Failure {
    let Some((namespace, name)) = &page.after else {
        let text =
            format!("The resourceVersion for the provided list is too old ({})", too_old.oldest);
        return Failure::expired(text);
    };
    let text = "The provided continue token is too old: the snapshot it reads is gone. Start the \
                list again without it, or go on with the token in this answer, which reads the \
                newest state: objects that changed meanwhile may be missing or come twice.";
    let rest = Token { revision: None, start: format!("{namespace}/{name}") };
    Failure::expired(text).with_continue(rest.encode())
}
