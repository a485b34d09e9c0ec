//! The last step of every answer, whatever made it: errors in a syntax the client reads, no body
//! for HEAD, big bodies compressed. Never: touches a watch, whose events must leave one by one.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body::Body as _;

use crate::body::Gzip;
use crate::failure::Failure;
use crate::negotiate::{self, Syntax};
use crate::request::Query;
use crate::rest::view;

/// Compressing smaller bodies costs more than sending them.
const GZIP_ABOVE_BYTES: u64 = 128 * 1024;

/// A rejection as an answer.
pub(crate) fn failure(failure: Failure, parts: &Parts) -> Response {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let mut form = negotiate::failure(&parts.headers, query.choice("pretty"));
    if failure.code() == StatusCode::NOT_ACCEPTABLE && form.syntax == Syntax::Protobuf {
        // Whoever asked in vain for protobuf is told so in what every client reads.
        form.syntax = Syntax::Json;
    }
    if form.syntax == Syntax::Json && !form.pretty {
        return failure.into_response();
    }
    let shown = view::respond(failure.code(), &failure.to_value(), form);
    let (mut head, _) = failure.into_response().into_parts();
    let (shown_head, body) = shown.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(shown_head.headers);
    Response::from_parts(head, body)
}

/// What is in memory for an answer until it was sent.
pub(crate) fn whole_bytes(response: &Response) -> usize {
    let length = response.body().size_hint().exact();
    let is_long = response.extensions().get::<Long>().is_some();
    length.filter(|_| !is_long).map_or(0, |it| usize::try_from(it).unwrap_or(usize::MAX))
}

/// What is sent of an answer.
pub(crate) fn answer(parts: &Parts, mut response: Response) -> Response {
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    let length = response.body().size_hint().exact();
    if parts.method == Method::HEAD {
        if let Some(length) = length {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        return response.map(|_| Body::empty());
    }
    // What has no length yet says whether it is worth it.
    let is_long = match length {
        Some(length) => length > GZIP_ABOVE_BYTES,
        None => response.extensions().get::<Long>().is_some(),
    };
    if is_long && negotiate::accepts_gzip(&parts.headers) {
        return compressed(response);
    }
    response
}

/// Marks an answer of which little is in memory for it alone: it is made while it is sent, or is shared
/// by all. If its length is not known, it is worth compressing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Long;

fn compressed(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(head, Gzip::body(body))
}
