//! Who changed what: one JSON line for every write.
//!
//! Lines hold names, never bodies. Requests do not wait for the disk: they put their entry into a
//! bounded queue that one thread empties. If the queue is full or the disk refuses, the entry is
//! dropped and the request goes on, because a backup service that stops when its log disk is slow
//! does more harm than a gap; the gap is counted, logged, and written into the log itself.
//!
//! Lines are handed to the operating system as soon as the queue is empty, and are synced when a
//! file is full and at the end. The newest file is `PATH`, older ones are `PATH.1`, `PATH.2`, …
//!
//! Everybody can be refused and ask questions as often as they like, so these entries have a share of
//! each file and never begin a new one: they cannot drive out what was really changed.
//!
//! Whoever writes often enough turns the files over. So what administrators did, and what was done to
//! objects of the cluster, is written a second time, to `PATH` with `-cluster` in its name: those whose
//! rights end at a namespace never write there, and cannot drive it out.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use jiff::Timestamp;
use serde::Serialize;

use super::user::MASTERS;

const SAY_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_mins(1);

/// How much disk and memory the log may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub file_bytes: u64,
    /// All files together, the newest included.
    pub files: u32,
    pub queue_entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, files: 4, queue_entries: 4096 }
    }
}

/// One write, as it is remembered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub time: Timestamp,
    pub request_id: String,
    pub user: String,
    pub groups: Vec<String>,
    /// The caller behind an impersonated user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonator: Option<String>,
    pub source: String,
    pub verb: String,
    pub group: String,
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub code: u16,
    pub latency_us: u64,
}

impl Entry {
    /// Done by an administrator, or to an object of the whole cluster.
    fn concerns_the_cluster(&self) -> bool {
        self.namespace.is_empty() || self.groups.iter().any(|group| group == MASTERS)
    }

    /// A rejection, or a question, of which nothing is stored.
    fn changes_nothing(&self) -> bool {
        (400..500).contains(&self.code)
            || matches!(self.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
    }
}

/// The line that stands where entries are missing.
#[derive(Serialize)]
struct Gap {
    time: Timestamp,
    dropped: u64,
}

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenAuditError {
    #[error("cannot open the audit log {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot start the thread of the audit log")]
    Thread { source: io::Error },
}

/// The append-only log. Cheap to share behind an `Arc`; closing it writes everything out.
#[derive(Debug)]
pub struct AuditLog {
    queue: Mutex<Option<SyncSender<Entry>>>,
    dropped: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    pub fn open(path: &Path, limits: Limits) -> Result<Self, OpenAuditError> {
        let files = Files::open(path, limits)
            .map_err(|source| OpenAuditError::Open { path: path.to_owned(), source })?;
        let (queue, entries) = sync_channel(limits.queue_entries);
        let dropped = Arc::new(AtomicU64::new(0));
        let apart = cluster_path(path);
        let few = Limits { file_bytes: limits.file_bytes / 4, ..limits };
        let cluster = Files::open(&apart, few)
            .map_err(|source| OpenAuditError::Open { path: apart.clone(), source })?;
        let writer = Writer::new(entries, files, cluster, Arc::clone(&dropped));
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| OpenAuditError::Thread { source })?;
        let queue = Mutex::new(Some(queue));
        Ok(Self { queue, dropped, thread: Mutex::new(Some(thread)) })
    }

    /// Takes an entry without waiting; drops and counts it if the queue is full.
    pub fn record(&self, entry: Entry) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = queue.as_ref().is_some_and(|queue| queue.try_send(entry).is_ok());
        if !is_taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries lost since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Is there still a thread that writes? It ends when the log is closed, or by a panic.
    pub fn is_writing(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Writes out what is queued and syncs it. Blocks; entries recorded later are dropped.
    pub fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the audit thread panicked; its last lines may be missing");
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's side.
struct Writer {
    entries: Receiver<Entry>,
    files: Files,
    /// What concerns the whole cluster, once more.
    cluster: Files,
    dropped: Arc<AtomicU64>,
    /// How many of the dropped entries the log has a gap line for, or will have.
    reported: u64,
    /// Entries that had no room in their share, since the last line about it.
    left_out: u64,
    complaints: telemetry::Seldom,
}

impl Writer {
    fn new(
        entries: Receiver<Entry>,
        files: Files,
        cluster: Files,
        dropped: Arc<AtomicU64>,
    ) -> Self {
        let complaints = telemetry::Seldom::new(SAY_AGAIN_AFTER);
        Self { entries, files, cluster, dropped, reported: 0, left_out: 0, complaints }
    }

    /// A full disk fails every line; one word about it is enough.
    fn complain(&self, error: &io::Error) {
        if let Some(unsaid) = self.complaints.pass() {
            tracing::warn!(%error, unsaid, dropped = self.dropped.load(Ordering::Relaxed), "cannot write to the audit log");
        }
    }

    fn run(mut self) {
        while let Ok(first) = self.entries.recv() {
            self.write(&first);
            while let Ok(entry) = self.entries.try_recv() {
                self.write(&entry);
            }
            self.mark_gap();
            self.settle(Files::flush);
        }
        self.mark_gap();
        self.mark_left_out();
        self.settle(Files::sync);
    }

    fn write(&mut self, entry: &Entry) {
        if !entry.changes_nothing() && entry.concerns_the_cluster() {
            // It is in the other file as well, and a gap there is told.
            self.settle_cluster(|files| files.append(entry));
        }
        let written = if entry.changes_nothing() {
            self.files.append_idle(entry)
        } else {
            self.mark_left_out();
            self.files.append(entry).map(|()| true)
        };
        match written {
            Ok(true) => {}
            Ok(false) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                self.reported += 1;
                self.left_out += 1;
            }
            Err(error) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                self.complain(&error);
            }
        }
    }

