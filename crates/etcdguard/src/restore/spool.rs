//! Deltas as rows in files, where they wait for their turn. The files have no names: what is read from
//! them is what was written, whoever else restores in the same directory.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message;

use crate::datadir::{KeyValue, Revision, RowKey};
use crate::nameless::nameless;
use crate::store::delta::{Events, Op};
use crate::store::{Event, SnapStore, Snapshot};

use super::RestoreError;

const BUFFER: usize = 1 << 20;

/// A delta that was read to its end, its checksum right.
#[derive(Debug)]
pub(super) struct Spool {
    pub(super) name: String,
    pub(super) start_revision: i64,
    file: File,
    /// Where it lies, to be told where it cannot be read.
    dir: PathBuf,
}

/// One row and when it was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpoolRow {
    pub(super) key: RowKey,
    pub(super) time: Timestamp,
    pub(super) value: Bytes,
}

/// Fetches a delta and writes its rows to a file in `dir`.
pub(super) async fn spool(
    store: &SnapStore,
    snapshot: &Snapshot,
    dir: &Path,
) -> Result<Spool, RestoreError> {
    let (name, without) = (snapshot.snap_name.clone(), before(snapshot));
    let mut events = Events::of(store.open_plain(snapshot).await?);
    let write = |source| RestoreError::Io { what: "write in", path: dir.to_owned(), source };
    let mut out = BufWriter::with_capacity(BUFFER, nameless(dir).map_err(write)?);
    let mut before = Revision { main: 0, sub: 0 };
    loop {
        let next = events.next().await;
        let failed = |source| RestoreError::Delta { name: name.clone(), before: without, source };
        let next = next.map_err(failed)?;
        let Some(event) = next else { break };
        // Changes of one transaction follow each other, in the order they were made.
        let main = event.mod_revision;
        let sub = if main == before.main { before.sub.saturating_add(1) } else { 0 };
        before = Revision { main, sub };
        push(&mut out, before, &event).map_err(write)?;
    }
    let file = out.into_inner().map_err(|error| write(error.into_error()))?;
    Ok(Spool { name, start_revision: snapshot.start_revision, file, dir: dir.to_owned() })
}

/// The last revision that can be had without a delta; none where it begins all.
pub(super) fn before(delta: &Snapshot) -> Option<i64> {
    Some(delta.start_revision.saturating_sub(1)).filter(|before| *before > super::plan::EMPTY)
}

fn push(out: &mut impl Write, revision: Revision, event: &Event) -> io::Result<()> {
    let value = value_of(event).encode_to_vec();
    let length = u32::try_from(value.len()).map_err(io::Error::other)?;
    out.write_all(&revision.encode())?;
    out.write_all(&[u8::from(event.op == Op::Delete)])?;
    out.write_all(&event.time.as_nanosecond().to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&value)
}

/// The row's value; a deleted key keeps nothing else.
fn value_of(event: &Event) -> KeyValue {
    let key = event.key.clone();
    match event.op {
        Op::Delete => KeyValue { key, ..KeyValue::default() },
        Op::Put => KeyValue {
            key,
            create_revision: event.create_revision,
            mod_revision: event.mod_revision,
            version: event.version,
            value: event.value.clone(),
            lease: event.lease,
        },
    }
}

impl Spool {
    pub(super) fn rows(&self) -> Result<SpoolRows, RestoreError> {
        let opened = || {
            let mut file = self.file.try_clone()?;
            file.rewind()?;
            let length = file.metadata()?.len();
            Ok(SpoolRows { source: BufReader::with_capacity(BUFFER, file), length })
        };
        opened().map_err(RestoreError::io("read in", &self.dir))
    }
}

#[derive(Debug)]
pub(super) struct SpoolRows {
    source: BufReader<File>,
    /// Of the whole file: no row is longer.
    length: u64,
}

impl SpoolRows {
    pub(super) fn next(&mut self) -> io::Result<Option<SpoolRow>> {
        use std::io::BufRead;
        if self.source.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let (mut revision, mut kind) = ([0; 17], [0]);
        let (mut time, mut length) = ([0; 16], [0; 4]);
        self.source.read_exact(&mut revision)?;
        self.source.read_exact(&mut kind)?;
        self.source.read_exact(&mut time)?;
        self.source.read_exact(&mut length)?;
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let length = u32::from_le_bytes(length);
        if u64::from(length) > self.length {
            return Err(damaged());
        }
        let mut value = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.source.read_exact(&mut value)?;
        let revision = Revision::decode(&revision).ok_or_else(damaged)?;
        let time =
            Timestamp::from_nanosecond(i128::from_le_bytes(time)).map_err(io::Error::other)?;
        let key = RowKey { revision, is_tombstone: kind == [1] };
        Ok(Some(SpoolRow { key, time, value: value.into() }))
    }
}
