//! A real S3 service on loopback, started for the suites that need one.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::tools;

const START_PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where tests look for the service.
pub(crate) const ADDRESS_VARIABLE: &str = "TEST_MOTO_ADDRESS";

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A server that does not outlive this process's interest in it.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    address: SocketAddr,
}

impl Started {
    /// An S3 service, installed if it must be.
    pub(crate) fn s3() -> Result<Self> {
        let program = tools::s3_server()?;
        let address = free_address()?;
        let mut server = Command::new(program);
        server.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = server.spawn().context("cannot start the S3 server")?;
        let mut started = Self { child, address };
        started.wait()?;
        Ok(started)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + START_PATIENCE;
        while TcpStream::connect_timeout(&self.address, LOOK_EVERY).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the S3 server ended with {status}");
            }
            if Instant::now() > end {
                bail!("the S3 server did not answer within {START_PATIENCE:?}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