    /// Says how many rejections and questions had no room. Only before an entry of another kind and at
    /// the end: as many lines as there are such entries, however many were left out.
    fn mark_left_out(&mut self) {
        let dropped = std::mem::take(&mut self.left_out);
        if dropped == 0 {
            return;
        }
        if let Err(error) = self.files.append(&Gap { time: Timestamp::now(), dropped }) {
            self.complain(&error);
        }
    }

    fn mark_gap(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let new = dropped.saturating_sub(self.reported);
        if new == 0 {
            return;
        }
        if self.files.append(&Gap { time: Timestamp::now(), dropped: new }).is_ok() {
            tracing::warn!(dropped = new, "the audit log lost entries");
            self.reported = dropped;
        }
    }

    fn settle(&mut self, act: fn(&mut Files) -> io::Result<()>) {
        if let Err(error) = act(&mut self.files) {
            self.complain(&error);
        }
        if let Some(error) = self.files.complaint.take() {
            self.complain(&error);
        }
        self.settle_cluster(act);
    }

    fn settle_cluster(&mut self, act: impl FnOnce(&mut Files) -> io::Result<()>) {
        let done = act(&mut self.cluster);
        if let Some(error) = done.err().or_else(|| self.cluster.complaint.take()) {
            self.complain(&error);
        }
    }
}

/// The current file and the ones before it.
struct Files {
    path: PathBuf,
    limits: Limits,
    current: BufWriter<File>,
    bytes: u64,
    /// Of these, what changed nothing, as far as this process has written it.
    idle_bytes: u64,
    /// The file ends in the middle of a line, and there was no space to end it.
    torn: bool,
    /// The next file could not be begun; it is tried again when this one has so many bytes.
    again_at_bytes: u64,
    /// Why, until somebody has said so.
    complaint: Option<io::Error>,
}

