//! The replies of one connection on their way out: one buffer that is kept from batch to batch, so
//! that a read goes from the file straight to where the socket takes it, with no allocation and no
//! zeroing in between. Never: sockets.

use bytes::Bytes;
use wire::frame::{self, Answer, HEADER_LEN, Limits, Outcome, Reply};

/// Kept between batches; a buffer that grew beyond it for one large read or write is given back.
pub(crate) const KEEP_BYTES: usize = 2 << 20;
/// Where a header says how long its payload is.
const LENGTH_AT: usize = 22;

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    Whole,
    /// The end of the volume came after so many bytes.
    Until(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// What was used once stays initialised; only the first `used` bytes mean anything.
    bytes: Vec<u8>,
    used: usize,
}

impl Outgoing {
    pub(crate) fn pending(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Everything pending was sent.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        if self.bytes.len() > KEEP_BYTES {
            self.bytes.truncate(KEEP_BYTES);
            self.bytes.shrink_to_fit();
        }
    }

    pub(crate) fn count(&mut self, sequence: u32, offset: i64, count: u32) {
        self.answer(sequence, offset, Outcome::Count(count));
    }

    pub(crate) fn error(&mut self, sequence: u32, offset: i64, text: &str) {
        self.answer(sequence, offset, Outcome::Error(text.to_owned()));
    }

    pub(crate) fn data(&mut self, sequence: u32, offset: i64, data: Bytes) {
        self.answer(sequence, offset, Outcome::Data(data));
    }

    /// A reply of `len` bytes which `fill` puts in their place. If it fails nothing was added.
    pub(crate) fn read<E>(
        &mut self,
        sequence: u32,
        offset: i64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<Filled, E>,
    ) -> Result<(), E> {
        let start = self.used + HEADER_LEN;
        let place = self.room(start, len);
        let (len, outcome) = match fill(place)? {
            Filled::Whole => (len, Kind::Data),
            Filled::Until(end) => (end.min(len), Kind::Eof),
        };
        let header = header(sequence, offset, len, outcome);
        if let Some(place) = self.bytes.get_mut(self.used..start) {
            place.copy_from_slice(&header);
        }
        self.used = start + len;
        Ok(())
    }

    fn room(&mut self, start: usize, len: usize) -> &mut [u8] {
        let end = start + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes.get_mut(start..end).unwrap_or_default()
    }

    /// The last word on a connection whose engine was cut off: what is pending is not sent.
    pub(crate) fn cut_off(&mut self, generation: u64) {
        self.clear();
        self.reply(&Reply::CutOff { generation });
    }

    fn answer(&mut self, sequence: u32, offset: i64, outcome: Outcome) {
        self.reply(&Reply::Answer(Answer { sequence, offset, outcome }));
    }

    fn reply(&mut self, reply: &Reply) {
        // Cannot be too long: data comes in by `read`, and texts are cut.
        let Ok(frame) = frame::encode_reply(reply, Limits::default()) else { return };
        self.put(&frame.header);
        self.put(&frame.payload);
    }

    fn put(&mut self, bytes: &[u8]) {
        let start = self.used;
        self.room(start, bytes.len()).copy_from_slice(bytes);
        self.used = start + bytes.len();
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Data,
    Eof,
}

/// The header of a reply whose payload is in its place already: that of one without a payload,
/// with the length filled in.
fn header(sequence: u32, offset: i64, len: usize, kind: Kind) -> [u8; HEADER_LEN] {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let outcome = match kind {
        Kind::Data => Outcome::Count(len),
        Kind::Eof => Outcome::Eof(Bytes::new()),
    };
    let reply = Reply::Answer(Answer { sequence, offset, outcome });
    let mut header = match frame::encode_reply(&reply, Limits::default()) {
        Ok(frame) => frame.header,
        Err(_) => [0; HEADER_LEN],
    };
    if let Some(place) = header.get_mut(LENGTH_AT..HEADER_LEN) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn replies(out: &Outgoing) -> Vec<Outcome> {
        let mut bytes = BytesMut::from(out.pending());
        let mut found = Vec::new();
        while let Some(Reply::Answer(answer)) =
            frame::decode_reply(&mut bytes, Limits::default()).unwrap()
        {
            assert_eq!((answer.sequence, answer.offset), (7, -4096));
            found.push(answer.outcome);
        }
        assert!(bytes.is_empty());
        found
    }

    #[test]
    fn replies_in_one_buffer_decode_one_by_one() {
        let mut out = Outgoing::default();
        for _ in 0..2 {
            out.count(7, -4096, 3);
            out.read(7, -4096, 5, |place| {
                place.fill(1);
                Ok::<_, ()>(Filled::Whole)
            })
            .unwrap();
            assert_eq!(out.read(7, -4096, 4 << 20, |_| Err("no")), Err("no"));
            out.read(7, -4096, 8, |place| {
                place.fill(2);
                Ok::<_, ()>(Filled::Until(2))
            })
            .unwrap();
            out.error(7, -4096, "because");
            out.data(7, -4096, Bytes::from_static(b"runs"));
            let expected = [
                Outcome::Count(3),
                Outcome::Data(Bytes::from_static(&[1; 5])),
                Outcome::Eof(Bytes::from_static(&[2; 2])),
                Outcome::Error("because".into()),
                Outcome::Data(Bytes::from_static(b"runs")),
            ];
            assert_eq!(replies(&out), expected);
            out.clear();
            assert!(out.pending().is_empty() && out.bytes.len() <= KEEP_BYTES);
        }
    }
}
