//! Services of others on this machine, each at a free port and gone with its test: the program that a
//! variable names, or the one on the path. Without it the test says that it was skipped.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) struct Service {
    child: Child,
    pub(crate) at: SocketAddr,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    /// As somebody else would, who is not asked for a signature; not succeeding fails the test.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let method = method.parse().unwrap();
        let url = format!("http://{}{path}", self.at);
        let mut request = reqwest::Client::new().request(method, url).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }
}

fn program(name: &str, variable: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).map(|dir| dir.join(name)).find(|it| it.is_file());
    let found = given.or_else(on_path);
    if found.is_none() {
        eprintln!("skipped: no {name}, and {variable} names none");
    }
    found
}

pub(crate) fn free_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], testkit::process::free_port().unwrap()))
}

fn start(program: &Path, arguments: impl Fn(SocketAddr) -> Vec<String>) -> Service {
    let at = free_port();
    let mut command = Command::new(program);
    command.args(arguments(at)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut service = Service { child: command.spawn().unwrap(), at };
    let deadline = Instant::now() + TIMEOUT;
    while TcpStream::connect(at).is_err() {
        assert!(Instant::now() < deadline, "{} does not listen", program.display());
        assert!(service.child.try_wait().unwrap().is_none(), "{} ended", program.display());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    service
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// With the bucket `bkt`.
pub(crate) fn rclone(root: &Path) -> Option<Service> {
    let program = program("rclone", "RCLONE")?;
    std::fs::create_dir(root.join("bkt")).unwrap();
    let root = root.to_str().unwrap();
    Some(start(&program, |at| {
        let mut all = words(&format!("serve s3 {root} --addr {at} --config"));
        all.push(String::new());
        all
    }))
}

pub(crate) fn moto() -> Option<Service> {
    let program = program("moto_server", "MOTO_SERVER")?;
    Some(start(&program, |at| words(&format!("-H 127.0.0.1 -p {}", at.port()))))
}

pub(crate) fn fake_gcs() -> Option<Service> {
    let program = program("fake-gcs-server", "FAKE_GCS_SERVER")?;
    Some(start(&program, |at| {
        let port = at.port();
        words(&format!(
            "-scheme http -host 127.0.0.1 -port {port} -backend memory -public-host {at}"
        ))
    }))
}

pub(crate) fn azurite() -> Option<Service> {
    let program = program("azurite-blob", "AZURITE_BLOB")?;
    Some(start(&program, |at| {
        let port = at.port();
        words(&format!(
            "--silent --skipApiVersionCheck --inMemoryPersistence --disableTelemetry \
             --blobHost 127.0.0.1 --blobPort {port}"
        ))
    }))
}
