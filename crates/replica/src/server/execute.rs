//! Does what one frame asks, on the data thread. What can be answered at once goes to the outgoing
//! buffer; what changed the volume is left as acks, to be answered when the batch has settled.
//! Never: sockets, waiting.

use wire::frame::{Limits, Request, Run, encode_runs};
use wire::membership::Claim;

use crate::disk::{Error, Replica};
use crate::server::core::{Core, Durability};
use crate::server::late::Ack;
use crate::server::outgoing::{Filled, Outgoing};
use crate::server::owner::Guest;

/// Runs in one answer about where data is.
const RUNS_MAX: usize = 4096;
/// How much of a volume is looked at for one answer about where data is.
const STATUS_MAX_BYTES: u64 = 1 << 30;
/// The step of that, so that an answer can be cut where it grows too long.
const STATUS_STEP_BYTES: u64 = 64 << 20;

/// What a batch of frames leaves to be done after it.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Done, and to be answered as soon as the revision counter is settled.
    pub(crate) done: Vec<Ack>,
    /// To be answered after a flush that covers the whole batch.
    pub(crate) flushes: Vec<Ack>,
    /// The peer said goodbye.
    pub(crate) is_last: bool,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.done.clear();
        self.flushes.clear();
    }
}

pub(crate) fn execute(
    core: &mut Core,
    guest: &mut Guest,
    request: Request,
    out: &mut Outgoing,
    batch: &mut Batch,
) {
    if let Some((sequence, offset)) = changes(&request)
        && let Some(text) = core.owner.rejection(guest)
    {
        tracing::warn!(offset, error = text, "request refused");
        return out.error(sequence, offset, &text);
    }
    if let Some((sequence, offset)) = touches(&request)
        && let Err(error) = core.take_over()
    {
        let text = error.to_string();
        tracing::error!(error = text, "cannot take over");
        return out.error(sequence, offset, &text);
    }
    let replica = &mut core.replica;
    match request {
        Request::Read { sequence, offset, size } => read(replica, sequence, offset, size, out),
        Request::Write { sequence, offset, data } => {
            let result = place(offset).and_then(|at| replica.write_at(&data, at));
            let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
            // Of a write that failed, the answer says how far it got: copies that got equally far
            // are still equal.
            let end = offset.saturating_add(i64::from(count));
            let reached = i64::try_from(replica.reached()).unwrap_or(i64::MAX);
            let told = if result.is_ok() { offset } else { reached.clamp(offset, end) };
            acknowledge(Ack { sequence, offset: told, count }, result, out, batch);
        }
        Request::Zero { sequence, offset, size } => {
            let result = place(offset).and_then(|at| replica.write_zeroes_at(at, u64::from(size)));
            acknowledge(Ack { sequence, offset, count: size }, result.map(drop), out, batch);
        }
        Request::Unmap { sequence, offset, size } => {
            let result = place(offset).and_then(|at| replica.unmap_at(at, u64::from(size)));
            let count =
                result.as_ref().map_or(0, |freed| u32::try_from(*freed).unwrap_or(u32::MAX));
            acknowledge(Ack { sequence, offset, count }, result.map(drop), out, batch);
        }
        Request::Discard { sequence, offset, size } => {
            let result = place(offset).and_then(|at| replica.discard_at(at, u64::from(size)));
            let (freed, layout) = *result.as_ref().unwrap_or(&(0, 0));
            let count = u32::try_from(freed).unwrap_or(u32::MAX);
            let ack = Ack { sequence, offset: layout.cast_signed(), count };
            acknowledge(ack, result.map(drop), out, batch);
        }
        Request::Status { sequence, offset, size } => {
            let runs = place(offset).and_then(|at| status(replica, at, u64::from(size)));
            match runs {
                Ok(runs) => out.data(sequence, offset, encode_runs(&runs)),
                Err(error) => out.error(sequence, offset, &error.text()),
            }
        }
        Request::Ping { sequence } => match core.ailment() {
            None => out.count(sequence, 0, 0),
            Some(text) => out.error(sequence, 0, &text),
        },
        Request::Flush { sequence } => {
            core.durability = Durability::OnFlush;
            batch.flushes.push(Ack { sequence, offset: 0, count: 0 });
        }
        Request::Hello { sequence, generation, engine } => {
            let engine = String::from_utf8_lossy(&engine).into_owned();
            match core.owner.greet(guest, Claim { generation, engine }) {
                Ok(()) => out.count(sequence, 0, 0),
                Err(error) => out.error(sequence, 0, &error.to_string()),
            }
        }
        Request::Record { sequence, mark, data } => {
            if let Err(error) = core.owner.record(guest, &data) {
                return out.error(sequence, 0, &error.to_string());
            }
            let counted = if mark { core.replica.write_at(&[], 0) } else { Ok(()) };
            acknowledge(Ack { sequence, offset: 0, count: 0 }, counted, out, batch);
        }
        Request::Close => batch.is_last = true,
    }
}

