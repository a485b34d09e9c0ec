//! How long a service is waited for, and what is made of its answer: below the library, where every
//! request passes.
//!
//! Owns the times: none is set above. A request that carries little is over when no byte comes for a
//! while; one that carries much gets time by its length, since what leaves us cannot be watched; an
//! answer may take any time as long as it goes on. Retries nothing (see [`crate::wrap::Retrying`]).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{AUTHORIZATION, DATE, LOCATION};
use http_body::{Body, Frame, SizeHint};
use jiff::Timestamp;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::time::{Instant, Sleep};

use crate::cut;
use crate::open::Network;
use crate::rejection::{ANSWER_MAX_BYTES, Answer, Asked, GIVE_CREDENTIALS, Rejection};
use crate::trust;

/// Until a connection stands.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// What was sent and is not acknowledged is sent again by the system for so long, also after the end of the
/// process: less than the 20 s in which a call is done or never (docs/formats/locking.md).
pub(crate) const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
/// Without a byte of an answer.
const SILENCE: Duration = Duration::from_secs(20);
/// For a request that carries much, or whose answer takes work, beside its length.
const REQUEST: Duration = Duration::from_mins(1);
/// What a request carries until it counts as much.
const SMALL_BYTES: usize = 256 << 10;
/// The slowest transfer that is waited for.
const BYTES_PER_SECOND: u64 = 16 << 10;
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// The times of one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) silence: Duration,
    pub(crate) request: Duration,
}

impl Timeouts {
    pub(crate) fn new(silence: Option<Duration>, request: Option<Duration>) -> Self {
        Self { silence: silence.unwrap_or(SILENCE), request: request.unwrap_or(REQUEST) }
    }

    /// Until an answer begins.
    fn of(self, method: &http::Method, uri: &http::Uri, len_bytes: usize) -> Duration {
        // Putting the parts of a long object together takes work.
        let completes = *method == http::Method::POST
            && uri.query().is_some_and(|query| query.contains("uploadId="));
        if len_bytes <= SMALL_BYTES && !completes {
            return self.silence;
        }
        let len_bytes = u64::try_from(len_bytes).unwrap_or(u64::MAX);
        self.request.saturating_add(Duration::from_secs(len_bytes / BYTES_PER_SECOND))
    }
}

/// A service that takes connections and says nothing.
#[derive(Debug)]
pub(crate) struct Silent {
    endpoint: String,
    method: String,
    time: Duration,
    /// Whether it had begun to answer.
    broke_off: bool,
    is_for_credentials: bool,
}

impl fmt::Display for Silent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, method, time, broke_off, is_for_credentials } = self;
        let what = if *broke_off { "no more of its answer" } else { "no answer" };
        let check = if *is_for_credentials {
            GIVE_CREDENTIALS
        } else {
            "check that it is the endpoint of an object store (host, port, http or https), that the \
             service is well, and that no proxy or firewall on the way swallows answers"
        };
        write!(
            out,
            "{endpoint} took the connection and gave {what} to {method} for {time:.1?}; {check}"
        )
    }
}

impl std::error::Error for Silent {}

/// A service to which there is no connection.
#[derive(Debug)]
pub(crate) struct Unreachable {
    endpoint: String,
    why: String,
    is_for_credentials: bool,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, why, is_for_credentials } = self;
        let check = if *is_for_credentials {
            GIVE_CREDENTIALS
        } else {
            "check the endpoint (host, port, http or https), its certificate and who signed it, and \
             the proxy and firewall on the way"
        };
        write!(out, "no connection to {endpoint}: {why}; {check}")
    }
}

impl std::error::Error for Unreachable {}

/// Makes clients that wait so long and no longer.
#[derive(Debug, Clone)]
pub(crate) struct TimedConnector {
    pub(crate) timeout: Timeouts,
    pub(crate) bucket: String,
    pub(crate) network: Network,
}

impl TimedConnector {
    /// A client of our own, for what the library cannot ask.
    pub(crate) fn waiting(&self, options: &ClientOptions) -> object_store::Result<Waiting> {
        let inner = trust::client(&self.network, options)?;
        Ok(Waiting { inner, set: self.clone() })
    }
}

impl HttpConnector for TimedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        self.waiting(options).map(HttpClient::new)
    }
}

/// Goes with a request of the library, which has no way to say it: the hash of its body.
#[derive(Debug, Clone)]
pub(crate) struct ContentMd5(pub(crate) String);

#[derive(Debug)]
pub(crate) struct Waiting {
    inner: HttpClient,
    set: TimedConnector,
}

#[async_trait]
impl HttpService for Waiting {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = self.asked(&request);
        let answer = self.ask(request).await?;
        if answer.status().is_success() || answer.status().is_server_error() {
            return Ok(answer);
        }
        refuse(asked, answer).await
    }
}

