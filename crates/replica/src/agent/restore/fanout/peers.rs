//! The other agents of a restore: whom to ask for which block, and whom to leave alone for how long.
//! Never: what is in a block; whoever asks checks it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backupstore::restore::Seal;
use backupstore::{BlockSize, Compression, Name};
use bytes::Bytes;
use rpc::fanout::fan_out_client::FanOutClient;
use rpc::fanout::{Answer, BlockReply, BlockRequest, LookRequest, Stage};
use rpc::{Address, Deadline, Identity, Peer};
use tokio::time::Instant;
use tonic::{Code, Status};

/// More copies of a volume there are not.
const PEERS_MAX: usize = 32;
/// What a block may be longer than its content, packed, and the message around it.
const REPLY_EXTRA_BYTES: usize = 2 << 20;
/// How long a block may take that another fetches.
const TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one that has not been told of the restore may still be told of it.
const UNTOLD: Duration = Duration::from_secs(3);
/// How long one may take to begin.
const BEGINNING: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Blocks in a row that one who was ahead did not have, and it is not asked beyond its part.
const MISSES_MAX: u32 = 64;
/// One that failed is left alone so long, and twice as long each further time.
const REST: Duration = Duration::from_secs(30);
const REST_MAX: Duration = Duration::from_mins(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayFetch {
    Yes,
    No,
}

/// Those whose turn to fetch this block comes before ours, and the others. The first is drawn by the
/// block; who is passed over gives its turn to the next.
pub(super) fn order(lot: u64, count: usize, own: usize) -> (Vec<usize>, Vec<usize>) {
    let count = count.max(1);
    let start = usize::try_from(lot % u64::try_from(count).unwrap_or(1)).unwrap_or(0);
    let mut all = (0..count).map(|step| (start + step) % count);
    let before: Vec<usize> = all.by_ref().take_while(|index| *index != own).collect();
    (before, all.collect())
}

/// A block that another gave.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) packing: Compression,
    pub(super) packed: Bytes,
    /// What the other says about it, and by which key.
    pub(super) seal: Option<Seal>,
    pub(super) sealed_by: Vec<u8>,
}

/// All agents of a restore, this one among them.
#[derive(Debug)]
pub(crate) struct Peers {
    all: Vec<Other>,
    own: usize,
    timeout: Duration,
    started: Instant,
}

#[derive(Debug)]
struct Other {
    /// None for this agent itself, and for what is no address.
    client: Option<FanOutClient<Peer>>,
    state: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    rest_until: Option<Instant>,
    failures: u32,
    is_left_out: bool,
    is_ahead: bool,
    misses: u32,
}

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Take,
    /// Not from this one, and that is no fault.
    PassOver,
    AskAgain,
    LetRest,
    LeaveOut,
}

fn next(answer: &Result<BlockReply, Status>, since: Duration) -> Next {
    match answer {
        Ok(reply) => match reply.answer() {
            Answer::Here => Next::Take,
            Answer::Absent | Answer::Failed => Next::PassOver,
            Answer::Later if since < BEGINNING => Next::AskAgain,
            Answer::NotRestoring if since < UNTOLD => Next::AskAgain,
            Answer::Later | Answer::NotRestoring => Next::LetRest,
        },
        // One that cannot do this.
        Err(status) if status.code() == Code::Unimplemented => Next::LeaveOut,
        Err(_) => Next::LetRest,
    }
}

impl Peers {
    /// Nobody but this one.
    pub(crate) fn alone() -> Self {
        Self { all: Vec::new(), own: 0, timeout: TIMEOUT, started: Instant::now() }
    }

