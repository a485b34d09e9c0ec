//! What the data port answers to well-formed frames.

use bytes::Bytes;
use wire::frame::{Outcome, Request, Run, decode_runs};

use crate::control::get;
use crate::disks::{removed, snapshot};
use crate::running::{Running, SIZE, data};

#[tokio::test]
async fn many_frames_at_once_are_done_in_order() {
    let running = Running::opened().await;
    let mut port = running.tcp().await;
    port.flush().await;
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..200u32 {
        let bytes = Bytes::from(vec![round as u8; 8192]);
        let offset = i64::from(round % 3) * 4096;
        let write = port.send(|sequence| Request::Write { sequence, offset, data: bytes }).await;
        expected.insert(write, Outcome::Count(8192));
        let read = port.send(|sequence| Request::Read { sequence, offset, size: 512 }).await;
        expected.insert(read, data(&[round as u8; 512]));
    }
    for _ in 0..expected.len() {
        let answer = port.next().await.unwrap();
        assert_eq!(expected.remove(&answer.sequence), Some(answer.outcome));
    }
    assert_eq!(get(&mut running.client()).await.revision_counter, 200);
}

#[tokio::test]
async fn a_frame_may_come_in_pieces() {
    let running = Running::opened().await;
    let mut port = running.tcp().await;
    port.stream.set_nodelay(true).unwrap();
    let request = Request::Write { sequence: 5, offset: 0, data: Bytes::from(vec![6; 600_000]) };
    let mut bytes = bytes::BytesMut::new();
    wire::frame::encode_request(&request, wire::frame::Limits::default()).unwrap().put(&mut bytes);
    for piece in [&bytes[..1], &bytes[1..25], &bytes[25..27], &bytes[27..300_000]] {
        tokio::io::AsyncWriteExt::write_all(&mut port.stream, piece).await.unwrap();
        // Something else gets done meanwhile.
        assert_eq!(running.local().ping().await, Outcome::Count(0));
    }
    tokio::io::AsyncWriteExt::write_all(&mut port.stream, &bytes[300_000..]).await.unwrap();
    let answer = port.next().await.unwrap();
    assert_eq!((answer.sequence, answer.outcome), (5, Outcome::Count(600_000)));
    assert_eq!(port.read(599_999, 2).await, data(&[6, 0]));
}

#[tokio::test]
async fn large_reads_and_writes_are_whole() {
    let running = Running::opened().await;
    let mut port = running.local();
    let pattern: Vec<u8> = (0..8u32 << 20).map(|at| (at / 512) as u8 | 1).collect();
    assert_eq!(port.write(1 << 20, &pattern).await, Outcome::Count(8 << 20));
    assert_eq!(port.read(1 << 20, 8 << 20).await, data(&pattern));
    // Several at once do not pile up in the replica.
    for _ in 0..4 {
        port.send(|sequence| Request::Read { sequence, offset: 1 << 20, size: 8 << 20 }).await;
    }
    for _ in 0..4 {
        assert_eq!(port.next().await.unwrap().outcome, data(&pattern));
    }
    assert!(
        matches!(port.read(0, 33 << 20).await, Outcome::Error(_)),
        "more than a frame may hold"
    );
    assert_eq!(port.ping().await, Outcome::Count(0));
}

#[tokio::test]
async fn the_end_of_the_volume_is_said_as_such() {
    let running = Running::opened().await;
    let mut port = running.local();
    port.write(SIZE - 512, &[3; 512]).await;
    let end = Outcome::Eof(Bytes::from_static(&[3; 512]));
    assert_eq!(port.read(SIZE - 512, 1024).await, end);
    assert_eq!(port.read(SIZE, 512).await, Outcome::Eof(Bytes::new()));
    assert_eq!(port.read(SIZE + 4096, 512).await, Outcome::Eof(Bytes::new()));
    assert_eq!(port.read(i64::MAX, 512).await, Outcome::Eof(Bytes::new()));
    assert!(matches!(port.read(-1, 512).await, Outcome::Error(_)));
    for offset in [SIZE - 256, SIZE, -512, i64::MAX, i64::MIN] {
        let text = port.write(offset, &[1; 512]).await;
        assert!(matches!(text, Outcome::Error(_)), "write at {offset}: {text:?}");
        for request in [
            Request::Unmap { sequence: 1, offset, size: 512 },
            Request::Zero { sequence: 1, offset, size: 512 },
            Request::Status { sequence: 1, offset, size: 512 },
        ] {
            port.send(|_| request).await;
            let answer = port.next().await.unwrap();
            assert!(matches!(answer.outcome, Outcome::Error(_)), "{answer:?}");
        }
    }
    assert_eq!(port.read(0, 0).await, Outcome::Count(0));
    assert_eq!(port.write(0, &[]).await, Outcome::Count(0));
    assert_eq!(get(&mut running.client()).await.revision_counter, 2);
}

