//! Real etcd members for tests, on loopback, with data in the test's own directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use std::{env, io};

use crate::process::{Process, WaitError, free_port};

/// Names the folder with `etcd`, `etcdctl` and `etcdutl`, where they are not on the path.
const DIR: &str = "HOLDFAST_ETCD_DIR";
const TIMEOUT: Duration = Duration::from_mins(1);
const READY: &str = "ready to serve client requests";

/// One of etcd's programs, or why there is none.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let given = env::var_os(DIR).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = given.into_iter().chain(env::split_paths(&path));
    places
        .find_map(|place| Some(place.join(name)).filter(|found| found.is_file()))
        .ok_or_else(|| format!("there is no {name} on the path or in {DIR}"))
}

/// Where a member is reached and what it is called.
#[derive(Debug, Clone)]
pub struct Seat {
    pub name: String,
    pub client: String,
    pub peer: String,
}

impl Seat {
    /// A new member's, on free ports.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::at(name, Ipv4Addr::LOCALHOST, "http")
    }

    /// As [`Seat::new`], on an address of its own, with the scheme its clients speak.
    pub fn at(name: &str, host: Ipv4Addr, scheme: &str) -> io::Result<Self> {
        let client = format!("{scheme}://{host}:{}", free_port()?);
        let peer = format!("http://{host}:{}", free_port()?);
        Ok(Self { name: name.to_owned(), client, peer })
    }

    /// Its part of an initial cluster.
    pub fn listed(&self) -> String {
        format!("{}={}", self.name, self.peer)
    }

    fn client_address(&self) -> Option<SocketAddr> {
        self.client.split_once("://")?.1.parse().ok()
    }
}

/// A running member. Dropping it kills it and leaves its data.
#[derive(Debug)]
pub struct Member {
    pub seat: Seat,
    pub process: Process,
}

impl Member {
    /// Starts a member of a new cluster of one and waits until it serves.
    pub fn alone(dir: &Path) -> Result<Self, WaitError> {
        let seat = Seat::new("default")?;
        let mut member = Self::start(&seat, dir, &seat.listed(), "new", &[])?;
        member.wait_until_ready()?;
        Ok(member)
    }

    /// Starts a member with its data in `<dir>/<name>.etcd`, and does not wait.
    pub fn start(
        seat: &Seat,
        dir: &Path,
        initial_cluster: &str,
        state: &str,
        more: &[&str],
    ) -> Result<Self, WaitError> {
        let program = program("etcd").map_err(io::Error::other)?;
        let mut command = Command::new(program);
        command
            .arg(format!("--name={}", seat.name))
            .arg(format!("--data-dir={}", data_dir(dir, &seat.name).display()))
            .arg(format!("--listen-client-urls={}", seat.client))
            .arg(format!("--advertise-client-urls={}", seat.client))
            .arg(format!("--listen-peer-urls={}", seat.peer))
            .arg(format!("--initial-advertise-peer-urls={}", seat.peer))
            .arg(format!("--initial-cluster={initial_cluster}"))
            .arg(format!("--initial-cluster-state={state}"))
            // Tests are not about surviving a power cut, and disks of CI are slow.
            .arg("--unsafe-no-fsync")
            // Nor about who leads on a machine that has no time for a member: after one second,
            // as it is usual, the lead would move while a test relies on it.
            .args(["--heartbeat-interval=250", "--election-timeout=5000"])
            .args(more);
        let process = Process::start(command, dir, &format!("etcd-{}", seat.name))?;
        Ok(Self { seat: seat.clone(), process })
    }

    /// Until it takes requests of clients.
    pub fn wait_until_ready(&mut self) -> Result<(), WaitError> {
        self.process.wait_for_line(READY, TIMEOUT)?;
        match self.seat.client_address() {
            Some(at) => self.process.wait_for_port(at, TIMEOUT),
            None => Ok(()),
        }
    }
}

/// etcdctl, with a longer timeout than a person would wait.
pub fn etcdctl(endpoint: &str) -> Result<Command, String> {
    let mut command = Command::new(program("etcdctl")?);
    command.env("ETCDCTL_API", "3").arg("--endpoints").arg(endpoint);
    command.args(["--dial-timeout=1m", "--command-timeout=2m"]);
    Ok(command)
}

/// A schedule that is not due for half an hour: one for noon and midnight would be due, or just
/// missed, in a run over them.
pub fn far_schedule() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{} * * * *", (now.as_secs() / 60 + 30) % 60)
}

/// Where [`Member::start`] puts the data of a member.
pub fn data_dir(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.etcd"))
}