impl Files {
    fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        let Opened { file, bytes, torn } = open_at_line_start(path)?;
        let (path, current) = (path.to_owned(), BufWriter::new(file));
        let (idle_bytes, again_at_bytes, complaint) = (0, 0, None);
        Ok(Self { path, limits, current, bytes, idle_bytes, torn, again_at_bytes, complaint })
    }

    /// Appends a line of which nothing followed; not if the share of such lines is used up.
    fn append_idle(&mut self, line: &impl Serialize) -> io::Result<bool> {
        let bytes = encode(line)?;
        let len = length(&bytes);
        let limit = self.limits.file_bytes;
        let idle_bytes = self.idle_bytes.saturating_add(len);
        if idle_bytes > limit / 2 || self.bytes.saturating_add(len) > limit {
            return Ok(false);
        }
        self.put(bytes)?;
        self.idle_bytes = idle_bytes;
        Ok(true)
    }

    fn append(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.put(encode(line)?)
    }

    fn put(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        if std::mem::take(&mut self.torn) {
            bytes.insert(0, b'\n');
        }
        let len = length(&bytes);
        if self.bytes > 0 && self.bytes.saturating_add(len) > self.limits.file_bytes {
            self.make_room(len)?;
        }
        self.current.write_all(&bytes)?;
        self.bytes = self.bytes.saturating_add(len);
        Ok(())
    }

    /// Begins the next file. If that cannot be done, this one goes on: a log that is too long is
    /// better than one with a gap, up to twice its length.
    fn make_room(&mut self, len: u64) -> io::Result<()> {
        if self.bytes < self.again_at_bytes {
            return Ok(());
        }
        let Err(error) = self.rotate() else { return Ok(()) };
        if self.bytes.saturating_add(len) > self.limits.file_bytes.saturating_mul(2) {
            return Err(error);
        }
        self.again_at_bytes = self.bytes.saturating_add(self.limits.file_bytes / 64);
        self.complaint = Some(error);
        Ok(())
    }

    /// Whatever fails on the way, the current file stays the current one, and no file is given up
    /// that another try would not have given up as well.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let fresh = self.named(".new");
        let file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        self.age()?;
        std::fs::rename(&fresh, &self.path)?;
        self.current = BufWriter::new(file);
        (self.bytes, self.idle_bytes, self.torn, self.again_at_bytes) = (0, 0, false, 0);
        match self.path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Makes every file one older, up to the first age that no file has: a try that was cut short
    /// must not drive out the oldest at each repetition.
    fn age(&self) -> io::Result<()> {
        if !self.path.try_exists()? {
            return Ok(());
        }
        let Some(oldest) = self.limits.files.checked_sub(1).filter(|oldest| *oldest > 0) else {
            return Ok(());
        };
        let mut last = 1;
        while last < oldest && self.aged(last).try_exists()? {
            last += 1;
        }
        for age in (1..=last).rev() {
            let younger = if age == 1 { self.path.clone() } else { self.aged(age - 1) };
            std::fs::rename(younger, self.aged(age))?;
        }
        Ok(())
    }

    fn aged(&self, age: u32) -> PathBuf {
        self.named(&format!(".{age}"))
    }

    fn named(&self, end: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(end);
        name.into()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.current.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.current.flush()?;
        self.current.get_ref().sync_data()
    }
}

/// `audit-cluster.log` beside `audit.log`.
fn cluster_path(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-cluster");
    if let Some(end) = path.extension() {
        name.push(".");
        name.push(end);
    }
    path.with_file_name(name)
}

