//! How bytes come in.
//!
//! Owns: which frontends there are and which one runs. A frontend is a [`Frontend`]; its
//! connections are [`conn`], what they speak is a [`conn::Protocol`]. To add one, write its file,
//! give it a variant of [`Kind`], and the compiler names the places. Everything here runs on the
//! data thread.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture, ready};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

pub use self::parting::{Belongings, Client, Inherited, Told, Transport};
use crate::NbdOptions;
use crate::volume::hub::Hub;

mod conn;
mod frames;
mod guests;
mod listen;
mod nbd;
mod parting;
mod rest;
mod socket;
mod tgt;

/// What a frontend needs to know besides the volume.
#[derive(Debug, Clone)]
pub struct FrontendOptions {
    pub volume: String,
    pub nbd: NbdOptions,
    /// The frontend takes over from that of an engine that still runs.
    pub upgrade: bool,
    pub replica_timeout: Duration,
    /// What that engine gave away.
    pub inherited: Inherited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrontendState {
    /// None was ever started.
    #[default]
    None,
    Up,
    Down,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontendStatus {
    /// Empty if none was ever started.
    pub name: String,
    /// Where clients find the volume while the frontend is up.
    pub endpoint: String,
    pub state: FrontendState,
}

/// Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    #[error("cannot start empty frontend")]
    Empty,
    #[error("frontend {running} is already started, cannot be set as {wanted}")]
    Other { running: String, wanted: String },
    #[error("failed to find frontend: {0}: unsupported frontend type: {0}")]
    Unknown(String),
    #[error("{0}")]
    Failed(String),
}

/// Where the frontends find what they need of this machine.
#[derive(Debug, Clone)]
pub struct Host {
    /// Directory of the sockets and of the lock around iSCSI.
    pub run_dir: PathBuf,
    /// Directory of the device nodes of volumes.
    pub device_dir: PathBuf,
    /// Block devices as the kernel lists them.
    pub sys_block: PathBuf,
    /// Namespaces of the machine, seen from a container; used if it exists.
    pub namespaces: PathBuf,
    /// Where tools are searched instead of `PATH`.
    pub tools: Option<OsString>,
    /// `host:port` of frontend `rest`.
    pub rest_listen: String,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            run_dir: "/var/run".into(),
            device_dir: "/dev/longhorn".into(),
            sys_block: "/sys/block".into(),
            namespaces: "/host/proc/1/ns".into(),
            tools: None,
            rest_listen: "localhost:9414".to_owned(),
        }
    }
}

/// A frontend that runs. Dropping it ends it without manners.
pub(crate) trait Frontend {
    /// Where clients find the volume.
    fn endpoint(&self) -> String;

    /// The volume is about to have this size.
    fn resize(&self, size_bytes: u64) -> LocalBoxFuture<'_, Result<(), FrontendError>>;

    /// Takes nothing more, answers what was taken, and leaves no trace.
    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), FrontendError>>;

    /// Has its clients pause between two requests, and says by what they are reached; `None` if they
    /// do not, and go on.
    fn part(&self) -> LocalBoxFuture<'_, Option<Belongings>> {
        ready(None).boxed_local()
    }

    /// Its clients go on here.
    fn resume(&self) {}

    /// Its clients are those of another engine now.
    fn leave(self: Box<Self>) {}
}

/// A second descriptor of the same socket.
fn twin_of(socket: &impl AsFd) -> Option<OwnedFd> {
    let failed = |error: &io::Error| tracing::warn!(%error, "a socket is not handed over");
    socket.as_fd().try_clone_to_owned().inspect_err(failed).ok()
}

/// What a frontend is started with.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) hub: Rc<Hub>,
    pub(crate) host: Host,
    pub(crate) options: FrontendOptions,
    /// Cancelled when connections are to end as they are.
    pub(crate) cut: CancellationToken,
}

