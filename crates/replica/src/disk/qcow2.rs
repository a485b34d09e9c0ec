//! Reading a qcow2 image (versions 2 and 3) as the volume it describes.
//!
//! Owns the way from a byte of the volume to a cluster of the file, and small bounded caches on
//! it. Never: writing, snapshots inside the image, a second image below it. The file comes from
//! outside, so every offset is checked before it is followed and every length before it is
//! allocated. What the header may say is in `header`, what a table entry may say in `entry`.

mod entry;
mod header;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use durable::{Extent, Sparse};
use flate2::{Decompress, FlushDecompress, Status};

use self::entry::{Cluster, table_offset};
use self::header::{HEADER_BYTES, Header};

pub(crate) use self::header::MAGIC;

/// Second-level tables kept in memory, all together.
const TABLES_BYTES: u64 = 4 * 1024 * 1024;
const TABLES_MAX: u64 = 64;

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    #[error("its header is cut off")]
    Short,
    #[error("version {0} of the format is not known")]
    Version(u32),
    #[error("it is encrypted")]
    Encrypted,
    #[error("it keeps its data in another file")]
    ExternalData,
    #[error("it has a backing file of its own; flatten it first")]
    BackingFile,
    #[error("it is marked as corrupt")]
    Corrupt,
    #[error("it needs features that are not known: {0:#x}")]
    Features(u64),
    #[error("its compression method {0} is not known")]
    Compression(u8),
    #[error("{what} is damaged")]
    Damaged { what: &'static str },
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

fn damaged(what: &'static str) -> Qcow2Error {
    Qcow2Error::Damaged { what }
}

#[derive(Debug)]
pub(crate) struct Qcow2 {
    file: Arc<dyn Sparse>,
    file_bytes: u64,
    header: Header,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    /// The one used last is last.
    tables: Vec<Table>,
    /// The cluster that was unpacked last, by its entry.
    unpacked: Option<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Table {
    number: u64,
    /// As in the file; empty where the image has no table.
    entries: Vec<u8>,
}

impl Qcow2 {
    pub(crate) fn open(file: Arc<dyn Sparse>, file_bytes: u64) -> Result<Self, Qcow2Error> {
        let mut bytes = [0; HEADER_BYTES];
        let found = read_up_to(&*file, &mut bytes, 0)?;
        let header = Header::parse(bytes.get(..found).unwrap_or_default(), file_bytes)?;
        Ok(Self { file, file_bytes, header, cache: Mutex::default() })
    }

    /// Of the volume.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.header.size_bytes
    }

    /// Fills the buffer; what the image does not hold, or lies behind its end, is zeros.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Qcow2Error> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            if at >= self.header.size_bytes {
                rest.fill(0);
                break;
            }
            let end = self.end_of_cluster(at);
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(want);
            self.read_in_cluster(&mut cache, now, at)?;
            rest = later;
            at += want as u64;
        }
        Ok(())
    }

    /// Calls `each` with what the image holds inside the range, in order.
    pub(crate) fn extents(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Extent),
    ) -> Result<(), Qcow2Error> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open: Option<Extent> = None;
        let mut at = range.start;
        let last = range.end.min(self.header.size_bytes);
        while at < last {
            let end = self.end_of_cluster(at).min(last);
            match (self.cluster(&mut cache, at)?, &mut open) {
                (Cluster::Zeros, _) => open.take().into_iter().for_each(&mut each),
                (Cluster::Plain { .. } | Cluster::Packed { .. }, Some(extent)) => extent.end = end,
                (Cluster::Plain { .. } | Cluster::Packed { .. }, None) => {
                    open = Some(Extent { start: at, end, is_unwritten: false });
                }
            }
            at = end;
        }
        open.into_iter().for_each(each);
        Ok(())
    }

    /// Where the cluster with this byte of the volume ends, or the volume.
    fn end_of_cluster(&self, at: u64) -> u64 {
        let cluster = self.header.cluster_bytes();
        (at - at % cluster).saturating_add(cluster).min(self.header.size_bytes)
    }

    /// `buffer` does not reach beyond the cluster of `at`.
    fn read_in_cluster(
        &self,
        cache: &mut Cache,
        buffer: &mut [u8],
        at: u64,
    ) -> Result<(), Qcow2Error> {
        let inside = at % self.header.cluster_bytes();
        match self.cluster(cache, at)? {
            Cluster::Zeros => buffer.fill(0),
            Cluster::Plain { offset } => {
                if offset >= self.file_bytes {
                    return Err(damaged("the place of a cluster"));
                }
                // The last cluster of a file need not be there whole.
                let found = read_up_to(&*self.file, buffer, offset + inside)?;
                buffer.get_mut(found..).unwrap_or_default().fill(0);
            }
            Cluster::Packed { entry, offset, len_bytes } => {
                let bytes = self.unpacked(cache, entry, offset, len_bytes)?;
                let inside = usize::try_from(inside).unwrap_or(usize::MAX);
                let from = inside..inside.saturating_add(buffer.len());
                let found = bytes.get(from).ok_or(damaged("a compressed cluster"))?;
                buffer.copy_from_slice(found);
            }
        }
        Ok(())
    }

    /// Where the cluster with this byte of the volume is.
    fn cluster(&self, cache: &mut Cache, at: u64) -> Result<Cluster, Qcow2Error> {
        let cluster = at / self.header.cluster_bytes();
        let per_table = self.header.cluster_bytes() / 8;
        let table = self.table(cache, cluster / per_table)?;
        if table.is_empty() {
            return Ok(Cluster::Zeros);
        }
        let place = usize::try_from(cluster % per_table * 8).unwrap_or(usize::MAX);
        Cluster::parse(number_at(table, place).ok_or(damaged("a table"))?, &self.header)
    }

    /// The entries of a second-level table; none where the image has no such table.
    fn table<'a>(&self, cache: &'a mut Cache, number: u64) -> Result<&'a [u8], Qcow2Error> {
        let tables = &mut cache.tables;
        let entries = match tables.iter().position(|table| table.number == number) {
            Some(index) => tables.remove(index).entries,
            None => self.load_table(number)?,
        };
        let max = (TABLES_BYTES / self.header.cluster_bytes()).clamp(1, TABLES_MAX);
        if tables.len() as u64 >= max {
            tables.remove(0);
        }
        tables.push(Table { number, entries });
        Ok(tables.last().map(|table| table.entries.as_slice()).unwrap_or_default())
    }

    fn load_table(&self, number: u64) -> Result<Vec<u8>, Qcow2Error> {
        // The header was refused unless the first-level table is long enough and in the file.
        let mut entry = [0; 8];
        read_exact(&*self.file, &mut entry, self.header.table_offset + number * 8)?;
        let Some(offset) = table_offset(u64::from_be_bytes(entry), &self.header)? else {
            return Ok(Vec::new());
        };
        let len = self.header.cluster_bytes();
        if offset.saturating_add(len) > self.file_bytes {
            return Err(damaged("the place of a table"));
        }
        let mut entries = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        read_exact(&*self.file, &mut entries, offset)?;
        Ok(entries)
    }

    fn unpacked<'a>(
        &self,
        cache: &'a mut Cache,
        entry: u64,
        offset: u64,
        len_bytes: u64,
    ) -> Result<&'a [u8], Qcow2Error> {
        let held = cache.unpacked.take().filter(|(held, _)| *held == entry);
        let (_, bytes) = match held {
            Some(held) => cache.unpacked.insert(held),
            None => cache.unpacked.insert((entry, self.unpack(offset, len_bytes)?)),
        };
        Ok(bytes)
    }

    fn unpack(&self, offset: u64, len_bytes: u64) -> Result<Vec<u8>, Qcow2Error> {
        // At most twice a cluster: the length is counted in so few bits.
        let len_bytes = len_bytes.min(self.file_bytes.saturating_sub(offset));
        let mut packed = vec![0; usize::try_from(len_bytes).unwrap_or(usize::MAX)];
        read_exact(&*self.file, &mut packed, offset)?;
        let cluster = usize::try_from(self.header.cluster_bytes()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; cluster];
        let mut inflate = Decompress::new(false);
        loop {
            let taken = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
            let made = usize::try_from(inflate.total_out()).unwrap_or(usize::MAX);
            if made >= cluster {
                return Ok(bytes);
            }
            let input = packed.get(taken..).unwrap_or_default();
            let output = bytes.get_mut(made..).unwrap_or_default();
            let status = inflate
                .decompress(input, output, FlushDecompress::None)
                .map_err(|_| damaged("a compressed cluster"))?;
            let is_stuck = inflate.total_in() == taken as u64 && inflate.total_out() == made as u64;
            let is_short = inflate.total_out() < cluster as u64;
            if is_short && (is_stuck || status == Status::StreamEnd) {
                return Err(damaged("a compressed cluster"));
            }
        }
    }
}

fn read_exact(file: &dyn Sparse, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    if read_up_to(file, buffer, offset)? < buffer.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// How much of the buffer was filled: all, unless the file ends before.
fn read_up_to(file: &dyn Sparse, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Eight bytes, the largest first.
fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*found))
}

#[cfg(test)]
mod tests;
