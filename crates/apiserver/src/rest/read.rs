//! Get and list.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use objects::page::Token;

use super::select::Selection;
use super::view::{self, ListMeta, RowObject};
use super::{Call, admit};
use crate::failure::Failure;
use crate::registry::Resource;
use crate::server::Server;
use crate::store::{Stored, TooOld};

/// How long a reader may wait for a revision that has not come yet.
const FUTURE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

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
    let row = RowObject::parse(call.query.get("includeObject"))?;
    if let Revision::At(revision) = Revision::parse(call.query.get("resourceVersion"))? {
        reach(server, revision).await?;
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
pub(crate) async fn reach(server: &Server, revision: u64) -> Result<(), Failure> {
    if server.store.wait_for(revision, FUTURE_PATIENCE).await {
        return Ok(());
    }
    Err(Failure::revision_in_the_future(revision, server.store.revision()))
}

/// Which snapshot a list shows, and from where.
struct Page {
    /// `None`: the newest.
    at: Option<u64>,
    after: Option<(String, String)>,
    limit: Option<usize>,
}

pub(crate) async fn list(server: &Server, call: &Call) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let selection = Selection::parse(resource, &call.query)?;
    let row = RowObject::parse(call.query.get("includeObject"))?;
    let page = page(server, call).await?;
    let (items, meta) = collect(server, call, &selection, &page)?;
    view::list_response(resource, &items, &meta, call.answer, call.now, row)
}

async fn page(server: &Server, call: &Call) -> Result<Page, Failure> {
    let query = &call.query;
    if query.get("sendInitialEvents").is_some() {
        return Err(Failure::unprocessable("sendInitialEvents is forbidden for list"));
    }
    let limit = query.integer("limit")?.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit > 0);
    let revision = Revision::parse(query.get("resourceVersion"))?;
    let exact = match (query.get("resourceVersionMatch"), revision) {
        (None, _) => false,
        (Some(_), _) if query.get("continue").is_some() => {
            return Err(Failure::unprocessable(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        (Some(_), Revision::Newest) => {
            return Err(Failure::unprocessable(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        (Some("NotOlderThan"), _) => false,
        (Some("Exact"), Revision::At(_)) => true,
        (Some("Exact"), Revision::Any) => {
            return Err(Failure::unprocessable(
                "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
        (Some(other), _) => {
            return Err(Failure::unprocessable(format!(
                "resourceVersionMatch: Unsupported value: {other:?}: supported values: \
                 \"Exact\", \"NotOlderThan\""
            )));
        }
    };
    if let Some(text) = query.get("continue") {
        if matches!(revision, Revision::At(_)) {
            return Err(Failure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::decode(text)
            .map_err(|error| Failure::bad_request(format!("continue key is not valid: {error}")))?;
        let (namespace, name) = token.start.split_once('/').unwrap_or(("", &token.start));
        let after = Some((namespace.to_owned(), name.to_owned()));
        return Ok(Page { at: Some(token.revision), after, limit });
    }
    let at = match revision {
        Revision::At(revision) => {
            reach(server, revision).await?;
            exact.then_some(revision)
        }
        Revision::Newest | Revision::Any => None,
    };
    Ok(Page { at, after: None, limit })
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
    if let (Some(name), None, Some(scope)) = (selection.name(), page.at, scope) {
        let revision = server.store.revision();
        let found = server.store.get(&resource.id, scope, name);
        let items = found.into_iter().filter(|one| selection.matches(resource, one)).collect();
        return Ok((items, ListMeta { revision, ..ListMeta::default() }));
    }
    let after = page.after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    // Without a selector the store cuts the page; with one, everything behind `after` is looked at.
    let limit = page.limit.filter(|_| selection.is_everything()).unwrap_or(usize::MAX);
    let found = match page.at {
        None => server.store.list_page(&resource.id, namespace, after, limit),
        Some(at) => server
            .store
            .list_page_at(&resource.id, namespace, at, after, limit)
            .map_err(|too_old| expired(&too_old, page))?,
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
        meta.continue_token = Some(Token { revision: found.revision, start }.encode());
        meta.remaining = selection.is_everything().then_some(remaining);
    }
    Ok((items, meta))
}

fn expired(too_old: &TooOld, page: &Page) -> Failure {
    let text = if page.after.is_some() {
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter."
            .to_owned()
    } else {
        format!("The resourceVersion for the provided list is too old ({})", too_old.oldest)
    };
    Failure::expired(text)
}
