//! Bodies of requests: how much of them is taken in, and for how long they are waited for.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Version, header};
use http_body_util::BodyExt;

use crate::MAX_BODY_BYTES;
use crate::failure::Failure;
use crate::flow::Permit;

/// A body must arrive within this time: slow senders do not hold a request open.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of the body of a refused request is read, and for how long: a giant over a slow line,
/// or on a machine that has little time, takes its while.
const MAX_DISCARDED_BYTES: usize = 8 * MAX_BODY_BYTES;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the body up to the limit, within the time a body may take. What has come counts.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: &mut Body,
    room: &mut Permit,
) -> Result<Bytes, Failure> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
        return Err(Failure::too_large(MAX_BODY_BYTES));
    }
    let whole = tokio::time::timeout(BODY_TIMEOUT, collect(body, room)).await;
    let whole =
        whole.map_err(|_| Failure::bad_request("the request body did not arrive in time"))??;
    // A connection that broke may look like the end of the body.
    if announced.is_some_and(|length| length != whole.len()) {
        return Err(Failure::bad_request("the request body ended early"));
    }
    Ok(whole)
}

async fn collect(body: &mut Body, room: &mut Permit) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::bad_request(format!("the request body cannot be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(Failure::too_large(MAX_BODY_BYTES));
        }
        room.grow(data.len())?;
        // Copied: a piece keeps the buffer alive that it was read into.
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads what a refused client is still sending, within bounds: many clients look for the answer
/// only when they are done, and a connection closed before that hides it from them.
///
/// Over HTTP/2 nothing has to be read for that: the answer goes out, and the stream is closed behind it,
/// while the connection serves the others. A thousand of them could be refused at once.
pub(crate) async fn discard(version: Version, headers: &HeaderMap, mut body: Body) {
    // Such a client waits for a word before it sends anything.
    if version == Version::HTTP_2 || headers.contains_key(header::EXPECT) {
        return;
    }
    let read = async {
        let mut total = 0;
        while let Some(Ok(frame)) = body.frame().await {
            total += frame.data_ref().map_or(0, Bytes::len);
            if total > MAX_DISCARDED_BYTES {
                return;
            }
        }
    };
    // Too slow or too much: then the connection is closed on them.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, read).await;
}
