//! One replica as the control side reaches it: its gRPC services, or the raw file it is.
//!
//! Owns: how a call to a replica is made, how long it may take, how its failure reads. Never: what
//! a failure means for the replica's mode.

use std::cmp::Ordering;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::upkeep::upkeep_client::UpkeepClient;
use rpc::{
    Address, AddressError, Answered, Deadline, HeadParent, Identity, Peer, SharedClaim, ptypes,
};
use tonic::{Code, Response, Status};
use wire::membership::CUT_OFF_TEXT;

use crate::volume::DataTarget;
use crate::{Backend, DataProtocol};

use super::paths;

/// How a call to a replica ended badly.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum CallError {
    /// It is not there.
    #[error("{}", shown(.0))]
    Unreachable(Status),
    /// Whether it did what was asked is not known.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The connection broke: whether it did what was asked is not known.
    #[error("{}", shown(.0))]
    Broken(Status),
    /// It answered that it did not do it.
    #[error("{}", shown(.0))]
    Refused(Status),
    #[error("{verb} is not supported by the raw file {}", path.display())]
    RawFile { verb: &'static str, path: PathBuf },
    /// It is a raw file, and is what it was.
    #[error("raw file {}: {detail}", path.display())]
    File { path: PathBuf, detail: String },
    #[error("the answer to {0} says nothing of the replica")]
    Empty(&'static str),
}

impl CallError {
    fn from_status(status: Status) -> Self {
        match status.code() {
            Code::Unavailable => Self::Unreachable(status),
            // What the transport makes up itself, as opposed to what the replica answered.
            Code::Cancelled | Code::DeadlineExceeded => Self::Broken(status),
            Code::Unknown if std::error::Error::source(&status).is_some() => Self::Broken(status),
            _ => Self::Refused(status),
        }
    }

    /// As commands of the dialect tell it.
    pub(super) fn answered(&self) -> String {
        match self {
            Self::Unreachable(status) | Self::Broken(status) | Self::Refused(status) => {
                Answered(status).to_string()
            }
            Self::TimedOut(_) | Self::RawFile { .. } | Self::File { .. } | Self::Empty(_) => {
                self.to_string()
            }
        }
    }

    /// The text the replica answered with, if it did.
    pub(super) fn answer(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Broken(_)
            | Self::RawFile { .. }
            | Self::File { .. }
            | Self::Empty(_) => None,
        }
    }

    /// Another engine has claimed the replica.
    pub(super) fn is_cut_off(&self) -> bool {
        self.answer().is_some_and(|status| status.message().contains(CUT_OFF_TEXT))
    }

    /// The replica is of a kind that has never heard of the call.
    pub(super) fn is_unknown_call(&self) -> bool {
        self.answer().is_some_and(|status| status.code() == Code::Unimplemented)
    }
}

