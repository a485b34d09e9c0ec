//! The etcd that is backed up, and what is in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use etcdguard::etcd::wire::request_op::Request;
use etcdguard::etcd::wire::{PutRequest, RequestOp};
use etcdguard::etcd::{ConnectionConfig, Etcd};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use testkit::etcd::{Member, Seat, data_dir};
use tokio::runtime::Runtime;

use super::{Options, TIMEOUT};

/// As many operations as an etcd takes in one transaction.
const AT_ONCE: usize = 128;
/// Transactions are large; few of them are enough.
const TRANSACTIONS: usize = 4;
const VALUE_BYTES: usize = 1024;
/// The part of the keys that the revisions go to.
const CHANGING: u32 = 4;

pub(super) struct Source {
    member: Member,
    dir: PathBuf,
    client: Etcd,
    runtime: Runtime,
    keys: u32,
    revisions: u32,
    in_flight: usize,
}

/// A hash, and the revision it is of.
pub(super) type Hash = (u32, i64);

impl Source {
    pub(super) fn start(dir: &Path, options: &Options) -> Result<Self> {
        let member = Member::alone(dir)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = connect(&member.seat, &runtime)?;
        Ok(Self {
            member,
            dir: dir.to_owned(),
            client,
            runtime,
            keys: options.keys,
            revisions: options.revisions,
            in_flight: options.in_flight.max(1),
        })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.member.seat.client
    }

    /// The base: every key once, in large transactions.
    pub(super) fn fill(&self) -> Result<()> {
        let keys: Vec<u32> = (0..self.keys).collect();
        let filling = stream::iter(keys.chunks(AT_ONCE))
            .map(|keys| self.client.txn(keys.iter().map(|number| put(*number)).collect()))
            .buffer_unordered(TRANSACTIONS)
            .try_for_each(|_| async { Ok(()) });
        self.runtime.block_on(filling).context("cannot fill the etcd")
    }

    /// The revisions, one put each. Gives the last.
    pub(super) fn change(&self) -> Result<i64> {
        let changing = (self.keys / CHANGING).max(1);
        let puts = stream::iter(0..self.revisions)
            .map(|number| self.client.put(key(number % changing), value(!number)))
            .buffer_unordered(self.in_flight)
            .try_fold(0, |last, revision| async move { Ok(revision.max(last)) });
        self.runtime.block_on(puts).context("cannot put")
    }

    pub(super) fn hash(&self) -> Result<Hash> {
        self.runtime.block_on(hash(&self.client))
    }

    /// In good order. Gives its data directory.
    pub(super) fn stop(mut self) -> Result<PathBuf> {
        self.member.process.terminate()?;
        self.member.process.wait_for_exit(TIMEOUT)?;
        Ok(data_dir(&self.dir, &self.member.seat.name))
    }
}

/// What an etcd has that is started on restored data.
pub(super) fn hash_of(seat: &Seat, dir: &Path) -> Result<Hash> {
    let mut member = Member::start(seat, dir, &seat.listed(), "existing", &[])?;
    member.wait_until_ready()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = connect(seat, &runtime)?;
    runtime.block_on(hash(&client))
}

async fn hash(client: &Etcd) -> Result<Hash> {
    let revision = client.revision(TIMEOUT).await?;
    Ok((client.hash_kv(revision).await?.hash, revision))
}

fn connect(seat: &Seat, runtime: &Runtime) -> Result<Etcd> {
    let _entered = runtime.enter();
    let endpoints = vec![seat.client.clone()];
    Ok(Etcd::connect(&ConnectionConfig { endpoints, ..ConnectionConfig::default() })?)
}

fn put(number: u32) -> RequestOp {
    let put = PutRequest { key: key(number).into(), value: value(number).into(), lease: 0 };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

fn key(number: u32) -> String {
    format!("/registry/bench/{number:08}")
}

/// Text of random digits: packs to about half.
fn value(seed: u32) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(VALUE_BYTES);
    let mut state = u64::from(seed);
    while text.len() < VALUE_BYTES {
        // SplitMix64: each state gives a number that has nothing to do with the one before.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Writing to a string cannot fail.
        let _ = write!(text, "{:016x}", mixed ^ (mixed >> 31));
    }
    text
}
