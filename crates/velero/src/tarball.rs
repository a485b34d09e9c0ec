//! The archive a backup is kept in: a tar of regular files, packed with gzip.
//!
//! Owns: writing its members and reading them back, piece by piece, whatever the pieces are. Never:
//! holds more than a header, touches a file, or follows a path. Whoever wrote the archive is not
//! trusted: links, devices, paths that climb, lengths that do not fit and sums that are wrong end
//! the reading, and nothing that was read before is used then. A member that merely has a name which no
//! path has is left out, and told: others are not lost with it.

use std::collections::HashSet;
use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use sha2::{Digest, Sha256};

const BLOCK: usize = 512;
const NAME_MAX: usize = 100;
const PREFIX_MAX: usize = 155;
/// Of a header that only gives the next member a long name: no object, and so no name, is longer.
const EXTENDED_MAX_BYTES: u64 = 4 << 20;
/// A kind, a namespace and a name have less.
const PATH_MAX_BYTES: usize = 1024;

/// What an archive may hold. API servers take objects of 3 MiB, etcd half of that.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub member_max_bytes: u64,
    pub members_max: u64,
    pub total_max_bytes: u64,
    /// Of all paths together: they are held in memory.
    pub paths_max_bytes: u64,
    /// Lists, objects and places in them, of one member that is read.
    pub parts_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            member_max_bytes: 16 << 20,
            members_max: 4_000_000,
            total_max_bytes: 256 << 30,
            paths_max_bytes: 512 << 20,
            parts_max: usize::MAX,
        }
    }
}

impl Limits {
    /// Of an archive that a tenant can write: more than one namespace may have, where each object is
    /// there twice. What is known of each stays in memory, for eight tenants at a time.
    pub fn of_tenants() -> Self {
        Self {
            member_max_bytes: 4 << 20,
            members_max: 250_000,
            total_max_bytes: 4 << 30,
            paths_max_bytes: 32 << 20,
            parts_max: 30_000,
        }
    }
}

impl Limits {
    /// One more member, beside so many that are there already; `paths` are the bytes of all, its own too.
    fn check_member(
        &self,
        path: &str,
        size: u64,
        members: u64,
        paths: u64,
    ) -> Result<(), TarError> {
        if size > self.member_max_bytes {
            let (path, max_bytes) = (path.to_owned(), self.member_max_bytes);
            return Err(TarError::TooLong { path, len_bytes: size, max_bytes });
        }
        if members >= self.members_max {
            return Err(TarError::TooMuch { what: "members", max: self.members_max });
        }
        if paths > self.paths_max_bytes {
            return Err(TarError::TooMuch { what: "bytes of paths", max: self.paths_max_bytes });
        }
        Ok(())
    }
}

/// What an archive that is being written holds so far: only what can be read back is put into it.
#[derive(Debug, Clone)]
pub struct Account {
    limits: Limits,
    members: u64,
    paths: u64,
    total: u64,
}

impl Account {
    pub fn new(limits: Limits) -> Self {
        Self { limits, members: 0, paths: 0, total: END_BYTES }
    }

    /// A member that is to be written. It counts if it may.
    pub fn admit(&mut self, path: &str, len_bytes: u64) -> Result<(), TarError> {
        check_path(path).map_err(|fault| match fault {
            Fault::Odd(why) | Fault::Leads(why) => refused(path, why),
        })?;
        let paths = self.paths.saturating_add(path.len() as u64);
        self.limits.check_member(path, len_bytes, self.members, paths)?;
        let total = self.total.saturating_add(written_bytes(path, len_bytes));
        if total > self.limits.total_max_bytes {
            return Err(TarError::TooMuch { what: "bytes", max: self.limits.total_max_bytes });
        }
        (self.members, self.paths, self.total) = (self.members + 1, paths, total);
        Ok(())
    }
}

