//! The API server and the controllers, each in a process of its own, so that each is seen to cost what it
//! costs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Endpoint, server};
use testkit::process::{Process, Scratch, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::NAMESPACE;
use crate::usage;

const TOKEN: &str = "admin-token";
const TOKENS: &str = "admin-token,admin,uid-admin,\"system:masters\"\n";
const TIMEOUT: Duration = Duration::from_mins(3);

#[derive(Debug)]
pub(super) struct Cluster {
    server: Process,
    controllers: Option<Process>,
    starts: u32,
    metrics: u16,
    url: String,
    scratch: Scratch,
}

/// What the processes have used so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) server_s: f64,
    pub(super) controllers_s: f64,
    pub(super) passes: f64,
}

impl Used {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            server_s: self.server_s - before.server_s,
            controllers_s: self.controllers_s - before.controllers_s,
            passes: self.passes - before.passes,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.controllers.iter_mut().chain([&mut self.server]) {
            let _ = process.kill();
        }
        testkit::process::end_all_below(self.scratch.path());
    }
}

impl Cluster {
    pub(super) async fn start() -> Result<Self> {
        let scratch = Scratch::new()?;
        let tokens = scratch.path().join("tokens.csv");
        e2e::write(&tokens, TOKENS);
        let mut command = Command::new(server::binary());
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(scratch.path().join("data")).arg("--token-auth-file").arg(tokens);
        let mut server = Process::start(command, scratch.path(), "apiserver")?;
        let line = server.wait_for_line("https://", TIMEOUT)?;
        let from = line.find("https://").context("no address")?;
        let url = line[from..].split_whitespace().next().unwrap_or_default();
        let url = url.trim_end_matches('/').to_owned();
        let mut cluster = Self { server, controllers: None, starts: 0, metrics: 0, url, scratch };
        cluster.start_controllers().await?;
        cluster.prepare().await?;
        Ok(cluster)
    }

    pub(super) async fn start_controllers(&mut self) -> Result<()> {
        self.starts += 1;
        self.metrics = free_port()?;
        let mut command = Command::new(server::binary());
        command.arg("controllers").arg("--kubeconfig").arg(self.kubeconfig());
        command.arg("--data-dir").arg(self.scratch.path().join("controllers"));
        command.args(["--metrics-listen", &format!("127.0.0.1:{}", self.metrics)]);
        let name = format!("controllers-{}", self.starts);
        self.controllers = Some(Process::start(command, self.scratch.path(), &name)?);
        while self.passes().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// kill -9: what they knew is lost.
    pub(super) fn kill_controllers(&mut self) -> Result<()> {
        if let Some(mut process) = self.controllers.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Whatever the disk of this machine has left is enough for volumes without data.
    async fn prepare(&self) -> Result<()> {
        for (name, value) in [
            ("storage-minimal-available-percentage", "1"),
            ("storage-over-provisioning-percentage", "10000"),
            ("concurrent-replica-rebuild-per-node-limit", "100"),
        ] {
            let path = format!("{}/settings/{name}", super::LONGHORN);
            let body = serde_json::json!({"value": value});
            let mut connection = self.endpoint()?.connect().await?;
            while connection.get(&path).await?.code() != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let answer = connection.merge(&path, &body).await?;
            ensure!(answer.code() == 200, "{} in {NAMESPACE}: {}", name, answer.json());
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.scratch.path().join("data/kubeconfig")
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint> {
        let ca = std::fs::read(self.scratch.path().join("data/pki/ca.crt"))?;
        Ok(Endpoint::new(&self.url, &ca, TOKEN))
    }

    pub(super) async fn used(&self) -> Result<Used> {
        let controllers = self.controllers.as_ref().context("no controllers run")?;
        Ok(Used {
            server_s: usage::processor_seconds(self.server.id()),
            controllers_s: usage::processor_seconds(controllers.id()),
            passes: self.passes().await?,
        })
    }

    /// Resident memory of server and controllers.
    pub(super) fn resident_bytes(&self) -> Result<(u64, u64)> {
        let of = |process: &Process| server::resident_bytes(process.id());
        let controllers = self.controllers.as_ref().and_then(of);
        Ok((of(&self.server).context("no server")?, controllers.context("no controllers")?))
    }

    /// Passes of all controllers since they were started.
    async fn passes(&self) -> Result<f64> {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.metrics)).await?;
        let request = "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        ensure!(text.starts_with("HTTP/1.1 200"), "no metrics yet");
        let passes = text.lines().filter(|line| line.starts_with("holdfast_reconciles_total{"));
        Ok(passes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}
