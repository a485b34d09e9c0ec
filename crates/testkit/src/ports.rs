//! Ports for programs that must be told theirs.
//!
//! A number that was found free is anybody's until somebody listens there. So blocks of numbers are
//! claimed, by a name in the kernel that only one can have: no two tests get the same, whichever
//! process they run in, and whoever runs them beside.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::time::Duration;

use crate::process::poll_until;

/// Ports of a block: a replica needs its own and a dozen after it, and some to spare.
const WIDTH: u16 = 16;
/// Below the ports that the system hands to whoever binds port 0 or connects.
const BLOCKS: Range<u16> = 750..2000;
/// So many blocks one process keeps; then the oldest that nobody listens at comes round again.
const KEPT_MAX: usize = 300;

/// A block of neighbouring ports that no other test has, until it is dropped.
#[derive(Debug)]
pub struct Ports {
    base: u16,
    /// It goes with the process.
    _claim: UnixListener,
}

impl Ports {
    pub fn claim() -> io::Result<Self> {
        let from = rand::random_range(BLOCKS);
        let mut blocks = (from..BLOCKS.end).chain(BLOCKS.start..from);
        let claimed = blocks.find_map(|block| {
            let base = block * WIDTH;
            let claim = UnixListener::bind_addr(&name(base).ok()?).ok()?;
            let ports = Self { base, _claim: claim };
            ports.are_free().then_some(ports)
        });
        claimed.ok_or_else(|| io::ErrorKind::AddrInUse.into())
    }

    /// The first port.
    pub fn base(&self) -> u16 {
        self.base
    }

    /// Waits until nobody listens there: what was killed may take a moment to be gone.
    pub fn wait_until_free(&self, timeout: Duration) -> io::Result<()> {
        let free = poll_until(timeout, || self.are_free().then_some(()));
        free.ok_or_else(|| {
            io::Error::other(format!("somebody still listens at a port from {}", self.base))
        })
    }

    fn are_free(&self) -> bool {
        let ports = self.base..self.base + WIDTH;
        let bound: io::Result<Vec<TcpListener>> = ports.map(listen).collect();
        bound.is_ok()
    }
}

fn name(base: u16) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("holdfast-test-ports-{base}"))
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}

/// A port that is free now, on every address of this machine, and no other test's as long as this
/// process runs. Prefer port 0 and reading what was chosen, where a program offers it. Nobody
/// listens at one that is not used, so it also serves as the address of a peer that is gone.
pub fn free_port() -> io::Result<u16> {
    free_ports(1)
}

/// The first of `count` such ports in a row, a block at most.
pub fn free_ports(count: u16) -> io::Result<u16> {
    /// Blocks of this process, the newest last, and how much of that is given away.
    static OWN: Mutex<(Vec<Ports>, u16)> = Mutex::new((Vec::new(), WIDTH));
    if count > WIDTH {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut own = OWN.lock().map_err(|_| io::Error::other("a test broke down"))?;
    let (blocks, given) = &mut *own;
    loop {
        if *given > WIDTH - count {
            let next = another(blocks)?;
            blocks.push(next);
            *given = 0;
        }
        let Some(last) = blocks.last() else { continue };
        let first = last.base + *given;
        *given += count;
        // A program that claims nothing may have taken one since.
        if (first..first + count).all(|port| listen(port).is_ok()) {
            return Ok(first);
        }
    }
}

fn another(kept: &mut Vec<Ports>) -> io::Result<Ports> {
    let oldest = || kept.iter().position(Ports::are_free);
    match (kept.len() >= KEPT_MAX).then(oldest).flatten() {
        Some(oldest) => Ok(kept.remove(oldest)),
        None => Ports::claim(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let blocks: Vec<Ports> = (0..20).map(|_| Ports::claim().unwrap()).collect();
        let mut bases: Vec<u16> = blocks.iter().map(Ports::base).collect();
        bases.sort_unstable();
        assert!(bases.windows(2).all(|pair| pair[0] + WIDTH <= pair[1]), "{bases:?}");
        let base = blocks[0].base();
        let taken = UnixListener::bind_addr(&name(base).unwrap());
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(blocks);
        // Another test may have it by now; then it has come back as well.
        match UnixListener::bind_addr(&name(base).unwrap()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
    }

    #[test]
    fn ports_are_not_given_twice() {
        let mut ports: BTreeSet<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        for _ in 0..3 {
            let first = free_ports(5).unwrap();
            ports.extend(first..first + 5);
        }
        assert_eq!(ports.len(), 35);
        assert!(free_ports(WIDTH + 1).is_err());
    }

    #[test]
    fn a_block_with_a_listener_is_waited_for() {
        let ports = Ports::claim().unwrap();
        let listener = listen(ports.base() + 3).unwrap();
        assert!(ports.wait_until_free(Duration::ZERO).is_err());
        drop(listener);
        ports.wait_until_free(Duration::from_mins(1)).unwrap();
    }
}
