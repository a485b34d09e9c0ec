//! The data thread: one current-thread runtime that owns the [`Core`](crate::core), the
//! connections to replicas and the frontends' sockets, so that no request hops between threads.
//!
//! [`Volume`] is the handle by which the control side reaches it. Inside, start reading at
//! [`hub`]: what tasks share; [`route`] is the way to a replica, [`outlet`] and [`intake`] are the
//! two directions of any connection.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rpc::{Address, Features};
use tokio::sync::{mpsc, oneshot, watch};
use wire::membership::Claim;

use self::hub::{Seen, ended};
use self::thread::{Desk, Message};
use crate::core::{Command, Done, Fault, Hold, Member, Mode, ReplicaId, Settings};
use crate::frontend::{Belongings, FrontendError, FrontendOptions, FrontendStatus, Host};

mod file;
pub(crate) mod hub;
pub(crate) mod intake;
mod meter;
pub(crate) mod outlet;
pub(crate) mod pending;
mod route;
mod thread;
pub(crate) mod tune;

/// Where a replica's data is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataTarget {
    Tcp(Address),
    Unix(PathBuf),
    /// A raw file opened by this process, as large as the volume.
    File(PathBuf),
}

/// How an engine introduces itself to a replica, and what it calls it.
#[derive(Debug, Clone, Default)]
pub struct Card {
    /// Sent to replicas that know claims.
    pub claim: Option<Claim>,
    /// The replica's id, or its address if it has none.
    pub name: String,
}

/// Handle on the data thread of one volume. Clones are the same volume; the thread ends with the
/// last of them, if not stopped before.
#[derive(Clone)]
pub struct Volume {
    name: Arc<str>,
    messages: mpsc::Sender<Message>,
    seen: Arc<Seen>,
    ended: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

/// Keeps a [`Hold`] in force until dropped.
#[derive(Debug)]
pub struct HoldGuard {
    /// The data thread hears of the drop.
    _until_dropped: Option<oneshot::Sender<()>>,
}

/// Throughput and latency of the last complete second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_count: u64,
    pub write_count: u64,
    /// Means, in nanoseconds.
    pub read_latency_ns: u64,
    pub write_latency_ns: u64,
}

impl Volume {
    /// Starts the data thread of a volume of no size and no replicas.
    pub fn start(name: &str, settings: Settings) -> io::Result<Self> {
        Self::start_on(name, settings, Host::default())
    }

    /// [`Self::start`] where files, tools and ports of the frontends are elsewhere.
    pub fn start_on(name: &str, settings: Settings, host: Host) -> io::Result<Self> {
        let seen = Arc::new(Seen::new());
        let started = thread::start(name, settings, host, Arc::clone(&seen))?;
        Ok(Self {
            name: name.into(),
            messages: started.messages,
            seen,
            ended: Arc::new(Mutex::new(Some(started.ended))),
        })
    }

