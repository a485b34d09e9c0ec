//! Text to events, as the bytes come, whatever they are.
//!
//! The last 32 bytes are the checksum, and which those are is known only at the end: so many are
//! always held back.

use std::borrow::Cow;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use jiff::Timestamp;
use serde::Deserialize;

use super::{DeltaError, Event, HASH_BYTES, Op};

/// A longer event is refused. The usual limit of a whole request to etcd is 1.5 MiB; base64 and a
/// generous setting of that limit are allowed for.
pub const EVENT_MAX_BYTES: usize = 128 << 20;

/// Takes bytes, gives events. Only after [`Decoder::finish`] is it known that they are those that
/// were written.
pub struct Decoder {
    /// Not yet parsed; the last 32 bytes not yet hashed either.
    buffer: BytesMut,
    /// How much of the buffer's front is hashed.
    hashed: usize,
    hash: Context,
    place: Place,
    scan: Scan,
    index: u64,
    last_revision: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the array.
    Start,
    /// After its bracket.
    First,
    /// After an event.
    AfterEvent,
    /// After a comma.
    Next,
    /// After the array.
    End,
}

/// How far the end of an event was looked for.
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    at: usize,
    depth: u32,
    in_string: bool,
    is_escaped: bool,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Decoder");
        out.field("place", &self.place).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            buffer: BytesMut::new(),
            hashed: 0,
            hash: Context::new(&SHA256),
            place: Place::Start,
            scan: Scan::default(),
            index: 0,
            last_revision: 0,
        }
    }
}

impl Decoder {
    /// Gives it more bytes. Events must be taken in between, or it holds them all.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        let text_end = self.text_end();
        if let Some(fresh) = self.buffer.get(self.hashed..text_end) {
            self.hash.update(fresh);
            self.hashed = text_end;
        }
    }

    /// The next event, or none before more bytes come.
    pub fn next_event(&mut self) -> Result<Option<Event>, DeltaError> {
        while let Some(byte) = self.peek() {
            match (self.place, byte) {
                (_, b' ' | b'\n' | b'\r' | b'\t') => self.skip(),
                (Place::Start, b'[') => self.step_to(Place::First),
                (Place::First | Place::AfterEvent, b']') => self.step_to(Place::End),
                (Place::AfterEvent, b',') => self.step_to(Place::Next),
                (Place::First | Place::Next, b'{') => return self.take_event(),
                (Place::Start, _) => return Err(self.shape("it does not begin with [")),
                (Place::First | Place::Next, _) => return Err(self.shape("no object")),
                (Place::AfterEvent, _) => return Err(self.shape("neither a comma nor ]")),
                (Place::End, _) => return Err(self.shape("text after the array")),
            }
        }
        Ok(None)
    }

    /// Checks the end: the array is closed, and the checksum is that of the text.
    pub fn finish(mut self) -> Result<(), DeltaError> {
        if self.buffer.len() < HASH_BYTES {
            return Err(DeltaError::Short);
        }
        if self.next_event()?.is_some() {
            return Err(self.shape("an event that was not taken"));
        }
        // The checksum first: of torn bytes it says more than where they are torn.
        if self.hash.clone().finish().as_ref() != self.buffer.get(self.hashed..).unwrap_or_default()
        {
            return Err(DeltaError::Hash);
        }
        if self.place != Place::End {
            return Err(self.shape("the array is not closed"));
        }
        Ok(())
    }

    fn text_end(&self) -> usize {
        self.buffer.len().saturating_sub(HASH_BYTES)
    }

    fn peek(&self) -> Option<u8> {
        self.buffer.first().copied().filter(|_| self.text_end() > 0)
    }

    fn skip(&mut self) {
        self.buffer.advance(1);
        self.hashed = self.hashed.saturating_sub(1);
    }

    fn step_to(&mut self, place: Place) {
        self.skip();
        self.place = place;
    }

    fn shape(&self, what: &'static str) -> DeltaError {
        DeltaError::Shape { index: self.index, what }
    }

    fn take_event(&mut self) -> Result<Option<Event>, DeltaError> {
        let text = self.buffer.get(..self.text_end()).unwrap_or_default();
        let Some(len) = self.scan.object_end(text) else {
            if text.len() > EVENT_MAX_BYTES {
                return Err(DeltaError::TooLong { index: self.index });
            }
            return Ok(None);
        };
        let event = parse_event(text.get(..len).unwrap_or_default(), self.index)?;
        if event.mod_revision < self.last_revision {
            let (index, before) = (self.index, self.last_revision);
            return Err(DeltaError::Order { index, revision: event.mod_revision, before });
        }
        self.last_revision = event.mod_revision;
        self.buffer.advance(len);
        self.hashed = self.hashed.saturating_sub(len);
        self.scan = Scan::default();
        self.place = Place::AfterEvent;
        self.index += 1;
        Ok(Some(event))
    }
}

impl Scan {
    /// The length of the object that `text` begins with; none where its end has not come. Goes on
    /// from where it stopped.
    fn object_end(&mut self, text: &[u8]) -> Option<usize> {
        let fresh = text.get(self.at..).unwrap_or_default();
        for (offset, byte) in fresh.iter().enumerate() {
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match (self.in_string, byte) {
                (true, b'\\') => self.is_escaped = true,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{') => self.depth += 1,
                (false, b'}') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.at + offset + 1);
                    }
                }
                (true | false, _) => {}
            }
        }
        self.at = text.len();
        None
    }
}

#[derive(Deserialize)]
struct Element<'e> {
    #[serde(rename = "etcdEvent", borrow)]
    event: Inner<'e>,
    #[serde(borrow)]
    time: Cow<'e, str>,
}

#[derive(Deserialize)]
struct Inner<'e> {
    #[serde(rename = "type", default)]
    kind: i32,
    #[serde(borrow)]
    kv: KeyValue<'e>,
}

#[derive(Deserialize)]
#[serde(default)]
struct KeyValue<'e> {
    #[serde(borrow)]
    key: Cow<'e, str>,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    #[serde(borrow)]
    value: Cow<'e, str>,
    lease: i64,
}

impl Default for KeyValue<'_> {
    fn default() -> Self {
        Self {
            key: Cow::Borrowed(""),
            create_revision: 0,
            mod_revision: 0,
            version: 0,
            value: Cow::Borrowed(""),
            lease: 0,
        }
    }
}

fn parse_event(text: &[u8], index: u64) -> Result<Event, DeltaError> {
    let wrong = |what| DeltaError::Value { index, what };
    let Element { event, time } =
        serde_json::from_slice(text).map_err(|source| DeltaError::Event { index, source })?;
    let op = match event.kind {
        0 => Op::Put,
        1 => Op::Delete,
        _ => return Err(wrong("a type that is neither a put nor a delete")),
    };
    let bytes = |text: &str| BASE64_STANDARD.decode(text).map(Bytes::from);
    let kv = event.kv;
    let event = Event {
        op,
        key: bytes(&kv.key).map_err(|_| wrong("a key that is not base64"))?,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: bytes(&kv.value).map_err(|_| wrong("a value that is not base64"))?,
        lease: kv.lease,
        time: time.parse::<Timestamp>().map_err(|_| wrong("a time that is no time"))?,
    };
    if event.key.is_empty() {
        return Err(wrong("no key"));
    }
    if event.mod_revision <= 0 {
        return Err(wrong("no revision"));
    }
    Ok(event)
}
