//! What can happen to the files.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::{Connection, Server, skip};
use serde_json::json;
use testkit::process::Scratch;

use crate::{MAPS, TIMEOUT};

const MIB: usize = 1 << 20;

/// A small file system of its own; taken away with the test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that still runs holds it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Writes that are refused after the first.
const REFUSED: usize = 20;

/// Writes until it is refused; the number of writes before that, and the rejection.
async fn fill(connection: &mut Connection) -> (u32, e2e::Answer) {
    for number in 0..1000 {
        let name = format!("fill-{number}");
        let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(MIB / 2)}});
        let answer = connection.post(MAPS, &body).await.unwrap();
        if answer.code() != 201 {
            return (number, answer);
        }
    }
    panic!("a disk of 32 MiB took 500 MiB");
}

#[tokio::test]
async fn a_full_disk_stops_writes_only_and_only_while_it_is_full() {
    let scratch = Scratch::new().unwrap();
    let at = scratch.path().join("disk");
    let Some(_disk) = SmallDisk::mount(&at) else {
        return skip("disk full: a small tmpfs can be mounted by root only");
    };
    let ballast = at.join("ballast");
    File::create(&ballast).unwrap().write_all(&vec![1; 12 * MIB]).unwrap();
    let mut server = Server::start_in(scratch, at.join("data"));
    let mut connection = server.endpoint().connect().await.unwrap();

    let (written, rejection) = fill(&mut connection).await;
    let status = rejection.json();
    println!("disk full after {written} writes: {} {}", rejection.code(), status["message"]);
    assert!(written > 0);
    assert_eq!(rejection.code(), 507, "{status}");
    assert_eq!(status["kind"], "Status", "{status}");
    assert!(!rejection.headers.contains_key("retry-after"), "kubectl would wait in silence");
    assert!(status["details"]["retryAfterSeconds"].is_null(), "{status}");
    for path in ["/readyz", "/livez"] {
        assert_eq!(connection.get(path).await.unwrap().code(), 200, "{path}");
    }
    // Not a line of log for each rejection: the log may be on the same disk.
    for number in 0..REFUSED {
        let name = format!("more-{number}");
        let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(MIB / 2)}});
        assert_eq!(connection.post(MAPS, &body).await.unwrap().code(), 507);
    }
    let said = server.stderr().matches("the disk under the object store is full").count();
    assert!((1..REFUSED).contains(&said), "said {said} times");

    assert_eq!(connection.get(&format!("{MAPS}/fill-0")).await.unwrap().code(), 200);
    assert_eq!(connection.get(MAPS).await.unwrap().code(), 200);

    std::fs::remove_file(&ballast).unwrap();
    let body = json!({"metadata": {"name": "after"}, "data": {"a": "b"}});
    let recovered = tokio::time::timeout(TIMEOUT, async {
        while connection.post(MAPS, &body).await.unwrap().code() != 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    recovered.await.expect("no write went through after space returned");

    // Nothing that was acknowledged is lost, and nothing refused has come after all.
    server.kill();
    server.start_again().unwrap();
    let mut connection = server.endpoint().connect().await.unwrap();
    for number in 0..=written {
        let path = format!("{MAPS}/fill-{number}");
        let expected = if number < written { 200 } else { 404 };
        assert_eq!(connection.get(&path).await.unwrap().code(), expected, "{path}");
    }
    assert_eq!(connection.get(&format!("{MAPS}/after")).await.unwrap().code(), 200);
    drop(server);
}

/// Leaves not a byte to anyone.
fn fill_up(at: &Path) {
    let mut file = File::create(at.join("rest")).unwrap();
    for size in [MIB, 4096, 512, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

#[tokio::test]
async fn on_a_full_disk_objects_can_be_deleted_and_the_server_can_start() {
    const HELD: &str = "held";
    let scratch = Scratch::new().unwrap();
    let at = scratch.path().join("disk");
    let Some(_disk) = SmallDisk::mount(&at) else {
        return skip("disk full: a small tmpfs can be mounted by root only");
    };
    let mut server = Server::start_in(scratch, at.join("data"));
    let mut connection = server.endpoint().connect().await.unwrap();
    let held = json!({"metadata": {"name": HELD, "finalizers": ["example.com/wait"]},
        "data": {"a": "x".repeat(MIB / 2)}});
    assert_eq!(connection.post(MAPS, &held).await.unwrap().code(), 201);
    let (written, _) = fill(&mut connection).await;
    assert!(written > 4);
    fill_up(&at);

    // Marked, released, gone: each step is a write.
    let held = format!("{MAPS}/{HELD}");
    assert_eq!(connection.delete(&held).await.unwrap().code(), 200);
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(connection.merge(&held, &release).await.unwrap().code(), 200);
    assert_eq!(connection.get(&held).await.unwrap().code(), 404);
    let first = connection.delete(&format!("{MAPS}/fill-0")).await.unwrap();
    assert_eq!(first.code(), 200, "{}", first.json());

    // Killed and started on the full disk.
    server.kill();
    fill_up(&at);
    server.start_again().unwrap();
    let mut connection = server.endpoint().connect().await.unwrap();
    assert_eq!(connection.get(&held).await.unwrap().code(), 404);
    for number in 1..written {
        let path = format!("{MAPS}/fill-{number}");
        assert_eq!(connection.get(&path).await.unwrap().code(), 200, "{path}");
        let gone = connection.delete(&path).await.unwrap();
        assert_eq!(gone.code(), 200, "{path}: {}", gone.json());
    }
    // What that has freed can be written to.
    let body = json!({"metadata": {"name": "after"}, "data": {"a": "b"}});
    let recovered = tokio::time::timeout(TIMEOUT, async {
        while connection.post(MAPS, &body).await.unwrap().code() != 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    recovered.await.expect("no write went through after objects were deleted");
    // Others complain as often as they try to write, and that is up to the clock.
    let said = server.stderr();
    let of_store = said.lines().filter(|line| line.contains("WARN"));
    let of_store =
        of_store.filter(|line| line.contains("the disk") || line.contains("object store"));
    let warnings = of_store.count();
    println!("{written} objects deleted on a full disk, {warnings} warnings");
    assert!(warnings < 20, "{said}");
    drop(server);
}

#[tokio::test]
async fn a_store_that_is_gone_is_not_begun_again_while_its_keys_are_there() {
    let (mut server, file) = stopped().await;
    let kept = server.data_dir().join("kept");
    std::fs::rename(&file, &kept).unwrap();
    let mut process = server.launch();
    let status = process.wait_for_exit(TIMEOUT).unwrap();
    let said = process.stderr();
    assert!(!status.success(), "{said}");
    assert!(said.contains("objects.db is gone"), "{said}");
    assert!(!file.exists(), "a new store was made");
    std::fs::rename(&kept, &file).unwrap();
    server.start_again().unwrap();
    let mut connection = server.endpoint().connect().await.unwrap();
    assert_eq!(connection.get(&format!("{MAPS}/one-0")).await.unwrap().code(), 200);
}

/// The first event of a watch from a revision.
async fn first_event(server: &Server, revision: u64) -> serde_json::Value {
    let connection = server.endpoint().connect().await.unwrap();
    let path = format!("{MAPS}?watch=1&timeoutSeconds=20&resourceVersion={revision}");
    connection.watch(&path).await.unwrap().next().await.unwrap_or_default()
}

#[tokio::test]
async fn watches_of_a_lost_history_are_told_so_after_an_older_copy_was_put_back() {
    let (mut server, file) = stopped().await;
    let copy = server.scratch().join("copy");
    std::fs::copy(&file, &copy).unwrap();
    server.start_again().unwrap();
    let mut connection = server.endpoint().connect().await.unwrap();
    let body = json!({"metadata": {"name": "lost"}});
    let newer = connection.post(MAPS, &body).await.unwrap().revision();
    drop(connection);
    server.kill();
    std::fs::copy(&copy, &file).unwrap();
    std::fs::remove_file(file.with_extension("db-wal")).unwrap();
    server.start_again().unwrap();
    let event = first_event(&server, newer).await;
    assert_eq!(event["object"]["code"], 410, "{event}");
    // Nor when the new history has grown past it.
    let mut connection = server.endpoint().connect().await.unwrap();
    for number in 0..20 {
        let body = json!({"metadata": {"name": format!("new-{number}")}});
        assert!(connection.post(MAPS, &body).await.unwrap().revision() > newer);
    }
    let event = first_event(&server, newer).await;
    assert_eq!(event["object"]["code"], 410, "{event}");
}

#[tokio::test]
async fn an_open_directory_is_closed_and_a_clock_that_went_back_is_spoken_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let (mut server, file) = stopped().await;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(server.data_dir(), open).unwrap();
    // Two days back for the clock is two days ahead for the file.
    let ahead = std::time::SystemTime::now() + Duration::from_hours(48);
    File::options().write(true).open(&file).unwrap().set_modified(ahead).unwrap();
    server.start_again().unwrap();
    let mode = std::fs::metadata(server.data_dir()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let said = server.stderr();
    assert!(said.contains("open to other users"), "{said}");
    assert!(said.contains("the clock is behind"), "{said}");
}

/// A stopped server with a few hundred objects.
async fn stopped() -> (Server, PathBuf) {
    let mut server = Server::start();
    let mut connection = server.endpoint().connect().await.unwrap();
    for number in 0..200 {
        let name = format!("one-{number}");
        let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(2000)}});
        assert_eq!(connection.post(MAPS, &body).await.unwrap().code(), 201);
    }
    drop(connection);
    assert!(server.stop().success());
    let file = server.data_dir().join("objects.db");
    assert!(file.is_file());
    (server, file)
}

/// It must not start, must say which file is the matter, and must leave the file alone.
fn assert_refused_by_name(server: &mut Server, file: &Path) {
    let before = std::fs::read(file).unwrap();
    let mut process = server.launch();
    let status = process.wait_for_exit(TIMEOUT).unwrap();
    let said = process.stderr();
    assert!(!status.success(), "{said}");
    assert!(said.contains("objects.db"), "{said}");
    assert!(said.contains("damaged"), "{said}");
    assert!(std::fs::read(file).unwrap() == before, "the damaged file was changed");
    println!("damaged: {}", said.lines().next().unwrap_or_default());
}

#[tokio::test]
async fn a_database_with_flipped_bytes_is_refused_by_name() {
    let (mut server, file) = stopped().await;
    let damaged = File::options().read(true).write(true).open(&file).unwrap();
    let length = damaged.metadata().unwrap().len();
    // Somewhere in the middle: pages of objects.
    for part in 3..7 {
        damaged.write_all_at(&[0xa5; 512], length * part / 10).unwrap();
    }
    drop(damaged);
    assert_refused_by_name(&mut server, &file);
}

#[tokio::test]
async fn a_database_with_a_damaged_head_is_refused_by_name() {
    let (mut server, file) = stopped().await;
    File::options().write(true).open(&file).unwrap().write_all_at(&[0; 64], 0).unwrap();
    assert_refused_by_name(&mut server, &file);
}

#[tokio::test]
async fn a_truncated_database_is_refused_by_name() {
    let (mut server, file) = stopped().await;
    let mut cut = File::options().write(true).open(&file).unwrap();
    let length = cut.seek(SeekFrom::End(0)).unwrap();
    cut.set_len(length / 2).unwrap();
    drop(cut);
    assert_refused_by_name(&mut server, &file);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let mut server = Server::start();
    let mut second = server.launch();
    let status = second.wait_for_exit(TIMEOUT).unwrap();
    let said = second.stderr();
    assert!(!status.success());
    let directory = server.data_dir().display().to_string();
    assert!(said.contains(&directory), "{said}");
    assert!(said.contains("in use") || said.contains("another process"), "{said}");
    println!("second server: {}", said.lines().next().unwrap_or_default());
    // The first one never noticed.
    assert!(server.stop().success());
}
