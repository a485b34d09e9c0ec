//! The calls to an etcd, each with its deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::Status;

use super::transport::{Peer, Transport};
use super::wire::cluster_client::ClusterClient;
use super::wire::kv_client::KvClient;
use super::wire::maintenance_client::MaintenanceClient;
use super::wire::{
    AlarmMember, AlarmRequest, CompactionRequest, DefragmentRequest, HashKvRequest, HashKvResponse,
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest, MoveLeaderRequest, PutRequest, RangeRequest, RangeResponse, RequestOp,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse, alarm_request,
};
use super::{ConnectionConfig, EtcdError};

/// The longest answer that is read, apart from those that come in pieces.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// A key to ask for when only the header of the answer is of interest.
const ANY_KEY: &[u8] = b"foo";

/// A client of one member, or of several of which the first that can be used answers. Connects at
/// the first call. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Etcd {
    config: Arc<ConnectionConfig>,
    transport: Arc<Transport>,
}

/// What is done together. See [`Etcd::txn`].
pub type Txn = Vec<RequestOp>;

impl Etcd {
    /// A client of the guarded member.
    pub fn connect(config: &ConnectionConfig) -> Result<Self, EtcdError> {
        Self::to(Arc::new(config.clone()), &config.endpoints)
    }

    /// A client of the cluster as a whole, for changes of its membership.
    pub fn of_cluster(config: &ConnectionConfig) -> Result<Self, EtcdError> {
        let endpoints = if config.service_endpoints.is_empty() {
            &config.endpoints
        } else {
            &config.service_endpoints
        };
        Self::to(Arc::new(config.clone()), endpoints)
    }

    /// A client with the same settings for other endpoints.
    pub fn at(&self, endpoints: &[String]) -> Result<Self, EtcdError> {
        Self::to(Arc::clone(&self.config), endpoints)
    }

    fn to(config: Arc<ConnectionConfig>, endpoints: &[String]) -> Result<Self, EtcdError> {
        let transport = Arc::new(Transport::new(&config, endpoints)?);
        Ok(Self { config, transport })
    }

    /// The first endpoint, with its scheme.
    pub fn endpoint(&self) -> &str {
        self.transport.first()
    }

    pub fn config(&self) -> &ConnectionConfig {
        &self.config
    }

    pub(super) fn timeout(&self) -> Duration {
        self.config.connection_timeout
    }

