use std::collections::HashMap;
use std::sync::Mutex;

use durable::sim::SimDisk;
use proptest::prelude::*;

use super::*;
use crate::conformance;
use crate::store::{get_limited, list_all};

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn real() -> (tempfile::TempDir, LocalStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path().join("store")).unwrap();
    (dir, store)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

#[tokio::test]
async fn a_directory_passes_the_suite() {
    let (_dir, store) = real();
    conformance::run(&store, &Prefix::ROOT).await;
    conformance::run(&store, &Prefix::parse("some/folder").unwrap()).await;
}

#[tokio::test]
async fn a_simulated_directory_passes_the_suite() {
    let store = LocalStore::open_on(Box::new(SimDisk::new(1)), "/store").unwrap();
    conformance::run(&store, &Prefix::ROOT).await;
    conformance::run_pages(Arc::new(store), &key("pages")).await;
}

#[tokio::test]
async fn two_processes_on_one_directory_lose_no_swap() {
    let (dir, one) = real();
    let two = LocalStore::open(dir.path().join("store")).unwrap();
    let a = key("a");
    let first = one.put_new(&a, "0".into()).await.unwrap();
    let (left, right) = tokio::join!(
        one.put_if_match(&a, "1".into(), &first),
        two.put_if_match(&a, "2".into(), &first),
    );
    assert!(left.is_ok() != right.is_ok(), "{left:?} {right:?}");
}

/// One host of a network file system: it remembers what it has seen of a name, that it is not there as well,
/// until it opens or changes it. Names in a folder it asks for each time. It may sleep before a name is
/// changed, or the server may be away.
#[derive(Default)]
struct Host {
    seen: Mutex<HashMap<PathBuf, Option<Stat>>>,
    before_rename: Hook,
    /// How the next renames end that the server does not answer, though it does them.
    unanswered: Arc<Mutex<Vec<i32>>>,
    /// Its server does not even say what it is; the folder that it is mounted on is on a disk.
    is_away: Arc<std::sync::atomic::AtomicBool>,
}

impl Host {
    fn forget(&self, path: &Path) {
        self.seen.lock().unwrap().remove(path);
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.fmt(out)
    }
}

