//! What this replica was restored from, and what is being restored: kept beside the replica, so that
//! it outlives the agent. Owns that file and what may be done next; never credentials.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use backupstore::restore::Held;
use backupstore::{BackupUrl, Control, Name};
use durable::{Mode, RealDisk};
use jiff::Timestamp;
use rpc::ptypes::RestoreStatusResponse;
use serde::{Deserialize, Serialize};

use super::fanout::Meter;
use crate::agent::error::JobError;
use crate::disk::{DiskMeta, DiskName, VolumeMeta, meta_file};

/// In the replica's directory.
const FILE: &str = "restore.json";
const VOLUME_META: &str = "volume.meta";
/// Room for the map of a volume of 64 TiB.
const FILE_MAX_BYTES: usize = 16 << 20;
const META_MAX_BYTES: usize = 1 << 20;

/// How a restore goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    /// Straight into a snapshot that is not there yet.
    Full,
    /// Into a file that then takes the place of the snapshot.
    Replace,
    /// What changed, into a file that is then folded into the snapshot.
    Incremental,
}

impl Kind {
    /// The word of the dialect.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Full | Self::Replace => "full",
            Self::Incremental => "incremental",
        }
    }
}

/// What is written down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    /// The backup that the snapshot holds; empty where it holds none, or parts of two.
    pub(super) last_restored: String,
    /// What that was: the store may have another backup of this name by now. Releases before wrote nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<Held>,
    /// When this was written, where it does not say what was held, and nothing was begun since.
    #[serde(skip)]
    pub(super) written: Option<Timestamp>,
    /// The disk that is restored to.
    pub(super) snapshot: String,
    /// Of the backup that was asked for last.
    pub(super) url: String,
    /// Which blocks of the backup the snapshot has not, where a restore went on without them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) left_out: String,
    /// Which replicas were asked for the backup that the snapshot holds, as they were then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) companions: Vec<String>,
    pub(super) unfinished: Option<Unfinished>,
}

impl Record {
    /// Whether what the store has under the name of the backup that is restored is that backup. Without an
    /// identity, one that was complete when the restore ended is: while a restore runs, none is removed.
    fn holds(&self, stored: &Held) -> bool {
        match (&self.held, self.written) {
            (Some(held), _) => held.is_same(stored),
            (None, Some(written)) => {
                stored.completed.parse::<Timestamp>().is_ok_and(|completed| completed <= written)
            }
            (None, None) => false,
        }
    }
}

/// A restore that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unfinished {
    pub(super) backup: String,
    pub(super) kind: Kind,
    /// What that was then; nothing where a release before began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) held: Option<Held>,
    /// The backup below an incremental one; else empty.
    pub(super) previous: String,
    /// What that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base: Option<Held>,
    pub(super) file: String,
    /// Names everything that was to be done: a map of another plan is worth nothing.
    pub(super) plan: String,
    /// One bit for each block of the volume that is in the file for good.
    #[serde(with = "packed")]
    pub(super) written: Vec<u8>,
    /// Which replicas were asked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) companions: Vec<String>,
}

mod packed {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::Deserialize as _;

