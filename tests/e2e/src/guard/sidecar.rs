//! One running guard, asked over HTTP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde_json::Value;
use testkit::process::{Process, free_port, poll_until};

use super::{Pki, TIMEOUT};

/// A guard that was started; dropping it kills it.
#[derive(Debug)]
pub struct Sidecar {
    pub process: Process,
    pub port: u16,
    host: Ipv4Addr,
    /// Whom to trust, where it answers over TLS.
    trust: Option<Arc<rustls::ClientConfig>>,
}

trait Line: Read + Write {}
impl<T: Read + Write> Line for T {}

impl Sidecar {
    /// Starts `command` with a free port, and does not wait.
    pub fn start(mut command: Command, scratch: &std::path::Path, name: &str) -> Self {
        let port = free_port().unwrap();
        command.arg(format!("--server-port={port}"));
        let process = Process::start(command, scratch, name).unwrap();
        Self { process, port, host: Ipv4Addr::LOCALHOST, trust: None }
    }

    /// As [`Sidecar::start`], on an address of its own, with TLS.
    pub fn start_secured(
        mut command: Command,
        scratch: &std::path::Path,
        pki: &Pki,
        (host, port): (Ipv4Addr, u16),
    ) -> Self {
        command.arg(format!("--server-port={port}")).arg(format!("--server-bind-address={host}"));
        command.args(pki.of_sidecar());
        let process = Process::start(command, scratch, "guard").unwrap();
        Self { process, port, host, trust: Some(pki.trust()) }
    }

    fn connect(&self) -> Option<Box<dyn Line>> {
        let stream = TcpStream::connect((self.host, self.port)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        let Some(trust) = &self.trust else { return Some(Box::new(stream)) };
        let name = ServerName::IpAddress(self.host.into());
        let connection = rustls::ClientConnection::new(Arc::clone(trust), name).unwrap();
        Some(Box::new(rustls::StreamOwned::new(connection, stream)))
    }

    /// Status and body; nothing if there is no answer.
    pub fn try_ask(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let mut stream = self.connect()?;
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: guard\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, String) {
        self.try_ask("GET", path).unwrap_or_else(|| panic!("no answer to {path}"))
    }

    /// The JSON of an answer that must be good.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}\n{}", self.process.stderr());
        serde_json::from_str(&body).unwrap()
    }

    /// Until it says it leads.
    #[track_caller]
    pub fn wait_until_healthy(&mut self) {
        self.wait_for("/healthz", 200);
    }

    #[track_caller]
    pub fn wait_for(&mut self, path: &str, wanted: u16) {
        let mut ended = None;
        let found = poll_until(TIMEOUT, || {
            ended = self.process.wait_for_exit(std::time::Duration::ZERO).ok();
            let answer = self.try_ask("GET", path);
            (ended.is_some() || answer.is_some_and(|(status, _)| status == wanted)).then_some(())
        });
        assert!(ended.is_none(), "the guard ended: {ended:?}\n{}", self.process.stderr());
        assert!(found.is_some(), "{path} never answered {wanted}:\n{}", self.process.stderr());
    }

    /// SIGTERM, and how it ended.
    #[track_caller]
    pub fn stop(mut self) -> Option<i32> {
        self.process.terminate().unwrap();
        self.process.wait_for_exit(TIMEOUT).unwrap().code()
    }
}
