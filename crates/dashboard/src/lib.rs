//! The dashboard: pages rendered by the server, over the same API as everybody else's tools.
//!
//! Owns: sessions of people who signed in with a token, what is read for each page and how it is
//! shown, and the requests made for them. Never: a right of its own. Each call to the API carries
//! the token of whoever asked; what they may not see or do there, they cannot see or do here.
//!
//! Start reading at [`web`]: a request goes from there to one file of [`pages`] or to [`actions`].
#![forbid(unsafe_code)]

mod actions;
mod assets;
mod blocks;
mod caller;
mod chart;
mod door;
mod live;
mod pages;
mod places;
mod reach;
mod read;
mod session;
mod view;
mod visit;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::net::TcpListener;

pub use door::Door;
pub use reach::{Reach, bearer};

/// How the dashboard is to run.
#[derive(Debug)]
pub struct Options {
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Needed wherever it can be reached from other machines.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// How the API is reached with the token of a caller.
    pub reach: Arc<dyn Reach>,
    /// Where the Block Storage API is, if it asks nobody who they are.
    pub blocks: Option<String>,
}

/// Why the dashboard does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("{0} can be reached from other machines, and tokens must not travel in the clear")]
    Clear(SocketAddr),
    #[error("cannot make a client of the Block Storage API")]
    Blocks(#[from] reqwest::Error),
}

/// The running dashboard.
#[derive(Debug)]
pub struct Dashboard {
    url: String,
}

impl Dashboard {
    /// Listens, and serves until the tasks are stopped. Boxed: whoever waits for it would otherwise
    /// compile all pages anew.
    pub fn start(
        options: Options,
        tasks: &tasks::Tasks,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        Box::pin(Self::open(options, tasks))
    }

    async fn open(options: Options, tasks: &tasks::Tasks) -> Result<Self, StartError> {
        if options.tls.is_none() && !options.listen.ip().is_loopback() {
            return Err(StartError::Clear(options.listen));
        }
        let failed = |source| StartError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let blocks = options.blocks.map(blocks::Blocks::new).transpose()?;
        let secure = options.tls.is_some();
        let app = Arc::new(web::App::new(options.reach, blocks, secure, tasks.stop_signal()));
        let router = web::router(app);
        let door = door::Door::new(listener, options.tls);
        tasks.spawn("dashboard", door.serve(router, tasks.clone()));
        let scheme = if secure { "https" } else { "http" };
        Ok(Self { url: format!("{scheme}://{}", seen_from_here(address)) })
    }

    /// Where people on this machine find it.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn seen_from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
