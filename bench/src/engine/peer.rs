//! `qemu-nbd` on a raw file: what volumes are compared with.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};
use testkit::process::{Process, Scratch, free_port};

pub(crate) struct QemuNbd {
    pub(crate) process: Process,
    port: u16,
    _scratch: Scratch,
}

impl QemuNbd {
    pub(crate) fn start(size_bytes: u64) -> Result<Self> {
        let scratch = Scratch::new()?;
        let image = scratch.path().join("disk.raw");
        std::fs::File::create(&image)?.set_len(size_bytes)?;
        let port = free_port()?;
        let program = e2e::engine::tool("qemu-nbd", "the comparison").context("no qemu-nbd")?;
        let mut command = Command::new(program);
        command.args(["--format=raw", "--cache=writeback", "--persistent", "--shared=8"]);
        command.args(["--discard=unmap", "--bind=127.0.0.1", &format!("--port={port}")]);
        command.arg(&image);
        let mut process = Process::start(command, scratch.path(), "qemu-nbd")?;
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        process.wait_for_port(at, e2e::engine::TIMEOUT)?;
        Ok(Self { process, port, _scratch: scratch })
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd://127.0.0.1:{}/", self.port)
    }
}
