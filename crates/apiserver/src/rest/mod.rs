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
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;

use crate::auth::User;
use crate::clock;
use crate::dispatch::authorize_resource;
use crate::failure::Failure;
use crate::negotiate::Answer;
use crate::registry::Resource;
use crate::request::{Query, ResourcePath, Verb};
use crate::server::Server;

/// What shows who asks, for requests that last: it is asked again whether it still does.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// Code in this process says so.
    Inside,
    /// The certificate of the connection (DER).
    Certificate(Bytes),
    /// The `Authorization` header.
    Token(HeaderValue),
    /// Nothing was shown: a stranger.
    Nothing,
}

impl Proof {
    fn holds(&self, server: &Server) -> bool {
        let (certificate, token) = match self {
            Self::Inside | Self::Nothing => return true,
            Self::Certificate(der) => (Some(Ok(&der[..])), None),
            Self::Token(header) => match header.to_str() {
                Ok(header) => (None, Some(header)),
                Err(_) => return false,
            },
        };
        server.authenticator.authenticate(certificate, token, clock::now()).is_ok()
    }
}

/// An authorised request about a resource.
#[derive(Debug)]
pub struct Call {
    pub user: User,
    pub(crate) proof: Proof,
    pub(crate) verb: Verb,
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

    /// Whether the caller is still who it was and may still do this, after a wait.
    pub(crate) fn recheck(&self, server: &Server) -> Result<(), Failure> {
        recheck(server, &self.user, &self.proof, self.verb, &self.path, &self.query)
    }
}

pub(crate) fn recheck(
    server: &Server,
    user: &User,
    proof: &Proof,
    verb: Verb,
    path: &ResourcePath,
    query: &Query,
) -> Result<(), Failure> {
    if !proof.holds(server) {
        return Err(Failure::unauthorized());
    }
    authorize_resource(server, user, verb, path, query)
}
