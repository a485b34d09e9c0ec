use aws_lc_rs::digest::digest;
use tokio::io::AsyncReadExt;

use super::*;

fn database(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
    let hash = digest(&SHA256, &bytes);
    bytes.extend_from_slice(hash.as_ref());
    bytes
}

async fn read(kind: Kind, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    Checked::of(kind, bytes).read_to_end(&mut out).await?;
    Ok(out)
}

#[tokio::test]
async fn a_snapshot_passes_as_it_is() {
    for len in [0, 512, 4096, 3 * READ_BYTES] {
        let bytes = database(len);
        assert!(read(Kind::Full, &bytes).await.unwrap() == bytes, "{len}");
    }
    let delta = database(777);
    assert!(read(Kind::Incr, &delta).await.unwrap() == delta);
    assert!(read(Kind::Full, &delta).await.is_err());
}

#[tokio::test]
async fn one_without_its_checksum_or_with_another_fails() {
    let bytes = database(4096);
    for len in [0, 31, 4096, 4127] {
        assert!(read(Kind::Full, &bytes[..len]).await.is_err(), "{len}");
        assert!(read(Kind::Incr, &bytes[..len]).await.is_err(), "{len}");
    }
    for at in [0, 4095, 4096, 4127] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(read(Kind::Full, &changed).await.is_err(), "{at}");
    }
}