/// A status as callers of this dialect know it: the bare text, with the code in front when that
/// says more than "unknown".
fn shown(status: &Status) -> String {
    let code = match status.code() {
        Code::Unknown => return status.message().to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// An address that no replica can have.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum BadAddress {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("replica address {address}: {detail}")]
    Uri { address: String, detail: String },
    #[error("replica address {0}: this controller was started without backend {1}")]
    Disabled(String, &'static str),
    #[error("replica address {0}: write a file as file:///path")]
    RelativeFile(String),
}

#[derive(Debug, Clone)]
enum Kind {
    Process(Box<Process>),
    File(PathBuf),
}

#[derive(Debug, Clone)]
struct Process {
    address: Address,
    replica: ReplicaServiceClient<Peer>,
    upkeep: UpkeepClient<Peer>,
    agent: SyncAgentServiceClient<Peer>,
}

/// A replica's services. Clones share the connection, which is made at the first call.
#[derive(Debug, Clone)]
pub(super) struct Link {
    kind: Kind,
}

type Shown = Result<ptypes::Replica, CallError>;

/// A method of `ReplicaService` that answers with the replica.
macro_rules! replica_calls {
    ($($(#[$doc:meta])* $name:ident = $method:ident($($arg:ident: $type:ty),*) $request:expr;)*) => {$(
        $(#[$doc])*
        pub(super) async fn $name(&self, limit: Duration $(, $arg: $type)*) -> Shown {
            let mut client = self.process(stringify!($method))?.replica.clone();
            let reply = within(limit, client.$method($request)).await?;
            reply.replica.ok_or(CallError::Empty(stringify!($method)))
        }
    )*};
}

impl Link {
    /// The replica at `address`: `tcp://host:port` or `file:///path`.
    pub(super) fn new(
        address: &str,
        volume: &str,
        backends: &[Backend],
        claim: &SharedClaim,
    ) -> Result<Self, BadAddress> {
        let enabled = |backend: Backend, name| {
            let known = backends.contains(&backend);
            known.then_some(()).ok_or_else(|| BadAddress::Disabled(address.to_owned(), name))
        };
        if let Some(path) = address.strip_prefix("file://") {
            enabled(Backend::File, "file")?;
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(BadAddress::RelativeFile(address.to_owned()));
            }
            return Ok(Self { kind: Kind::File(path) });
        }
        enabled(Backend::Tcp, "tcp")?;
        Ok(Self { kind: Kind::Process(Box::new(Process::new(address, volume, claim)?)) })
    }

    /// The raw file this replica is, if it is one.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        match &self.kind {
            Kind::Process(_) => None,
            Kind::File(path) => Some(path),
        }
    }

    /// Where its data is reached.
    pub(super) fn target(&self, volume: &str, protocol: DataProtocol) -> DataTarget {
        match (&self.kind, protocol) {
            (Kind::File(path), _) => DataTarget::File(path.clone()),
            (Kind::Process(process), DataProtocol::Tcp) => DataTarget::Tcp(process.address.data()),
            (Kind::Process(_), DataProtocol::Unix) => DataTarget::Unix(paths::data_socket(volume)),
        }
    }

    fn process(&self, verb: &'static str) -> Result<&Process, CallError> {
        match &self.kind {
            Kind::Process(process) => Ok(process),
            Kind::File(path) => Err(CallError::RawFile { verb, path: path.clone() }),
        }
    }

    replica_calls! {
        get = replica_get() ();
        open = replica_open(request: ptypes::ReplicaOpenRequest) request;
        close = replica_close() ();
        reload = replica_reload() ();
        revert = replica_revert(name: String, created: String)
            ptypes::ReplicaRevertRequest { name, created };
        snapshot_process = replica_snapshot(request: ptypes::ReplicaSnapshotRequest) request;
        expand_process = replica_expand(size: i64) ptypes::ReplicaExpandRequest { size };
        remove_disk = disk_remove(name: String) ptypes::DiskRemoveRequest { name, force: true };
        set_rebuilding = rebuilding_set(rebuilding: bool)
            ptypes::RebuildingSetRequest { rebuilding };
        set_counter = revision_counter_set(counter: i64)
            ptypes::RevisionCounterSetRequest { counter };
        set_unmap_mark = unmap_mark_disk_chain_removed_set(enabled: bool)
            ptypes::UnmapMarkDiskChainRemovedSetRequest { enabled };
        set_max_count = snapshot_max_count_set(count: i32)
            ptypes::SnapshotMaxCountSetRequest { count };
        set_max_size = snapshot_max_size_set(size: i64) ptypes::SnapshotMaxSizeSetRequest { size };
    }

    /// A raw file has no layers: it goes on as it is.
    pub(super) async fn snapshot(
        &self,
        limit: Duration,
        request: ptypes::ReplicaSnapshotRequest,
    ) -> Result<(), CallError> {
        match self.kind {
            Kind::Process(_) => self.snapshot_process(limit, request).await.map(drop),
            Kind::File(_) => Ok(()),
        }
    }

    pub(super) async fn expand(&self, limit: Duration, size: i64) -> Result<(), CallError> {
        let path = match &self.kind {
            Kind::Process(_) => return self.expand_process(limit, size).await.map(drop),
            Kind::File(path) => path.clone(),
        };
        let grown = grow_file(path.clone(), size);
        match tokio::time::timeout(limit, grown).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(CallError::File { path, detail: error.to_string() }),
            Err(_) => Err(CallError::TimedOut(limit)),
        }
    }

    /// Has the agent of this replica copy `from` to `to` beside the replica of `target`.
    pub(super) async fn copy_file(
        &self,
        limit: Duration,
        from: String,
        target: &Self,
        to: String,
        http_timeout: Duration,
    ) -> Result<(), CallError> {
        let taker = target.process("receiver_launch")?;
        let launch = ptypes::ReceiverLaunchRequest { to_file_name: to };
        let port = within(limit, taker.agent.clone().receiver_launch(launch)).await?.port;
        let send = ptypes::FileSendRequest {
            from_file_name: from,
            host: taker.address.host().to_owned(),
            port,
            fast_sync: false,
            file_sync_http_client_timeout: i32::try_from(http_timeout.as_secs())
                .unwrap_or(i32::MAX),
        };
        let mut giver = self.process("file_send")?.agent.clone();
        within(limit, giver.file_send(send)).await
    }

    /// Has the agent of this replica fetch files from others.
    pub(super) async fn sync_files(
        &self,
        limit: Duration,
        request: ptypes::FilesSyncRequest,
    ) -> Result<(), CallError> {
        let mut agent = self.process("files_sync")?.agent.clone();
        within(limit, agent.files_sync(request)).await
    }

    /// How far the agent of this replica is with the copying of files to it.
    pub(super) async fn rebuild_status(
        &self,
        limit: Duration,
    ) -> Result<ptypes::ReplicaRebuildStatusResponse, CallError> {
        let mut agent = self.process("replica_rebuild_status")?.agent.clone();
        within(limit, agent.replica_rebuild_status(())).await
    }

    /// How far the agent of this replica is with a restore.
    pub(super) async fn restore_status(
        &self,
        limit: Duration,
    ) -> Result<ptypes::RestoreStatusResponse, CallError> {
        let mut agent = self.process("restore_status")?.agent.clone();
        within(limit, agent.restore_status(())).await
    }

    /// Has the agent of this replica begin to restore a backup.
    pub(super) async fn restore(
        &self,
        limit: Duration,
        request: ptypes::BackupRestoreRequest,
    ) -> Result<(), CallError> {
        let mut agent = self.process("backup_restore")?.agent.clone();
        within(limit, agent.backup_restore(request)).await
    }

    /// Has the agent of this replica begin to merge removed snapshots away.
    pub(super) async fn purge(
        &self,
        limit: Duration,
        head_parent: HeadParent,
    ) -> Result<(), CallError> {
        let mut agent = self.process("snapshot_purge")?.agent.clone();
        within(limit, agent.snapshot_purge(rpc::purge_request(head_parent))).await
    }

    /// How far the agent of this replica is with that.
    pub(super) async fn purge_status(
        &self,
        limit: Duration,
    ) -> Result<ptypes::SnapshotPurgeStatusResponse, CallError> {
        let mut agent = self.process("snapshot_purge_status")?.agent.clone();
        within(limit, agent.snapshot_purge_status(())).await
    }

    /// Hands `take` every extent in which the layers above disk `above` hold data; `idle` is how
    /// long the replica may be silent in between.
    pub(super) async fn extents_above(
        &self,
        idle: Duration,
        above: &str,
        mut take: impl FnMut(u64, u64),
    ) -> Result<(), CallError> {
        let mut client = self.process("head_extents")?.upkeep.clone();
        let request = rpc::upkeep::HeadExtentsRequest { above: above.to_owned() };
        let mut stream = within(idle, client.head_extents(request)).await?;
        loop {
            let next = tokio::time::timeout(idle, stream.message()).await;
            let batch = next.map_err(|_| CallError::TimedOut(idle))?;
            let Some(batch) = batch.map_err(CallError::from_status)? else { return Ok(()) };
            for extent in batch.extents {
                take(extent.offset, extent.len);
            }
        }
    }
}

