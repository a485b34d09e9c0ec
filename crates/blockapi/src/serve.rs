//! The socket: limits against slow and greedy clients, a clean end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tasks::{Stop, Tasks, WriteTimeout};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// When accepting fails (no file descriptors left), trying again at once would only burn CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients get.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// A request line and its headers must be there by then; a connection without one ends.
    pub(crate) headers: Duration,
    /// A client that takes nothing of an answer for so long is cut off.
    pub(crate) writes: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            headers: Duration::from_secs(30),
            writes: Duration::from_secs(30),
        }
    }
}

/// Accepts until the task tree stops; connections then finish what they are at.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits, tasks: Tasks) {
    let stop = tasks.stop_signal();
    let places = Arc::new(Semaphore::new(limits.connections));
    while let Some(accepted) = stop.or_stop(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {}", telemetry::Chain(&error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Full: the newcomer is turned away, those inside are served.
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(connections = limits.connections, "too many connections, refused one");
            continue;
        };
        let router = router.clone();
        tasks.spawn_draining("block-connection", move |stop| async move {
            speak(stream, router, limits, &stop).await;
            drop(place);
        });
    }
}

async fn speak(stream: TcpStream, router: Router, limits: Limits, stop: &Stop) {
    // Answers are small; without it they wait for a timer.
    let _ = stream.set_nodelay(true);
    // The newer protocol is no part of the dialect, and looking which one it is would know no limit.
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.headers);
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.writes));
    let connection = builder.serve_connection(stream, TowerToHyperService::new(router));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.stopping() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn start(limits: Limits) -> (std::net::SocketAddr, Tasks) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let router = Router::new().fallback(|| async { "here" });
        let below = tasks.clone();
        tasks.spawn("door", serve(listener, router, limits, below));
        (address, tasks)
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_does_not_stay() {
        let limits = Limits { headers: Duration::from_millis(100), ..Limits::default() };
        let (address, tasks) = start(limits).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
        let mut said = Vec::new();
        let _ = silent.read_to_end(&mut said).await;
        assert_eq!(said, b"");
        let _ = slow.read_to_end(&mut said).await;
        assert!(!String::from_utf8_lossy(&said).contains("here"));
        let _ = tasks.stop(Duration::from_secs(5)).await;
    }

    #[tokio::test]
    async fn one_too_many_is_turned_away_and_the_others_are_served() {
        let limits = Limits { connections: 1, ..Limits::default() };
        let (address, tasks) = start(limits).await;
        let mut inside = TcpStream::connect(address).await.unwrap();
        inside.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        inside.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        let mut newcomer = TcpStream::connect(address).await.unwrap();
        let _ = newcomer.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut said = Vec::new();
        let _ = newcomer.read_to_end(&mut said).await;
        assert_eq!(said, b"");
        let _ = tasks.stop(Duration::from_secs(5)).await;
    }
}