    /// `addresses` are those of the replicas, and `own` tells which is ours. A list that makes no sense
    /// is not used: everything can be had without it.
    pub(crate) fn new(
        addresses: &[String],
        own: u32,
        volume: &str,
        block_size: BlockSize,
        bytes_per_second: Option<u64>,
    ) -> Self {
        let own = usize::try_from(own).unwrap_or(usize::MAX);
        if addresses.len() < 2 || addresses.len() > PEERS_MAX || own >= addresses.len() {
            return Self::alone();
        }
        // Everybody's turn may be paid for first.
        let waiting = block_size.bytes().saturating_mul(32);
        let paid = bytes_per_second.and_then(|rate| waiting.checked_div(rate)).unwrap_or(0);
        let timeout = TIMEOUT + Duration::from_secs(paid.min(3600));
        let client = |(index, address): (usize, &String)| {
            let client =
                (index != own).then(|| connect(address, volume, block_size, timeout)).flatten();
            Other { client, state: Mutex::default() }
        };
        let all = addresses.iter().enumerate().map(client).collect();
        Self { all, own, timeout, started: Instant::now() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn own_index(&self) -> usize {
        self.own
    }

    /// Asks all how far they are. One that is ahead of us is asked for all blocks.
    pub(super) async fn look(&self, volume: &Name, backup: &Name) {
        let request = LookRequest { volume: volume.to_string(), backup: backup.to_string() };
        let looks = self.all.iter().map(|other| other.look(request.clone()));
        futures::future::join_all(looks).await;
    }

    pub(super) fn is_ahead(&self, index: usize) -> bool {
        self.all.get(index).is_some_and(|other| other.health().is_ahead)
    }

    /// Never asks it again.
    pub(super) fn leave_out(&self, index: usize) {
        if let Some(other) = self.all.get(index) {
            tracing::warn!(
                index,
                "another agent gave a block that is none, and is not asked again"
            );
            other.health().is_left_out = true;
        }
    }

    /// The block, if that agent has it or gets it in time.
    pub(super) async fn ask(&self, index: usize, request: BlockRequest) -> Option<Asked> {
        let other = self.all.get(index)?;
        let mut client = other.client.clone()?;
        while other.is_askable() {
            let asked = tokio::time::timeout(self.timeout, client.block(request.clone())).await;
            let answer = asked
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
                .map(tonic::Response::into_inner);
            if !request.may_fetch && matches!(&answer, Ok(reply) if reply.answer() == Answer::Later)
            {
                other.health().miss();
                return None;
            }
            match next(&answer, self.started.elapsed()) {
                Next::Take => {
                    other.health().well();
                    return answer.ok().and_then(taken);
                }
                Next::PassOver => return None,
                Next::AskAgain => tokio::time::sleep(ASK_AGAIN).await,
                Next::LetRest => {
                    let error = answer.err().map(|status| status.message().to_owned());
                    tracing::info!(index, error, "another agent gives no blocks now");
                    other.health().rest();
                    return None;
                }
                Next::LeaveOut => {
                    other.health().is_left_out = true;
                    return None;
                }
            }
        }
        None
    }
}

fn taken(reply: BlockReply) -> Option<Asked> {
    let packing = Compression::parse(&reply.packing).ok()?;
    let seal = Seal::from_number(reply.seal);
    Some(Asked { packing, packed: reply.block, seal, sealed_by: reply.sealed_by })
}

fn connect(
    address: &str,
    volume: &str,
    block_size: BlockSize,
    timeout: Duration,
) -> Option<FanOutClient<Peer>> {
    let address = address.parse::<Address>().ok()?.sync_agent();
    let expected = Identity { volume: volume.to_owned(), instance: String::new() };
    let peer = rpc::connect_bulk(&address, expected, Deadline::After(timeout)).ok()?;
    let reply_bytes = usize::try_from(block_size.bytes()).ok()?.checked_add(REPLY_EXTRA_BYTES)?;
    Some(FanOutClient::new(peer).max_decoding_message_size(reply_bytes))
}

impl Other {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_askable(&self) -> bool {
        let health = self.health();
        !health.is_left_out && health.rest_until.is_none_or(|until| until <= Instant::now())
    }

    async fn look(&self, request: LookRequest) {
        let Some(mut client) = self.client.clone() else { return };
        let looked = tokio::time::timeout(LOOK_TIMEOUT, client.look(request)).await;
        let mut health = self.health();
        match looked {
            Ok(Ok(reply)) => {
                let reply = reply.into_inner();
                health.is_ahead = match reply.stage() {
                    Stage::None | Stage::Preparing => false,
                    Stage::Restoring => reply.has_blocks,
                    Stage::Restored => true,
                };
            }
            Ok(Err(status)) if status.code() == Code::Unimplemented => health.is_left_out = true,
            Ok(Err(_)) | Err(_) => health.rest(),
        }
    }
}

impl Health {
    fn rest(&mut self) {
        let rest = REST.saturating_mul(1 << self.failures.min(5)).min(REST_MAX);
        self.failures += 1;
        self.is_ahead = false;
        self.rest_until = Some(Instant::now() + rest);
    }

    fn well(&mut self) {
        self.failures = 0;
        self.misses = 0;
    }

    fn miss(&mut self) {
        self.misses += 1;
        self.is_ahead = self.is_ahead && self.misses < MISSES_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_agree_who_fetches_a_block() {
        assert_eq!(order(7, 3, 1), (vec![], vec![2, 0]));
        assert_eq!(order(7, 3, 2), (vec![1], vec![0]));
        assert_eq!(order(7, 3, 0), (vec![1, 2], vec![]));
        assert_eq!(order(7, 0, 0), (vec![], vec![]));
        for lot in 0..30 {
            let first = (0..3).filter(|own| order(lot, 3, *own).0.is_empty());
            assert_eq!(first.count(), 1, "exactly one begins");
        }
    }

    #[test]
    fn one_that_is_late_is_waited_for_but_not_for_ever() {
        let reply = |answer: Answer| Ok(BlockReply { answer: answer.into(), ..Default::default() });
        let (soon, late) = (Duration::from_secs(1), Duration::from_mins(1));
        for (answer, early, later) in [
            (Answer::Here, Next::Take, Next::Take),
            (Answer::Absent, Next::PassOver, Next::PassOver),
            (Answer::Failed, Next::PassOver, Next::PassOver),
            (Answer::Later, Next::AskAgain, Next::LetRest),
            (Answer::NotRestoring, Next::AskAgain, Next::LetRest),
        ] {
            assert_eq!((next(&reply(answer), soon), next(&reply(answer), late)), (early, later));
        }
        assert_eq!(next(&Err(Status::unimplemented("")), soon), Next::LeaveOut);
        assert_eq!(next(&Err(Status::unavailable("")), soon), Next::LetRest);
    }

    #[test]
    fn a_list_that_makes_no_sense_is_not_used() {
        let address = "tcp://127.0.0.1:9502".to_owned();
        for (addresses, own) in [
            (vec![], 0),
            (vec![address.clone()], 0),
            (vec![address.clone(); 2], 2),
            (vec![address; 33], 0),
        ] {
            assert!(Peers::new(&addresses, own, "v", BlockSize::DEFAULT, None).is_empty());
        }
    }
}