/// With its headers and what fills its last block.
fn written_bytes(path: &str, len_bytes: u64) -> u64 {
    let whole = |len: u64| BLOCK as u64 + len + padding(len);
    let long = match split_name(path) {
        Some(_) => 0,
        None => whole(record("path", path).len() as u64),
    };
    long + whole(len_bytes)
}

#[derive(Debug, thiserror::Error)]
pub enum TarError {
    #[error("the tarball is not gzip, or is damaged: {0}")]
    Gzip(String),
    #[error("the tarball is damaged: the sum of a header is wrong")]
    Sum,
    #[error("the tarball is damaged: a number in a header cannot be read")]
    Number,
    #[error("the tarball is cut off")]
    CutOff,
    #[error("the tarball holds {path:?}, which is {kind}; only regular files are allowed")]
    Kind { path: String, kind: &'static str },
    #[error("the tarball holds a member with the path {path:?}, which is refused: {why}")]
    Path { path: String, why: &'static str },
    #[error("the tarball holds {path:?} twice")]
    Twice { path: String },
    #[error("the tarball holds {path:?} of {len_bytes} bytes; {max_bytes} are allowed")]
    TooLong { path: String, len_bytes: u64, max_bytes: u64 },
    #[error("the tarball holds more than {max} {what}")]
    TooMuch { what: &'static str, max: u64 },
    #[error("what the tarball holds cannot be kept: {0}")]
    Keep(String),
}

/// Takes what an archive holds.
pub trait Sink {
    /// A member begins. `false` leaves it out.
    fn begin(&mut self, path: &str, len_bytes: u64) -> io::Result<bool>;
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
    /// A member is there that nobody can have: why.
    fn left_out(&mut self, _path: &str, _why: &'static str) {}
}

/// The members of an archive as they come: a target for its decompressed bytes.
#[derive(Debug)]
pub struct Members<S> {
    sink: S,
    limits: Limits,
    state: State,
    header: Vec<u8>,
    /// From an extended header, for the member after it.
    long_name: Option<String>,
    long_size: Option<u64>,
    /// Of their paths: short sums, so that an archive of many members costs little.
    seen: HashSet<[u8; 16]>,
    total: u64,
    paths: u64,
    failed: Option<TarError>,
}

#[derive(Debug)]
enum State {
    Header,
    Member {
        left: u64,
        padding: u64,
        wanted: bool,
    },
    Extended {
        left: u64,
        padding: u64,
        kind: u8,
        text: Vec<u8>,
    },
    Padding(u64),
    /// After the mark of the end nothing counts.
    Ended,
}

impl<S: Sink> Members<S> {
    pub fn new(sink: S, limits: Limits) -> Self {
        Self {
            sink,
            limits,
            state: State::Header,
            header: Vec::with_capacity(BLOCK),
            long_name: None,
            long_size: None,
            seen: HashSet::new(),
            total: 0,
            paths: 0,
            failed: None,
        }
    }

    /// Takes more of the archive.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), TarError> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        if self.total > self.limits.total_max_bytes {
            return Err(TarError::TooMuch { what: "bytes", max: self.limits.total_max_bytes });
        }
        while !bytes.is_empty() {
            bytes = self.step(bytes)?;
        }
        Ok(())
    }

    /// What was kept, if the archive ended where it says.
    pub fn finish(self) -> Result<S, TarError> {
        match self.state {
            State::Ended => Ok(self.sink),
            _ => Err(TarError::CutOff),
        }
    }

    fn step<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], TarError> {
        match &mut self.state {
            State::Ended => Ok(&[]),
            State::Header => {
                let missing = BLOCK - self.header.len();
                let (taken, rest) = split(bytes, missing as u64);
                self.header.extend_from_slice(taken);
                if self.header.len() == BLOCK {
                    let header = std::mem::take(&mut self.header);
                    self.state = self.begin(&header)?;
                }
                Ok(rest)
            }
            State::Member { left, padding, wanted } => {
                let (taken, rest) = split(bytes, *left);
                if *wanted {
                    self.sink.bytes(taken).map_err(|error| TarError::Keep(error.to_string()))?;
                }
                *left -= taken.len() as u64;
                if *left == 0 {
                    let (padding, wanted) = (*padding, *wanted);
                    self.end_member(padding, wanted)?;
                }
                Ok(rest)
            }
            State::Extended { left, padding, kind, text } => {
                let (taken, rest) = split(bytes, *left);
                text.extend_from_slice(taken);
                *left -= taken.len() as u64;
                if *left == 0 {
                    let (padding, kind, text) = (*padding, *kind, std::mem::take(text));
                    self.extend(kind, &text)?;
                    self.state = after(padding);
                }
                Ok(rest)
            }
            State::Padding(left) => {
                let (taken, rest) = split(bytes, *left);
                *left -= taken.len() as u64;
                if *left == 0 {
                    self.state = State::Header;
                }
                Ok(rest)
            }
        }
    }

    fn end_member(&mut self, padding: u64, wanted: bool) -> Result<(), TarError> {
        if wanted {
            self.sink.end().map_err(|error| TarError::Keep(error.to_string()))?;
        }
        self.state = after(padding);
        Ok(())
    }

    fn begin(&mut self, block: &[u8]) -> Result<State, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(State::Ended);
        }
        check_sum(block)?;
        let kind = block.get(156).copied().unwrap_or_default();
        let own_size = number(field(block, 124, 12))?;
        if matches!(kind, b'x' | b'L' | b'g') {
            let path = text(field(block, 0, NAME_MAX));
            if own_size > EXTENDED_MAX_BYTES {
                let max_bytes = EXTENDED_MAX_BYTES;
                return Err(TarError::TooLong { path, len_bytes: own_size, max_bytes });
            }
            let padding = padding(own_size);
            return Ok(match own_size {
                0 => after(padding),
                left => State::Extended { left, padding, kind, text: Vec::new() },
            });
        }
        let path = self.long_name.take().unwrap_or_else(|| short_name(block));
        let size = self.long_size.take().unwrap_or(own_size);
        let odd = match check_path(&path) {
            Ok(()) => None,
            Err(Fault::Odd(why)) => Some(why),
            Err(Fault::Leads(why)) => return Err(refused(&path, why)),
        };
        match kind {
            b'0' | 0 => {}
            // Folders hold nothing and lead nowhere: other tools write them.
            b'5' if size == 0 => return Ok(State::Header),
            other => return Err(TarError::Kind { path, kind: kind_name(other) }),
        }
        if let Some(why) = odd {
            self.sink.left_out(&path, why);
            return Ok(member(size, false));
        }
        self.admit(path, size)
    }

    fn admit(&mut self, path: String, size: u64) -> Result<State, TarError> {
        self.paths = self.paths.saturating_add(path.len() as u64);
        self.limits.check_member(&path, size, self.seen.len() as u64, self.paths)?;
        let wanted = self.sink.begin(&path, size);
        let wanted = wanted.map_err(|error| TarError::Keep(error.to_string()))?;
        if !self.seen.insert(sum_of(&path)) {
            return Err(TarError::Twice { path });
        }
        if size == 0 {
            self.end_member(0, wanted)?;
        }
        Ok(member(size, wanted))
    }

    fn extend(&mut self, kind: u8, body: &[u8]) -> Result<(), TarError> {
        match kind {
            b'L' => self.long_name = Some(text(body)),
            b'x' => {
                for (key, value) in records(body)? {
                    match key.as_str() {
                        "path" => self.long_name = Some(value),
                        "size" => {
                            self.long_size = Some(value.parse().map_err(|_| TarError::Number)?);
                        }
                        _ => {}
                    }
                }
            }
            // For the whole archive: names and lengths of all members cannot be the same.
            _ => {}
        }
        Ok(())
    }
}

