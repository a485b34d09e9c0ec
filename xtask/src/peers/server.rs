//! A real kube-apiserver with its etcd, on loopback and in a directory of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{tools, workspace};

const TOKEN: &str = "admin-token";
/// One line for each call that was answered.
const AUDIT: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
";
const START_TIMEOUT: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whether every call is written down, which costs time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audit {
    Off,
    On,
}

/// Both processes; they end with this value.
#[derive(Debug)]
pub(crate) struct KubeApiServer {
    children: Vec<Child>,
    address: SocketAddr,
    home: PathBuf,
}

impl KubeApiServer {
    pub(crate) fn start(audit: Audit) -> Result<Self> {
        let program = super::named("kube-apiserver")?;
        let program = program.first().context("no kube-apiserver")?.build()?;
        let scratch = workspace::metadata()?.target_directory.join("peers/run");
        let home = scratch.join(std::process::id().to_string());
        std::fs::create_dir_all(&home)?;
        let mut server = Self { children: Vec::new(), address: free_address()?, home };
        let store = server.start_etcd()?;
        server.start_api(&program, store, audit)?;
        server.wait()?;
        Ok(server)
    }

    /// What `bench apiserver` needs to know of it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = vec!["--peer".to_owned(), format!("https://{}", self.address)];
        words.extend(["--token".to_owned(), TOKEN.to_owned()]);
        let ca = self.home.join("certs/apiserver.crt");
        words.extend(["--ca".to_owned(), ca.display().to_string()]);
        for child in &self.children {
            words.extend(["--peer-pid".to_owned(), child.id().to_string()]);
        }
        words
    }

    /// Of a user who may do everything.
    pub(crate) fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.home.join("kubeconfig");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", self.address),
                "certificate-authority": self.home.join("certs/apiserver.crt")}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        write(&path, &config.to_string())?;
        Ok(path)
    }

    /// Every call, one a line, where that is on.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.home.join("audit.log")
    }

    fn start_etcd(&mut self) -> Result<SocketAddr> {
        let (clients, peers) = (free_address()?, free_address()?);
        let mut command = Command::new(tools::etcd()?.join("etcd"));
        command.arg("--data-dir").arg(self.home.join("etcd"));
        for name in ["listen-client-urls", "advertise-client-urls"] {
            command.arg(format!("--{name}=http://{clients}"));
        }
        for name in ["listen-peer-urls", "initial-advertise-peer-urls"] {
            command.arg(format!("--{name}=http://{peers}"));
        }
        command.arg(format!("--initial-cluster=default=http://{peers}"));
        self.spawn(command)?;
        Ok(clients)
    }

    fn start_api(&mut self, program: &Path, store: SocketAddr, audit: Audit) -> Result<()> {
        let path = |name: &str| self.home.join(name);
        write(&path("tokens.csv"), &format!("{TOKEN},admin,uid-admin,\"system:masters\"\n"))?;
        let (key, public) = (path("sa.key"), path("sa.pub"));
        let mut make = Command::new("openssl");
        workspace::output(make.args(["genrsa", "-out"]).arg(&key).arg("2048"))?;
        let mut make = Command::new("openssl");
        let make = make.args(["rsa", "-pubout", "-in"]).arg(&key).arg("-out").arg(&public);
        workspace::output(make)?;
        let mut command = Command::new(program);
        command.arg(format!("--etcd-servers=http://{store}"));
        command.args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC"]);
        command.arg(format!("--secure-port={}", self.address.port()));
        command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
        command.args(["--service-cluster-ip-range=10.0.0.0/24"]);
        command.arg("--cert-dir").arg(path("certs"));
        command.arg("--token-auth-file").arg(path("tokens.csv"));
        command.arg("--service-account-key-file").arg(public);
        command.arg("--service-account-signing-key-file").arg(key);
        if audit == Audit::On {
            write(&path("audit.yaml"), AUDIT)?;
            command.arg("--audit-policy-file").arg(path("audit.yaml"));
            command.arg("--audit-log-path").arg(self.audit_log());
        }
        self.spawn(command)
    }

    fn spawn(&mut self, mut command: Command) -> Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = command.get_program().to_owned();
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        self.children.push(child);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        let ready = format!("https://{}/readyz", self.address);
        loop {
            for child in &mut self.children {
                if let Some(status) = child.try_wait()? {
                    bail!("the peer, or its etcd, ended with {status}");
                }
            }
            let mut ask = Command::new("curl");
            ask.args(["--silent", "--fail", "--insecure", "--max-time", "2", &ready]);
            ask.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
            if workspace::output(&mut ask).is_ok() {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the peer was not ready within {START_TIMEOUT:?}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

impl Drop for KubeApiServer {
    fn drop(&mut self) {
        // The server before its store; either may have ended by itself.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    std::fs::File::create(path)?.write_all(text.as_bytes())?;
    Ok(())
}
