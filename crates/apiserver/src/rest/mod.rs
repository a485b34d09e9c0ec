//! The verbs of the resource API. Each file is one verb; all of them work on a [`Call`] and the
//! [`Server`](crate::server::Server), and none of them knows about sockets or credentials.

pub(crate) mod admit;
pub(crate) mod asked;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod read;
pub(crate) mod reviews;
pub(crate) mod scale;
pub(crate) mod select;
pub(crate) mod signing;
pub(crate) mod update;
pub(crate) mod view;
pub(crate) mod watch;

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
