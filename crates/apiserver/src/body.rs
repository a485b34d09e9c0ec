//! Bodies of answers that are made while they are sent: however long a list, what is in memory of
//! it at any moment is one piece, and the objects themselves are shared by all who read them.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::doors::Visit;
use crate::flow::Permit;

type BodyError = axum::Error;

/// Pieces are about this large; a larger object is a piece of its own and is not copied.
pub(crate) const PIECE_BYTES: usize = 32 * 1024;

/// A source of small pieces of text.
pub(crate) trait Pieces: Send + 'static {
    /// The next one; the last was the end.
    fn next(&mut self) -> Option<Result<Bytes, String>>;
}

/// Lets others have the thread after each frame: whoever takes its answer as fast as it is made would
/// have it for as long as the answer is.
#[derive(Debug, Default)]
struct Rests(bool);

impl Rests {
    /// Waits once for each frame that was made.
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.0) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn after_frame(&mut self) {
        self.0 = true;
    }
}

/// The pieces, put together to frames.
pub(crate) struct Pieced<P> {
    rests: Rests,
    pieces: P,
    /// A piece that was too large for the frame before.
    kept: Option<Bytes>,
    left_bytes: Option<u64>,
}

impl<P: Pieces + Unpin> Pieced<P> {
    /// `length_bytes`, if it is known, must be the sum of all pieces.
    pub(crate) fn body(pieces: P, length_bytes: Option<u64>) -> Body {
        let rests = Rests::default();
        Body::new(Self { rests, pieces, kept: None, left_bytes: length_bytes })
    }

    fn frame(&mut self) -> Option<Result<Bytes, BodyError>> {
        if let Some(kept) = self.kept.take() {
            return Some(Ok(kept));
        }
        let mut frame = BytesMut::new();
        while frame.len() < PIECE_BYTES {
            match self.pieces.next() {
                None => break,
                Some(Err(text)) => return Some(Err(BodyError::new(text))),
                Some(Ok(piece)) if piece.len() >= PIECE_BYTES => {
                    if frame.is_empty() {
                        return Some(Ok(piece));
                    }
                    self.kept = Some(piece);
                    break;
                }
                Some(Ok(piece)) => frame.extend_from_slice(&piece),
            }
        }
        (!frame.is_empty()).then(|| Ok(frame.freeze()))
    }
}

impl<P: Pieces + Unpin> HttpBody for Pieced<P> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        ready!(self.rests.poll(context));
        let frame = self.frame();
        self.rests.after_frame();
        if let (Some(Ok(bytes)), Some(left)) = (&frame, self.left_bytes) {
            self.left_bytes = Some(left.saturating_sub(bytes.len() as u64));
        }
        Poll::Ready(frame.map(|frame| frame.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.left_bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Another body, compressed on its way.
pub(crate) struct Gzip {
    rests: Rests,
    plain: Body,
    rest: Bytes,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    pub(crate) fn body(plain: Body) -> Body {
        // Lists of objects shrink to a tenth; the fastest level gets nearly all of it.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let rests = Rests::default();
        Body::new(Self { rests, plain, rest: Bytes::new(), encoder: Some(encoder) })
    }

    /// Compresses one piece; what came out, if it is enough for a frame.
    fn pack(&mut self) -> std::io::Result<Option<Bytes>> {
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        let part = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        encoder.write_all(&part)?;
        let is_enough = encoder.get_ref().len() >= PIECE_BYTES;
        Ok(is_enough.then(|| std::mem::take(encoder.get_mut()).into()))
    }
}

impl HttpBody for Gzip {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        ready!(self.rests.poll(context));
        loop {
            while self.rest.has_remaining() {
                let packed = self.pack();
                self.rests.after_frame();
                match packed {
                    Ok(None) => ready!(self.rests.poll(context)),
                    Ok(Some(packed)) => return Poll::Ready(Some(Ok(Frame::data(packed)))),
                    Err(error) => return Poll::Ready(Some(Err(BodyError::new(error)))),
                }
            }
            if self.encoder.is_none() {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.plain).poll_frame(context)) {
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let end = self.encoder.take().map(GzEncoder::finish).transpose();
                    return Poll::Ready(match end {
                        Ok(end) => end.map(|bytes| Ok(Frame::data(bytes.into()))),
                        Err(error) => Some(Err(BodyError::new(error))),
                    });
                }
            }
        }
    }
}

/// Another body that holds on to what the request has taken until it was sent. What was given to the
/// transport is not sent yet: it may lie there for as long as the client lets it.
pub(crate) struct Held {
    body: Body,
    /// Of a frame that is given piece by piece, so that it can be seen whether the client takes it.
    rest: Bytes,
    hold: Arc<Hold>,
}

struct Hold {
    visit: Option<Arc<Visit>>,
    _permits: Vec<Permit>,
}

impl Held {
    pub(crate) fn body(body: Body, visit: Option<Arc<Visit>>, permits: Vec<Permit>) -> Body {
        if visit.is_none() && permits.is_empty() {
            return body;
        }
        // From now on it is the client's turn: one that opens no window never asks for anything.
        if let Some(visit) = &visit {
            visit.gave();
        }
        let hold = Arc::new(Hold { visit, _permits: permits });
        Body::new(Self { body, rest: Bytes::new(), hold })
    }

    /// As much of a frame as is given at once. Whoever asks from within has taken it by asking.
    fn first_of(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if self.hold.visit.is_none() {
            return frame;
        }
        match frame.into_data() {
            Ok(mut bytes) => {
                self.rest = bytes.split_off(bytes.len().min(PIECE_BYTES));
                Frame::data(Bytes::from_owner(Given { bytes, hold: Arc::clone(&self.hold) }))
            }
            Err(frame) => frame,
        }
    }
}

/// What the transport has, and drops when it was sent.
struct Given {
    bytes: Bytes,
    hold: Arc<Hold>,
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(visit) = &self.hold.visit {
            visit.took();
        }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(visit) = &self.hold.visit {
            visit.asked();
        }
        let made = if self.rest.is_empty() {
            ready!(Pin::new(&mut self.body).poll_frame(context))
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut self.rest))))
        };
        let frame = made.map(|made| made.map(|frame| self.first_of(frame)));
        if let Some(visit) = &self.hold.visit {
            visit.gave();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(body.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    struct Words(std::vec::IntoIter<&'static str>);

    impl Pieces for Words {
        fn next(&mut self) -> Option<Result<Bytes, String>> {
            self.0.next().map(|word| Ok(Bytes::from_static(word.as_bytes())))
        }
    }

    #[tokio::test]
    async fn pieces_come_whole_and_in_order() {
        let long: &str = Box::leak("x".repeat(PIECE_BYTES + 1).into_boxed_str());
        let words = vec!["a", "b", long, "c"];
        let all = words.concat();
        let body = Pieced::body(Words(words.into_iter()), Some(all.len() as u64));
        assert_eq!(body.size_hint().exact(), Some(all.len() as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), all);
    }

    #[tokio::test]
    async fn compressed_bodies_come_back_whole() {
        let plain = "holdfast ".repeat(40_000);
        let packed = Gzip::body(Body::from(plain.clone())).collect().await.unwrap().to_bytes();
        assert!(packed.len() < plain.len() / 10);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain);
    }
}
