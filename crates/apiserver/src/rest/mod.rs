//! The verbs of the resource API. Each file is one verb; all of them work on a [`Call`] and the
//! [`Server`](crate::server::Server), and none of them knows about sockets or credentials.

pub mod admit;
pub mod create;
pub mod decode;
pub mod delete;
pub mod options;
pub mod read;
pub mod reviews;
pub mod scale;
pub mod select;
pub mod update;
pub mod view;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;

use crate::auth::User;
use crate::negotiate::Answer;
use crate::registry::Resource;
use crate::request::{Query, ResourcePath};

/// An authorised request about a resource.
#[derive(Debug)]
pub struct Call {
    pub user: User,
    pub resource: Arc<Resource>,
    pub path: ResourcePath,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub answer: Answer,
    pub now: Timestamp,
}

impl Call {
    pub fn namespace(&self) -> Option<&str> {
        self.path.namespace.as_deref()
    }
}
