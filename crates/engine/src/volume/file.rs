//! A replica that is a raw file of this machine, read and written by the data thread itself.
//!
//! Owns: the file. Requests are performed at once and in order, on the page cache; only a flush
//! goes to another thread, because a disk may take long.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use rpc::Features;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use wire::frame::{Answer, Limits, NO_SPACE_TEXT, Outcome, Request, Run, encode_runs};

use super::hub::Hub;
use crate::core::{ReplicaId, SECTOR};

/// Zeros written at a time where the file system cannot zero a range.
const ZEROS: usize = 64 << 10;

/// Runs in one answer about holes.
const MOST_RUNS: usize = 1024;

pub(crate) struct RawFile {
    file: Arc<File>,
    hub: Weak<Hub>,
    id: ReplicaId,
}

impl RawFile {
    pub(crate) const FEATURES: Features =
        Features(Features::ORDERED.0 | Features::FLUSH.0 | Features::ZERO.0 | Features::STATUS.0);

    /// Opens the file; what makes the replica of it comes back.
    pub(crate) fn open(path: &Path) -> io::Result<impl FnOnce(&Rc<Hub>, ReplicaId) -> Self> {
        let file = Arc::new(File::options().read(true).write(true).open(path)?);
        Ok(|hub: &Rc<Hub>, id| Self { file, hub: Rc::downgrade(hub), id })
    }

    /// Performs a request; `None` if the answer comes later.
    pub(crate) fn perform(&self, request: Request) -> Option<Answer> {
        let (sequence, offset, result) = match request {
            Request::Read { sequence, offset, size } => {
                (sequence, offset, self.read(offset, size).map(Outcome::Data))
            }
            Request::Write { sequence, offset, data } => {
                (sequence, offset, self.write(offset, &data))
            }
            Request::Unmap { sequence, offset, size }
            | Request::Discard { sequence, offset, size } => {
                (sequence, offset, self.unmap(offset, size))
            }
            Request::Zero { sequence, offset, size } => (sequence, offset, self.zero(offset, size)),
            Request::Status { sequence, offset, size } => {
                (sequence, offset, self.status(offset, size))
            }
            // A file keeps no records, and is never asked to.
            Request::Ping { sequence }
            | Request::Hello { sequence, .. }
            | Request::Record { sequence, .. } => (sequence, 0, Ok(Outcome::Count(0))),
            Request::Flush { sequence } => {
                self.flush(sequence);
                return None;
            }
            Request::Close => return None,
        };
        Some(Answer { sequence, offset, outcome: result.unwrap_or_else(|error| failed(&error)) })
    }

    /// What lies beyond the end of the file reads as zeros.
    fn read(&self, offset: i64, size: u32) -> io::Result<Bytes> {
        if size > Limits::default().max_payload {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (mut at, size) = (position(offset)?, size as usize);
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let room = rustix::buffer::spare_capacity(&mut bytes);
            match rustix::io::pread(&self.file, room, at) {
                Ok(0) => bytes.resize(size, 0),
                Ok(count) => at = at.saturating_add(count as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(size);
        Ok(bytes.into())
    }

    fn write(&self, offset: i64, data: &[u8]) -> io::Result<Outcome> {
        self.file.write_all_at(data, position(offset)?)?;
        Ok(Outcome::Count(u32::try_from(data.len()).unwrap_or(u32::MAX)))
    }

    /// Whole sectors only: the parts of sectors at both ends are left as they are.
    fn unmap(&self, offset: i64, size: u32) -> io::Result<Outcome> {
        let start = position(offset)?;
        let end = start.saturating_add(u64::from(size)) / SECTOR * SECTOR;
        let start = start.next_multiple_of(SECTOR);
        let len = u32::try_from(end.saturating_sub(start)).unwrap_or_default();
        if len == 0 {
            return Ok(Outcome::Count(0));
        }
        self.zero(i64::try_from(start).unwrap_or_default(), len)
    }

    fn zero(&self, offset: i64, size: u32) -> io::Result<Outcome> {
        let (at, len) = (position(offset)?, u64::from(size));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, punch, at, len) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(at, len)?,
            Err(error) => return Err(error.into()),
        }
        Ok(Outcome::Count(size))
    }

    fn write_zeros(&self, mut at: u64, mut len: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS];
        while len > 0 {
            let count = usize::try_from(len).unwrap_or(ZEROS).min(ZEROS);
            self.file.write_all_at(zeros.get(..count).unwrap_or_default(), at)?;
            at = at.saturating_add(count as u64);
            len = len.saturating_sub(count as u64);
        }
        Ok(())
    }

    fn status(&self, offset: i64, size: u32) -> io::Result<Outcome> {
        let start = position(offset)?;
        let end = start.saturating_add(u64::from(size));
        let (mut at, mut runs) = (start, Vec::new());
        while at < end && runs.len() < MOST_RUNS {
            let data = self.next(SeekFrom::Data(at))?.unwrap_or(end).clamp(at, end);
            let (next, hole) = if data > at {
                (data, true)
            } else {
                (self.next(SeekFrom::Hole(at))?.unwrap_or(end).clamp(at, end), false)
            };
            if next == at {
                break;
            }
            runs.push(Run { len: u32::try_from(next - at).unwrap_or(u32::MAX), hole });
            at = next;
        }
        Ok(Outcome::Data(encode_runs(&runs)))
    }

    /// Where data or a hole begins; `None` at the end of the file.
    fn next(&self, what: SeekFrom) -> io::Result<Option<u64>> {
        match seek(&self.file, what) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&self, sequence: u32) {
        let (file, weak, id) = (Arc::clone(&self.file), Weak::clone(&self.hub), self.id);
        let Some(hub) = self.hub.upgrade() else { return };
        hub.spawn(async move {
            let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
            let result = synced.unwrap_or_else(|_| Err(io::Error::other("the sync was given up")));
            let outcome = result.map_or_else(|error| failed(&error), |()| Outcome::Count(0));
            if let Some(hub) = weak.upgrade() {
                hub.begin();
                hub.reply(id, Answer { sequence, offset: 0, outcome });
                hub.settle();
            }
        });
    }
}

fn position(offset: i64) -> io::Result<u64> {
    u64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn failed(error: &io::Error) -> Outcome {
    if error.kind() == io::ErrorKind::StorageFull {
        return Outcome::Error(NO_SPACE_TEXT.to_owned());
    }
    Outcome::Error(error.to_string())
}