#[tokio::test]
async fn small_and_unaligned_requests_are_served() {
    let running = Running::opened().await;
    let mut port = running.local();
    assert_eq!(port.write(512, &[1; 512]).await, Outcome::Count(512));
    assert_eq!(get(&mut running.client()).await.head_file_size, 4096, "a whole sector");
    assert_eq!(port.write(4095, &[2; 2]).await, Outcome::Count(2));
    let Outcome::Data(bytes) = port.read(510, 3590).await else { panic!() };
    assert_eq!((&bytes[..3], &bytes[513..516]), (&[0, 0, 1][..], &[1, 0, 0][..]));
    assert_eq!(&bytes[3584..], &[0, 2, 2, 0, 0, 0]);
}

#[tokio::test]
async fn sectors_are_given_up_and_zeroed() {
    let running = Running::opened().await;
    let (mut client, mut port) = (running.client(), running.local());
    port.flush().await;
    port.write(0, &[1; 65_536]).await;
    let unmap = |offset, size| move |sequence| Request::Unmap { sequence, offset, size };
    assert_eq!(port.ask(unmap(0, 4096)).await, Outcome::Count(4096));
    assert_eq!(port.ask(unmap(4097, 4096)).await, Outcome::Count(0), "less than a sector");
    client.replica_snapshot(snapshot("kept")).await.unwrap();
    assert_eq!(port.ask(unmap(8192, 4096)).await, Outcome::Count(0), "a snapshot never changes");
    assert_eq!(port.read(8192, 512).await, data(&[1; 512]));
    let zero = |offset, size| move |sequence| Request::Zero { sequence, offset, size };
    assert_eq!(port.ask(zero(8000, 8192)).await, Outcome::Count(8192));
    let Outcome::Data(bytes) = port.read(7999, 8194).await else { panic!() };
    assert_eq!((bytes[0], bytes[8193]), (1, 1));
    assert!(bytes[1..8193].iter().all(|byte| *byte == 0));
    client.disk_mark_as_removed(removed("kept")).await.unwrap();
    assert_eq!(port.ask(unmap(32_768, 4096)).await, Outcome::Count(4096));
    assert_eq!(port.read(32_768, 512).await, data(&[0; 512]));
    assert_eq!(get(&mut client).await.revision_counter, 6, "unmaps count too");
}

#[tokio::test]
async fn status_says_where_data_is() {
    let running = Running::opened().await;
    let mut port = running.local();
    port.write(8192, &[1; 8192]).await;
    running.client().replica_snapshot(snapshot("a")).await.unwrap();
    port.write(16_384, &[1; 4096]).await;
    let ask = |offset, size| move |sequence| Request::Status { sequence, offset, size };
    let Outcome::Data(bytes) = port.ask(ask(4096, 32_768)).await else { panic!() };
    let run = |len, hole| Run { len, hole };
    let expected = [run(4096, true), run(12_288, false), run(16_384, true)];
    assert_eq!(decode_runs(bytes).unwrap(), expected);
}

#[tokio::test]
async fn a_status_answer_is_bounded_and_never_empty() {
    let running = Running::with(|options| options.size_bytes = Some(8 << 30)).await;
    running.open().await;
    let mut port = running.local();
    port.flush().await;
    port.scatter((0..5000).map(|index| index * 8192)).await;
    let ask = |offset, size| move |sequence| Request::Status { sequence, offset, size };
    let Outcome::Data(bytes) = port.ask(ask(0, 1 << 30)).await else { panic!() };
    let runs = decode_runs(bytes).unwrap();
    assert_eq!(runs.len(), 4096);
    assert!(runs.iter().enumerate().all(|(at, run)| run.len == 4096 && run.hole == (at % 2 == 1)));
    let Outcome::Data(bytes) = port.ask(ask(1 << 30, u32::MAX)).await else { panic!() };
    let runs = decode_runs(bytes).unwrap();
    assert_eq!(runs, [Run { len: 1 << 30, hole: true }], "as much as is looked at for one answer");
}

#[tokio::test]
async fn a_goodbye_ends_one_connection() {
    let running = Running::opened().await;
    let (mut leaving, mut staying) = (running.tcp().await, running.tcp().await);
    leaving.send(|_| Request::Close).await;
    assert_eq!(leaving.next().await, None);
    assert_eq!(staying.ping().await, Outcome::Count(0));
}

#[tokio::test]
async fn flushes_are_answered_while_other_work_goes_on() {
    let running = Running::opened().await;
    let mut port = running.local();
    let mut open = std::collections::BTreeSet::new();
    for index in 0..50 {
        let bytes = Bytes::from_static(&[4; 4096]);
        let offset = index * 4096;
        open.insert(port.send(|sequence| Request::Write { sequence, offset, data: bytes }).await);
        open.insert(port.send(|sequence| Request::Flush { sequence }).await);
        open.insert(port.send(|sequence| Request::Read { sequence, offset, size: 512 }).await);
    }
    while !open.is_empty() {
        let answer = port.next().await.unwrap();
        assert!(open.remove(&answer.sequence));
        assert!(!matches!(answer.outcome, Outcome::Error(_)), "{answer:?}");
    }
}
