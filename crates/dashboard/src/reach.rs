//! The API, reached with the token of a caller.

use std::fmt;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, header};
use kube::client::Body;
use secrecy::{ExposeSecret as _, SecretString};
use tower::Service;

/// Makes clients of the API. Each acts as the owner of one token and as nobody else.
pub trait Reach: fmt::Debug + Send + Sync {
    /// Nothing if a token cannot be sent at all.
    fn client(&self, token: &SecretString) -> Option<kube::Client>;
}

/// A service that adds a token to each request on its way.
pub fn bearer<S>(inner: S, token: &SecretString) -> Option<Bearer<S>> {
    let text = SecretString::from(format!("Bearer {}", token.expose_secret()));
    let mut header = HeaderValue::from_str(text.expose_secret()).ok()?;
    header.set_sensitive(true);
    Some(Bearer { inner, header })
}

/// See [`bearer`].
#[derive(Clone, Debug)]
pub struct Bearer<S> {
    inner: S,
    header: HeaderValue,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Bearer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(header::AUTHORIZATION, self.header.clone());
        self.inner.call(request)
    }
}