    /// Opens a stream: the deadline is for its opening, not for its life.
    pub(super) async fn stream<T, F, O>(&self, make: F) -> Result<T, EtcdError>
    where
        F: Fn(Peer) -> O,
        O: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.transport.call(self.timeout(), make).await
    }

    pub async fn status(&self, deadline: Duration) -> Result<StatusResponse, EtcdError> {
        self.transport
            .call(deadline, |peer| async move {
                MaintenanceClient::new(peer).status(StatusRequest {}).await
            })
            .await
    }

    /// The revision that covers every write acknowledged before the call, on any member.
    pub async fn revision(&self, deadline: Duration) -> Result<i64, EtcdError> {
        let request =
            RangeRequest { key: ANY_KEY.into(), count_only: true, ..RangeRequest::default() };
        let answer = self.range(request, deadline).await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    pub async fn range(
        &self,
        request: RangeRequest,
        deadline: Duration,
    ) -> Result<RangeResponse, EtcdError> {
        self.transport
            .call(deadline, |peer| {
                let request = request.clone();
                let mut client = KvClient::new(peer).max_decoding_message_size(ANSWER_MAX_BYTES);
                async move { client.range(request).await }
            })
            .await
    }

    /// Gives the revision of the write.
    pub async fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<i64, EtcdError> {
        let request = PutRequest { key: key.into(), value: value.into(), lease: 0 };
        let answer = self
            .transport
            .call(self.timeout(), |peer| {
                let request = request.clone();
                let mut client = self.writer(peer);
                async move { client.put(request).await }
            })
            .await?;
        Ok(answer.header.map_or(0, |header| header.revision))
    }

    /// Does all of it in one revision.
    pub async fn txn(&self, success: Txn) -> Result<TxnResponse, EtcdError> {
        let request = TxnRequest { success, ..TxnRequest::default() };
        self.transport
            .call(self.timeout(), |peer| {
                let request = request.clone();
                let mut client = self.writer(peer);
                async move { client.txn(request).await }
            })
            .await
    }

    fn writer(&self, peer: Peer) -> KvClient<Peer> {
        let client = KvClient::new(peer).max_decoding_message_size(ANSWER_MAX_BYTES);
        match self.config.max_call_send_message_size {
            0 => client,
            limit => client.max_encoding_message_size(limit),
        }
    }

    /// Forgets the history before `revision`; answers when it is gone from the file.
    pub async fn compact(&self, revision: i64, deadline: Duration) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision, physical: true };
        self.transport
            .call(deadline, |peer| async move { KvClient::new(peer).compact(request).await })
            .await
            .map(drop)
    }

    /// Rewrites the database file of the member, which answers nothing else meanwhile.
    pub async fn defragment(&self) -> Result<(), EtcdError> {
        self.transport
            .call(self.config.defrag_timeout, |peer| async move {
                MaintenanceClient::new(peer).defragment(DefragmentRequest {}).await
            })
            .await
            .map(drop)
    }

    /// The hash of all history up to `revision`, 0 for the newest.
    pub async fn hash_kv(&self, revision: i64) -> Result<HashKvResponse, EtcdError> {
        self.transport
            .call(self.timeout(), |peer| async move {
                MaintenanceClient::new(peer).hash_kv(HashKvRequest { revision }).await
            })
            .await
    }

    /// Hands the leadership of this member, which must have it, to another.
    pub async fn move_leader(&self, to: u64) -> Result<(), EtcdError> {
        self.transport
            .call(self.timeout(), |peer| async move {
                MaintenanceClient::new(peer).move_leader(MoveLeaderRequest { target_id: to }).await
            })
            .await
            .map(drop)
    }

    pub async fn alarms(&self) -> Result<Vec<AlarmMember>, EtcdError> {
        let request = AlarmRequest {
            action: alarm_request::AlarmAction::Get.into(),
            ..AlarmRequest::default()
        };
        let answer = self
            .transport
            .call(self.timeout(), |peer| async move {
                MaintenanceClient::new(peer).alarm(request).await
            })
            .await?;
        Ok(answer.alarms)
    }

    pub async fn members(&self, deadline: Duration) -> Result<Vec<Member>, EtcdError> {
        let request = MemberListRequest { linearizable: true };
        let answer =
            self.transport
                .call(deadline, |peer| async move {
                    ClusterClient::new(peer).member_list(request).await
                })
                .await?;
        Ok(answer.members)
    }

    /// Adds a member that does not vote yet.
    pub async fn add_learner(
        &self,
        peer_urls: &[String],
        deadline: Duration,
    ) -> Result<Option<Member>, EtcdError> {
        let request = MemberAddRequest { peer_ur_ls: peer_urls.to_vec(), is_learner: true };
        let answer = self
            .transport
            .call(deadline, |peer| {
                let request = request.clone();
                async move { ClusterClient::new(peer).member_add(request).await }
            })
            .await?;
        Ok(answer.member)
    }

    pub async fn remove_member(&self, id: u64, deadline: Duration) -> Result<(), EtcdError> {
        self.transport
            .call(deadline, |peer| async move {
                ClusterClient::new(peer).member_remove(MemberRemoveRequest { id }).await
            })
            .await
            .map(drop)
    }

    pub async fn update_member(
        &self,
        id: u64,
        peer_urls: &[String],
        deadline: Duration,
    ) -> Result<(), EtcdError> {
        let request = MemberUpdateRequest { id, peer_ur_ls: peer_urls.to_vec() };
        self.transport
            .call(deadline, |peer| {
                let request = request.clone();
                async move { ClusterClient::new(peer).member_update(request).await }
            })
            .await
            .map(drop)
    }

    /// Makes a learner a voting member.
    pub async fn promote_member(&self, id: u64, deadline: Duration) -> Result<(), EtcdError> {
        self.transport
            .call(deadline, |peer| async move {
                ClusterClient::new(peer).member_promote(MemberPromoteRequest { id }).await
            })
            .await
            .map(drop)
    }
}
