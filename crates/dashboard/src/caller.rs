//! Whose program a connection comes from, as far as this machine can tell.
//!
//! Cookies know hosts and no ports: a browser gives the cookie of a session to every program that
//! listens on this machine, other users' programs too, and lets them set it. So a session on
//! loopback belongs to the user of the machine whose program began it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

/// Both are looked through: a socket of one family may be connected to one of the other.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// Where the columns stand that say who is connected to whom, and whose socket it is.
const LOCAL: usize = 1;
const REMOTE: usize = 2;
const OWNER: usize = 7;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A program of this machine, by its user's number.
    Local(u32),
    /// A program of this machine that the kernel's tables do not show.
    Unseen,
    Elsewhere,
}

impl Caller {
    pub(crate) async fn of(stream: &TcpStream) -> Self {
        let (Ok(theirs), Ok(ours)) = (stream.peer_addr(), stream.local_addr()) else {
            return Self::Unseen;
        };
        let (theirs, ours) = (canonical(theirs), canonical(ours));
        if theirs.ip() != ours.ip() && !theirs.ip().is_loopback() {
            return Self::Elsewhere;
        }
        let looked = tokio::task::spawn_blocking(move || {
            let mut tables = TABLES.iter().filter_map(|it| std::fs::read_to_string(it).ok());
            tables.find_map(|it| owner(&it, theirs, ours))
        });
        looked.await.ok().flatten().map_or(Self::Unseen, Self::Local)
    }
}

/// An address of the older family is the same one when it is written as the newer one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The user whose socket is connected from `theirs` to `ours`.
fn owner(table: &str, theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it =
            address(columns.get(LOCAL)?)? == theirs && address(columns.get(REMOTE)?)? == ours;
        if is_it { columns.get(OWNER)?.parse().ok() } else { None }
    })
}

/// The kernel writes addresses as words in the order of the machine, ports as numbers.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = ip
        .as_bytes()
        .chunks(8)
        .map(|it| {
            let word = u32::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok()?;
            Some(word.to_ne_bytes())
        })
        .collect();
    let bytes = words?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(Ipv4Addr::from(four)),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)),
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn the_socket_of_the_other_end_says_whose_it_is() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1D38 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
            1: 0100007F:1D38 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n\
            2: 0100007F:C350 0100007F:1D38 01 00000000:00000000 00:00000000 00000000  1001        0 3 1\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner(table, at(50000), at(7480)), Some(1001));
        assert_eq!(owner(table, at(50001), at(7480)), None);
        let newer = "head\n 0: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1D38 01 0:0 0:0 0 7 0 1 1\n";
        assert_eq!(owner(newer, at(50000), at(7480)), Some(7));
        for torn in
            ["", "x\n", "x\n 0:\n", "x\n 0: 01:02 03:04\n", "x\n 0: zz:zz zz:zz 1 1 1 1 1\n"]
        {
            assert_eq!(owner(torn, at(1), at(2)), None, "{torn:?}");
        }
    }

    #[tokio::test]
    async fn an_own_connection_is_ones_own() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
        assert_eq!(Caller::of(&here).await, Caller::Local(own));
        drop(there);
    }
}