/// Lets a decompressor write into it; the error that ended it is kept beside the one of `io`.
impl<S: Sink> Write for Members<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map_err(|error| {
            let shown = io::Error::other(error.to_string());
            self.failed = Some(error);
            shown
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A packed archive, read as it comes.
pub struct Unpacker<S: Sink> {
    decoder: MultiGzDecoder<Members<S>>,
}

impl<S: Sink> std::fmt::Debug for Unpacker<S> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl<S: Sink> Unpacker<S> {
    pub fn new(sink: S, limits: Limits) -> Self {
        Self { decoder: MultiGzDecoder::new(Members::new(sink, limits)) }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        let done = self.decoder.write_all(bytes);
        done.map_err(|error| self.why(&error))
    }

    /// The sums are compared here; before, nothing that was read is sure.
    pub fn finish(mut self) -> Result<S, TarError> {
        if let Err(error) = self.decoder.try_finish() {
            return Err(self.why(&error));
        }
        match self.decoder.finish() {
            Ok(members) => members.finish(),
            Err(error) => Err(TarError::Gzip(error.to_string())),
        }
    }

    fn why(&mut self, error: &io::Error) -> TarError {
        let failed = self.decoder.get_mut().failed.take();
        failed.unwrap_or_else(|| TarError::Gzip(error.to_string()))
    }
}

/// A member as it lies in the archive, without its contents' padding.
pub fn write_member(out: &mut impl Write, path: &str, bytes: &[u8], mtime: i64) -> io::Result<()> {
    if let Some((prefix, name)) = split_name(path) {
        out.write_all(&header(prefix, name, bytes.len() as u64, mtime, b'0'))?;
    } else {
        let record = record("path", path);
        let long = header("", "PaxHeaders.0/long", record.len() as u64, mtime, b'x');
        out.write_all(&long)?;
        write_padded(out, record.as_bytes())?;
        let name: String = path.chars().filter(char::is_ascii).take(NAME_MAX).collect();
        out.write_all(&header("", &name, bytes.len() as u64, mtime, b'0'))?;
    }
    write_padded(out, bytes)
}

const END_BYTES: u64 = 2 * BLOCK as u64;

/// The mark of the end.
pub fn write_end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; BLOCK * 2])
}

