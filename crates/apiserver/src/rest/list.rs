//! Lists as answers: short ones at once, long ones while they are sent.

mod form;
mod packed;

use std::sync::Arc;

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use jiff::Timestamp;

use super::Call;
use super::view::{self, ListMeta, RowObject};
use crate::body::{Pieced, Pieces};
use crate::failure::Failure;
use crate::negotiate::{Shape, Syntax};
use crate::registry::Resource;
use crate::server::Server;
use crate::store::Stored;

use form::Form;

/// A list in the shape asked for.
pub(crate) async fn respond(
    server: &Server,
    call: &Call,
    items: Vec<Arc<Stored>>,
    meta: &ListMeta,
    row: RowObject,
) -> Result<Response, Failure> {
    let answer = call.answer;
    if answer.syntax == Syntax::Protobuf {
        return packed::respond(server, call, items, meta).await;
    }
    let form = Form::of(answer);
    let pieces = ListPieces::new(call, items, meta, row, form)?;
    if pieces.about_bytes() <= SENT_AT_ONCE_BYTES {
        return Ok(view::formed_response(StatusCode::OK, form.media(), pieces.text()?));
    }
    let length = pieces.length_bytes();
    let mut response = view::formed_response(StatusCode::OK, form.media(), Bytes::new());
    response.extensions_mut().insert(crate::finish::Long);
    *response.body_mut() = Pieced::body(pieces, length);
    Ok(response)
}

/// A list is not the metadata of one object.
fn no_single() -> Failure {
    let offered =
        "application/json, application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    Failure::not_acceptable(offered)
}

/// Longer lists are written while they are sent.
const SENT_AT_ONCE_BYTES: usize = 128 * 1024;

/// A list as text, object by object: however long, no more than one of them is parsed at a time,
/// and those whose stored text is the answer are not copied.
struct ListPieces {
    resource: Arc<Resource>,
    shape: Shape,
    now: Timestamp,
    row: RowObject,
    form: Form,
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Stored>>,
    /// A comma belongs between the last object and the next.
    comma: bool,
    is_empty: bool,
    ended: bool,
}

impl ListPieces {
    fn new(
        call: &Call,
        items: Vec<Arc<Stored>>,
        meta: &ListMeta,
        row: RowObject,
        form: Form,
    ) -> Result<Self, Failure> {
        let resource = &call.resource;
        let (kind, version, member) = match call.answer.shape {
            Shape::Whole => (resource.list_kind.as_str(), resource.api_version.as_str(), "items"),
            Shape::PartialList => (view::PARTIAL_LIST, view::META_VERSION, "items"),
            Shape::Table(version) => ("Table", version, "rows"),
            Shape::Partial => return Err(no_single()),
        };
        let mut head = vec![
            ("kind", kind.into()),
            ("apiVersion", version.into()),
            ("metadata", meta.to_value()),
        ];
        if member == "rows" {
            head.push(("columnDefinitions", view::columns(resource).into()));
        }
        let head = form.head(&head, member, items.is_empty());
        Ok(Self {
            resource: Arc::clone(resource),
            shape: call.answer.shape,
            now: call.now,
            row,
            form,
            head: Some(head.into()),
            is_empty: items.is_empty(),
            items: items.into_iter(),
            comma: false,
            ended: false,
        })
    }

    /// What is read for it, in whatever shape it is shown.
    fn about_bytes(&self) -> usize {
        self.items.as_slice().iter().map(|stored| stored.body.len() + 1).sum()
    }

    /// Known when all objects are sent as they are stored.
    fn length_bytes(&self) -> Option<u64> {
        let items = self.items.as_slice();
        let is_stored = |one: &Arc<Stored>| view::is_current(&self.resource, one);
        if self.form != Form::Compact || self.shape != Shape::Whole || !items.iter().all(is_stored)
        {
            return None;
        }
        let commas = items.len().saturating_sub(1);
        let objects: usize = items.iter().map(|stored| stored.body.len()).sum();
        let head = self.head.as_ref().map_or(0, Bytes::len);
        let end = self.form.end(items.is_empty()).len();
        u64::try_from(head + objects + commas + end).ok()
    }

    fn text(mut self) -> Result<Bytes, Failure> {
        let mut text = BytesMut::with_capacity(self.about_bytes() + 512);
        while let Some(piece) = self.piece() {
            text.put_slice(&piece?);
        }
        Ok(text.freeze())
    }

    fn piece(&mut self) -> Option<Result<Bytes, Failure>> {
        if let Some(head) = self.head.take() {
            return Some(Ok(head));
        }
        if self.ended {
            return None;
        }
        if std::mem::take(&mut self.comma) && !self.items.as_slice().is_empty() {
            return Some(Ok(Bytes::from_static(self.form.between())));
        }
        let Some(stored) = self.items.next() else {
            self.ended = true;
            return Some(Ok(Bytes::from_static(self.form.end(self.is_empty))));
        };
        self.comma = true;
        Some(self.object(&stored).and_then(|text| self.form.item(text)))
    }

    fn object(&self, stored: &Stored) -> Result<Bytes, Failure> {
        match self.shape {
            Shape::Whole => view::text(&self.resource, stored),
            Shape::Table(_) => {
                let object = view::value(&self.resource, stored)?;
                let row = view::table_row(&self.resource, &object, self.now, self.row);
                Ok(row.to_string().into())
            }
            Shape::Partial | Shape::PartialList => view::partial_text(stored),
        }
    }
}

impl Pieces for ListPieces {
    fn next(&mut self) -> Option<Result<Bytes, String>> {
        Some(self.piece()?.map_err(|failure| failure.message().to_owned()))
    }
}
