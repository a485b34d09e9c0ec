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
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::auth::User;
use crate::auth::impersonate::Impersonation;
use crate::clock;
use crate::dispatch::authorize_resource;
use crate::failure::Failure;
use crate::negotiate::Answer;
use crate::registry::Resource;
use crate::request::{Query, ResourcePath, Verb};
use crate::server::Server;

/// By what a request is made, for requests that last: it is asked again whether it still holds.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    pub shown: Shown,
    /// Set where the caller acts as somebody else.
    pub acting: Option<Arc<Acting>>,
}

/// Whoever is behind an impersonated user, and whom it asked to be. The right to that can be taken
/// away like any other.
#[derive(Debug)]
pub(crate) struct Acting {
    pub caller: User,
    pub wanted: Impersonation,
}

/// What shows who asks.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
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
    pub(crate) fn of(shown: Shown) -> Self {
        Self { shown, acting: None }
    }

    fn check(&self, server: &Server) -> Result<(), Failure> {
        if !self.shown.holds(server) {
            return Err(Failure::unauthorized());
        }
        self.acting.as_ref().map_or(Ok(()), |acting| acting.check(server))
    }
}

impl Acting {
    pub(crate) fn check(&self, server: &Server) -> Result<(), Failure> {
        self.wanted.required(&self.caller).iter().try_for_each(|one| server.authorize(one))
    }
}

impl Shown {
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

/// When it was asked whether a request may be. Taken before that is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    at: Instant,
    /// The state of the rules then, or an older one.
    rules: u64,
}

/// For so long it is believed that a caller is who it was, if no rule has changed.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

impl Judged {
    pub(crate) fn now(server: &Server) -> Self {
        Self { at: Instant::now(), rules: server.access_state() }
    }

    fn is_fresh(self, server: &Server) -> bool {
        self.at.elapsed() < BELIEVED_FOR && self.rules == server.access_state()
    }
}

/// An authorised request about a resource.
#[derive(Debug)]
pub struct Call {
    pub user: User,
    pub(crate) proof: Proof,
    pub(crate) judged: Judged,
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

    /// [`Self::recheck`], where there is reason to: a body may take its time, and so may the turn of
    /// a large write. Rights that were taken away meanwhile must not be used.
    pub(crate) fn check_again(&self, server: &Server) -> Result<(), Failure> {
        if self.judged.is_fresh(server) { Ok(()) } else { self.recheck(server) }
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
    proof.check(server)?;
    authorize_resource(server, user, verb, path, query)
}
