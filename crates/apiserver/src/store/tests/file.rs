//! The file: what survives, what is refused, how large it gets.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

#[expect(clippy::disallowed_methods, reason = "damages a file on purpose")]
fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn fill(store: &Store, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("n{number:05}")).collect();
    for result in join_all(names.iter().map(|name| store.write(create(name)))).await {
        result.unwrap();
    }
}

type Contents = (u64, BTreeMap<Key, bytes::Bytes>);

fn contents(store: &Store) -> Contents {
    let snapshot = store.list("things", None);
    let items = snapshot.items.iter().map(|item| (item.key.clone(), item.body.clone()));
    (snapshot.revision, items.collect())
}

fn wal(home: &Home) -> PathBuf {
    home.0.path().join("objects.db-wal")
}

#[tokio::test]
async fn reopening_keeps_objects_and_counter() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 100).await;
    let last = store.get("things", "default", "n00042").unwrap();
    // The newest revision belongs to no object that is left.
    let gone = store.write(delete(&last)).await.unwrap();
    let before = contents(&store);
    assert_eq!(before.0, gone.revision);
    store.close().await;
    assert!(!wal(&home).exists(), "a closed store is one file");
    let store = home.open();
    assert_eq!(contents(&store), before);
    assert_eq!(store.stats().figures().objects, 99);
    let next = store.write(create("next")).await.unwrap();
    assert_eq!(next.revision, gone.revision + 1);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() {
    let home = Home::new();
    let crashed = Home::new();
    let store = home.open();
    fill(&store, 50).await;
    let before = contents(&store);
    // The files as a killed process leaves them.
    for name in ["objects.db", "objects.db-wal"] {
        std::fs::copy(home.0.path().join(name), crashed.0.path().join(name)).unwrap();
    }
    assert_eq!(contents(&crashed.open()), before);
}

#[tokio::test]
async fn an_older_file_put_back_counts_on_above_everything_given_out() {
    for is_clean in [true, false] {
        let home = Home::new();
        let store = home.open();
        fill(&store, 10).await;
        store.close().await;
        drop(store);
        let older = std::fs::read(home.file()).unwrap();
        let store = home.open();
        let old = store.revision();
        let seen = store.write(create("lost")).await.unwrap().revision;
        let mark = std::fs::read(home.0.path().join("objects.db.mark")).unwrap();
        drop(store);
        overwrite(&home.file(), &older);
        if !is_clean {
            // As a killed process leaves it: ahead of the counter.
            overwrite(&home.0.path().join("objects.db.mark"), &mark);
        }
        let store = home.open();
        assert!(store.get("things", "default", "lost").is_none());
        assert!(store.revision() >= seen);
        assert!(store.watch("things", None, old).is_err(), "it may have seen what is lost");
        let next = store.write(create("next")).await.unwrap();
        assert!(next.revision > seen);
        assert_eq!(store.watch("things", None, seen).is_err(), !is_clean);
        drop(store);
        assert_eq!(home.open().revision(), next.revision, "a clean end leaves no gap");
    }
}

#[tokio::test]
async fn a_damaged_mark_is_no_reason_to_count_again_from_below() {
    let home = Home::new();
    let store = home.open();
    let seen = store.write(create("a")).await.unwrap().revision;
    drop(store);
    overwrite(&home.0.path().join("objects.db.mark"), b"nonsense");
    assert!(home.open().revision() > seen + (1 << 20));
}

#[tokio::test]
async fn only_the_owner_may_read_the_files() {
    let home = Home::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let store = home.open();
    store.write(create("a")).await.unwrap();
    assert_eq!((mode(&home.file()), mode(&wal(&home))), (0o600, 0o600));
    drop(store);
    std::fs::set_permissions(home.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = home.open();
    assert_eq!(mode(&home.file()), 0o600);
}

#[test]
fn a_file_in_use_is_refused() {
    let home = Home::new();
    let store = home.open();
    assert!(matches!(home.rejection(), OpenError::InUse { .. }));
    drop(store);
    home.open();
}

#[test]
fn a_missing_folder_is_an_error_that_names_it() {
    let home = Home::new();
    let path = home.0.path().join("none/objects.db");
    let error = Store::open(&path, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("none/objects.db"), "{error}");
}

fn assert_refused(home: &Home) {
    let before = read(&home.file());
    let error = home.rejection();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(home.file().to_str().unwrap()), "{text}");
    assert!(text.contains("restore a copy") && text.contains("away to start empty"), "{text}");
    assert_eq!(read(&home.file()), before, "a refused file is left alone");
}

