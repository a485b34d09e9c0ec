//! Ranged reads that a service answers with the whole object and status 200: they are cut to the
//! range here, below the library, which takes such an answer for a fault.
//!
//! Nothing is gathered: what comes before the range is read and dropped, what follows is not read.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};

/// Dropped before a range. Reading a long object range by range costs the square of its length with
/// such a service; past this it is refused.
const SKIPPED_MAX_BYTES: u64 = 256 << 20;

/// A service that knows no ranges, asked for one that is too far into an object.
#[derive(Debug)]
pub(crate) struct NoRanges {
    start: u64,
}

impl fmt::Display for NoRanges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start } = self;
        write!(
            out,
            "the service answers a request for a range with the whole object; {start} bytes before \
             the range would be read in vain, and {SKIPPED_MAX_BYTES} are allowed; use a service \
             that knows ranges"
        )
    }
}

impl std::error::Error for NoRanges {}

/// Of a request that asks for one range with both ends; other forms are not ours.
pub(crate) fn asked_range(request: &HttpRequest) -> Option<Range<u64>> {
    let text = request.headers().get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then(|| first..last.saturating_add(1))
}

/// The answer as it should have been; any but a whole object stays as it is.
pub(crate) fn to_range(range: Range<u64>, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = answer.into_parts();
    if parts.status != StatusCode::OK {
        return Ok(HttpResponse::from_parts(parts, body));
    }
    // It did cut, and only the status is wrong.
    if parts.headers.contains_key(CONTENT_RANGE) {
        parts.status = StatusCode::PARTIAL_CONTENT;
        return Ok(HttpResponse::from_parts(parts, body));
    }
    let Some(len_bytes) = length(&parts.headers) else {
        return Ok(HttpResponse::from_parts(parts, body));
    };
    if range.start >= len_bytes {
        parts.status = StatusCode::RANGE_NOT_SATISFIABLE;
        parts.headers.remove(CONTENT_LENGTH);
        return Ok(HttpResponse::from_parts(parts, Bytes::new().into()));
    }
    if range.start > SKIPPED_MAX_BYTES {
        return Err(HttpError::new(HttpErrorKind::Unknown, NoRanges { start: range.start }));
    }
    let end = range.end.min(len_bytes);
    let left = end - range.start;
    parts.status = StatusCode::PARTIAL_CONTENT;
    let shown = format!("bytes {}-{}/{len_bytes}", range.start, end - 1);
    if let Ok(shown) = HeaderValue::from_str(&shown) {
        parts.headers.insert(CONTENT_RANGE, shown);
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(left));
    let cut = Cut { inner: body, skip: range.start, left };
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(cut)))
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A part of a body.
struct Cut {
    inner: HttpResponseBody,
    skip: u64,
    left: u64,
}

impl Cut {
    /// What of a piece is in the range.
    fn cut(&mut self, mut piece: Bytes) -> Bytes {
        let skipped = self.skip.min(piece.len() as u64);
        self.skip -= skipped;
        piece.advance(usize::try_from(skipped).unwrap_or(usize::MAX).min(piece.len()));
        piece.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= piece.len() as u64;
        piece
    }
}

impl Body for Cut {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        while this.left > 0 {
            let frame = match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data().map(|piece| this.cut(piece)) {
                Ok(piece) if !piece.is_empty() => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Ok(_) | Err(_) => {}
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;
    use object_store::client::HttpRequestBody;

    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], pieces: &[&'static str]) -> HttpResponse {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let mut answer = http::Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        answer.body(pieces.concat().into()).unwrap()
    }

    async fn cut(range: Range<u64>, answer: HttpResponse) -> (u16, Option<String>, String) {
        let (parts, body) = to_range(range, answer).unwrap().into_parts();
        let text: Vec<Bytes> = body.bytes_stream().try_collect().await.unwrap();
        let shown = parts.headers.get(CONTENT_RANGE).map(|it| it.to_str().unwrap().to_owned());
        (parts.status.as_u16(), shown, String::from_utf8(text.concat()).unwrap())
    }

    #[tokio::test]
    async fn a_whole_object_is_cut_to_the_range_that_was_asked_for() {
        let whole = || answer(200, &[("content-length", "10")], &["0123456789"]);
        for (range, shown, text) in [
            (0..10, "bytes 0-9/10", "0123456789"),
            (3..7, "bytes 3-6/10", "3456"),
            (8..100, "bytes 8-9/10", "89"),
        ] {
            assert_eq!(cut(range, whole()).await, (206, Some(shown.to_owned()), text.to_owned()));
        }
        assert_eq!(cut(10..20, whole()).await.0, 416);
    }

    #[tokio::test]
    async fn other_answers_stay_as_they_are_and_far_ranges_are_refused() {
        let partial = answer(206, &[("content-range", "bytes 3-4/10")], &["34"]);
        assert_eq!(cut(3..5, partial).await.2, "34");
        let misnamed = answer(200, &[("content-range", "bytes 3-4/10")], &["34"]);
        assert_eq!(cut(3..5, misnamed).await.0, 206);
        assert_eq!(cut(3..5, answer(404, &[], &["<Error>"])).await.2, "<Error>");
        let huge = answer(200, &[("content-length", "1099511627776")], &[]);
        let far = SKIPPED_MAX_BYTES + 1;
        let refused = to_range(far..far + 1, huge).map(drop).unwrap_err();
        assert!(
            std::error::Error::source(&refused)
                .is_some_and(<dyn std::error::Error>::is::<NoRanges>)
        );
    }

    #[test]
    fn only_ranges_with_both_ends_are_ours() {
        for (text, range) in
            [("bytes=3-6", Some(3..7)), ("bytes=3-", None), ("bytes=-6", None), ("bytes=7-6", None)]
        {
            let request = http::Request::builder().header(RANGE, text);
            let request = request.body(HttpRequestBody::empty()).unwrap();
            assert_eq!(asked_range(&request), range, "{text}");
        }
    }
}
