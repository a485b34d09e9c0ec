//! Names of objects: written, and read from what any store may hold.
//!
//! Never: a look at more than the part of a key that follows the store's own prefix and the marker
//! of a layout, so that neither a prefix with `v1/` in it nor a sibling can mislead.

use jiff::Timestamp;

use super::compress::Compression;
use super::snapshot::{Kind, Layout, Snapshot};

pub const FINAL: &str = ".final";
/// Of objects that are encrypted before they are sent; after that of the compression.
pub const ENCRYPTED: &str = ".aesgcm";
/// Longer ones cannot be ours.
const NAME_MAX_BYTES: usize = 255;

impl Layout {
    /// The part of a key that marks it.
    pub const fn marker(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name of a snapshot is Full- or Incr-, two revisions and a time")]
    Shape,
    #[error("its revisions are no numbers")]
    Revision,
    #[error("its first revision is above its last")]
    Range,
    #[error("its time is no time")]
    Time,
    #[error("what follows its time is no known ending")]
    Suffix,
    #[error("its path has too many or too few parts for its layout")]
    Depth,
}

/// The name that the fields of a snapshot say, without the number of a chunk.
pub fn format(snapshot: &Snapshot) -> String {
    let Snapshot { kind, start_revision, last_revision, created_on, .. } = snapshot;
    let mut name = format!(
        "{}-{start_revision:08}-{last_revision:08}-{}",
        kind.as_str(),
        created_on.as_second()
    );
    name.push_str(snapshot.compression.map_or("", Compression::suffix));
    if snapshot.is_encrypted {
        name.push_str(ENCRYPTED);
    }
    if snapshot.is_final {
        name.push_str(FINAL);
    }
    name
}

/// The snapshot of an object, by what follows `<prefix>/v1/` or `<prefix>/v2/` in its key.
pub fn parse(layout: Layout, below: &str) -> Result<Snapshot, NameError> {
    let (dir, rest) = match layout {
        Layout::V2 => ("", below),
        Layout::V1 => below.split_once('/').ok_or(NameError::Depth)?,
    };
    let (name, chunk) = match rest.split_once('/') {
        Some((name, chunk)) => (name, Some(chunk)),
        None => (rest, None),
    };
    if dir.contains('/') || chunk.is_some_and(|chunk| chunk.contains('/') || chunk.is_empty()) {
        return Err(NameError::Depth);
    }
    let mut snapshot = parse_name(name)?;
    snapshot.layout = layout;
    snapshot.is_chunk = chunk.is_some();
    dir.clone_into(&mut snapshot.snap_dir);
    rest.clone_into(&mut snapshot.snap_name);
    Ok(snapshot)
}

fn parse_name(name: &str) -> Result<Snapshot, NameError> {
    if name.len() > NAME_MAX_BYTES {
        return Err(NameError::Shape);
    }
    let mut parts = name.split('-');
    let (Some(kind), Some(start), Some(last), Some(end), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(NameError::Shape);
    };
    let kind = match kind {
        "Full" => Kind::Full,
        "Incr" => Kind::Incr,
        _ => return Err(NameError::Shape),
    };
    let (start_revision, last_revision) = (revision(start)?, revision(last)?);
    if start_revision > last_revision {
        return Err(NameError::Range);
    }
    let digits = end.bytes().take_while(u8::is_ascii_digit).count();
    let (second, endings) = end.split_at_checked(digits).ok_or(NameError::Time)?;
    let second: i64 = second.parse().map_err(|_| NameError::Time)?;
    let created_on = Timestamp::from_second(second).map_err(|_| NameError::Time)?;
    let (compression, is_encrypted, is_final) = parse_endings(endings)?;
    let mut snapshot = match kind {
        Kind::Full => Snapshot::full(last_revision, created_on, compression, is_final),
        Kind::Incr => Snapshot::delta(start_revision, last_revision, created_on, compression),
    };
    snapshot.start_revision = start_revision;
    snapshot.is_final = is_final;
    snapshot.is_encrypted = is_encrypted;
    Ok(snapshot)
}

fn revision(digits: &str) -> Result<i64, NameError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NameError::Revision);
    }
    digits.parse().map_err(|_| NameError::Revision)
}

fn parse_endings(endings: &str) -> Result<(Option<Compression>, bool, bool), NameError> {
    let (rest, is_final) = cut(endings, FINAL);
    let (rest, is_encrypted) = cut(rest, ENCRYPTED);
    let compression = match rest {
        "" => None,
        suffix => Some(Compression::of_suffix(suffix).ok_or(NameError::Suffix)?),
    };
    Ok((compression, is_encrypted, is_final))
}

fn cut<'t>(text: &'t str, suffix: &str) -> (&'t str, bool) {
    text.strip_suffix(suffix).map_or((text, false), |rest| (rest, true))
}

#[cfg(test)]
mod tests;
