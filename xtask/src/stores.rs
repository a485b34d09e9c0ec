//! The conformance suite of object stores over a real S3 service, started for it on loopback.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::steps::{Outcome, Report};
use crate::test::cargo_test;
use crate::{tools, workspace};

const START_PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn over_s3(report: &mut Report) -> Result<Outcome> {
    let program = match tools::s3_server() {
        Ok(program) => program,
        Err(why) => return Ok(Outcome::Skipped(format!("{why:#}"))),
    };
    let address = free_address()?;
    let mut server = Command::new(program);
    server.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Started(server.spawn().context("cannot start the S3 server")?);
    server.wait_for(address)?;
    let arguments =
        ["test", "--quiet", "--package", "blobs", "--features", "conformance", "--test", "s3"];
    let mut command = workspace::cargo(arguments);
    command.env("TEST_MOTO_ADDRESS", address.to_string());
    cargo_test(report, &mut command)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A child that does not outlive this process's interest in it.
struct Started(Child);

impl Started {
    fn wait_for(&mut self, address: SocketAddr) -> Result<()> {
        let end = Instant::now() + START_PATIENCE;
        while TcpStream::connect_timeout(&address, LOOK_EVERY).is_err() {
            if let Some(status) = self.0.try_wait()? {
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
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