fn encode(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Opens for appending; a line that a crash cut off is ended, so that the next one stands alone.
fn open_at_line_start(path: &Path) -> io::Result<Opened> {
    let mut file =
        OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
    let mut bytes = file.metadata()?.len();
    let mut torn = false;
    if bytes > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            match file.write_all(b"\n") {
                Ok(()) => bytes += 1,
                // The server starts on a full disk too; the line is ended with the next one.
                Err(error) if is_full(&error) => torn = true,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Opened { file, bytes, torn })
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

struct Opened {
    file: File,
    bytes: u64,
    torn: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry { user: "ada".into(), verb: "create".into(), name: name.into(), ..Entry::default() }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn closing_writes_everything_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path, Limits::default()).unwrap();
        for number in 0..100 {
            log.record(entry(&format!("n{number}")));
        }
        log.close();
        log.record(entry("late"));
        assert_eq!(log.dropped(), 1);
        let lines = lines(&path);
        assert_eq!(lines.len(), 100);
        assert!(lines.iter().enumerate().all(|(at, line)| line["name"] == format!("n{at}")));
    }

    #[test]
    fn the_disk_it_takes_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = Limits { file_bytes: 1000, files: 3, queue_entries: 10_000 };
        let log = AuditLog::open(&path, limits).unwrap();
        for number in 0..500 {
            log.record(entry(&number.to_string()));
        }
        log.close();
        let mut files: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        // And no more of what concerns the cluster: these entries name no namespace.
        assert_eq!(files.len(), 6);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() <= 1000));
        assert_eq!(lines(&path).last().unwrap()["name"], "499");
    }

    fn all_names(path: &Path, files: u32) -> Vec<String> {
        let aged = (1..files).rev().map(|age| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{age}"));
            PathBuf::from(name)
        });
        let all = aged.chain([path.to_owned()]).filter(|one| one.exists());
        all.flat_map(|one| lines(&one)).map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_turnover_that_fails_gives_up_nothing_that_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = Limits { file_bytes: 1000, files: 4, queue_entries: 10 };
        let mut files = Files::open(&path, limits).unwrap();
        let put = |files: &mut Files, name: &str| files.append(&entry(name));
        for number in 0..12 {
            put(&mut files, &format!("n{number}")).unwrap();
        }
        files.flush().unwrap();
        let before = all_names(&path, 4);
        assert!(files.aged(1).exists() && before.len() == 12, "{before:?}");
        // Nothing can be put in the place of a directory that is not empty.
        let obstacle = dir.path().join("audit.log.new");
        std::fs::create_dir_all(obstacle.join("x")).unwrap();
        let mut taken = 12;
        while put(&mut files, &format!("n{taken}")).is_ok() {
            taken += 1;
        }
        for _ in 0..20 {
            put(&mut files, "lost").unwrap_err();
        }
        files.flush().unwrap();
        let wanted: Vec<String> = (0..taken).map(|number| format!("n{number}")).collect();
        assert_eq!(
            all_names(&path, 4),
            wanted,
            "each in its place, and the file goes on for a while"
        );
        assert!(std::fs::metadata(&path).unwrap().len() > 1500);
        std::fs::remove_dir_all(&obstacle).unwrap();
        put(&mut files, &format!("n{taken}")).unwrap();
        files.flush().unwrap();
        assert_eq!(all_names(&path, 4).len(), wanted.len() + 1);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "makes up what a killed process left")]
    fn a_turnover_that_was_cut_short_does_not_drive_out_the_oldest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = Limits { file_bytes: 1000, files: 4, queue_entries: 10 };
        let mut files = Files::open(&path, limits).unwrap();
        // Killed between two renames: one age is missing.
        for (age, name) in [(2, "older"), (3, "oldest")] {
            std::fs::write(files.aged(age), encode(&entry(name)).unwrap()).unwrap();
        }
        let mut wanted = vec!["oldest".to_owned(), "older".to_owned()];
        while !files.aged(1).exists() {
            wanted.push(format!("n{}", wanted.len()));
            files.append(&entry(wanted.last().unwrap())).unwrap();
        }
        files.flush().unwrap();
        assert_eq!(all_names(&path, 4), wanted);
    }

    #[test]
    fn those_of_one_namespace_cannot_drive_out_what_was_done_to_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = Limits { file_bytes: 4000, files: 2, queue_entries: 10_000 };
        let log = AuditLog::open(&path, limits).unwrap();
        let near = |name: &str| Entry { namespace: "t1".into(), code: 200, ..entry(name) };
        log.record(Entry { code: 201, ..entry("binding") });
        log.record(Entry { groups: vec![MASTERS.to_owned()], ..near("by-admin") });
        for _ in 0..500 {
            log.record(near("noise"));
        }
        log.close();
        let names = |path: &Path| all_names(path, 2);
        assert!(!names(&path).contains(&"binding".to_owned()), "driven out here");
        assert_eq!(names(&dir.path().join("audit-cluster.log")), ["binding", "by-admin"]);
    }

    #[test]
    fn rejections_and_questions_do_not_drive_out_what_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let limits = Limits { file_bytes: 4000, files: 2, queue_entries: 10_000 };
        let log = AuditLog::open(&path, limits).unwrap();
        let refused = || Entry { code: 403, ..entry("refused") };
        let asked = || {
            let group = "authorization.k8s.io".to_owned();
            Entry { code: 201, group, ..entry("asked") }
        };
        log.record(Entry { code: 201, ..entry("first") });
        for _ in 0..500 {
            log.record(refused());
            log.record(asked());
        }
        log.record(Entry { code: 200, ..entry("second") });
        log.close();
        let lines = lines(&path);
        let named = |name: &str| lines.iter().filter(|line| line["name"] == name).count();
        assert_eq!((named("first"), named("second")), (1, 1), "in the newest file still");
        assert!(named("refused") > 0 && named("asked") > 0, "they are written, too");
        let gaps: Vec<u64> = lines.iter().filter_map(|line| line["dropped"].as_u64()).collect();
        let kept = (named("refused") + named("asked")) as u64;
        assert_eq!((gaps, log.dropped()), (vec![1000 - kept], 1000 - kept));
    }

    #[test]
    fn a_torn_last_line_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        File::create(&path).unwrap().write_all(b"{\"user\":\"a\"}\n{\"us").unwrap();
        let log = AuditLog::open(&path, Limits::default()).unwrap();
        log.record(entry("x"));
        log.close();
        let text = std::fs::read_to_string(&path).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(last).unwrap()["name"], "x");
    }

    #[test]
    fn a_gap_is_counted_and_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let files = Files::open(&path, Limits::default()).unwrap();
        let cluster = Files::open(&cluster_path(&path), Limits::default()).unwrap();
        let (queue, entries) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(entries, files, cluster, Arc::clone(&dropped));
        let log = AuditLog { queue: Mutex::new(Some(queue)), dropped, thread: Mutex::new(None) };
        // Nobody empties the queue yet: the second and third find it full.
        for name in ["a", "b", "c"] {
            log.record(entry(name));
        }
        assert_eq!(log.dropped(), 2);
        log.close();
        writer.run();
        let lines = lines(&path);
        assert_eq!((lines[0]["name"].as_str(), lines[1]["dropped"].as_u64()), (Some("a"), Some(2)));
    }
}