/// The frontends there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Socket,
    Nbd,
    TgtBlockdev,
    TgtIscsi,
    Rest,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Socket, Self::Nbd, Self::TgtBlockdev, Self::TgtIscsi, Self::Rest];

    fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Nbd => "nbd",
            Self::TgtBlockdev => "tgt-blockdev",
            Self::TgtIscsi => "tgt-iscsi",
            Self::Rest => "rest",
        }
    }

    fn find(name: &str) -> Result<Self, FrontendError> {
        if name.is_empty() {
            return Err(FrontendError::Empty);
        }
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| FrontendError::Unknown(name.to_owned()))
    }

    /// tgt has no way to pass a flush on, so what it writes must be on disk when it is answered.
    fn needs_write_through(self) -> bool {
        match self {
            Self::TgtBlockdev | Self::TgtIscsi => true,
            Self::Socket | Self::Nbd | Self::Rest => false,
        }
    }

    async fn start(self, site: Site) -> Result<Box<dyn Frontend>, FrontendError> {
        Ok(match self {
            Self::Socket => Box::new(socket::Socket::start(&site)?),
            Self::Nbd => Box::new(nbd::Nbd::start(&site).await?),
            Self::TgtBlockdev => Box::new(tgt::Tgt::start(site, tgt::Target::BlockDevice).await?),
            Self::TgtIscsi => Box::new(tgt::Tgt::start(site, tgt::Target::Iscsi).await?),
            Self::Rest => Box::new(rest::Rest::start(&site).await?),
        })
    }
}

/// The frontend of a volume: none or one.
pub(crate) struct Frontends {
    hub: Rc<Hub>,
    host: Host,
    running: Mutex<Option<(Kind, Box<dyn Frontend>)>>,
    /// Ends the connections of the frontend that runs, without waiting for whoever has the lock.
    cut: RefCell<CancellationToken>,
}

impl Frontends {
    pub(crate) fn new(hub: &Rc<Hub>, host: Host) -> Self {
        Self { hub: Rc::clone(hub), host, running: Mutex::default(), cut: RefCell::default() }
    }

    pub(crate) async fn start(
        &self,
        name: &str,
        options: &FrontendOptions,
    ) -> Result<(), FrontendError> {
        let kind = Kind::find(name)?;
        let mut running = self.running.lock().await;
        if let Some((other, _)) = running.as_ref() {
            let (running, wanted) = (other.name().to_owned(), name.to_owned());
            return if *other == kind {
                Ok(())
            } else {
                Err(FrontendError::Other { running, wanted })
            };
        }
        let cut = CancellationToken::new();
        self.cut.replace(cut.clone());
        let (hub, host) = (Rc::clone(&self.hub), self.host.clone());
        let site = Site { hub, host, options: options.clone(), cut };
        self.hub.set_write_through(kind.needs_write_through());
        let started = kind.start(site).await.inspect_err(|_| self.hub.set_write_through(false))?;
        self.show(kind, started.endpoint(), FrontendState::Up);
        *running = Some((kind, started));
        Ok(())
    }

    pub(crate) async fn resize(&self, size_bytes: u64) -> Result<(), FrontendError> {
        match self.running.lock().await.as_ref() {
            Some((_, frontend)) => frontend.resize(size_bytes).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn stop(&self) -> Result<(), FrontendError> {
        let mut running = self.running.lock().await;
        let Some((kind, frontend)) = running.take() else { return Ok(()) };
        let stopped = frontend.stop().await;
        self.hub.set_write_through(false);
        self.show(kind, String::new(), FrontendState::Down);
        stopped
    }

    /// Stops it without an answer to anybody.
    pub(crate) async fn cut(&self) -> Result<(), FrontendError> {
        self.cut.borrow().cancel();
        self.stop().await
    }

    /// Pauses the clients of the frontend that runs, if it is that of this name and they can.
    pub(crate) async fn part(&self, name: &str) -> Option<Belongings> {
        let running = self.running.lock().await;
        let (kind, frontend) = running.as_ref()?;
        if kind.name() == name { frontend.part().await } else { None }
    }

    pub(crate) async fn resume(&self) {
        if let Some((_, frontend)) = self.running.lock().await.as_ref() {
            frontend.resume();
        }
    }

    pub(crate) async fn leave(&self) {
        let Some((kind, frontend)) = self.running.lock().await.take() else { return };
        frontend.leave();
        self.show(kind, String::new(), FrontendState::Down);
    }

    fn show(&self, kind: Kind, endpoint: String, state: FrontendState) {
        let name = kind.name().to_owned();
        self.hub.seen.set_frontend(FrontendStatus { name, endpoint, state });
    }
}
