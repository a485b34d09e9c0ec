//! Lists as protobuf. Their length comes before them, so every object is written twice: once to be
//! measured, once to be sent. What is in memory at any moment is one object, as for JSON.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use objects::proto;

use super::super::Call;
use super::super::view::{self, ListMeta};
use crate::body::{Pieced, Pieces};
use crate::failure::Failure;
use crate::negotiate::{PROTOBUF, Shape};
use crate::registry::Resource;
use crate::server::Server;
use crate::store::Stored;

pub(super) async fn respond(
    server: &Server,
    call: &Call,
    items: Vec<Arc<Stored>>,
    meta: &ListMeta,
) -> Result<Response, Failure> {
    let of = match call.answer.shape {
        Shape::Whole => Of::Objects(Arc::clone(&call.resource)),
        Shape::PartialList => Of::Metadata,
        // Tables have no such form, and are not asked for in it.
        Shape::Partial | Shape::Table(_) => return Err(super::no_single()),
    };
    let meta = meta.clone();
    // Nobody else should wait while a long list is measured.
    let measure = move || PackedPieces::new(of, items, &meta);
    let measured = server.tasks.blocking("measure a list", measure).await;
    let (pieces, length) = measured.map_err(|error| Failure::internal(error.to_string()))??;
    let mut response = view::formed_response(StatusCode::OK, PROTOBUF, Bytes::new());
    response.extensions_mut().insert(crate::finish::Long);
    *response.body_mut() = Pieced::body(pieces, u64::try_from(length).ok());
    Ok(response)
}

/// What the list is of.
enum Of {
    Objects(Arc<Resource>),
    Metadata,
}

impl Of {
    fn head(&self, length: usize) -> Vec<u8> {
        match self {
            Self::Objects(resource) => {
                proto::head(&resource.api_version, &resource.list_kind, length)
            }
            Self::Metadata => proto::head(view::META_VERSION, view::PARTIAL_LIST, length),
        }
    }

    fn item(&self, stored: &Stored) -> Result<Vec<u8>, Failure> {
        let bare = match self {
            Self::Objects(resource) => view::bare(resource, stored)?,
            Self::Metadata => view::bare_partial(stored)?,
        };
        Ok(proto::list_item(&bare))
    }
}

struct PackedPieces {
    of: Of,
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Stored>>,
}

impl PackedPieces {
    /// The pieces, and how long all of them are together.
    fn new(of: Of, items: Vec<Arc<Stored>>, meta: &ListMeta) -> Result<(Self, usize), Failure> {
        let metadata = proto::list_metadata(&meta.to_value());
        let metadata = metadata.map_err(|error| view::no_protobuf(&error))?;
        let mut list = metadata.len();
        for stored in &items {
            list += of.item(stored)?.len();
        }
        let mut head = of.head(list);
        let whole = head.len() + list;
        head.extend(metadata);
        Ok((Self { of, head: Some(head.into()), items: items.into_iter() }, whole))
    }
}

impl Pieces for PackedPieces {
    fn next(&mut self) -> Option<Result<Bytes, String>> {
        if let Some(head) = self.head.take() {
            return Some(Ok(head));
        }
        let made = self.of.item(self.items.next()?.as_ref());
        Some(made.map(Bytes::from).map_err(|failure| failure.message().to_owned()))
    }
}
