use proptest::prelude::*;

use super::*;

fn put(key: &'static [u8], value: &'static [u8], revision: i64, lease: i64) -> Event {
    Event {
        op: Op::Put,
        key: Bytes::from_static(key),
        create_revision: 4,
        mod_revision: revision,
        version: 2,
        value: Bytes::from_static(value),
        lease,
        time: "2026-11-15T06:23:40.39420882Z".parse().unwrap(),
    }
}

fn delete(key: &'static [u8], revision: i64) -> Event {
    Event { op: Op::Delete, create_revision: 0, version: 0, ..put(key, b"", revision, 0) }
}

fn encode(events: &[Event]) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    for event in events {
        encoder.push(event).unwrap();
    }
    encoder.finish().unwrap()
}

fn with_hash(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.extend_from_slice(&hash(text.as_bytes()));
    bytes
}

fn decode(bytes: &[u8], step: usize) -> Result<Vec<Event>, DeltaError> {
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    for piece in bytes.chunks(step) {
        decoder.push(piece);
        while let Some(event) = decoder.next_event()? {
            events.push(event);
        }
    }
    decoder.finish()?;
    Ok(events)
}

#[test]
fn the_text_is_that_of_the_reference() {
    let bytes = encode(&[
        put(b"k1", b"v2", 5, 8_973_600_231_855_213_577),
        put(b"k1", b"", 6, 0),
        delete(b"k1", 7),
    ]);
    let text = concat!(
        r#"[{"etcdEvent":{"kv":{"key":"azE=","create_revision":4,"mod_revision":5,"version":2,"#,
        r#""value":"djI=","lease":8973600231855213577}},"time":"2026-11-15T06:23:40.39420882Z"},"#,
        r#"{"etcdEvent":{"kv":{"key":"azE=","create_revision":4,"mod_revision":6,"version":2}},"#,
        r#""time":"2026-11-15T06:23:40.39420882Z"},"#,
        r#"{"etcdEvent":{"type":1,"kv":{"key":"azE=","mod_revision":7}},"#,
        r#""time":"2026-11-15T06:23:40.39420882Z"}]"#
    );
    assert_eq!(bytes, with_hash(text));
    assert_eq!(encode(&[]), with_hash("[]"));
}

#[test]
fn events_come_back_however_the_bytes_are_cut() {
    let events = [put(b"a\"}", b"{\\", 3, -1), delete(b"b", 3), put(b"c", b"\xff\0", 9, i64::MAX)];
    let bytes = encode(&events);
    for step in [1, 2, 7, 31, 32, 33, 1000] {
        assert_eq!(decode(&bytes, step).unwrap(), events, "pieces of {step}");
    }
}

#[test]
fn white_space_offsets_and_unknown_members_are_taken() {
    let text = concat!(
        " [ {\"time\":\"2026-11-15T08:23:40.5+02:00\",\"other\":{\"}\":[\"\\\"]\"]},",
        "\"etcdEvent\":{\"kv\":{\"key\":\"azE=\",\"mod_revision\":7},\"type\":1}}\n]\n"
    );
    let events = decode(&with_hash(text), 5).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].time, "2026-11-15T06:23:40.5Z".parse().unwrap());
    assert_eq!(decode(&with_hash("[]"), 5).unwrap(), []);
}

fn one(inside: &str) -> String {
    format!("[{{\"etcdEvent\":{inside},\"time\":\"2026-11-15T06:23:40Z\"}}]")
}