fn write_padded(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    let padding = usize::try_from(padding(bytes.len() as u64)).unwrap_or_default();
    out.write_all([0; BLOCK].get(..padding).unwrap_or_default())
}

fn header(prefix: &str, name: &str, size: u64, mtime: i64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = block.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{:011o}\0", mtime.clamp(0, 0o77_777_777_777)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    if let Some(field) = block.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    block
}

/// A path in the two fields of a header, where it fits.
fn split_name(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= NAME_MAX {
        return Some(("", path));
    }
    path.match_indices('/')
        .map(|(at, _)| path.split_at(at))
        .map(|(prefix, rest)| (prefix, rest.trim_start_matches('/')))
        .find(|(prefix, name)| {
            prefix.len() <= PREFIX_MAX && name.len() <= NAME_MAX && !name.is_empty()
        })
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let bare = key.len() + value.len() + 3;
    let mut len = bare + 1;
    while len != bare + len.to_string().len() {
        len = bare + len.to_string().len();
    }
    format!("{len} {key}={value}\n")
}

fn records(mut body: &[u8]) -> Result<Vec<(String, String)>, TarError> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let space = body.iter().position(|byte| *byte == b' ').ok_or(TarError::Number)?;
        let len = body.get(..space).and_then(|digits| std::str::from_utf8(digits).ok());
        let len: usize = len.and_then(|text| text.parse().ok()).ok_or(TarError::Number)?;
        let record = body.get(space + 1..len).ok_or(TarError::Number)?;
        let record = record.strip_suffix(b"\n").ok_or(TarError::Number)?;
        let record = std::str::from_utf8(record).map_err(|_| TarError::Number)?;
        let (key, value) = record.split_once('=').ok_or(TarError::Number)?;
        found.push((key.to_owned(), value.to_owned()));
        body = body.get(len..).unwrap_or_default();
    }
    Ok(found)
}

