//! Events to text, one at a time.

use std::fmt::Write as _;
use std::io::{self, Write};

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Event, Op};

/// Writes the text of a delta to `W`, and its checksum at the end.
pub struct Encoder<W> {
    target: W,
    hash: Context,
    /// Of the event being written; kept for its memory.
    text: String,
    events: u64,
    text_bytes: u64,
}

impl<W> std::fmt::Debug for Encoder<W> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Encoder").field("events", &self.events).finish_non_exhaustive()
    }
}

impl<W: Write> Encoder<W> {
    pub fn new(target: W) -> Self {
        Self { target, hash: Context::new(&SHA256), text: String::new(), events: 0, text_bytes: 0 }
    }

    /// Events written so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Length of the text so far, before any packing.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    pub fn target(&self) -> &W {
        &self.target
    }

    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.text.clear();
        self.text.push(if self.events == 0 { '[' } else { ',' });
        write_event(&mut self.text, event);
        self.events += 1;
        self.write_text()
    }

    /// Closes the array, and writes the checksum.
    pub fn finish(mut self) -> io::Result<W> {
        self.text.clear();
        self.text.push_str(if self.events == 0 { "[]" } else { "]" });
        self.write_text()?;
        self.target.write_all(self.hash.finish().as_ref())?;
        Ok(self.target)
    }

    fn write_text(&mut self) -> io::Result<()> {
        let bytes = self.text.as_bytes();
        self.hash.update(bytes);
        self.text_bytes = self.text_bytes.saturating_add(bytes.len() as u64);
        self.target.write_all(bytes)
    }
}

/// Members in the order that readers know; those that are zero or empty are left out.
fn write_event(text: &mut String, event: &Event) {
    text.push_str("{\"etcdEvent\":{");
    match event.op {
        Op::Put => {}
        Op::Delete => text.push_str("\"type\":1,"),
    }
    text.push_str("\"kv\":{");
    let mut members = Members { text, is_first: true };
    members.bytes("key", &event.key);
    match event.op {
        Op::Put => {
            members.number("create_revision", event.create_revision);
            members.number("mod_revision", event.mod_revision);
            members.number("version", event.version);
            members.bytes("value", &event.value);
            members.number("lease", event.lease);
        }
        Op::Delete => members.number("mod_revision", event.mod_revision),
    }
    // Writing to memory does not fail.
    let _ = write!(text, "}}}},\"time\":\"{}\"}}", event.time);
}

struct Members<'t> {
    text: &'t mut String,
    is_first: bool,
}

impl Members<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.name(name);
            self.text.push('"');
            BASE64_STANDARD.encode_string(bytes, self.text);
            self.text.push('"');
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        if number != 0 {
            self.name(name);
            let _ = write!(self.text, "{number}");
        }
    }
}
