use jiff::Timestamp;

use super::*;

fn snapshot(last: i64) -> Snapshot {
    Snapshot::full(last, Timestamp::from_second(5).unwrap(), None, false)
}

async fn read(mut source: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

async fn sealed(key: &StoreKey, plain: &[u8]) -> Vec<u8> {
    let object = key.of(&snapshot(1));
    read(object.encrypt(io::Cursor::new(plain.to_vec()))).await.unwrap()
}

async fn opened(key: &StoreKey, name: &Snapshot, sealed: &[u8]) -> io::Result<Vec<u8>> {
    read(key.of(name).decrypt(io::Cursor::new(sealed.to_vec()))).await
}

#[tokio::test]
async fn what_is_sealed_is_opened_at_any_length() {
    let key = StoreKey([7; KEY_BYTES]);
    for len in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
        let plain: Vec<u8> = (0..=255).cycle().take(len).collect();
        let bytes = sealed(&key, &plain).await;
        assert!(!bytes.windows(64.min(len.max(1))).any(|it| len >= 64 && it == &plain[..64]));
        assert_eq!(opened(&key, &snapshot(1), &bytes).await.unwrap(), plain, "{len}");
    }
    assert_ne!(sealed(&key, b"same").await, sealed(&key, b"same").await);
}

#[tokio::test]
async fn a_copy_without_its_mark_is_still_opened() {
    let key = StoreKey([7; KEY_BYTES]);
    let bytes = sealed(&key, b"text").await;
    let mut marked = snapshot(1);
    marked.is_final = true;
    marked.is_encrypted = true;
    marked.rename();
    assert_eq!(opened(&key, &marked, &bytes).await.unwrap(), b"text");
}

#[tokio::test]
async fn another_key_another_name_and_changed_bytes_are_refused() {
    let key = StoreKey([7; KEY_BYTES]);
    let plain = vec![1; 2 * PIECE_BYTES + 5];
    let bytes = sealed(&key, &plain).await;
    assert!(opened(&StoreKey([8; KEY_BYTES]), &snapshot(1), &bytes).await.is_err());
    assert!(opened(&key, &snapshot(2), &bytes).await.is_err());
    let header = MAGIC.len() + SALT_BYTES;
    let piece = PIECE_BYTES + TAG_BYTES;
    for len in [0, 5, header, header + 1, header + piece, header + 2 * piece, bytes.len() - 1] {
        assert!(opened(&key, &snapshot(1), &bytes[..len]).await.is_err(), "cut at {len}");
    }
    for at in [0, header - 1, header, header + piece + 3, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(opened(&key, &snapshot(1), &changed).await.is_err(), "changed at {at}");
    }
    let mut swapped = bytes[..header].to_vec();
    swapped.extend_from_slice(&bytes[header + piece..header + 2 * piece]);
    swapped.extend_from_slice(&bytes[header..header + piece]);
    swapped.extend_from_slice(&bytes[header + 2 * piece..]);
    assert!(opened(&key, &snapshot(1), &swapped).await.is_err());
}

#[test]
fn keys_are_read_in_three_ways() {
    let raw = [0xab; KEY_BYTES];
    let hex = "ab".repeat(KEY_BYTES) + "\n";
    let base64 = BASE64_STANDARD.encode(raw) + "\n";
    for text in [raw.to_vec(), hex.into_bytes(), base64.into_bytes()] {
        assert_eq!(StoreKey::parse(&text).unwrap().0, raw);
    }
    for bad in ["", "abc", "zz".repeat(KEY_BYTES).as_str(), "YWJj"] {
        assert!(StoreKey::parse(bad.as_bytes()).is_none(), "{bad}");
    }
}
