//! Deltas of a store: whatever it holds, they are refused or come back as they were.
#![no_main]

use etcdguard::store::delta::{Decoder, Encoder, Event};
use libfuzzer_sys::fuzz_target;

fn decode(bytes: &[u8], step: usize) -> Option<Vec<Event>> {
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    for piece in bytes.chunks(step) {
        decoder.push(piece);
        while let Some(event) = decoder.next_event().ok()? {
            events.push(event);
        }
    }
    decoder.finish().ok()?;
    Some(events)
}

fuzz_target!(|input: (&[u8], u8)| {
    let (text, step) = (input.0, usize::from(input.1) + 1);
    // A checksum that a fuzzer would not find by itself.
    let mut bytes = text.to_vec();
    bytes.extend_from_slice(&etcdguard::store::delta::hash(text));
    let events = decode(&bytes, step);
    assert_eq!(events, decode(&bytes, bytes.len()), "however it is cut");
    let Some(events) = events else { return };
    let mut encoder = Encoder::new(Vec::new());
    for event in &events {
        encoder.push(event).expect("memory takes every byte");
    }
    let again = decode(&encoder.finish().expect("memory takes every byte"), step);
    let again = again.expect("what was written is read");
    assert_eq!(again.len(), events.len());
});