#[test]
fn other_text_is_refused_by_its_fault() {
    let kv = |kv: &str| one(&format!("{{\"kv\":{kv}}}"));
    for (text, part) in [
        (String::new(), "not closed"),
        ("{}".to_owned(), "does not begin with ["),
        ("[".to_owned(), "not closed"),
        ("[1]".to_owned(), "no object"),
        ("[{}".to_owned(), "no event"),
        ("[]]".to_owned(), "text after the array"),
        ("[,]".to_owned(), "no object"),
        (one("{}"), "no event"),
        (one("{\"kv\":{\"key\":\"azE=\",\"mod_revision\":1},\"type\":2}"), "neither a put"),
        (kv("{\"mod_revision\":1}"), "no key"),
        (kv("{\"key\":\"azE=\"}"), "no revision"),
        (kv("{\"key\":\"azE=\",\"mod_revision\":-1}"), "no revision"),
        (kv("{\"key\":\"azE\",\"mod_revision\":1}"), "not base64"),
        (kv("{\"key\":\"azE=\",\"mod_revision\":1e3}"), "no event"),
        (kv("{\"key\":\"azE=\",\"mod_revision\":99999999999999999999}"), "no event"),
    ] {
        let error = decode(&with_hash(&text), 11).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let twice = one("{\"kv\":{\"key\":\"azE=\",\"mod_revision\":4}}").replace(']', ",");
    let back = one("{\"kv\":{\"key\":\"azE=\",\"mod_revision\":3}}").replace('[', "");
    let error = decode(&with_hash(&(twice + &back)), 11).unwrap_err();
    assert!(matches!(error, DeltaError::Order { index: 1, revision: 3, before: 4 }), "{error}");
}

#[test]
fn bytes_that_are_cut_or_changed_are_refused() {
    let bytes = encode(&[put(b"a", b"value", 3, 0), delete(b"b", 4)]);
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len], 9).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(decode(&changed, 9).is_err(), "changed at {at}");
    }
}

#[tokio::test]
async fn a_long_delta_lies_in_a_file_that_nobody_sees() {
    use tokio::io::AsyncReadExt;

    let dir = tempfile::tempdir().unwrap();
    for count in [1_i64, 1500] {
        let mut spool = Spool::new(dir.path().join("new"), None);
        assert!(spool.is_empty());
        let value = Bytes::from(vec![7; 3000]);
        for revision in 1..=count {
            spool.push(&Event { value: value.clone(), ..put(b"k", b"", revision, 0) }).unwrap();
        }
        assert_eq!(spool.events(), count.unsigned_abs());
        assert_eq!((spool.first_revision(), spool.last_revision()), (Some(1), Some(count)));
        let text_bytes = spool.text_bytes();
        let mut spooled = spool.finish().unwrap();
        let len_bytes = spooled.len_bytes().unwrap();
        let mut bytes = Vec::new();
        spooled.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes.len() as u64, len_bytes);
        assert_eq!(len_bytes, text_bytes + 1 + HASH_BYTES as u64);
        let mut events = Events::of(Box::pin(std::io::Cursor::new(bytes)));
        let mut revisions = 0;
        while let Some(event) = events.next().await.unwrap() {
            revisions += 1;
            assert_eq!(event.mod_revision, revisions);
        }
        assert_eq!(revisions, count);
    }
    assert_eq!(dir.path().join("new").read_dir().unwrap().count(), 0);
}

prop_compose! {
    fn any_event()(
        is_put in any::<bool>(),
        key in prop::collection::vec(any::<u8>(), 1..20),
        value in prop::collection::vec(any::<u8>(), 0..50),
        numbers in any::<[i64; 3]>(),
        nanos in 0_i64..2_000_000_000_000_000_000,
    ) -> Event {
        let time = jiff::Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
        let event = Event {
            op: Op::Put,
            key: key.into(),
            create_revision: numbers[0],
            mod_revision: 1,
            version: numbers[1],
            value: value.into(),
            lease: numbers[2],
            time,
        };
        if is_put {
            return event;
        }
        Event { op: Op::Delete, create_revision: 0, version: 0, value: Bytes::new(), lease: 0, ..event }
    }
}

proptest! {
    #[test]
    fn every_event_comes_back(mut events in prop::collection::vec(any_event(), 0..20), step in 1_usize..200) {
        for (event, revision) in events.iter_mut().zip(1..) {
            event.mod_revision = revision;
        }
        prop_assert_eq!(decode(&encode(&events), step).unwrap(), events);
    }

    #[test]
    fn noise_never_panics(noise in "[\\[\\]{},:\"a-z0-9\\\\ ]{0,120}", step in 1_usize..50) {
        let _ = decode(&with_hash(&noise), step);
        let _ = decode(&with_hash(&one(&noise)), step);
    }
}