/// A closed store with some objects.
fn closed_store() -> Home {
    let home = Home::new();
    let store = home.open();
    runtime().block_on(async {
        fill(&store, 60).await;
        let stored = store.get("things", "default", "n00007").unwrap();
        store.write(update(&stored, &"long ".repeat(2000))).await.unwrap();
    });
    home
}

#[test]
fn garbage_is_refused() {
    let home = Home::new();
    for garbage in [&b"x"[..], b"SQLite format 3\0", &[0; 4096], &[0xa5; 10_000]] {
        overwrite(&home.file(), garbage);
        assert_refused(&home);
        assert_eq!(read(&home.file()), garbage);
    }
}

#[test]
fn another_programs_database_is_refused_and_left_alone() {
    let home = Home::new();
    let other = rusqlite::Connection::open(home.file()).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    drop(other);
    let before = read(&home.file());
    assert!(matches!(home.rejection(), OpenError::Foreign { .. }));
    assert_eq!(read(&home.file()), before);
}

#[test]
fn an_empty_file_is_refused_also_with_a_log_beside_it() {
    let home = closed_store();
    overwrite(&home.file(), b"");
    assert_refused(&home);
    overwrite(&wal(&home), b"the log");
    assert_refused(&home);
    assert_eq!(read(&wal(&home)), b"the log");
    std::fs::remove_file(home.file()).unwrap();
    assert!(matches!(home.rejection(), OpenError::Damaged { .. }));
    assert!(!home.file().exists());
    std::fs::remove_file(wal(&home)).unwrap();
    home.open();
}

#[test]
fn a_creation_that_was_cut_short_is_begun_again() {
    let home = Home::new();
    overwrite(&home.0.path().join("objects.db.new"), b"half a file");
    home.open();
    assert!(!home.0.path().join("objects.db.new").exists());
}

#[test]
fn a_truncated_file_is_refused() {
    let home = closed_store();
    let whole = read(&home.file());
    for length in [1, 100, 4095, 4096, 8192, whole.len() / 2, whole.len() - 4096] {
        overwrite(&home.file(), &whole[..length]);
        assert_refused(&home);
    }
    overwrite(&home.file(), &whole);
    let expected = contents(&home.open());
    // The end of the last page may hold nothing; then nothing is lost without it.
    overwrite(&home.file(), &whole[..whole.len() - 1]);
    if let Ok(store) = Store::open(home.file(), &Options::default()) {
        assert_eq!(contents(&store), expected);
    }
}

/// Every format ever written stays readable.
#[test]
fn files_of_every_format_are_read() {
    let home = Home::new();
    overwrite(&home.file(), include_bytes!("golden/objects-v1.db"));
    let store = home.open();
    assert_eq!(store.revision(), 104);
    assert_eq!(names(&store.list("things", None).items), ["kept"]);
    let kept = store.get("things", "default", "kept").unwrap();
    assert_eq!(kept.revision, 102);
    assert_eq!(kept.value().unwrap()["value"], "second");
}

