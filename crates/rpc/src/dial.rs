//! Connections to engines and replicas, the one way they are made.

use std::io;

use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs, lookup_host};

/// Connects, and lets a server listen at the port of this end as soon as the connection is closed.
///
/// Engines and replicas listen at ports next to one that somebody chose, and whoever asks them often
/// leaves many closed connections behind. The port of each stays taken for a minute, unless its socket
/// said that it may be shared, and a server that is to listen there cannot start.
///
/// # Errors
/// If the name cannot be resolved, or nobody answers at any of its addresses.
pub async fn dial(at: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let mut last = None;
    for address in lookup_host(at).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        match socket.connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::{Address, Deadline, Identity, connect, ptypes};

    /// Closed by who connected: that is the end whose port stays taken.
    async fn closed_first(stream: TcpStream, mut there: TcpStream) -> SocketAddr {
        let port = stream.local_addr().unwrap();
        drop(stream);
        assert_eq!(there.read(&mut [0; 1]).await.unwrap(), 0);
        port
    }

    #[tokio::test]
    async fn a_server_can_listen_where_a_closed_connection_was() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = server.local_addr().unwrap();
        let dialled = dial(at).await.unwrap();
        assert!(dialled.nodelay().unwrap());
        let port = closed_first(dialled, server.accept().await.unwrap().0).await;
        TcpListener::bind(port).unwrap();

        // The world is as unkind as this says.
        let plain = TcpStream::connect(at).await.unwrap();
        let port = closed_first(plain, server.accept().await.unwrap().0).await;
        assert_eq!(TcpListener::bind(port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn so_it_can_where_calls_came_from() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::new("127.0.0.1", server.local_addr().unwrap().port());
        let calls = connect(&address, Identity::default(), Deadline::Usual).unwrap();
        let mut calls = ptypes::replica_service_client::ReplicaServiceClient::new(calls);
        // Given up when the caller has begun to speak.
        let limit = std::time::Duration::from_millis(200);
        let call = tokio::time::timeout(limit, calls.replica_get(()));
        let (accepted, answer) = tokio::join!(server.accept(), call);
        assert!(answer.is_err(), "nobody answers");
        drop(calls);
        let (mut there, port) = accepted.unwrap();
        while there.read(&mut [0; 64]).await.unwrap() > 0 {}
        drop(there);
        TcpListener::bind(port).unwrap();
    }
}
