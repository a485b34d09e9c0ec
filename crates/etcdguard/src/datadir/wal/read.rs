//! Takes records off one segment, each checked before it is believed.

use std::io::{self, Read};

use bytes::Bytes;
use prost::Message;

use super::super::raft::Record;
use super::{CRC, RECORD_MAX};

/// A disk writes this much at a time, whole: a torn record has such a piece of zeros.
const SECTOR: u64 = 512;

/// What is next in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Record {
        kind: i64,
        data: Bytes,
    },
    /// The rest of the segment was never written.
    End,
    /// A record that was being written when the machine stopped; only the last segment may end so.
    Torn(&'static str),
}

#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    Damaged(&'static str),
}

/// Reads a segment from its beginning.
#[derive(Debug)]
pub(super) struct Segment<R> {
    source: R,
    length: u64,
    /// Where the next record begins.
    pub(super) offset: u64,
    /// The checksum over everything so far, in this segment and those before it.
    pub(super) crc: u32,
}

impl<R: Read> Segment<R> {
    pub(super) const fn new(source: R, length: u64, crc: u32) -> Self {
        Self { source, length, offset: 0, crc }
    }

    pub(super) fn next(&mut self) -> Result<Next, ReadError> {
        let rest = self.length.saturating_sub(self.offset);
        if rest == 0 {
            return Ok(Next::End);
        }
        let Some(room) = rest.checked_sub(8) else {
            return Ok(Next::Torn("a record is cut short"));
        };
        let mut frame = [0; 8];
        self.source.read_exact(&mut frame).map_err(ReadError::Io)?;
        if frame == [0; 8] {
            return Ok(Next::End);
        }
        let (length, padding) = split(i64::from_le_bytes(frame));
        if length > RECORD_MAX {
            return Err(ReadError::Damaged("a record is longer than any can be"));
        }
        if length + padding > room {
            return Ok(Next::Torn("a record runs past the end of the segment"));
        }
        let bytes = self.take(length + padding)?;
        let data = bytes.slice(..bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX)));
        match self.check(data) {
            Ok(next) => {
                self.offset += 8 + length + padding;
                Ok(next)
            }
            Err(what) if is_torn(&bytes, self.offset + 8) => Ok(Next::Torn(what)),
            Err(what) => Err(ReadError::Damaged(what)),
        }
    }

    fn take(&mut self, length: u64) -> Result<Bytes, ReadError> {
        let mut bytes = Vec::new();
        let taken = self.source.by_ref().take(length).read_to_end(&mut bytes);
        match taken.map_err(ReadError::Io)? {
            taken if u64::try_from(taken).is_ok_and(|taken| taken == length) => Ok(bytes.into()),
            _ => Err(ReadError::Damaged("the segment became shorter while it was read")),
        }
    }

    fn check(&mut self, bytes: Bytes) -> Result<Next, &'static str> {
        let record = Record::decode(bytes).map_err(|_| "a record is not a message")?;
        let kind = record.kind.unwrap_or(0);
        let (crc, data) = (record.crc.unwrap_or(0), record.data.unwrap_or_default());
        if kind == CRC {
            // The first segment that is read cannot know what came before it.
            if self.crc != 0 && self.crc != crc {
                return Err("it does not follow the segment before it");
            }
            self.crc = crc;
            return Ok(Next::Record { kind, data });
        }
        let sum = crc32c::crc32c_append(self.crc, &data);
        if sum != crc {
            return Err("a record's checksum is wrong");
        }
        self.crc = sum;
        Ok(Next::Record { kind, data })
    }
}

/// Length and padding of a record. The sign says that there is padding.
fn split(frame: i64) -> (u64, u64) {
    let bits = frame.cast_unsigned();
    let padding = if frame < 0 { (bits >> 56) & 7 } else { 0 };
    (bits & 0x00FF_FFFF_FFFF_FFFF, padding)
}

/// Whether some sector of what lies at `offset` is all zeros.
fn is_torn(bytes: &[u8], offset: u64) -> bool {
    let first = usize::try_from(SECTOR - offset % SECTOR).unwrap_or(usize::MAX);
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let sector = usize::try_from(SECTOR).unwrap_or(usize::MAX);
    std::iter::once(head)
        .chain(rest.chunks(sector))
        .any(|piece| !piece.is_empty() && piece.iter().all(|byte| *byte == 0))
}

/// Counts the records of one segment. What stops it is said in words.
pub fn read_segment(bytes: &[u8]) -> Result<usize, String> {
    let length = u64::try_from(bytes.len()).map_err(|error| error.to_string())?;
    let mut segment = Segment::new(bytes, length, 0);
    let mut count = 0;
    loop {
        match segment.next() {
            Ok(Next::Record { .. }) => count += 1,
            Ok(Next::End | Next::Torn(_)) => return Ok(count),
            Err(ReadError::Damaged(what)) => return Err(what.to_owned()),
            Err(ReadError::Io(error)) => return Err(error.to_string()),
        }
    }
}
