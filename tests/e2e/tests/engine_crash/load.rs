//! Clients that write, read, zero, trim and flush through NBD until they are stopped or cut off,
//! and tell the model what they sent and what was acknowledged.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use e2e::engine::{Endpoint, Nbd, NbdError};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::model::{BLOCK, Kind, Model, Since};

/// Requests under way at once.
const DEPTH: usize = 8;
/// Blocks of an allocation unit.
const SECTOR_BLOCKS: usize = 8;
const TRIES: usize = 8;

/// Counts of what was done, over all rounds.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// Answered with an error.
    pub(crate) refused: AtomicU64,
}

/// What all clients of a volume share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model: Mutex<Model>,
    pub(crate) counts: Counts,
    pub(crate) complaints: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Shared {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            model: Mutex::new(Model::new(blocks)),
            counts: Counts::default(),
            complaints: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
        }
    }

    fn complain(&self, complaints: Vec<String>) {
        self.complaints.lock().unwrap().extend(complaints);
    }
}

/// Clients at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

impl Load {
    /// Two connections, each with half of the requests.
    pub(crate) async fn start(shared: &Arc<Shared>, endpoint: &Endpoint, seed: u64) -> Self {
        shared.stop.store(false, Ordering::Relaxed);
        let mut clients = JoinSet::new();
        for connection in 0..2 {
            let nbd = Arc::new(Nbd::connect(endpoint).await.unwrap());
            for client in 0..DEPTH / 2 {
                let number = (connection * DEPTH + client) as u64;
                let random = StdRng::seed_from_u64(seed.wrapping_add(number));
                let client = Client { shared: shared.clone(), nbd: nbd.clone(), random };
                clients.spawn(client.run());
            }
        }
        Self { shared: shared.clone(), clients }
    }

    /// Waits for what is under way and starts nothing more.
    pub(crate) async fn stop(mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        self.shared.model.lock().unwrap().cut();
    }
}

struct Client {
    shared: Arc<Shared>,
    nbd: Arc<Nbd>,
    random: StdRng,
}

impl Client {
    async fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.step().await {
                Ok(()) => {}
                Err(NbdError::Lost(_)) => return,
                Err(NbdError::Refused(..)) => {
                    self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<(), NbdError> {
        match self.random.random_range(0..100) {
            0..60 => {
                let range = self.aligned();
                self.write(range).await
            }
            60..72 => {
                let range = self.unaligned();
                self.write(range).await
            }
            72..77 => self.durable().await,
            77..82 => self.clear(Kind::Zero).await,
            82..85 => self.clear(Kind::Trim).await,
            85..93 => self.read().await,
            _ => self.flush().await,
        }
    }

    fn aligned(&mut self) -> Range<usize> {
        let sectors = self.shared.model.lock().unwrap().len() / SECTOR_BLOCKS;
        let len = self.random.random_range(1..=16);
        let begin = self.random.random_range(0..=sectors - len);
        begin * SECTOR_BLOCKS..(begin + len) * SECTOR_BLOCKS
    }

    fn unaligned(&mut self) -> Range<usize> {
        let len = self.random.random_range(1..=20);
        let begin = self.random.random_range(0..=self.shared.model.lock().unwrap().len() - len);
        begin..begin + len
    }

    /// The range, if nothing is under way there; else another of its length.
    fn begin(&mut self, mut range: Range<usize>, kind: Kind) -> Option<(Range<usize>, Vec<u8>)> {
        let mut model = self.shared.model.lock().unwrap();
        let sectors = (model.len() - range.len()) / SECTOR_BLOCKS;
        for _ in 0..TRIES {
            if model.is_idle(range.clone()) {
                let bytes = model.begin(range.clone(), kind);
                return Some((range, bytes));
            }
            let begin = self.random.random_range(0..=sectors) * SECTOR_BLOCKS;
            range = begin..begin + range.len();
        }
        None
    }

    fn end(&self, range: Range<usize>, answer: Result<(), NbdError>) -> Result<(), NbdError> {
        self.shared.model.lock().unwrap().end(range, answer.is_ok());
        if answer.is_ok() {
            self.shared.counts.writes.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn write(&mut self, range: Range<usize>) -> Result<(), NbdError> {
        let Some((range, bytes)) = self.begin(range, Kind::Write) else { return Ok(()) };
        let answer = self.nbd.write((range.start * BLOCK) as u64, bytes.into()).await;
        self.end(range, answer)
    }

    async fn durable(&mut self) -> Result<(), NbdError> {
        let range = self.aligned();
        let Some((range, bytes)) = self.begin(range, Kind::Write) else { return Ok(()) };
        let answer = self.nbd.write_durably((range.start * BLOCK) as u64, bytes.into()).await;
        self.end(range.clone(), answer)?;
        self.shared.model.lock().unwrap().durable(range);
        Ok(())
    }

    async fn clear(&mut self, kind: Kind) -> Result<(), NbdError> {
        let range = self.aligned();
        let Some((range, _)) = self.begin(range, kind) else { return Ok(()) };
        let (offset, len) = ((range.start * BLOCK) as u64, span(&range));
        let answer = match kind {
            Kind::Trim => self.nbd.trim(offset, len).await,
            Kind::Zero | Kind::Write => self.nbd.zero(offset, len).await,
        };
        self.end(range, answer)
    }

    /// Reads what nobody changes meanwhile: it must be what was acknowledged last.
    async fn read(&mut self) -> Result<(), NbdError> {
        // Held against changes by being one itself that changes nothing.
        let range = self.unaligned();
        if !self.shared.model.lock().unwrap().hold(range.clone()) {
            return Ok(());
        }
        let answer = self.nbd.read((range.start * BLOCK) as u64, span(&range)).await;
        let mut model = self.shared.model.lock().unwrap();
        model.release(range.clone());
        let complaints = model.judge(range.start, &answer?, Since::Acknowledged);
        drop(model);
        self.shared.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.shared.complain(complaints);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), NbdError> {
        let covered = self.shared.model.lock().unwrap().before_flush();
        self.nbd.flush().await?;
        self.shared.model.lock().unwrap().flushed(&covered);
        self.shared.counts.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn span(range: &Range<usize>) -> u32 {
    u32::try_from(range.len() * BLOCK).unwrap()
}
