//! The answers to other agents that restore the same backup: from the restore that runs here, or from
//! the snapshot that one has left. Nothing that is asked for is believed, and nothing is kept for it.

use std::sync::Arc;
use std::time::Duration;

use backupstore::format::Checksum;
use backupstore::restore::Seal;
use backupstore::{BlockSize, Compression, Name};
use rpc::fanout::fan_out_server::FanOut;
use rpc::fanout::{Answer, BlockReply, BlockRequest, LookReply, LookRequest, Stage};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::{MayFetch, Served, Shared, State, packed_again};
use crate::agent::Agent;

/// How long somebody who asks waits until a restore that begins has begun.
const BEGINNING: Duration = Duration::from_secs(10);

/// Blocks that are read from a snapshot at a time.
const READS_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct FanOutService {
    agent: Arc<Agent>,
    reads: Semaphore,
}

/// What was asked for, checked.
struct Wanted {
    volume: Name,
    backup: Name,
    block: Checksum,
    offset: u64,
    size: BlockSize,
    may_fetch: MayFetch,
}

impl Wanted {
    fn parse(request: &BlockRequest) -> Option<Self> {
        Some(Self {
            volume: Name::parse(&request.volume).ok()?,
            backup: Name::parse(&request.backup).ok()?,
            block: Checksum::parse(&request.checksum)?,
            offset: request.offset,
            size: BlockSize::from_bytes(request.block_bytes)?,
            may_fetch: if request.may_fetch { MayFetch::Yes } else { MayFetch::No },
        })
    }
}

/// Where this agent stands with a backup.
enum Here {
    Nothing,
    Preparing,
    Restoring(Arc<Shared>),
    Restored,
}

impl FanOutService {
    pub(crate) fn new(agent: Arc<Agent>) -> Self {
        Self { agent, reads: Semaphore::new(READS_MAX) }
    }

    fn look_for(&self, volume: &Name, backup: &Name) -> Here {
        match &*self.agent.fan_out.0.borrow() {
            State::Preparing { volume: own, backup: begun } if own == volume && begun == backup => {
                return Here::Preparing;
            }
            State::Ready(shared) if shared.is_of(volume, backup) => {
                return Here::Restoring(Arc::clone(shared));
            }
            State::Idle | State::Preparing { .. } | State::Ready(_) => {}
        }
        if self.agent.restores.is_restored(volume, backup) { Here::Restored } else { Here::Nothing }
    }

    async fn begun(&self, volume: &Name, backup: &Name) -> Here {
        let mut changes = self.agent.fan_out.0.subscribe();
        let beginning = async {
            loop {
                changes.mark_unchanged();
                match self.look_for(volume, backup) {
                    Here::Preparing => {}
                    here @ (Here::Nothing | Here::Restoring(_) | Here::Restored) => return here,
                }
                if changes.changed().await.is_err() {
                    return Here::Nothing;
                }
            }
        };
        tokio::time::timeout(BEGINNING, beginning).await.unwrap_or(Here::Preparing)
    }

    async fn serve(&self, wanted: Wanted) -> Option<Served> {
        match self.begun(&wanted.volume, &wanted.backup).await {
            Here::Nothing => None,
            Here::Preparing => Some(Served::Later),
            Here::Restoring(shared) => Some(shared.serve(&wanted.block, wanted.may_fetch).await),
            Here::Restored => Some(self.read(wanted).await),
        }
    }

    async fn read(&self, wanted: Wanted) -> Served {
        let Ok(_turn) = self.reads.acquire().await else { return Served::Later };
        let restores = Arc::clone(&self.agent.restores);
        let read = move || restores.read_restored(wanted.offset, wanted.size.bytes());
        // Nobody knows its seal any more: who asks verifies it.
        let served = packed_again(&self.agent.tasks, read, None).await;
        // The snapshot may be another by now, or shorter.
        served.unwrap_or(Served::Absent)
    }
}

fn reply(served: Option<Served>) -> BlockReply {
    let none = |answer: Answer| BlockReply {
        answer: answer.into(),
        packing: Compression::None.as_str().to_owned(),
        ..BlockReply::default()
    };
    match served {
        Some(Served::Here { packing, packed, seal }) => {
            let (seal, sealed_by) = seal.unzip();
            BlockReply {
                answer: Answer::Here.into(),
                packing: packing.as_str().to_owned(),
                block: packed,
                seal: seal.map_or(0, Seal::number),
                sealed_by: sealed_by.unwrap_or_default(),
            }
        }
        Some(Served::Absent) => none(Answer::Absent),
        Some(Served::Later) => none(Answer::Later),
        Some(Served::Failed) => none(Answer::Failed),
        None => none(Answer::NotRestoring),
    }
}

#[tonic::async_trait]
impl FanOut for FanOutService {
    async fn look(&self, request: Request<LookRequest>) -> Result<Response<LookReply>, Status> {
        let request = request.get_ref();
        let (Ok(volume), Ok(backup)) = (Name::parse(&request.volume), Name::parse(&request.backup))
        else {
            return Err(Status::invalid_argument("no name of a backup"));
        };
        let (stage, has_blocks) = match self.look_for(&volume, &backup) {
            Here::Nothing => (Stage::None, false),
            Here::Preparing => (Stage::Preparing, false),
            Here::Restoring(shared) => (Stage::Restoring, shared.has_blocks()),
            Here::Restored => (Stage::Restored, true),
        };
        Ok(Response::new(LookReply { stage: stage.into(), has_blocks }))
    }

    async fn block(&self, request: Request<BlockRequest>) -> Result<Response<BlockReply>, Status> {
        let Some(wanted) = Wanted::parse(request.get_ref()) else {
            return Err(Status::invalid_argument("no block of a backup"));
        };
        Ok(Response::new(reply(self.serve(wanted).await)))
    }
}
