//! Loads put on the socket frontend: 26-byte frames on one connection, so many under way at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use wire::frame::{self, Limits, Outcome, Reply, Request};

/// A kind of load.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    write: bool,
    random: bool,
    block: u32,
    depth: u32,
}

pub(crate) const LOADS: &[Load] = &[
    Load { name: "4k random write, depth 1", write: true, random: true, block: 4096, depth: 1 },
    Load { name: "4k random write, depth 32", write: true, random: true, block: 4096, depth: 32 },
    Load { name: "4k random read, depth 1", write: false, random: true, block: 4096, depth: 1 },
    Load { name: "4k random read, depth 32", write: false, random: true, block: 4096, depth: 32 },
    Load { name: "1m sequential write", write: true, random: false, block: 1 << 20, depth: 4 },
    Load { name: "1m sequential read", write: false, random: false, block: 1 << 20, depth: 4 },
];

/// When to stop.
enum Until {
    Time(Duration),
    Count(u64),
}

struct Generator<'l> {
    load: &'l Load,
    blocks: u64,
    next: u64,
    payload: Bytes,
    sequence: u32,
}

impl Generator<'_> {
    fn request(&mut self) -> Request {
        let number = if self.load.random { scramble(self.next) } else { self.next } % self.blocks;
        self.next += 1;
        self.sequence = self.sequence.wrapping_add(1);
        let (sequence, size) = (self.sequence, self.load.block);
        let offset = i64::try_from(number * u64::from(size)).unwrap_or(0);
        if self.load.write {
            Request::Write { sequence, offset, data: self.payload.clone() }
        } else {
            Request::Read { sequence, offset, size }
        }
    }
}

/// Numbers without an order anybody could make use of.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Writes to all of the volume, so that reads find something.
pub(crate) fn fill(socket: &Path, size_bytes: u64) -> Result<()> {
    let load = Load { name: "fill", write: true, random: false, block: 1 << 20, depth: 4 };
    drive(socket, &load, size_bytes, &Until::Count(size_bytes >> 20)).map(drop)
}

/// Operations, or MiB where blocks are large, per second.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) fn run(socket: &Path, load: &Load, size_bytes: u64, seconds: u32) -> Result<f64> {
    let until = Until::Time(Duration::from_secs(seconds.into()));
    let (done, time) = drive(socket, load, size_bytes, &until)?;
    let per_operation = if load.block == 4096 { 1.0 } else { f64::from(load.block >> 20) };
    Ok(done as f64 * per_operation / time.as_secs_f64())
}

fn drive(socket: &Path, load: &Load, size_bytes: u64, until: &Until) -> Result<(u64, Duration)> {
    let mut stream = UnixStream::connect(socket)?;
    let mut generator = Generator {
        load,
        blocks: size_bytes / u64::from(load.block),
        next: 0,
        payload: Bytes::from(vec![0x5a; load.block as usize]),
        sequence: 0,
    };
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let limits = Limits::default();
    let start = Instant::now();
    for _ in 0..load.depth {
        frame::encode_request(&generator.request(), limits)?.put(&mut output);
    }
    let (mut under_way, mut done) = (u64::from(load.depth), 0);
    while under_way > 0 {
        stream.write_all(&output.split())?;
        receive(&mut stream, &mut input)?;
        while let Some(reply) = frame::decode_reply(&mut input, limits)? {
            check(&reply)?;
            (done, under_way) = (done + 1, under_way - 1);
            let more = match until {
                Until::Time(length) => start.elapsed() < *length,
                Until::Count(count) => done + under_way < *count,
            };
            if more {
                frame::encode_request(&generator.request(), limits)?.put(&mut output);
                under_way += 1;
            }
        }
    }
    Ok((done, start.elapsed()))
}

/// Waits for some bytes.
fn receive(stream: &mut UnixStream, input: &mut BytesMut) -> Result<()> {
    let held = input.len();
    input.resize(held + (256 << 10), 0);
    let read = stream.read(input.get_mut(held..).unwrap_or_default());
    input.truncate(held + read.as_ref().copied().unwrap_or(0));
    match read {
        Ok(0) => bail!("the engine hung up"),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn check(reply: &Reply) -> Result<()> {
    match reply {
        Reply::Answer(answer) => match &answer.outcome {
            Outcome::Data(_) | Outcome::Count(_) => Ok(()),
            Outcome::Eof(_) => bail!("the end of the volume"),
            Outcome::Error(text) | Outcome::NoSpace(text) => bail!("{text}"),
        },
        Reply::Close | Reply::CutOff { .. } => bail!("the engine says goodbye"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_blocks_are_spread_and_inside() {
        let mut generator =
            Generator { load: &LOADS[0], blocks: 100, next: 0, payload: Bytes::new(), sequence: 0 };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let Request::Write { offset, .. } = generator.request() else { panic!() };
            assert!((0..100 * 4096).contains(&offset));
            seen.insert(offset);
        }
        assert!(seen.len() > 95);
    }
}
