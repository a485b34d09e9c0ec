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
use crate::negotiate::PROTOBUF;
use crate::registry::Resource;
use crate::server::Server;
use crate::store::Stored;

pub(super) async fn respond(
    server: &Server,
    call: &Call,
    items: Vec<Arc<Stored>>,
    meta: &ListMeta,
) -> Result<Response, Failure> {
    let (resource, meta) = (Arc::clone(&call.resource), meta.clone());
    // Nobody else should wait while a long list is measured.
    let measure = move || PackedPieces::new(resource, items, &meta);
    let measured = server.tasks.blocking("measure a list", measure).await;
    let (pieces, length) = measured.map_err(|error| Failure::internal(error.to_string()))??;
    let mut response = view::formed_response(StatusCode::OK, PROTOBUF, Bytes::new());
    *response.body_mut() = Pieced::body(pieces, u64::try_from(length).ok());
    Ok(response)
}

struct PackedPieces {
    resource: Arc<Resource>,
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Stored>>,
}

impl PackedPieces {
    /// The pieces, and how long all of them are together.
    fn new(
        resource: Arc<Resource>,
        items: Vec<Arc<Stored>>,
        meta: &ListMeta,
    ) -> Result<(Self, usize), Failure> {
        let metadata = proto::list_metadata(&meta.to_value());
        let metadata = metadata.map_err(|error| view::no_protobuf(&error))?;
        let mut list = metadata.len();
        for stored in &items {
            list += item(&resource, stored)?.len();
        }
        let mut head = proto::head(&resource.api_version, &resource.list_kind, list);
        let whole = head.len() + list;
        head.extend(metadata);
        Ok((Self { resource, head: Some(head.into()), items: items.into_iter() }, whole))
    }
}

fn item(resource: &Resource, stored: &Stored) -> Result<Vec<u8>, Failure> {
    Ok(proto::list_item(&view::bare(resource, stored)?))
}

impl Pieces for PackedPieces {
    fn next(&mut self) -> Option<Result<Bytes, String>> {
        if let Some(head) = self.head.take() {
            return Some(Ok(head));
        }
        let made = item(&self.resource, self.items.next()?.as_ref());
        Some(made.map(Bytes::from).map_err(|failure| failure.message().to_owned()))
    }
}
