//! Files of a rebuild whose source is on this node: copied from directory to directory, without a
//! network. Any trouble is a reason to pull them instead, so nothing here is tried twice.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rpc::ptypes::FileLocalSync;
use tasks::Stop;

use super::WINDOW_BYTES;
use super::content::{Content, FileContent, recorded};
use super::queue::File;
use super::target::{Before, Target, TargetError};
use crate::agent::error::JobError;
use crate::agent::status::Claim;
use crate::agent::{Agent, HOST_ROOTS};

const COPY_BYTES: u64 = 1024 * 1024;

/// Copies all files from the one directory into the other, which must be ours.
pub(crate) async fn copy(
    agent: &Arc<Agent>,
    claim: &Claim,
    files: &[File],
    paths: &FileLocalSync,
) -> Result<(), JobError> {
    let (own, paths) = (agent.dir.clone(), paths.clone());
    let find = move || source_dir(&own, &paths);
    let source = agent.tasks.blocking("compare directories", find).await??;
    let total = files.iter().map(|file| file.weight_bytes).fold(0, u64::saturating_add).max(1);
    let done = Arc::new(AtomicU64::new(0));
    for file in files {
        let (source, own, stop) = (source.clone(), agent.dir.clone(), agent.tasks.stop_signal());
        let moved = file.clone();
        let copy = move || copy_file(&source, &own, &moved, &stop);
        agent.tasks.blocking("copy a file", copy).await??;
        let before = done.fetch_add(file.weight_bytes, Ordering::Relaxed);
        let sum = before.saturating_add(file.weight_bytes);
        let percent = u128::from(sum) * 100 / u128::from(total);
        claim.progress(u8::try_from(percent).unwrap_or(100));
    }
    Ok(())
}

/// The directory to copy from, seen from where the directory to copy to is ours.
fn source_dir(own: &Path, paths: &FileLocalSync) -> Result<PathBuf, JobError> {
    let (source, target) = (inside(&paths.source_path)?, inside(&paths.target_path)?);
    for root in HOST_ROOTS.map(Path::new) {
        if is_same(&root.join(target), own).is_ok_and(|is_same| is_same) {
            return Ok(root.join(source));
        }
    }
    let text = format!("{} is not the directory of this replica", paths.target_path);
    Err(JobError::Local(text))
}

/// An absolute path, below whatever the root is.
fn inside(path: &str) -> Result<&Path, JobError> {
    let is_plain = Path::new(path).components().all(|part| part != Component::ParentDir);
    Path::new(path)
        .strip_prefix("/")
        .ok()
        .filter(|_| is_plain)
        .ok_or_else(|| JobError::Local(format!("{path:?} is not an absolute path")))
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (fs::metadata(one)?, fs::metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn copy_file(source: &Path, dir: &Path, file: &File, stop: &Stop) -> Result<(), JobError> {
    let content = FileContent::open(source, &file.from)?;
    let size = content.size_bytes();
    let failed = |error: TargetError| JobError::Local(format!("{}: {error}", file.to));
    let (target, before) = Target::open(dir, &file.to, size).map_err(failed)?;
    let piece = usize::try_from(COPY_BYTES).unwrap_or(0);
    let mut copying = Copying { content, target, before, new: vec![0; piece], old: vec![0; piece] };
    let mut at = 0;
    while at < size {
        let window = at..size.min(at.saturating_add(WINDOW_BYTES));
        at = window.end;
        for run in copying.content.runs(window)? {
            let end = run.offset.saturating_add(run.len_bytes);
            if run.is_data {
                copying.copy(run.offset..end, stop, failed)?;
            } else {
                copying.target.punch(run.offset, end).map_err(failed)?;
            }
        }
    }
    let record = file.from.disk().and_then(|disk| recorded(source, &disk));
    let record = record.as_ref().map(|record| (record.method.as_str(), record.checksum.as_str()));
    copying.target.close(record, &crate::agent::now()).map_err(failed)
}

struct Copying {
    content: FileContent,
    target: Target,
    before: Before,
    new: Vec<u8>,
    old: Vec<u8>,
}

impl Copying {
    /// Writes what is not there already.
    fn copy(
        &mut self,
        range: Range<u64>,
        stop: &Stop,
        failed: impl Fn(TargetError) -> JobError + Copy,
    ) -> Result<(), JobError> {
        let mut at = range.start;
        while at < range.end {
            if stop.is_stopping() {
                return Err(JobError::Stopped);
            }
            let end = range.end.min(at.saturating_add(COPY_BYTES));
            let len = usize::try_from(end - at).unwrap_or(0);
            let new = self.new.get_mut(..len).unwrap_or_default();
            let old = self.old.get_mut(..len).unwrap_or_default();
            self.content.read(new, at)?;
            let is_there = self.before == Before::Existed
                && self.target.read_data(old, at).map_err(failed)?
                && *old == *new;
            if !is_there {
                self.target.write(new, at).map_err(failed)?;
            }
            at = end;
        }
        Ok(())
    }
}