impl Disk for Host {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        self.forget(path);
        RealDisk.open(path, how)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        happens(&self.before_rename);
        self.forget(source);
        self.forget(target);
        RealDisk.rename(source, target)?;
        match self.unanswered.lock().unwrap().pop() {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(()),
        }
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.forget(target);
        RealDisk.link(source, target)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.forget(path);
        RealDisk.remove(path)
    }

    fn create_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        self.forget(path);
        RealDisk.create_dir(path, mode)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.forget(path);
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<durable::Entry>> {
        RealDisk.list(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let mut seen = self.seen.lock().unwrap();
        if !seen.contains_key(path) {
            let found = match RealDisk.stat(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                found => Some(found?),
            };
            seen.insert(path.to_owned(), found);
        }
        seen[path].ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn unique(&self) -> u64 {
        RealDisk.unique()
    }

    fn reach(&self, path: &Path) -> io::Result<Reach> {
        match (path.ends_with("store"), self.is_away.load(std::sync::atomic::Ordering::Relaxed)) {
            (true, true) => Err(io::Error::from_raw_os_error(5)),
            (true, false) => Ok(Reach::Server),
            (false, _) => Ok(Reach::ThisMachine),
        }
    }

    fn barrier(&self, _: &Path) -> io::Result<Option<Box<dyn Barrier>>> {
        Ok(None)
    }

    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()> {
        RealDisk.sync_file_systems(paths)
    }
}

#[tokio::test]
async fn a_host_that_remembers_replaces_and_removes_what_is_there_now() {
    let dir = tempfile::tempdir().unwrap();
    let host = || LocalStore::open_on(Box::new(Host::default()), dir.path().join("store")).unwrap();
    let (one, two, a) = (host(), host(), key("a/b"));
    let first = one.put_new(&a, "0".into()).await.unwrap();
    assert_eq!(one.head(&a).await.unwrap().version, first);
    // Another host replaces it: as a deletion does that fences a writer off.
    let second = two.put_if_match(&a, "1".into(), &first).await.unwrap();
    let late = one.put_if_match(&a, "2".into(), &first).await;
    assert!(matches!(late, Err(Error::Changed { .. })), "{late:?}");
    assert_eq!(two.head(&a).await.unwrap().version, second);
    two.delete(&a).await.unwrap();
    let late = one.put_if_match(&a, "2".into(), &second).await;
    assert!(matches!(late, Err(Error::Changed { .. })), "{late:?}");
    assert!(one.head(&a).await.is_err());
    two.put_new(&a, "3".into()).await.unwrap();
    one.delete(&a).await.unwrap();
    assert!(
        !dir.path().join("store/a/b").exists(),
        "it is removed, though it was not there before"
    );
}

/// A store on a network file system, as two hosts see it, the first of which sleeps when the hook is set.
fn shared(dir: &Path) -> (LocalStore, Hook, LocalStore) {
    let sleeper = Host::default();
    let hook = Arc::clone(&sleeper.before_rename);
    let open = |host| LocalStore::open_on(Box::new(host), dir.join("store")).unwrap();
    (open(sleeper), hook, open(Host::default()))
}

/// A machine is suspended, or cut off from its server, when it has compared: others take its lock of the
/// file system for lost, and go on. One of them may be the server itself, which sees a directory of its own.
#[test]
fn who_sleeps_after_the_comparison_gives_no_name() {
    for (is_removed, by_server) in [(true, false), (false, false), (true, true), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let ((sleeper, hook, host), a) = (shared(dir.path()), key("a/b"));
        let server = LocalStore::open(dir.path().join("store")).unwrap();
        let other = if by_server { server } else { host };
        let first = block_on(sleeper.put_new(&a, "begun".into())).unwrap();
        let (seen, lock) = (first.clone(), dir.path().join("store").join(LOCK));
        let (others, of) = (other.clone(), a.clone());
        *hook.lock().unwrap() = Some(Box::new(move || {
            std::fs::remove_file(lock).unwrap();
            if is_removed {
                let permit = Permit::new(|| true);
                block_on(others.delete_within(&of, &permit)).unwrap();
            } else {
                block_on(others.put_if_match(&of, "fenced".into(), &seen)).unwrap();
            }
        }));
        let late = block_on(sleeper.put_if_match(&a, "complete".into(), &first));
        assert!(matches!(late, Err(Error::Changed { .. })), "{is_removed} {by_server} {late:?}");
        let found = block_on(get_limited(&other, &a, 99)).ok().map(|blob| blob.bytes);
        assert_eq!(found.as_deref(), (!is_removed).then_some(&b"fenced"[..]));
    }
}

/// The same before a removal: what it finds when it is done is another's by then.
#[test]
fn a_removal_that_is_done_late_is_undone() {
    for is_written_anew in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let ((sleeper, hook, other), a) = (shared(dir.path()), key("a/b"));
        block_on(sleeper.put(&a, "block".into())).unwrap();
        let is_held = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (ends, others, of) = (Arc::clone(&is_held), other.clone(), a.clone());
        *hook.lock().unwrap() = Some(Box::new(move || {
            ends.store(false, std::sync::atomic::Ordering::Relaxed);
            if is_written_anew {
                block_on(others.put(&of, "block".into())).unwrap();
            }
            // Who looks for what the dead have left takes nothing of this away.
            block_on(list_all(&others, &Prefix::ROOT)).unwrap();
        }));
        let permit = Permit::new(move || is_held.load(std::sync::atomic::Ordering::Relaxed));
        let late = block_on(sleeper.delete_many(std::slice::from_ref(&a), &permit));
        assert!(matches!(late, Err(Error::PermitEnded)), "{late:?}");
        assert_eq!(block_on(get_limited(&other, &a, 99)).unwrap().bytes, "block");
        block_on(sleeper.delete_many(&[a], &Permit::new(|| true))).unwrap();
        assert_eq!(block_on(list_all(&other, &Prefix::ROOT)).unwrap(), []);
    }
}

