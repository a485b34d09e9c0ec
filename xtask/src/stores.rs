//! A real S3 service on loopback, started for the suites that need one.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{tools, workspace};

const START_TIMEOUT: Duration = Duration::from_mins(5);
/// Somebody else may have taken the port before the server came to it.
const STARTS: usize = 5;
const PORTS: Range<u16> = 10_000..30_000;
const PORT_TRIES: usize = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where tests look for the service.
pub(crate) const ADDRESS_VARIABLE: &str = "TEST_MOTO_ADDRESS";

/// An address that is free now. Its port is none of those that the system hands to whoever asks for
/// any, so that it is not given away while the server starts.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..PORT_TRIES {
        let drawn = RandomState::new().hash_one(std::process::id());
        let offset = u16::try_from(drawn % u64::from(PORTS.end - PORTS.start))?;
        let address = SocketAddr::from(([127, 0, 0, 1], PORTS.start + offset));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

/// Of this process and this moment.
fn new_dir() -> Result<PathBuf> {
    let drawn = RandomState::new().hash_one(std::process::id());
    let dir = workspace::metadata()?.target_directory.join("tmp").join(format!("s3-{drawn:016x}"));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// A server that does not outlive this process's interest in it.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    address: SocketAddr,
    /// What it keeps, which goes with it.
    dir: Option<PathBuf>,
}

/// The user of services that look at signatures; tests of backups are that user.
const USER: (&str, &str) = ("test", "test-secret");

impl Started {
    /// An S3 service, installed if it must be.
    pub(crate) fn s3() -> Result<Self> {
        let program = tools::s3_server()?;
        Self::one(None, |address| {
            let mut server = Command::new(&program);
            server.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
            server
        })
    }

    /// A `MinIO` over a directory of its own.
    pub(crate) fn minio(program: &Path) -> Result<Self> {
        let dir = new_dir()?;
        Self::one(Some(&dir), |address| {
            let mut server = Command::new(program);
            server.args(["server", "--quiet", "--address", &address.to_string()]).arg(&dir);
            server.env("MINIO_ROOT_USER", USER.0).env("MINIO_ROOT_PASSWORD", USER.1);
            // It asks nobody for news.
            server.env("MINIO_UPDATE", "off").env("MINIO_BROWSER", "off").env("HOME", &dir);
            server
        })
    }

    /// A `VersityGW` over a directory of its own.
    pub(crate) fn versitygw(program: &Path) -> Result<Self> {
        let dir = new_dir()?;
        Self::one(Some(&dir), |address| {
            let mut server = Command::new(program);
            server.args(["--port", &address.to_string(), "posix"]).arg(&dir);
            server.env("ROOT_ACCESS_KEY", USER.0).env("ROOT_SECRET_KEY", USER.1);
            server
        })
    }

    fn one(dir: Option<&Path>, command: impl Fn(SocketAddr) -> Command) -> Result<Self> {
        let mut last = None;
        for _ in 0..STARTS {
            let address = free_address()?;
            let mut server = command(address);
            server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = server.spawn().context("cannot start the S3 server")?;
            let mut started = Self { child, address, dir: None };
            match started.wait()? {
                None => {
                    started.dir = dir.map(Path::to_owned);
                    return Ok(started);
                }
                ended => last = ended,
            }
        }
        bail!("the S3 server does not start; at last it ended with {last:?}")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Until it answers, or has ended: how.
    fn wait(&mut self) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect_timeout(&self.address, LOOK_EVERY).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > end {
                bail!("the S3 server did not answer within {START_TIMEOUT:?}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(None)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = &self.dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
