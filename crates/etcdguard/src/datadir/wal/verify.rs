//! Reads a whole log the way an etcd does at its start, and says what would stop it.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::super::raft::{Entry, HardState, LogMetadata, LogSnapshot};
use super::super::snap::SnapFile;
use super::read::{Next, ReadError, Segment};
use super::{CRC, ENTRY, METADATA, SNAPSHOT, STATE, WalError};

const BUFFER: usize = 256 << 10;

/// What a good log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalSummary {
    pub member: u64,
    pub cluster: u64,
    /// Index of the last entry.
    pub last: u64,
    pub commit: u64,
    pub term: u64,
    /// Whether the last record was cut off while it was written.
    pub is_torn: bool,
}

/// Verifies the log in `dir` from `start` on, the newest snapshot, or from its beginning.
pub fn verify(dir: &Path, start: Option<SnapFile>) -> Result<WalSummary, WalError> {
    let start = start.unwrap_or(SnapFile { index: 0, term: 0 });
    let names = segments(dir, start.index)?;
    let mut log = Log { start, metadata: None, state: None, last: start.index, has_start: false };
    let mut crc = 0;
    let mut is_torn = false;
    let mut names = names.iter().peekable();
    while let Some(name) = names.next() {
        let path = dir.join(name);
        let read = |source| WalError::Read { path: path.clone(), source };
        let file = File::open(&path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let source = BufReader::with_capacity(BUFFER, file);
        let mut segment = Segment::new(source, length, crc);
        let torn = log.read(name, &mut segment).map_err(|error| match error {
            Stop::Io(source) => WalError::Read { path: path.clone(), source },
            Stop::Damaged(error) => error,
        })?;
        if let (Some(what), Some(_)) = (torn, names.peek()) {
            return Err(WalError::Damaged { segment: name.clone(), offset: segment.offset, what });
        }
        is_torn = torn.is_some();
        crc = segment.crc;
    }
    log.finish(is_torn)
}

/// The segments needed from `index` on, in order.
fn segments(dir: &Path, index: u64) -> Result<Vec<String>, WalError> {
    let list = |source| WalError::Read { path: dir.to_owned(), source };
    let mut found: Vec<(u64, u64, String)> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        let Some(name) = name.to_str() else { continue };
        found.extend(numbers(name).map(|(sequence, first)| (sequence, first, name.to_owned())));
    }
    found.sort_unstable();
    let from = found.iter().rposition(|(_, first, _)| *first <= index);
    let needed = found.split_off(from.ok_or(WalError::NoSegment { index })?);
    for two in needed.windows(2) {
        if let [(before, _, _), (after, _, name)] = two
            && before.checked_add(1) != Some(*after)
        {
            return Err(WalError::Gap(name.clone()));
        }
    }
    Ok(needed.into_iter().map(|(_, _, name)| name).collect())
}

/// Sequence and first index in a segment's name.
fn numbers(name: &str) -> Option<(u64, u64)> {
    let (sequence, first) = name.strip_suffix(".wal")?.split_once('-')?;
    let number = |text: &str| {
        let is_plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    Some((number(sequence)?, number(first)?))
}

enum Stop {
    Io(io::Error),
    Damaged(WalError),
}

/// What the records said so far.
struct Log {
    start: SnapFile,
    metadata: Option<LogMetadata>,
    state: Option<HardState>,
    last: u64,
    /// Whether the log knows the snapshot it is read from.
    has_start: bool,
}

impl Log {
    /// Reads a segment to its end; gives what is torn there.
    fn read<R: io::Read>(
        &mut self,
        name: &str,
        segment: &mut Segment<R>,
    ) -> Result<Option<&'static str>, Stop> {
        loop {
            let offset = segment.offset;
            let damaged =
                |what| Stop::Damaged(WalError::Damaged { segment: name.to_owned(), offset, what });
            match segment.next() {
                Ok(Next::End) => return Ok(None),
                Ok(Next::Torn(what)) => return Ok(Some(what)),
                Ok(Next::Record { kind, data }) => self.take(kind, data).map_err(damaged)?,
                Err(ReadError::Damaged(what)) => return Err(damaged(what)),
                Err(ReadError::Io(error)) => return Err(Stop::Io(error)),
            }
        }
    }

    fn take(&mut self, kind: i64, data: Bytes) -> Result<(), &'static str> {
        match kind {
            METADATA => self.metadata(data),
            ENTRY => self.entry(data),
            STATE => {
                self.state = Some(HardState::decode(data).map_err(|_| "a state is no message")?);
                Ok(())
            }
            CRC => Ok(()),
            SNAPSHOT => self.snapshot(data),
            _ => Err("a record is of no known kind"),
        }
    }

    fn metadata(&mut self, data: Bytes) -> Result<(), &'static str> {
        let found = LogMetadata::decode(data).map_err(|_| "its metadata is no message")?;
        match self.metadata.replace(found) {
            Some(before) if before != found => Err("it belongs to another member or cluster"),
            Some(_) | None => Ok(()),
        }
    }

    fn entry(&mut self, data: Bytes) -> Result<(), &'static str> {
        let entry = Entry::decode(data).map_err(|_| "an entry is no message")?;
        let index = entry.index.unwrap_or(0);
        if index <= self.start.index {
            return Ok(());
        }
        // A new leader may overwrite what was not committed; it never leaves a gap.
        if index > self.last.saturating_add(1) {
            return Err("entries are missing before this one");
        }
        self.last = index;
        Ok(())
    }

    fn snapshot(&mut self, data: Bytes) -> Result<(), &'static str> {
        let found = LogSnapshot::decode(data).map_err(|_| "a snapshot record is no message")?;
        if found.index.unwrap_or(0) == self.start.index {
            if found.term.unwrap_or(0) != self.start.term {
                return Err("the snapshot file is of another term");
            }
            self.has_start = true;
        }
        Ok(())
    }

    fn finish(self, is_torn: bool) -> Result<WalSummary, WalError> {
        if !self.has_start {
            return Err(WalError::NoSnapshot { index: self.start.index });
        }
        let state = self.state.unwrap_or_default();
        let (commit, first) = (state.commit.unwrap_or(0), self.start.index);
        // A log without any state is one nothing was committed to yet.
        if self.state.is_some() && !(first..=self.last).contains(&commit) {
            return Err(WalError::Commit { commit, first, last: self.last });
        }
        let metadata = self.metadata.unwrap_or_default();
        Ok(WalSummary {
            member: metadata.node.unwrap_or(0),
            cluster: metadata.cluster.unwrap_or(0),
            last: self.last,
            commit,
            term: state.term.unwrap_or(0),
            is_torn,
        })
    }
}
