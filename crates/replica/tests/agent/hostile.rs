//! Senders that lie. The receiver refuses, nothing outside the file is touched, and an honest
//! sender is served all the while.

use reqwest::{Client, StatusCode};
use rpc::ptypes::{FileSendRequest, ReceiverLaunchRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, Volume, assert_equal};

const SIZE: u64 = 4 << 20;
const SNAP: &str = "volume-snap-a.img";

struct Receiving {
    node: Node,
    port: u16,
    client: Client,
}

impl Receiving {
    async fn new(file: &str) -> Self {
        let node = Node::new(SIZE).await;
        let request = ReceiverLaunchRequest { to_file_name: file.into() };
        let port = node.agent().receiver_launch(request).await.unwrap().into_inner().port;
        let client = Client::builder().no_proxy().build().unwrap();
        Self { node, port: u16::try_from(port).unwrap(), client }
    }

    fn url(&self, call: &str) -> String {
        format!("http://127.0.0.1:{}/v1-ssync/{call}", self.port)
    }

    async fn get(&self, call: &str) -> (StatusCode, String) {
        let answer = self.client.get(self.url(call)).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn post(&self, call: &str, body: Vec<u8>) -> (StatusCode, String) {
        let answer = self.client.post(self.url(call)).body(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// What is sent byte for byte, and the first line of the answer.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_are_refused_and_the_file_is_still_received() {
    let there = Receiving::new(SNAP).await;
    let (status, text) = there.post("writeData?begin=0&end=1", vec![1]).await;
    assert_eq!((status, text.as_str()), (StatusCode::BAD_REQUEST, "the file is not open"));
    for query in [
        "",
        "?begin=0",
        "?begin=1&end=4096",
        "?begin=4096&end=0",
        "?begin=0&end=-1",
        "?begin=0&end=99999999999999999999999",
        "?begin=0&end=18446744073709551615",
    ] {
        let (status, _) = there.get(&format!("open{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
    }
    let (status, text) = there.get(&format!("open?begin=0&end={SIZE}&directIO=true")).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "false"));
    let (_, text) = there.get(&format!("open?begin=0&end={SIZE}&directIO=true")).await;
    assert_eq!(text, "true", "now it is there");
    let beyond = SIZE + 4096;
    for (begin, end) in [(4096, 0), (SIZE, beyond), (0, u64::MAX), (u64::MAX - 1, u64::MAX)] {
        let query = format!("?begin={begin}&end={end}");
        for (status, _) in [
            there.post(&format!("sendHole{query}"), vec![]).await,
            there.get(&format!("getChecksum{query}")).await,
            there.post(&format!("writeData{query}"), vec![1; 16]).await,
        ] {
            assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        }
    }
    for len in [0, 4095, 4097] {
        let (status, _) = there.post("writeData?begin=0&end=4096", vec![1; len]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{len}");
    }
    let (status, _) = there.get("getRecordedMetadata").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = there.get("close").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let (status, _) = there.get("../../etc/passwd").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = there.post("close?checksumMethod=crc64&checksum=../x", vec![]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // Longer than its range, without a length that could have told.
    let chunked = b"POST /v1-ssync/writeData?begin=0&end=4 HTTP/1.1\r\nHost: x\r\n\
        Transfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n0\r\n\r\n";
    assert_eq!(there.raw(chunked).await, "HTTP/1.1 400 Bad Request");
    // A body that breaks off, and what is no request at all.
    there.raw(b"POST /v1-ssync/writeData?begin=0&end=4096 HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\nabc").await;
    there.raw(b"\x16\x03\x01garbage\r\n\r\n").await;
    // After all that, somebody honest.
    let mut volume = Volume::new(SIZE);
    volume.write(1, 1 << 20, 1 << 20);
    volume.snapshot("a");
    let source = volume.serve().await;
    let request = FileSendRequest {
        from_file_name: SNAP.into(),
        host: "127.0.0.1".into(),
        port: i32::from(there.port),
        fast_sync: false,
        file_sync_http_client_timeout: 30,
    };
    source.agent().file_send(request).await.unwrap();
    assert_equal(&source.file(SNAP), &there.node.file(SNAP));
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_that_did_not_come_whole_replaces_nothing() {
    let there = Receiving::new("volume-head-000.img.meta").await;
    let path = there.node.file("volume-head-000.img.meta");
    let before = std::fs::read(&path).unwrap();
    let (status, text) = there.get("open?begin=0&end=20&directIO=false").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "false"));
    let (status, _) = there.get(&format!("open?begin=0&end={}", 1_u64 << 40)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = there.post("writeData?begin=0&end=10", vec![b'x'; 10]).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = there.post("close", vec![]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// As senders of the other kind do: the range is rounded up, the body is as long as the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_last_range_that_is_rounded_up_is_taken_as_long_as_the_file_is() {
    let there = Receiving::new("volume-head-000.img.meta").await;
    let meta = std::fs::read(there.node.file("volume-head-000.img.meta")).unwrap();
    let (status, _) = there.get(&format!("open?begin=0&end={}&directIO=false", meta.len())).await;
    assert_eq!(status, StatusCode::OK);
    let (status, text) = there.get("getChecksum?begin=0&end=4096").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "null"));
    for (end, len) in [(4096, meta.len() - 1), (4096, 4096), (8192, meta.len())] {
        let query = format!("writeData?begin=0&end={end}");
        let (status, _) = there.post(&query, vec![b'x'; len]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{end} {len}");
    }
    let (status, text) = there.post("writeData?begin=0&end=4096", meta.clone()).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, ""));
    let (status, _) = there.post("close", vec![]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(std::fs::read(there.node.file("volume-head-000.img.meta")).unwrap(), meta);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_what_the_protocol_says_byte_for_byte() {
    let there = Receiving::new(SNAP).await;
    there.get("open?begin=0&end=8192&directIO=true").await;
    let (_, text) = there.get("getChecksum?begin=0&end=4096").await;
    assert_eq!(text, "null");
    there.post("writeData?begin=0&end=4096", vec![0; 4096]).await;
    let (_, text) = there.get("getChecksum?begin=0&end=4096").await;
    // SHA-512 of 4096 zeros.
    assert_eq!(
        text,
        "\"LSORPTdZ7wFwSoa0vuOsiikAIxPsyYp0JEJaeBcPIZV3gi/XfkrpYxNUdpatfVlJtY4S1QY+8u4GO1lXQKOhLQ==\""
    );
    let (status, _) = there.post("sendHole?begin=0&end=4096", vec![]).await;
    assert_eq!(status, StatusCode::OK);
    let (_, text) = there.get("getChecksum?begin=0&end=4096").await;
    assert_eq!(text, "null");
    let (status, _) =
        there.post("close?checksumMethod=crc64&checksum=0123456789abcdef", vec![]).await;
    assert_eq!(status, StatusCode::OK);
    let record = std::fs::read_to_string(there.node.file(&format!("{SNAP}.checksum"))).unwrap();
    assert!(
        record.starts_with(r#"{"method":"crc64","checksum":"0123456789abcdef","change_time":""#)
    );
}
