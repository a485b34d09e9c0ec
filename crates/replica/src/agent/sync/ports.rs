//! The ports on which files are received: handed out in turn, those in use are passed over.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::net::TcpListener;

use crate::agent::error::JobError;

#[derive(Debug)]
pub(crate) struct Ports {
    range: RangeInclusive<u16>,
    next: Mutex<u16>,
}

impl Ports {
    pub(crate) fn new(range: RangeInclusive<u16>) -> Self {
        let next = Mutex::new(*range.start());
        Self { range, next }
    }

    /// A listener on all addresses, on the next port of the range that is free.
    pub(crate) async fn listen(&self) -> Result<(TcpListener, u16), JobError> {
        let count = self.range.clone().count();
        for _ in 0..count {
            let port = self.take();
            match bind(port).await {
                Ok(listener) => return Ok((listener, port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(source) => {
                    return Err(JobError::Io {
                        doing: "listen on port",
                        what: port.to_string(),
                        source,
                    });
                }
            }
        }
        Err(JobError::OutOfPorts)
    }

    fn take(&self) -> u16 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let port = *next;
        *next = if port >= *self.range.end() { *self.range.start() } else { port + 1 };
        port
    }
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        // A host without IPv6.
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
            ) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ports_go_round_and_those_in_use_are_passed_over() {
        // Whoever else runs here may take a port between two looks: then another pair is tried.
        for _ in 0..100 {
            let free = bind(0).await.unwrap().local_addr().unwrap().port();
            let Some(last) = free.checked_add(1) else { continue };
            let ports = Ports::new(free..=last);
            let (Ok((one, first)), Ok((_two, second))) =
                (ports.listen().await, ports.listen().await)
            else {
                continue;
            };
            assert_eq!((first, second), (free, last));
            assert!(matches!(ports.listen().await, Err(JobError::OutOfPorts)));
            drop(one);
            let Ok((_again, third)) = ports.listen().await else { continue };
            assert_eq!(third, first);
            return;
        }
        panic!("no two ports in a row are free");
    }
}
