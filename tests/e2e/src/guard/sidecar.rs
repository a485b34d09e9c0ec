//! One running guard, asked over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use serde_json::Value;
use testkit::process::{Process, free_port, poll_until};

use super::PATIENCE;

/// A guard that was started; dropping it kills it.
#[derive(Debug)]
pub struct Sidecar {
    pub process: Process,
    pub port: u16,
}

impl Sidecar {
    /// Starts `command` with a free port, and does not wait.
    pub fn start(mut command: Command, scratch: &std::path::Path, name: &str) -> Self {
        let port = free_port().unwrap();
        command.arg(format!("--server-port={port}"));
        Self { process: Process::start(command, scratch, name).unwrap(), port }
    }

    /// Status and body; nothing if there is no answer.
    pub fn try_ask(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
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
        assert_eq!(status, 200, "{path}: {body}");
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
        let found = poll_until(PATIENCE, || {
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
        self.process.wait_for_exit(PATIENCE).unwrap().code()
    }
}
