//! Peers that send what nobody should: they lose their connection, and nobody else notices.

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::frame::{MAGIC, Outcome};

use crate::running::{Running, data};

fn header(magic: u16, kind: u32, offset: i64, size: u32, len: u32) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u16_le(magic);
    bytes.put_u32_le(77);
    bytes.put_u32_le(kind);
    bytes.put_i64_le(offset);
    bytes.put_u32_le(size);
    bytes.put_u32_le(len);
    bytes
}

#[tokio::test]
async fn a_frame_that_does_not_fit_ends_its_connection_and_no_other() {
    let running = Running::opened().await;
    let mut good = running.tcp().await;
    good.write(0, &[1; 4096]).await;
    let cases = [
        ("another magic", header(0x1B02, 0, 0, 512, 0)),
        ("no magic", header(0, 0, 0, 512, 0)),
        ("an unknown type", header(MAGIC, 99, 0, 0, 0)),
        ("a reply", header(MAGIC, 2, 0, 0, 0)),
        ("a read with a payload", header(MAGIC, 0, 0, 512, 512)),
        ("a write that says another size", header(MAGIC, 1, 0, 512, 1024)),
        ("more than a frame may hold", header(MAGIC, 1, 0, u32::MAX, u32::MAX)),
        ("noise", BytesMut::from(&[0xff; 64][..])),
        ("an HTTP request", BytesMut::from(&b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n"[..])),
    ];
    for (what, bytes) in cases {
        let mut bad = running.tcp().await;
        bad.stream.write_all(&bytes).await.unwrap();
        let mut rest = Vec::new();
        // A reset is as good an end as a quiet one.
        let _ = bad.stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{what} was answered: {rest:?}");
        assert_eq!(good.read(0, 4096).await, data(&[1; 4096]), "{what}");
    }
}

#[tokio::test]
async fn what_came_before_a_bad_frame_is_answered() {
    let running = Running::opened().await;
    let mut bad = running.tcp().await;
    let mut bytes = header(MAGIC, 0, 0, 512, 0);
    bytes.extend_from_slice(&header(MAGIC, 99, 0, 0, 0));
    bad.stream.write_all(&bytes).await.unwrap();
    let answer = bad.next().await.unwrap();
    assert_eq!((answer.sequence, answer.outcome), (77, data(&[0; 512])));
    assert_eq!(bad.next().await, None);
}

#[tokio::test]
async fn a_peer_that_promises_and_does_not_send_holds_up_nobody() {
    let running = Running::opened().await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut bad = running.tcp().await;
        bad.stream.write_all(&header(MAGIC, 1, 0, 32 << 20, 32 << 20)).await.unwrap();
        waiting.push(bad);
    }
    let mut good = running.local();
    for _ in 0..10 {
        assert_eq!(good.write(0, &[1; 4096]).await, Outcome::Count(4096));
    }
    // A write that was cut off was not done.
    let mut cut = running.tcp().await;
    let mut bytes = header(MAGIC, 1, 0, 4096, 4096);
    bytes.extend_from_slice(&[9; 4000]);
    cut.stream.write_all(&bytes).await.unwrap();
    cut.stream.shutdown().await.unwrap();
    assert_eq!(cut.next().await, None);
    assert_eq!(good.read(0, 4096).await, data(&[1; 4096]));
}

#[tokio::test]
async fn a_peer_that_reads_no_answers_holds_up_nobody() {
    let running = Running::opened().await;
    let mut greedy = running.tcp().await;
    // Until neither side takes more: the replica stops reading from it.
    let ask = async {
        loop {
            greedy.stream.write_all(&header(MAGIC, 0, 0, 1 << 20, 0)).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(std::time::Duration::from_millis(500), ask).await;
    assert!(stuck.is_err() || stuck.is_ok());
    let mut good = running.tcp().await;
    assert_eq!(good.write(0, &[1; 4096]).await, Outcome::Count(4096));
    assert_eq!(good.read(0, 4096).await, data(&[1; 4096]));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_turned_away() {
    let running = Running::opened().await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut port = running.local();
        assert_eq!(port.ping().await, Outcome::Count(0));
        held.push(port);
    }
    let mut late = running.local();
    assert_eq!(late.next().await, None);
    held.pop();
    let accepted = async {
        loop {
            let mut port = running.local();
            let frame = header(MAGIC, 6, 0, 0, 0);
            if port.stream.write_all(&frame).await.is_ok() && port.next().await.is_some() {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(2), accepted).await.unwrap();
}