/// A mount gives up a call that its server does not answer, with an error as of a broken disk. It may have
/// been done, and goes better later.
#[test]
fn what_a_server_does_not_answer_may_be_done() {
    const ERRORS: [i32; 4] = [5, 112, 121, 104]; // EIO, EHOSTDOWN, EREMOTEIO, ECONNRESET
    for error in ERRORS {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::default();
        let unanswered = Arc::clone(&host.unanswered);
        let store = LocalStore::open_on(Box::new(host), dir.path().join("store")).unwrap();
        let a = key("a/b");
        let first = block_on(store.put_new(&a, "one".into())).unwrap();
        let tell = || unanswered.lock().unwrap().push(error);
        tell();
        let swapped = block_on(store.put_if_match(&a, "two".into(), &first)).unwrap_err();
        assert_eq!(swapped.retry(), durable::Retry::Later, "{swapped:?}");
        assert_eq!(block_on(get_limited(&store, &a, 9)).unwrap().bytes, "two");
        tell();
        let permit = Permit::new(|| true);
        let removed = block_on(store.delete_many(std::slice::from_ref(&a), &permit)).unwrap_err();
        assert_eq!(removed.retry(), durable::Retry::Later, "{removed:?}");
        // As wrappers do it, which meets what was done.
        block_on(store.delete_many(&[a], &permit)).unwrap();
    }
    // It is no disk of this machine, also while nobody can say what it is.
    let dir = tempfile::tempdir().unwrap();
    let host = Host::default();
    let is_away = Arc::clone(&host.is_away);
    is_away.store(true, std::sync::atomic::Ordering::Relaxed);
    let store = LocalStore::open_on(Box::new(host), dir.path().join("store")).unwrap();
    assert_eq!(store.inner.known_reach(), Reach::Unknown);
    is_away.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(store.inner.known_reach(), Reach::Server, "and it is asked again");
    // What the disk of this machine says is so.
    let own = io::Error::from_raw_os_error(ERRORS[0]);
    let (path, operation) = (PathBuf::new(), Operation::Read);
    let (_dir, store) = real();
    let told = store.inner.told(durable::Error::Io { operation, path, source: own }.into());
    assert_eq!(told.retry(), durable::Retry::Never, "{told:?}");
}

