//! Frontend `rest`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::core::Mode;
use engine::volume::Volume;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fake::{Fake, all_features};
use crate::{MIB, host, options, settings};

/// Status and body of a POST.
async fn post(endpoint: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let address = endpoint.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let len = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn numbers_are_strings_and_data_is_base64() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start(MIB);
    let volume = Volume::start_on("vol", settings(), host(folder.path())).unwrap();
    volume.resize(MIB).await.unwrap();
    volume.attach(&fake.target(), all_features(), Mode::Rw).await.unwrap();
    volume.start_frontend("rest", &options()).await.unwrap();
    let endpoint = volume.frontend().endpoint;
    let path = |action: &str| format!("/v1/volumes/{}?action={action}", STANDARD.encode("vol"));

    let data = STANDARD.encode([7; 512]);
    let body = format!(r#"{{"offset":"512","length":"512","data":"{data}"}}"#);
    assert_eq!(post(&endpoint, &path("writeat"), &body).await.0, 200);
    assert_eq!(fake.bytes(512, 512), vec![7; 512]);
    let body = r#"{"offset":"512","length":"512"}"#;
    let (status, answer) = post(&endpoint, &path("readat"), body).await;
    assert_eq!((status, answer["data"].as_str()), (200, Some(data.as_str())));

    let beyond = r#"{"offset":"1048576","length":"512"}"#;
    let (status, answer) = post(&endpoint, &path("readat"), beyond).await;
    let text = "EOF: Read of 512 bytes at offset 1048576 is beyond volume size 1048576";
    assert_eq!((status, answer["message"].as_str()), (500, Some(text)));
    let huge = r#"{"offset":"0","length":"4294967295"}"#;
    assert_eq!(post(&endpoint, &path("readat"), huge).await.0, 400);
    assert_eq!(post(&endpoint, &path("readat"), "nonsense").await.0, 400);
    assert_eq!(post(&endpoint, &path("format"), body).await.0, 400);
    let other = format!("/v1/volumes/{}?action=readat", STANDARD.encode("other"));
    assert_eq!(post(&endpoint, &other, body).await.0, 404);

    volume.stop_frontend().await.unwrap();
    let address = endpoint.strip_prefix("http://").unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