fn sum_of(path: &str) -> [u8; 16] {
    let mut short = [0; 16];
    let sum = Sha256::digest(path.as_bytes());
    short.iter_mut().zip(sum).for_each(|(to, from)| *to = from);
    short
}

fn split(bytes: &[u8], at: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len()))
}

/// What comes after the header of a member.
fn member(size: u64, wanted: bool) -> State {
    match size {
        0 => State::Header,
        left => State::Member { left, padding: padding(size), wanted },
    }
}

fn after(padding: u64) -> State {
    if padding == 0 { State::Header } else { State::Padding(padding) }
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn field(block: &[u8], at: usize, len: usize) -> &[u8] {
    block.get(at..at + len).unwrap_or_default()
}

/// Up to the first zero. What is no text stays recognisable and is refused as a path.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Something behind the first zero was meant to be part of the name: it stays, and is refused as a path.
fn name_text(field: &[u8]) -> String {
    let len = field.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(field.get(..len).unwrap_or_default()).into_owned()
}

fn short_name(block: &[u8]) -> String {
    let name = name_text(field(block, 0, NAME_MAX));
    let prefix = if field(block, 257, 6) == b"ustar\0" {
        text(field(block, 345, PREFIX_MAX))
    } else {
        String::new()
    };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

fn check_sum(block: &[u8]) -> Result<(), TarError> {
    let wanted = number(field(block, 148, 8)).map_err(|_| TarError::Sum)?;
    let count = |(at, byte): (usize, &u8)| match at {
        148..156 => u64::from(b' '),
        _ => u64::from(*byte),
    };
    if block.iter().enumerate().map(count).sum::<u64>() == wanted {
        Ok(())
    } else {
        Err(TarError::Sum)
    }
}

/// Octal digits, or the binary form that large files need.
fn number(field: &[u8]) -> Result<u64, TarError> {
    if let Some((0x80, rest)) = field.split_first().map(|(first, rest)| (*first, rest)) {
        let mut value: u64 = 0;
        for byte in rest {
            value = value.checked_mul(256).ok_or(TarError::Number)?;
            value = value.checked_add(u64::from(*byte)).ok_or(TarError::Number)?;
        }
        return Ok(value);
    }
    let text = std::str::from_utf8(field).map_err(|_| TarError::Number)?;
    let digits = text.trim_matches(|c| c == ' ' || c == '\0');
    if digits.is_empty() {
        return Ok(0);
    }
    u64::from_str_radix(digits, 8).map_err(|_| TarError::Number)
}

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It leads out of the archive: whoever wrote that means harm.
    Leads(&'static str),
    /// It holds what no path holds, and some names do.
    Odd(&'static str),
}

fn check_path(path: &str) -> Result<(), Fault> {
    if path.starts_with('/') {
        return Err(Fault::Leads("it is absolute"));
    }
    for part in path.strip_suffix('/').unwrap_or(path).split('/') {
        match part {
            "" => return Err(Fault::Leads("it has an empty part")),
            "." | ".." => return Err(Fault::Leads("it has a part that is only dots")),
            _ => {}
        }
    }
    if path.len() > PATH_MAX_BYTES {
        return Err(Fault::Odd("it is too long"));
    }
    if path.chars().any(|c| c.is_control() || c == '\\' || c == char::REPLACEMENT_CHARACTER) {
        return Err(Fault::Odd("it has a character that no path of a backup has"));
    }
    Ok(())
}

fn refused(path: &str, why: &'static str) -> TarError {
    TarError::Path { path: shown(path), why }
}

/// As much of a name as people read.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_BYTES: usize = 80;
    if text.len() <= 2 * SHOWN_BYTES {
        return text.to_owned();
    }
    format!("{}...", text.get(..text.floor_char_boundary(SHOWN_BYTES)).unwrap_or_default())
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        b'1' => "a hard link",
        b'2' => "a symbolic link",
        b'3' | b'4' => "a device",
        b'5' => "a folder with contents",
        b'6' => "a pipe",
        _ => "of a kind that is not known",
    }
}

#[cfg(test)]
mod tests;
