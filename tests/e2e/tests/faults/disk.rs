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

use crate::{MAPS, PATIENCE};

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

/// Writes until it is refused; the number of writes before that, and the refusal.
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

    let (written, refusal) = fill(&mut connection).await;
    let status = refusal.json();
    println!("disk full after {written} writes: {} {}", refusal.code(), status["message"]);
    assert!(written > 0);
    assert!(refusal.status.is_server_error(), "{status}");
    assert_eq!(status["kind"], "Status", "{status}");

    assert_eq!(connection.get(&format!("{MAPS}/fill-0")).await.unwrap().code(), 200);
    assert_eq!(connection.get(MAPS).await.unwrap().code(), 200);

    std::fs::remove_file(&ballast).unwrap();
    let body = json!({"metadata": {"name": "after"}, "data": {"a": "b"}});
    let recovered = tokio::time::timeout(PATIENCE, async {
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
    let status = process.wait_for_exit(PATIENCE).unwrap();
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
    let status = second.wait_for_exit(PATIENCE).unwrap();
    let said = second.stderr();
    assert!(!status.success());
    let directory = server.data_dir().display().to_string();
    assert!(said.contains(&directory), "{said}");
    assert!(said.contains("in use") || said.contains("another process"), "{said}");
    println!("second server: {}", said.lines().next().unwrap_or_default());
    // The first one never noticed.
    assert!(server.stop().success());
}
