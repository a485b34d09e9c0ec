//! The last step of every answer, whatever made it: errors in a syntax the client reads, no body
//! for HEAD, big bodies compressed. Never: touches a watch, whose events must leave one by one.

use std::io::Write as _;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::request::Parts;
use http::{HeaderValue, Method, header};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::failure::Failure;
use crate::negotiate::{self, Syntax};
use crate::request::Query;
use crate::rest::view;
use crate::server::Server;

/// Compressing smaller bodies costs more than sending them.
const GZIP_ABOVE_BYTES: u64 = 128 * 1024;

/// A refusal as an answer.
pub(crate) fn failure(failure: Failure, parts: &Parts) -> Response {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let form = negotiate::failure(&parts.headers, query.choice("pretty"));
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

/// What is sent of an answer.
pub(crate) async fn answer(server: &Server, parts: &Parts, mut response: Response) -> Response {
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    let Some(length) = response.body().size_hint().exact() else { return response };
    if parts.method == Method::HEAD {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        return response.map(|_| Body::empty());
    }
    if length > GZIP_ABOVE_BYTES && negotiate::accepts_gzip(&parts.headers) {
        return compressed(server, response).await;
    }
    response
}

async fn compressed(server: &Server, response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let plain = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let text = format!("the answer could not be put together: {error}");
            return Failure::internal(text).into_response();
        }
    };
    let input = plain.clone();
    let packed = server.tasks.blocking("gzip", move || gzip(&input)).await;
    let Ok(Ok(packed)) = packed else {
        return Response::from_parts(head, Body::from(plain));
    };
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(head, Body::from(packed))
}

fn gzip(plain: &[u8]) -> std::io::Result<Bytes> {
    // Lists of objects shrink to a tenth; the fastest level gets nearly all of it.
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn compressed_bodies_come_back_whole() {
        let plain = "holdfast ".repeat(40_000);
        let packed = gzip(plain.as_bytes()).unwrap();
        assert!(packed.len() < plain.len() / 10);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain);
    }
}