fn tamper(home: &Home, sql: &str) {
    let connection = rusqlite::Connection::open(home.file()).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn rows_that_are_not_as_written_are_refused() {
    for sql in [
        "DELETE FROM objects WHERE name = 'n00003'",
        "UPDATE objects SET name = 'other' WHERE name = 'n00003'",
        "UPDATE objects SET revision = revision - 1 WHERE name = 'n00003'",
        "UPDATE objects SET revision = -1 WHERE name = 'n00003'",
        "UPDATE objects SET revision = 1000000 WHERE name = 'n00003'",
        "UPDATE objects SET checksum = 1 WHERE name = 'n00003'",
        "UPDATE objects SET body = x'7b' WHERE name = 'n00003'",
        "UPDATE objects SET body = replace(body, 'first', 'worst') WHERE name = 'n00003'",
        "INSERT INTO objects SELECT 'more', namespace, name, revision, body, checksum \
         FROM objects WHERE name = 'n00003'",
        "UPDATE meta SET value = value - 1 WHERE key = 'revision'",
        "DELETE FROM meta WHERE key = 'revision'",
        "DELETE FROM meta WHERE key = 'format'",
        "DROP TABLE objects",
        "DROP TABLE meta",
    ] {
        let home = closed_store();
        // The body column only takes blobs.
        tamper(
            &home,
            &sql.replace("replace(body", "CAST(replace(CAST(body AS TEXT)")
                .replace("'worst')", "'worst') AS BLOB)"),
        );
        assert_refused(&home);
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let home = closed_store();
    let checksum = super::disk::meta_checksum("format", 2);
    tamper(
        &home,
        &format!("UPDATE meta SET value = 2, checksum = {checksum} WHERE key = 'format'"),
    );
    let error = home.rejection();
    assert!(matches!(error, OpenError::TooNew { found: 2, newest: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("format 2; this build reads up to 1"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A damaged file is refused, or the damage was where nothing is kept.
    #[test]
    fn flipped_bits_never_change_what_is_read(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..8), 1..4),
        in_header in any::<bool>(),
    ) {
        static CLOSED: std::sync::OnceLock<(Vec<u8>, Contents)> = std::sync::OnceLock::new();
        let (whole, expected) = CLOSED.get_or_init(|| {
            let home = closed_store();
            let found = contents(&home.open());
            (read(&home.file()), found)
        });
        let mut bytes = whole.clone();
        let reach = if in_header { 120 } else { bytes.len() };
        for (place, bit) in flips {
            bytes[place.index(reach)] ^= 1 << bit;
        }
        let home = Home::new();
        overwrite(&home.file(), &bytes);
        if let Ok(store) = Store::open(home.file(), &Options::default()) {
            prop_assert_eq!(&contents(&store), expected);
            // What was accepted can be written to and read again.
            let made = runtime().block_on(store.write(create("next")));
            let after = contents(&store);
            drop(store);
            if made.is_ok() {
                prop_assert_eq!(contents(&home.open()), after);
            }
        }
    }
}

async fn renew(store: &Store, name: String, rounds: usize) {
    let mut lease = store.write(create(&name)).await.unwrap();
    for round in 0..rounds {
        let holder = format!("holder of {round}, renewed and renewed");
        lease = store.write(update(&lease, &holder)).await.unwrap();
    }
}

#[tokio::test]
async fn a_hundred_thousand_renewals_do_not_grow_the_file() {
    let home = Home::new();
    let store = home.open();
    join_all((0..200).map(|number| renew(&store, format!("lease{number}"), 500))).await;
    let figures = store.stats().figures();
    assert_eq!(figures.writes, 200 * 501);
    let sizes = |path: PathBuf| std::fs::metadata(path).unwrap().len();
    assert!(sizes(wal(&home)) <= 12 << 20, "log of {} bytes", sizes(wal(&home)));
    store.close().await;
    assert!(sizes(home.file()) < 256 << 10, "file of {} bytes", sizes(home.file()));
}

#[tokio::test]
async fn a_file_shrinks_after_many_deletions() {
    let home = Home::new();
    let store = home.open();
    let long = "x".repeat(3000);
    let names: Vec<String> = (0..3000).map(|number| format!("n{number}")).collect();
    let writes = names.iter().map(|name| store.write(put(name, Expected::Absent, &long)));
    let made: Vec<_> = join_all(writes).await.into_iter().map(Result::unwrap).collect();
    join_all(made.iter().map(|stored| store.write(delete(stored)))).await;
    let mut lease = store.write(create("lease")).await.unwrap();
    for round in 0..1000 {
        lease = store.write(update(&lease, &round.to_string())).await.unwrap();
    }
    let expected = contents(&store);
    store.close().await;
    let size = std::fs::metadata(home.file()).unwrap().len();
    assert!(size < 4 << 20, "file of {size} bytes");
    assert_eq!(contents(&home.open()), expected);
}
