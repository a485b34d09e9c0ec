//! As little of an HTTP client as can be, so that what is measured is the server.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(super) struct Client {
    stream: TcpStream,
    token: String,
    received: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, token: token.to_owned(), received: Vec::new() })
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<(u16, Value)> {
        self.send("GET", path, None).await
    }

    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} /v3{path} HTTP/1.1\r\nhost: localhost\r\nx-auth-token: {}\r\n\
             openstack-api-version: volume 3.72\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let (head, length) = loop {
            if let Some(at) = self.received.windows(4).position(|it| it == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(self.received.get(..at).unwrap_or_default());
                let head = head.to_ascii_lowercase();
                self.received.drain(..at + 4);
                let length = head.lines().find_map(|it| it.strip_prefix("content-length:"));
                let length = length.map_or(Ok(0), |it| it.trim().parse::<usize>())?;
                break (head, length);
            }
            self.more().await?;
        };
        while self.received.len() < length {
            self.more().await?;
        }
        let body: Vec<u8> = self.received.drain(..length).collect();
        let code = head.split(' ').nth(1).context("no status line")?.trim().parse()?;
        Ok((code, super::parse(&body)))
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.received).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}
