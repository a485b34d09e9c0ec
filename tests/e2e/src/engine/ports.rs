//! Blocks of neighbouring ports: a replica needs its own and a dozen after it.

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rand::Rng as _;
use testkit::process::poll_until;

/// Control, data, agent and ten receivers, and some to spare.
const WIDTH: u16 = 16;
/// Below the ports the system gives to clients.
const BLOCKS: std::ops::Range<u16> = 750..2000;

/// A block of ports that no other test holds, in this process or another, until it is dropped.
#[derive(Debug)]
pub struct Ports {
    base: u16,
    /// A name in the kernel that only one can bind, and that goes with the process.
    _claim: UnixListener,
}

impl Ports {
    pub fn claim() -> Self {
        let from = rand::rng().random_range(BLOCKS);
        let blocks = (from..BLOCKS.end).chain(BLOCKS.start..from);
        let claimed = blocks.into_iter().find_map(|block| {
            let base = block * WIDTH;
            let name = SocketAddr::from_abstract_name(format!("holdfast-test-ports-{base}"));
            let claim = UnixListener::bind_addr(&name.unwrap()).ok()?;
            is_free(base).then_some(Self { base, _claim: claim })
        });
        claimed.expect("no free block of ports")
    }

    /// The first port.
    pub fn base(&self) -> u16 {
        self.base
    }

    /// Waits until nobody listens there: what was killed may take a moment to be gone.
    pub fn wait_until_free(&self, patience: Duration) {
        poll_until(patience, || is_free(self.base).then_some(()))
            .unwrap_or_else(|| panic!("somebody still listens at a port from {}", self.base));
    }
}

fn is_free(base: u16) -> bool {
    let bound: io::Result<Vec<TcpListener>> =
        (base..base + WIDTH).map(|port| TcpListener::bind(("0.0.0.0", port))).collect();
    bound.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let blocks: Vec<Ports> = (0..20).map(|_| Ports::claim()).collect();
        let mut bases: Vec<u16> = blocks.iter().map(Ports::base).collect();
        bases.sort_unstable();
        assert!(bases.windows(2).all(|pair| pair[0] + WIDTH <= pair[1]), "{bases:?}");
        let base = blocks[0].base();
        drop(blocks);
        let name = SocketAddr::from_abstract_name(format!("holdfast-test-ports-{base}")).unwrap();
        UnixListener::bind_addr(&name).unwrap();
    }
}