impl Waiting {
    /// Whatever the answer says. A ranged read is answered with its range and no more.
    pub(crate) async fn ask(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let hash = request.extensions_mut().remove::<ContentMd5>();
        if let Some(hash) = hash.and_then(|hash| http::HeaderValue::try_from(hash.0).ok()) {
            request.headers_mut().insert("content-md5", hash);
        }
        let asked = self.asked(&request);
        let range = cut::asked_range(&request);
        let time =
            self.set.timeout.of(request.method(), request.uri(), request.body().content_length());
        let silent = |time, broke_off| Silent {
            endpoint: asked.endpoint.clone(),
            method: asked.method.clone(),
            time,
            broke_off,
            is_for_credentials: asked.is_for_credentials,
        };
        let answer = match tokio::time::timeout(time, self.inner.execute(request)).await {
            Err(_) => return Err(HttpError::new(HttpErrorKind::Timeout, silent(time, false))),
            Ok(Err(error)) => return Err(unreachable(&asked, error)),
            Ok(Ok(answer)) => answer,
        };
        let silence = self.set.timeout.silence;
        let (parts, body) = answer.into_parts();
        let body = HttpResponseBody::new(Steady {
            inner: body,
            silence,
            sleep: Box::pin(tokio::time::sleep(silence)),
            silent: Some(silent(silence, true)),
        });
        let answer = HttpResponse::from_parts(parts, body);
        match range {
            Some(range) => cut::to_range(range, answer),
            None => Ok(answer),
        }
    }

    pub(crate) fn asked(&self, request: &HttpRequest) -> Asked {
        let uri = request.uri();
        let (scheme, host) = (uri.scheme_str(), uri.authority().map(http::uri::Authority::as_str));
        // What stands before an @ may be a secret.
        let host = host.and_then(|host| host.rsplit('@').next()).unwrap_or_default();
        let signed = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (key_id, region) = signed.map_or((None, None), Asked::signed);
        Asked {
            endpoint: format!("{}://{host}", scheme.unwrap_or_default()),
            bucket: self.set.bucket.clone(),
            method: request.method().to_string(),
            key_id,
            region,
            is_listing: uri.query().is_some_and(|query| {
                query.split('&').any(|it| it.starts_with("list-type=") || it == "comp=list")
            }),
            is_for_credentials: Asked::is_credential_service(host, uri.path()),
        }
    }
}

/// Names the place where there was no connection; all else stays as it is.
fn unreachable(asked: &Asked, error: HttpError) -> HttpError {
    match error.kind() {
        HttpErrorKind::Connect => {}
        HttpErrorKind::Timeout if is_about_connecting(&error) => {}
        _ => return error,
    }
    // The last cause says what happened, those before it only where.
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let (endpoint, why) = (asked.endpoint.clone(), cause.to_string());
    let is_for_credentials = asked.is_for_credentials;
    HttpError::new(error.kind(), Unreachable { endpoint, why, is_for_credentials })
}

/// Every other timeout is ours.
fn is_about_connecting(error: &HttpError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("(Connect)") {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The answer as it was, or why it says that we shall not be served.
async fn refuse(asked: Asked, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = answer.into_parts();
    let mut bytes = Vec::new();
    let mut pieces = body.bytes_stream();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() > ANSWER_MAX_BYTES {
            bytes.truncate(ANSWER_MAX_BYTES);
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let answer = Answer {
        status: parts.status.as_u16(),
        body: &text,
        bucket_region: header(BUCKET_REGION),
        date: header(DATE.as_str()),
        location: header(LOCATION.as_str()),
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match Rejection::of(asked, &answer, &now) {
        Some(rejection) => Err(HttpError::new(HttpErrorKind::Unknown, rejection)),
        None => Ok(HttpResponse::from_parts(parts, Bytes::from(bytes).into())),
    }
}

/// An answer that must go on.
struct Steady {
    inner: HttpResponseBody,
    silence: Duration,
    /// From the last byte on.
    sleep: Pin<Box<Sleep>>,
    silent: Option<Silent>,
}

impl Body for Steady {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            this.sleep.as_mut().reset(Instant::now() + this.silence);
            return Poll::Ready(frame);
        }
        match (this.sleep.as_mut().poll(context), this.silent.take()) {
            (Poll::Ready(()), Some(silent)) => {
                Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, silent))))
            }
            (Poll::Ready(()), None) => Poll::Ready(None),
            (Poll::Pending, silent) => {
                this.silent = silent;
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_gets_time_by_its_length_and_little_does_not() {
        let timeout = Timeouts::new(None, None);
        let plain = http::Uri::from_static("http://h/b/key");
        assert_eq!(timeout.of(&http::Method::GET, &plain, 0), SILENCE);
        assert_eq!(timeout.of(&http::Method::PUT, &plain, SMALL_BYTES), SILENCE);
        let delete = http::Uri::from_static("http://h/b?delete");
        assert_eq!(timeout.of(&http::Method::POST, &delete, 10), SILENCE);
        let complete = http::Uri::from_static("http://h/b/key?uploadId=x");
        assert_eq!(timeout.of(&http::Method::POST, &complete, 10), REQUEST);
        let block = timeout.of(&http::Method::PUT, &plain, 2 << 20);
        assert_eq!(block, REQUEST + Duration::from_secs(128));
    }
}