impl Process {
    fn new(text: &str, volume: &str, claim: &SharedClaim) -> Result<Self, BadAddress> {
        let address: Address = text.parse()?;
        let expected = Identity { volume: volume.to_owned(), instance: String::new() };
        // The limit of each call is set where it is made; this one is for the longest of them.
        let peer = |address: &Address| {
            rpc::connect_claimed(address, expected.clone(), Deadline::Long, claim.clone()).map_err(
                |error| BadAddress::Uri { address: text.to_owned(), detail: error.to_string() },
            )
        };
        let control = peer(&address)?;
        let agent = SyncAgentServiceClient::new(peer(&address.sync_agent())?);
        let replica = ReplicaServiceClient::new(control.clone());
        Ok(Self { address, replica, upkeep: UpkeepClient::new(control), agent })
    }
}

/// Gives the file the new size, on disk. One that has it already is done; none gets smaller.
async fn grow_file(path: PathBuf, size: i64) -> io::Result<()> {
    let grow = move || {
        let file = std::fs::File::options().write(true).open(path)?;
        let (have, wanted) = (file.metadata()?.len(), u64::try_from(size).unwrap_or(0));
        match have.cmp(&wanted) {
            Ordering::Equal => Ok(()),
            Ordering::Less => file.set_len(wanted).and_then(|()| file.sync_all()),
            Ordering::Greater => {
                let text = format!("it has {have} bytes and is not made smaller, to {wanted}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    };
    tokio::task::spawn_blocking(grow).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CallError::from_status(status)),
        Err(_) => Err(CallError::TimedOut(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_backend_and_a_relative_file_are_refused() {
        let both = [Backend::Tcp, Backend::File];
        assert!(Link::new("file:///d/x", "v", &both, &SharedClaim::default()).is_ok());
        for (address, backends) in
            [("file:///d/x", &[Backend::Tcp][..]), ("file://x", &both[..]), ("tcp://h", &both[..])]
        {
            assert!(
                Link::new(address, "v", backends, &SharedClaim::default()).is_err(),
                "{address}"
            );
        }
    }

    #[test]
    fn only_codes_that_say_something_are_shown() {
        assert_eq!(shown(&Status::unknown("plain")), "plain");
        assert_eq!(
            shown(&Status::unavailable("gone")),
            "rpc error: code = Unavailable desc = gone"
        );
        assert_eq!(shown(&Status::cancelled("x")), "rpc error: code = Canceled desc = x");
    }

    #[tokio::test]
    async fn a_raw_file_says_what_it_cannot_do() {
        let claim = SharedClaim::default();
        let link = Link::new("file:///d/x", "v", &[Backend::File], &claim).expect("a file");
        let error = link.reload(Duration::from_secs(1)).await.expect_err("unsupported");
        assert_eq!(error.to_string(), "replica_reload is not supported by the raw file /d/x");
    }
}