    /// Connects to a replica that is open and adds it to the set.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn attach(
        &self,
        target: &DataTarget,
        features: Features,
        mode: Mode,
    ) -> io::Result<ReplicaId> {
        self.attach_as(target, features, mode, Card::default()).await
    }

    /// [`Self::attach`] under the claim, and with the name, that `card` says.
    ///
    /// # Errors
    /// If it cannot be reached, or if another engine has claimed it.
    pub async fn attach_as(
        &self,
        target: &DataTarget,
        features: Features,
        mode: Mode,
        card: Card,
    ) -> io::Result<ReplicaId> {
        let target = target.clone();
        let attach = async move |desk: Rc<Desk>| {
            route::attach(&desk.hub, &target, features, mode, &card).await
        };
        let stopped = || Err(io::Error::other("the volume is stopped"));
        self.ask(attach).await.unwrap_or_else(stopped)
    }

    /// From now on replicas are told who holds the volume, in records above `serial`.
    pub async fn keep_records(&self, generation: u64, serial: u64) {
        self.tell(move |desk| desk.hub.keep_records(generation, serial)).await;
    }

    /// The generation of the engine that has the volume in the place of this one, if one has.
    pub fn cut_off_by(&self) -> Option<u64> {
        *self.seen.cut_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a replica out of the set and closes its connections. Unknown: nothing happens.
    pub async fn detach(&self, replica: ReplicaId) {
        self.tell(move |desk| desk.hub.remove(replica)).await;
    }

    /// Moves a replica to `Rw` or `Err` (with the reason). One in `Err` stays there.
    pub async fn set_mode(&self, replica: ReplicaId, mode: Mode, reason: &str) {
        let reason = reason.to_owned();
        self.tell(move |desk| desk.hub.set_mode(replica, mode, &reason)).await;
    }

    /// Reads go to this replica only, while it can be read; `None`: to each in turn.
    pub async fn set_reader(&self, replica: Option<ReplicaId>) {
        self.tell(move |desk| desk.hub.set_reader(replica)).await;
    }

    /// The replica set, newest state; changes wake the receiver.
    pub fn members(&self) -> watch::Receiver<Arc<[Member]>> {
        self.seen.members.subscribe()
    }

    /// Waits until what `hold` keeps out is no longer in flight, and keeps it out.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives the hold up.
    pub async fn hold(&self, hold: Hold) -> HoldGuard {
        let (in_force, wait) = oneshot::channel();
        let (guard, dropped) = oneshot::channel();
        self.send(Box::new(move |desk| Box::pin(keep(desk, hold, in_force, dropped)))).await;
        // A volume that has ended has nothing in flight, and takes nothing.
        let _ = wait.await;
        HoldGuard { _until_dropped: Some(guard) }
    }

    /// One request, as a frontend would make it.
    pub async fn submit(&self, command: Command) -> Result<Done, Fault> {
        let submit = async move |desk: Rc<Desk>| desk.hub.call(command).await;
        self.ask(submit).await.unwrap_or_else(|| Err(ended()))
    }

    /// Sets the size that requests are checked against, the frontend's first: if that cannot
    /// grow, nothing does.
    pub async fn resize(&self, size_bytes: u64) -> Result<(), FrontendError> {
        let resize = async move |desk: Rc<Desk>| {
            desk.frontends.resize(size_bytes).await?;
            desk.hub.resize(size_bytes);
            Ok(())
        };
        self.ask(resize).await.unwrap_or_else(|| Err(stopped()))
    }

    /// While set, unmaps are refused.
    pub async fn set_expanding(&self, expanding: bool) {
        self.tell(move |desk| desk.hub.set_expanding(expanding)).await;
    }

    /// Starts the frontend of that name (`socket`, `nbd`, `tgt-blockdev`, `tgt-iscsi`, `rest`).
    pub async fn start_frontend(
        &self,
        name: &str,
        options: &FrontendOptions,
    ) -> Result<(), FrontendError> {
        let (name, options) = (name.to_owned(), options.clone());
        let start = async move |desk: Rc<Desk>| desk.frontends.start(&name, &options).await;
        self.ask(start).await.unwrap_or_else(|| Err(stopped()))
    }

    /// Stops the frontend and waits for the requests it had taken; its name stays known, state
    /// down.
    pub async fn stop_frontend(&self) -> Result<(), FrontendError> {
        let stop = async move |desk: Rc<Desk>| desk.frontends.stop().await;
        self.ask(stop).await.unwrap_or(Ok(()))
    }

    /// Ends the frontend with all connections as they are: what is under way is not answered any more.
    pub async fn cut_frontend(&self) -> Result<(), FrontendError> {
        let cut = async move |desk: Rc<Desk>| desk.frontends.cut().await;
        self.ask(cut).await.unwrap_or(Ok(()))
    }

    /// Has the clients of the frontend of that name pause between two requests, and gives all by which
    /// they are reached. Then either [`Self::resume_clients`] or [`Self::leave_clients`].
    pub async fn part_clients(&self, frontend: &str) -> Option<Belongings> {
        let name = frontend.to_owned();
        let part = async move |desk: Rc<Desk>| desk.frontends.part(&name).await;
        self.ask(part).await.flatten()
    }

    /// The clients that paused go on here.
    pub async fn resume_clients(&self) {
        self.ask(async move |desk: Rc<Desk>| desk.frontends.resume().await).await;
    }

    /// The clients that paused are those of another engine: the frontend is down.
    pub async fn leave_clients(&self) {
        self.ask(async move |desk: Rc<Desk>| desk.frontends.leave().await).await;
    }

    /// The frontend that was started last.
    pub fn frontend(&self) -> FrontendStatus {
        self.seen.frontend.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn traffic(&self) -> Traffic {
        *self.seen.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the last requests seen (all of them when `limit` is 0) to the log.
    pub async fn log_journal(&self, limit: u64) {
        self.tell(move |desk| desk.hub.log_journal(limit)).await;
    }

    /// Stops the frontend, forgets the replicas and ends the thread.
    pub async fn stop(&self) {
        self.send(Box::new(|desk| Box::pin(async move { desk.hub.end.cancel() }))).await;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            // Told or dropped, the thread is at its end.
            let _ = ended.await;
        }
    }

    /// Does something on the data thread and waits for what it gives; nothing if that has ended.
    async fn ask<T, W, F>(&self, work: W) -> Option<T>
    where
        T: Send + 'static,
        W: FnOnce(Rc<Desk>) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let message: Message = Box::new(move |desk| {
            Box::pin(async move {
                // Whoever asked may have gone; what was asked for is done all the same.
                let _ = sender.send(work(desk).await);
            })
        });
        self.send(message).await;
        receiver.await.ok()
    }

    /// Does something that needs no waiting; nothing happens if the thread has ended.
    async fn tell(&self, work: impl FnOnce(&Desk) + Send + 'static) {
        self.ask(async move |desk: Rc<Desk>| work(&desk)).await;
    }

    async fn send(&self, message: Message) {
        if self.messages.send(message).await.is_err() {
            tracing::debug!(volume = &*self.name, "the volume is stopped already");
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

fn stopped() -> FrontendError {
    FrontendError::Failed("the volume is stopped".to_owned())
}

/// Keeps a hold until the guard is dropped, or whoever asked no longer waits for it.
async fn keep(
    desk: Rc<Desk>,
    hold: Hold,
    mut in_force: oneshot::Sender<()>,
    dropped: oneshot::Receiver<()>,
) {
    let (id, reached) = desk.hub.hold(hold);
    let wanted = tokio::select! {
        reached = reached => reached.is_ok() && in_force.send(()).is_ok(),
        () = in_force.closed() => false,
    };
    if wanted {
        // The sender never sends: this is its drop.
        let _ = dropped.await;
    }
    desk.hub.release(id);
}