    pub(super) fn serialize<S: serde::Serializer>(map: &[u8], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&STANDARD.encode(map))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

/// What runs now.
#[derive(Debug, Clone, Default)]
enum Phase {
    #[default]
    Idle,
    Running {
        backup: String,
        control: Control,
    },
    Failed {
        error: String,
    },
}

/// The memory of restores of one replica.
#[derive(Debug)]
pub(crate) struct Restores {
    dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    phase: Phase,
    record: Record,
    /// Of the restore that runs, or of the last one.
    meter: Meter,
}

impl Restores {
    /// Reads what an earlier agent wrote down.
    pub(crate) fn open(dir: &Path) -> Self {
        let read = durable::read_limited(dir.join(FILE), FILE_MAX_BYTES);
        let mut record: Record = match read.map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(record)) => record,
            Ok(Err(error)) => {
                tracing::warn!(%error, "{FILE} cannot be read, and is not used");
                Record::default()
            }
            Err(error) if error.is_not_found() => Record::default(),
            Err(error) => {
                tracing::warn!(error = %with_causes(&error), "{FILE} cannot be read");
                Record::default()
            }
        };
        if record.held.is_none() && record.unfinished.is_none() {
            let changed = fs::metadata(dir.join(FILE)).and_then(|file| file.modified()).ok();
            record.written = changed.and_then(|at| Timestamp::try_from(at).ok());
        }
        let inner = Inner { record, ..Inner::default() };
        Self { dir: dir.to_owned(), inner: Mutex::new(inner) }
    }

    /// Begins, or says why not. What it gives is what is known so far: whether there is anything to do is
    /// seen in the store. Blocks.
    pub(super) fn begin(&self, backup: &str, control: &Control) -> Result<Record, JobError> {
        let mut inner = self.lock();
        match &inner.phase {
            Phase::Running { .. } => return Err(JobError::AlreadyRestoring),
            Phase::Failed { .. } => return Err(JobError::RestoreFailedBefore),
            Phase::Idle => {}
        }
        self.check(&mut inner.record);
        inner.phase = Phase::Running { backup: backup.to_owned(), control: control.clone() };
        Ok(inner.record.clone())
    }

    /// It did not begin after all.
    pub(super) fn revert(&self) {
        self.lock().phase = Phase::Idle;
    }

    /// Changes what is written down. Blocks.
    pub(super) fn write(&self, change: impl FnOnce(&mut Record)) -> Result<(), JobError> {
        let mut inner = self.lock();
        change(&mut inner.record);
        self.save(&inner.record)
    }

    /// Counts what it fetches from here on.
    pub(super) fn count(&self, meter: Meter) {
        self.lock().meter = meter;
    }

    /// It ended well, with what it left out, or not. Blocks.
    pub(super) fn finish(&self, backup: &str, outcome: Result<String, JobError>) {
        let mut inner = self.lock();
        let saved = outcome.and_then(|left_out| {
            backup.clone_into(&mut inner.record.last_restored);
            inner.record.left_out = left_out;
            let done = inner.record.unfinished.take();
            (inner.record.held, inner.record.companions) =
                done.map(|begun| (begun.held, begun.companions)).unwrap_or_default();
            self.save(&inner.record)
        });
        inner.phase = match saved {
            Ok(()) => Phase::Idle,
            Err(error) => Phase::Failed { error: JobError::Restore(Box::new(error)).text() },
        };
    }

    /// Forgets all, but not what runs. Blocks.
    pub(super) fn reset(&self) -> Result<(), JobError> {
        let mut inner = self.lock();
        if let Phase::Running { .. } = inner.phase {
            return Err(JobError::ResetWhileRestoring);
        }
        if let Some(unfinished) = &inner.record.unfinished {
            self.remove_left(unfinished);
        }
        match durable::remove(self.dir.join(FILE)) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        *inner = Inner::default();
        Ok(())
    }

    /// The file of a restore that will not go on, unless it is a snapshot already.
    pub(super) fn remove_left(&self, unfinished: &Unfinished) {
        let is_disk = DiskName::parse(&unfinished.file).is_ok_and(|disk| self.has_disk(&disk));
        let is_plain = crate::agent::names::FileName::parse(&unfinished.file).is_ok();
        if !is_disk && is_plain {
            // What stays is overwritten by the next one of this name.
            let _ = fs::remove_file(self.dir.join(&unfinished.file));
        }
    }

    /// A rebuild brings the files of another replica: what was restored here is no more.
    pub(in crate::agent) fn forget(&self) -> Result<(), JobError> {
        match self.reset() {
            Err(JobError::ResetWhileRestoring) => Err(JobError::Restoring),
            forgotten => forgotten,
        }
    }

    /// Whether the snapshot holds this backup, all of it or most.
    pub(super) fn is_restored(&self, volume: &Name, backup: &Name) -> bool {
        let inner = self.lock();
        let is_idle = matches!(inner.phase, Phase::Idle);
        is_idle
            && inner.record.last_restored == backup.as_str()
            && BackupUrl::parse(&inner.record.url)
                .is_ok_and(|url| url.require_backup().is_ok_and(|(of, _)| of == volume))
    }

    /// A part of the snapshot that was restored. Blocks.
    pub(super) fn read_restored(&self, offset: u64, len_bytes: u64) -> io::Result<Vec<u8>> {
        let disk = DiskName::parse(&self.lock().record.snapshot);
        let disk = disk.map_err(|error| io::Error::other(error.text()))?;
        let file = fs::File::open(self.dir.join(disk.as_str()))?;
        let size_bytes = file.metadata()?.len();
        if offset.checked_add(len_bytes).is_none_or(|end| end > size_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut block = vec![0; usize::try_from(len_bytes).map_err(io::Error::other)?];
        file.read_exact_at(&mut block, offset)?;
        Ok(block)
    }

    /// Whether the disk is part of the chain.
    pub(super) fn has_disk(&self, disk: &DiskName) -> bool {
        self.dir.join(meta_file(disk)).is_file()
    }

    /// Blocks.
    pub(super) fn status(&self) -> RestoreStatusResponse {
        let mut inner = self.lock();
        let Inner { phase, record, meter } = &mut *inner;
        if let Phase::Idle = phase {
            self.check(record);
        }
        let mut status = RestoreStatusResponse {
            last_restored: record.last_restored.clone(),
            dest_file_name: record.snapshot.clone(),
            backup_url: record.url.clone(),
            holdfast_fetched_bytes: meter.fetched_bytes.load(Ordering::Relaxed),
            holdfast_taken_bytes: meter.taken_bytes.load(Ordering::Relaxed),
            holdfast_hashed_blocks: meter.hashed_blocks.load(Ordering::Relaxed),
            holdfast_left_out: record.left_out.clone(),
            holdfast_companions: record.companions.clone(),
            holdfast_restored_at: record
                .held
                .as_ref()
                .filter(|_| !record.last_restored.is_empty())
                .map(|held| held.started.clone())
                .unwrap_or_default(),
            holdfast_unfinished: record
                .unfinished
                .as_ref()
                .map(|begun| begun.backup.clone())
                .unwrap_or_default(),
            ..RestoreStatusResponse::default()
        };
        match phase {
            Phase::Idle if record.last_restored.is_empty() => {}
            Phase::Idle => {
                "complete".clone_into(&mut status.state);
                status.progress = 100;
            }
            Phase::Running { backup, control } => {
                status.is_restoring = true;
                "in_progress".clone_into(&mut status.state);
                status.progress = i32::try_from(control.percent().min(99)).unwrap_or(0);
                status.current_restoring_backup.clone_from(backup);
            }
            Phase::Failed { error } => {
                "error".clone_into(&mut status.state);
                status.error.clone_from(error);
            }
        }
        status
    }

    /// A record of a volume that is gone says nothing of the one that is here now.
    fn check(&self, record: &mut Record) {
        let is_of_volume = match read_json::<VolumeMeta>(&self.dir.join(VOLUME_META)) {
            Some(volume) if !record.last_restored.is_empty() => {
                let head = DiskName::parse(&volume.head).ok();
                let meta = head.map(|head| self.dir.join(meta_file(&head)));
                meta.and_then(|path| read_json::<DiskMeta>(&path))
                    .is_some_and(|head| !head.parent.is_empty())
            }
            Some(_) => true,
            None => record.last_restored.is_empty(),
        };
        if !is_of_volume {
            tracing::warn!("what was restored here is gone, and is forgotten");
            *record = Record::default();
        }
    }

    fn save(&self, record: &Record) -> Result<(), JobError> {
        let bytes = serde_json::to_vec(record)
            .map_err(|error| JobError::Refused(format!("{FILE} cannot be made: {error}")))?;
        durable::on::replace(&RealDisk, &self.dir.join(FILE), &bytes, Mode::PUBLIC)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the volume has an image below its oldest snapshot, which shows through holes.
pub(super) fn has_backing(dir: &Path) -> bool {
    read_json::<VolumeMeta>(&dir.join(VOLUME_META))
        .is_some_and(|volume| !volume.backing_file_path.is_empty())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = durable::read_limited(path, META_MAX_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn with_causes(error: &durable::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The backup is restored already.
    Nothing,
    Restore(Kind, String),
}

/// What a request for `backup` is to do, where `stored` is what the store has under those names that are
/// known here and load, and `in_chain` says whether the snapshot is there. A backup counts as the one that
/// is known here only if its data is the same: names are given again.
pub(super) fn decide(
    record: &Record,
    backup: &str,
    in_chain: bool,
    stored: &BTreeMap<String, Held>,
) -> Step {
    let restore = |kind, previous: &str| Step::Restore(kind, previous.to_owned());
    let is_still = |name: &str, then: Option<&Held>| {
        stored.get(name).zip(then).is_some_and(|(now, then)| now.is_same(then))
    };
    let last = (!record.last_restored.is_empty()).then_some(record.last_restored.as_str());
    // One that is gone from the store is nothing newer.
    if last == Some(backup) && stored.get(backup).is_none_or(|now| record.holds(now)) {
        return Step::Nothing;
    }
    if !in_chain {
        return restore(Kind::Full, "");
    }
    if let Some(begun) = record.unfinished.as_ref().filter(|begun| begun.backup == backup)
        && is_still(backup, begun.held.as_ref())
    {
        match begun.kind {
            Kind::Full => return restore(Kind::Full, ""),
            Kind::Incremental if is_still(&begun.previous, begun.base.as_ref()) => {
                return restore(Kind::Incremental, &begun.previous);
            }
            Kind::Replace | Kind::Incremental => {}
        }
    }
    match last.filter(|last| stored.get(*last).is_some_and(|now| record.holds(now))) {
        // What lacks blocks is no base.
        Some(last) if record.left_out.is_empty() => restore(Kind::Incremental, last),
        Some(_) | None => restore(Kind::Replace, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished(backup: &str, kind: Kind, previous: &str) -> Unfinished {
        Unfinished {
            backup: backup.into(),
            held: Some(held(backup)),
            kind,
            previous: previous.into(),
            base: Some(held(previous)).filter(|_| !previous.is_empty()),
            file: "volume-snap-a.img".into(),
            plan: "p".into(),
            written: vec![1, 2],
            companions: vec!["other".into()],
        }
    }

    fn record(last: &str, unfinished: impl Into<Option<Unfinished>>) -> Record {
        let unfinished = unfinished.into();
        let held = Some(held(last)).filter(|_| !last.is_empty());
        Record { last_restored: last.into(), held, unfinished, ..Record::default() }
    }

    /// Of a backup that was made once.
    fn held(name: &str) -> Held {
        Held { content: name.into(), started: String::new(), completed: NOON.into() }
    }

    /// Of another with the same name.
    fn remade(name: &str) -> (String, Held) {
        (name.into(), Held { content: format!("{name} again"), ..held(name) })
    }

    fn stored(names: &[&str]) -> BTreeMap<String, Held> {
        names.iter().map(|name| ((*name).into(), held(name))).collect()
    }

    const NOON: &str = "2026-11-15T12:00:00Z";

    #[test]
    fn what_is_there_is_never_overwritten_in_place() {
        let (none, all) = (&stored(&[]), &stored(&["b1", "b2", "b3"]));
        let to = |kind, previous: &str| Step::Restore(kind, previous.to_owned());
        assert_eq!(decide(&record("", None), "b2", false, none), to(Kind::Full, ""));
        assert_eq!(decide(&record("", None), "b2", true, none), to(Kind::Replace, ""));
        assert_eq!(decide(&record("b1", None), "b2", true, none), to(Kind::Replace, ""));
        assert_eq!(decide(&record("b1", None), "b2", true, all), to(Kind::Incremental, "b1"));
        let lacking = Record { left_out: "1 block".into(), ..record("b1", None) };
        assert_eq!(decide(&lacking, "b2", true, all), to(Kind::Replace, ""));
        let folding = record("", unfinished("b2", Kind::Incremental, "b1"));
        assert_eq!(decide(&folding, "b2", true, all), to(Kind::Incremental, "b1"));
        // A snapshot with parts of two backups is no base for a third.
        assert_eq!(decide(&folding, "b3", true, all), to(Kind::Replace, ""));
        let first = record("", unfinished("b1", Kind::Full, ""));
        assert_eq!(decide(&first, "b1", false, all), to(Kind::Full, ""));
        assert_eq!(decide(&first, "b2", false, all), to(Kind::Full, ""));
        // It was adopted already.
        assert_eq!(decide(&first, "b1", true, all), to(Kind::Full, ""));
    }

    #[test]
    fn a_name_that_was_given_again_is_not_what_is_held() {
        let to = |kind, previous: &str| Step::Restore(kind, previous.to_owned());
        let all = stored(&["b1", "b2"]);
        let with = |name: &str| {
            let mut all = all.clone();
            all.extend([remade(name)]);
            all
        };
        let restored = record("b1", None);
        assert_eq!(decide(&restored, "b1", true, &all), Step::Nothing);
        assert_eq!(decide(&restored, "b1", true, &stored(&[])), Step::Nothing);
        assert_eq!(decide(&restored, "b1", true, &with("b1")), to(Kind::Replace, ""));
        assert_eq!(decide(&restored, "b2", true, &with("b1")), to(Kind::Replace, ""));
        // Half folded: either end may be another by now.
        let folding = record("", unfinished("b2", Kind::Incremental, "b1"));
        assert_eq!(decide(&folding, "b2", true, &with("b1")), to(Kind::Replace, ""));
        assert_eq!(decide(&folding, "b2", true, &with("b2")), to(Kind::Replace, ""));
        // Not folded yet: what it holds is a base still.
        let begun = record("b1", unfinished("b2", Kind::Incremental, "b1"));
        assert_eq!(decide(&begun, "b2", true, &with("b2")), to(Kind::Incremental, "b1"));
        let adopted = record("", unfinished("b1", Kind::Full, ""));
        assert_eq!(decide(&adopted, "b1", true, &with("b1")), to(Kind::Replace, ""));
    }

    #[test]
    fn what_a_release_before_wrote_down_is_of_its_time() {
        let to = |kind, previous: &str| Step::Restore(kind, previous.to_owned());
        let all = stored(&["b1", "b2"]);
        let written = |at: &str| {
            let written = at.parse().ok();
            Record { held: None, written, ..record("b1", None) }
        };
        let later = written("2026-11-15T12:00:01Z");
        assert_eq!(decide(&later, "b1", true, &all), Step::Nothing);
        assert_eq!(decide(&later, "b2", true, &all), to(Kind::Incremental, "b1"));
        let before = written("2026-11-15T11:59:59Z");
        assert_eq!(decide(&before, "b1", true, &all), to(Kind::Replace, ""));
        assert_eq!(decide(&before, "b2", true, &all), to(Kind::Replace, ""));
        let folding =
            Unfinished { held: None, base: None, ..unfinished("b2", Kind::Incremental, "b1") };
        let folding = Record { held: None, ..record("", folding) };
        assert_eq!(decide(&folding, "b2", true, &all), to(Kind::Replace, ""));
    }

    #[test]
    fn a_record_outlives_its_agent_but_not_its_volume() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        durable::replace(dir.join(VOLUME_META), br#"{"Head":"volume-head-001.img"}"#).unwrap();
        let head = dir.join("volume-head-001.img.meta");
        durable::replace(&head, br#"{"Parent":"volume-snap-a.img"}"#).unwrap();
        let restores = Restores::open(dir);
        assert_eq!(restores.status(), RestoreStatusResponse::default());
        let control = Control::default();
        restores.begin("b1", &control).unwrap();
        let busy = restores.begin("b1", &control).unwrap_err().text();
        assert_eq!(busy, "cannot initiate backup restore as there is one already in progress");
        let text = restores.reset().unwrap_err().text();
        assert_eq!(text, "replica is currently restoring, cannot reset");
        let begun = unfinished("b1", Kind::Full, "");
        restores.write(|record| record.unfinished = Some(begun)).unwrap();

        let again = Restores::open(dir);
        assert_eq!(again.begin("b1", &control).unwrap().unfinished.unwrap().written, [1, 2]);
        again.finish("b1", Ok(String::new()));
        let again = Restores::open(dir);
        let status = again.status();
        assert_eq!((status.state.as_str(), status.last_restored.as_str()), ("complete", "b1"));
        assert_eq!(status.holdfast_companions, ["other"]);
        let known = again.begin("b2", &control).unwrap();
        assert_eq!((known.held, known.unfinished), (Some(held("b1")), None));
        again.finish("b2", Err(JobError::NoReplica));
        let text = again.begin("b2", &control).unwrap_err().text();
        assert_eq!(text, "cannot start backup restore of the previous restore fails");
        let status = again.status();
        assert_eq!((status.state.as_str(), status.last_restored.as_str()), ("error", "b1"));
        assert!(status.error.starts_with("failed to wait for restore complete: "));

        durable::replace(&head, br#"{"Parent":""}"#).unwrap();
        assert_eq!(Restores::open(dir).status(), RestoreStatusResponse::default());
        again.reset().unwrap();
        assert!(!dir.join(FILE).exists());
    }
}