/// Where a request reads or changes the volume.
fn touches(request: &Request) -> Option<(u32, i64)> {
    match request {
        Request::Read { sequence, offset, .. } | Request::Status { sequence, offset, .. } => {
            Some((*sequence, *offset))
        }
        // The first thing an engine sends; the one before it may still be at work.
        Request::Flush { .. } | Request::Record { .. } => None,
        other => changes(other),
    }
}

/// Where a request that is for the volume's own engine alone would change something.
fn changes(request: &Request) -> Option<(u32, i64)> {
    match request {
        Request::Write { sequence, offset, .. }
        | Request::Zero { sequence, offset, .. }
        | Request::Unmap { sequence, offset, .. }
        | Request::Discard { sequence, offset, .. } => Some((*sequence, *offset)),
        Request::Flush { sequence } | Request::Record { sequence, .. } => Some((*sequence, 0)),
        Request::Read { .. }
        | Request::Status { .. }
        | Request::Ping { .. }
        | Request::Hello { .. }
        | Request::Close => None,
    }
}

fn acknowledge(ack: Ack, result: Result<(), Error>, out: &mut Outgoing, batch: &mut Batch) {
    match result {
        Ok(()) => batch.done.push(ack),
        Err(error) => {
            let text = error.text();
            tracing::warn!(offset = ack.offset, error = text, "request failed");
            out.error(ack.sequence, ack.offset, &text);
        }
    }
}

/// A negative offset is outside any volume.
fn place(offset: i64) -> Result<u64, Error> {
    u64::try_from(offset).map_err(|_| Error::NegativeOffset(offset))
}

fn read(replica: &mut Replica, sequence: u32, offset: i64, size: u32, out: &mut Outgoing) {
    let done = place(offset).and_then(|at| {
        let volume = replica.size_bytes().ok_or(Error::NotOpen)?;
        let max = Limits::default().max_payload;
        if size > max {
            return Err(Error::TooMuch { len_bytes: size, max_bytes: max });
        }
        let size = size as usize;
        let left = usize::try_from(volume.saturating_sub(at)).unwrap_or(usize::MAX);
        let filled = if left < size { Filled::Until(left) } else { Filled::Whole };
        out.read(sequence, offset, size.min(left), |place| {
            replica.read_at(place, at.min(volume)).map(|()| filled)
        })
    });
    if let Err(error) = done {
        let text = error.text();
        tracing::warn!(offset, error = text, "read failed");
        out.error(sequence, offset, &text);
    }
}

/// Where data is, from `offset` on: all of the range, or less where that would be long or slow.
fn status(replica: &mut Replica, offset: u64, len_bytes: u64) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    let end = offset.saturating_add(len_bytes);
    let stop = end.min(offset.saturating_add(STATUS_MAX_BYTES));
    let mut at = offset;
    // An empty or impossible range is refused or answered by the replica itself.
    while at < stop || runs.is_empty() {
        let piece = (stop - at).min(STATUS_STEP_BYTES);
        replica.block_status(at, piece, |run| append(&mut runs, run))?;
        at += piece;
        if runs.len() >= RUNS_MAX || piece == 0 {
            break;
        }
    }
    // The last one is cut off too where there are too many; what is left is still from `offset` on.
    runs.truncate(RUNS_MAX);
    Ok(runs)
}

fn append(runs: &mut Vec<Run>, run: crate::disk::Stretch) {
    let len = u32::try_from(run.len_bytes).unwrap_or(u32::MAX);
    match runs.last_mut() {
        Some(last) if last.hole != run.is_data => last.len = last.len.saturating_add(len),
        _ => runs.push(Run { len, hole: !run.is_data }),
    }
}