#[tokio::test]
async fn links_that_lead_to_nothing_stop_no_listing() {
    let (dir, store) = real();
    store.put_new(&key("a/b"), "x".into()).await.unwrap();
    let root = dir.path().join("store");
    for (target, name) in [("loop", "a/loop"), ("gone", "a/dangling"), ("..", "a/up")] {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    let all = list_all(&store, &Prefix::ROOT).await.unwrap();
    assert_eq!(all.into_iter().map(|meta| meta.key).collect::<Vec<_>>(), [key("a/b")]);
    let level = store.list_level(&Prefix::parse("a").unwrap()).await.unwrap();
    assert_eq!(level.objects.len(), 1, "{level:?}");
    assert!(matches!(store.head(&key("a/loop")).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn our_own_files_are_not_objects() {
    let (dir, store) = real();
    let version = store.put_new(&key("a/b"), "x".into()).await.unwrap();
    store.put_if_match(&key("a/b"), "y".into(), &version).await.unwrap();
    let root = dir.path().join("store");
    durable::replace(root.join("a/.durable-0123.tmp"), b"half").unwrap();
    assert!(root.join(LOCK).exists());
    let all = list_all(&store, &Prefix::ROOT).await.unwrap();
    assert_eq!(all.len(), 1);
    for name in [LOCK, "a/.durable-0123.tmp"] {
        let refused = store.put_new(&key(name), Bytes::new()).await;
        assert!(matches!(refused, Err(Error::Unusable { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_folder_is_no_object_and_an_object_no_folder() {
    let (_dir, store) = real();
    store.put_new(&key("a/b"), "x".into()).await.unwrap();
    assert!(store.head(&key("a")).await.unwrap_err().is_not_found());
    assert!(store.head(&key("a/b/c")).await.unwrap_err().is_not_found());
    store.delete(&key("a")).await.unwrap();
    store.delete(&key("a/b/c")).await.unwrap();
    assert!(matches!(store.put_new(&key("a"), Bytes::new()).await, Err(Error::Exists { .. })));
    let under = store.put_new(&key("a/b/c"), Bytes::new()).await;
    assert!(matches!(under, Err(Error::Unusable { .. })), "{under:?}");
    assert_eq!(get_limited(&store, &key("a/b"), 9).await.unwrap().bytes, "x");
}

/// Dies at every call of a create and a swap, loses power, and opens again: an acknowledged write
/// is there, and any other is there whole or not at all.
#[test]
fn an_acknowledged_object_survives_a_crash_at_any_call() {
    for seed in 0..6 {
        for nth in 1.. {
            let disk = SimDisk::new(seed);
            let store = LocalStore::open_on(Box::new(disk.clone()), "/store").unwrap();
            disk.die_at_call(nth);
            let (created, swapped) = block_on(async {
                let created = store.put_new(&key("a/b"), "one".into()).await;
                let Ok(version) = created else { return (false, false) };
                (true, store.put_if_match(&key("a/b"), "two".into(), &version).await.is_ok())
            });
            let fired = disk.fault_fired();
            disk.crash();
            let store = LocalStore::open_on(Box::new(disk), "/store").unwrap();
            let found = block_on(get_limited(&store, &key("a/b"), 9));
            match found {
                Ok(blob) if blob.bytes == "one" => assert!(!swapped),
                Ok(blob) => assert_eq!(blob.bytes, "two"),
                Err(error) => assert!(error.is_not_found() && !created, "{error:?}"),
            }
            if !fired {
                assert!(swapped && nth > 10);
                break;
            }
        }
    }
}

#[test]
fn a_long_object_is_whole_after_a_crash_at_any_call() {
    let parts = Parts::default();
    for nth in 1.. {
        let disk = SimDisk::new(nth);
        let store = LocalStore::open_on(Box::new(disk.clone()), "/store").unwrap();
        block_on(store.put(&key("a/b"), "old".into())).unwrap();
        disk.die_at_call(nth);
        let pieces = ["new ", "and ", "long"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        let body: Body = Box::pin(futures::stream::iter(pieces));
        let written = block_on(store.put_stream(&key("a/b"), body, &parts)).is_ok();
        let fired = disk.fault_fired();
        disk.crash();
        let store = LocalStore::open_on(Box::new(disk), "/store").unwrap();
        let found = block_on(get_limited(&store, &key("a/b"), 99)).unwrap().bytes;
        assert!(found == "new and long" || (found == "old" && !written), "{found:?}");
        if !fired {
            assert!(written && nth > 5);
            break;
        }
    }
}

/// Dies at every call of a batch, loses power, and opens again: what was committed is there, and of what
/// was not, nothing is there in part.
#[test]
fn a_batch_is_whole_after_a_crash_at_any_call() {
    let names = ["a/b/one", "a/b/two", "a/c/three", "d/four"];
    let contents = |name: &str| Bytes::from(name.repeat(400));
    for seed in 0..6 {
        for nth in 1.. {
            let disk = SimDisk::new(seed);
            let store = LocalStore::open_on(Box::new(disk.clone()), "/store").unwrap();
            disk.die_at_call(nth);
            let committed = block_on(async {
                let batch = store.batch(&Prefix::ROOT).await?.unwrap();
                for name in &names[..3] {
                    batch.put_new(&key(name), contents(name)).await?;
                }
                batch.commit().await?;
                batch.put(&key(names[3]), contents(names[3])).await?;
                batch.commit().await
            });
            let fired = disk.fault_fired();
            disk.crash();
            let store = LocalStore::open_on(Box::new(disk), "/store").unwrap();
            for name in names {
                match block_on(get_limited(&store, &key(name), 9999)) {
                    Ok(blob) => assert_eq!(blob.bytes, contents(name), "{seed} {nth}"),
                    Err(error) => assert!(error.is_not_found() && committed.is_err(), "{error:?}"),
                }
            }
            if !fired {
                assert!(committed.unwrap().is_empty() && nth > 20);
                break;
            }
        }
    }
}

/// What passes at the second try: the first may have come so far that only the name is not on the disk.
#[test]
fn what_a_second_try_finds_done_is_durable() {
    let policy = crate::wrap::Policy { first_pause: Duration::ZERO, ..Default::default() };
    for seed in 0..6 {
        for nth in 1.. {
            let disk = SimDisk::new(seed);
            let store = LocalStore::open_on(Box::new(disk.clone()), "/store").unwrap();
            let store = crate::wrap::Retrying::around(Arc::new(store), policy.clone());
            let first = block_on(store.put_new(&key("a/b"), "one".into())).unwrap();
            disk.fail_call(nth, io::ErrorKind::StorageFull);
            block_on(store.put_if_match(&key("a/b"), "two".into(), &first)).unwrap();
            let fired = disk.fault_fired();
            disk.crash();
            let store = LocalStore::open_on(Box::new(disk), "/store").unwrap();
            let found = block_on(get_limited(&store, &key("a/b"), 9)).unwrap();
            assert_eq!(found.bytes, "two", "seed {seed}, call {nth}");
            if !fired {
                assert!(nth > 8);
                break;
            }
        }
    }
}

/// Writing and syncing take long: one that is stopped there keeps nobody from anything, and has lost to who
/// was faster.
#[test]
fn a_swap_that_is_stopped_while_it_writes_holds_no_lock() {
    let (hook, at_file) = Default::default();
    let hooked = Hooked { disk: SimDisk::new(1), hook, at_file };
    let store = LocalStore::open_on(Box::new(hooked.clone()), "/store").unwrap();
    let first = block_on(store.put_new(&key("a"), "first".into())).unwrap();
    let (other, seen) = (store.clone(), first.clone());
    *hooked.at_file.lock().unwrap() = Some(Box::new(move || {
        block_on(other.put_if_match(&key("a"), "faster".into(), &seen)).unwrap();
    }));
    let slow = block_on(store.put_if_match(&key("a"), "slow".into(), &first));
    assert!(matches!(slow, Err(Error::Changed { .. })), "{slow:?}");
    assert_eq!(block_on(get_limited(&store, &key("a"), 9)).unwrap().bytes, "faster");
    let left = hooked.disk.list(Path::new("/store")).unwrap();
    assert!(!left.iter().any(|entry| on::is_beside(&entry.name)), "{left:?}");
}

/// A barrier that tells of a loss tells it once, to the commit that asks first: of what was staged by then,
/// nothing is named by a later one.
#[test]
fn after_a_commit_that_failed_none_succeeds() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let hooked = Hooked { disk: disk.clone(), hook: Arc::default(), at_file: Arc::default() };
        let store = LocalStore::open_on(Box::new(hooked.clone()), "/store").unwrap();
        let batch = block_on(store.batch(&Prefix::ROOT)).unwrap().unwrap();
        let contents = Bytes::from(vec![b'x'; 4096]);
        block_on(batch.put_new(&key("first"), contents.clone())).unwrap();
        // Another is staged while the first commit waits, in which something is lost.
        let (late, other, failing) = (Arc::clone(&batch), contents.clone(), disk.clone());
        *hooked.hook.lock().unwrap() = Some(Box::new(move || {
            block_on(late.put_new(&key("second"), other)).unwrap();
            failing.fail_call(1, io::ErrorKind::Other);
        }));
        assert!(block_on(batch.commit()).is_err());
        assert!(block_on(batch.commit()).is_err(), "what it would name may be lost");
        drop(batch);
        disk.crash();
        let store = LocalStore::open_on(Box::new(disk), "/store").unwrap();
        assert_eq!(block_on(list_all(&store, &Prefix::ROOT)).unwrap(), [], "seed {seed}");
    }
}

type Hook = Arc<std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A simulated disk on which something happens while a barrier is waited for, or when a file was written
/// that has no name yet.
#[derive(Clone)]
struct Hooked {
    disk: SimDisk,
    hook: Hook,
    at_file: Hook,
}

fn happens(hook: &Hook) {
    let hook = hook.lock().unwrap().take();
    if let Some(hook) = hook {
        std::thread::scope(|scope| scope.spawn(hook).join().unwrap());
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(out)
    }
}

#[derive(Debug)]
struct HookedBarrier {
    inner: Box<dyn Barrier>,
    disk: Hooked,
}

impl Barrier for HookedBarrier {
    fn wait(&self) -> io::Result<()> {
        happens(&self.disk.hook);
        self.inner.wait()
    }

    fn covers(&self, path: &Path) -> io::Result<bool> {
        self.inner.covers(path)
    }
}

impl Disk for Hooked {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        self.disk.open(path, how)
    }
    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.disk.rename(source, target)
    }
    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.disk.link(source, target)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn create_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        self.disk.create_dir(path, mode)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<durable::Entry>> {
        self.disk.list(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        if path.file_name().is_some_and(on::is_beside) {
            happens(&self.at_file);
        }
        self.disk.stat(path)
    }
    fn unique(&self) -> u64 {
        self.disk.unique()
    }
    fn reach(&self, path: &Path) -> io::Result<Reach> {
        self.disk.reach(path)
    }
    fn barrier(&self, path: &Path) -> io::Result<Option<Box<dyn Barrier>>> {
        let inner = self.disk.barrier(path)?;
        let hooked =
            |inner| Box::new(HookedBarrier { inner, disk: self.clone() }) as Box<dyn Barrier>;
        Ok(inner.map(hooked))
    }
    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()> {
        self.disk.sync_file_systems(paths)
    }
}

#[tokio::test]
async fn a_batch_is_not_seen_before_its_commit_and_goes_when_it_is_given_up() {
    let (dir, store) = real();
    let Some(batch) = store.batch(&Prefix::ROOT).await.unwrap() else {
        return println!("skipped: this file system has no barrier that tells");
    };
    let (a, b, c) = (key("f/a"), key("f/b"), key("f/c"));
    store.put_new(&c, "there".into()).await.unwrap();
    let found = batch.put_new(&c, "there".into()).await;
    assert!(matches!(found, Err(Error::Exists { .. })), "{found:?}");
    batch.put_new(&a, "first".into()).await.unwrap();
    let waiting = batch.put_new(&b, "second".into()).await.unwrap();
    assert_eq!(waiting, crate::Waiting { objects: 2, bytes: 11 });
    assert_eq!(list_all(&store, &Prefix::ROOT).await.unwrap().len(), 1);
    // Others are faster: one with the same, one with what cannot be it.
    store.put_new(&a, "FIRST".into()).await.unwrap();
    store.put_new(&b, "".into()).await.unwrap();
    batch.put(&c, "replaced".into()).await.unwrap();
    assert_eq!(batch.commit().await.unwrap(), [(a.clone(), 5)]);
    for (key, bytes) in [(&a, "FIRST"), (&b, "second"), (&c, "replaced")] {
        assert_eq!(get_limited(&store, key, 99).await.unwrap().bytes, bytes);
    }
    batch.put_new(&key("f/d"), "given up".into()).await.unwrap();
    drop(batch);
    let left = std::fs::read_dir(dir.path().join("store/f")).unwrap().count();
    assert_eq!(left, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any keys, listed from any of them on, come in the order of their bytes.
    #[test]
    fn listings_are_sorted_and_go_on_where_they_stopped(
        names in prop::collection::btree_set("[a-b.-]{1,2}(/[a-b.-]{1,2}){0,2}", 1..12),
    ) {
        let store = LocalStore::open_on(Box::new(SimDisk::new(1)), "/store").unwrap();
        let mut kept = vec![];
        for name in &names {
            let Ok(key) = Key::parse(name) else { continue };
            if block_on(store.put_new(&key, Bytes::new())).is_ok() {
                kept.push(key);
            }
        }
        kept.sort();
        for from in 0..=kept.len() {
            let after = from.checked_sub(1).map(|index| &kept[index]);
            let page = block_on(store.list(&Prefix::ROOT, after)).unwrap();
            let found: Vec<Key> = page.objects.into_iter().map(|meta| meta.key).collect();
            prop_assert_eq!(&found, &kept[from..]);
        }
    }
}

#[tokio::test]
async fn folders_go_with_their_last_object_and_what_the_dead_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::at(dir.path().join("store"));
    let root = dir.path().join("store");
    assert!(list_all(&store, &Prefix::ROOT).await.unwrap().is_empty());
    store.delete(&key("a/b/c")).await.unwrap();
    assert!(!root.exists(), "looking makes nothing");
    for name in ["a/b/c", "a/b/d", "a/e"] {
        store.put_new(&key(name), "x".into()).await.unwrap();
    }
    store.delete(&key("a/b/c")).await.unwrap();
    assert!(root.join("a/b").is_dir());
    let half = |name: &str| {
        let file = std::fs::File::create(root.join("a/b").join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_hours(48)).unwrap();
    };
    half(".durable-1.tmp");
    store.delete(&key("a/b/d")).await.unwrap();
    assert!(!root.join("a/b").exists() && root.join("a/e").exists());
    store.put(&key("a/b/d"), "y".into()).await.unwrap();
    half(".durable-3.tmp");
    assert_eq!(list_all(&store, &Prefix::ROOT).await.unwrap().len(), 2);
    assert!(!root.join("a/b/.durable-3.tmp").exists(), "a walk takes it away");
    std::fs::File::create(root.join("a/b/.durable-2.tmp")).unwrap();
    store.delete(&key("a/b/d")).await.unwrap();
    assert!(root.join("a/b/.durable-2.tmp").exists(), "somebody may be writing it");
}
