//! Frontend `nbd` against the clients people use. Where one is not installed, the test says so.

use std::io::Write;
use std::process::Stdio;

use tokio::process::Command;

use crate::nbd::Served;

/// What a tool printed; `None`, and a word about it, if it is not installed.
async fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let started = Command::new(program).args(arguments).stdin(Stdio::null()).output().await;
    let output = match started {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: {program}: {error}");
            return None;
        }
    };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said} {complaint}");
    Some(format!("{said}{complaint}"))
}

async fn qemu_io(served: &Served, commands: &[&str]) -> Option<String> {
    let endpoint = served.volume.frontend().endpoint;
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&endpoint);
    run("qemu-io", &arguments).await
}

#[tokio::test]
async fn qemu_io_reads_what_it_wrote() {
    let served = Served::start().await;
    let commands = [
        "write -P 0x5a 0 1M",
        "write -f -P 0x5b 1M 64k",
        "flush",
        "read -P 0x5a 0 1M",
        "read -P 0x5b 1M 64k",
        "write -z -u 0 128k",
        "read -P 0 0 128k",
        "discard 512k 64k",
        "aio_write -P 1 2M 64k",
        "aio_write -P 2 3M 64k",
        "aio_flush",
        "read -P 2 3M 64k",
    ];
    let Some(said) = qemu_io(&served, &commands).await else { return };
    assert!(!said.contains("Pattern verification failed"), "{said}");
    assert_eq!(served.fake.bytes(1 << 20, 1), [0x5b]);
}

#[tokio::test]
async fn qemu_img_knows_the_size() {
    let served = Served::start().await;
    let endpoint = served.volume.frontend().endpoint;
    let Some(said) = run("qemu-img", &["info", &endpoint]).await else { return };
    assert!(said.contains("4 MiB (4194304 bytes)"), "{said}");
}

#[tokio::test]
async fn nbdinfo_shows_the_export_and_its_holes() {
    let served = Served::start().await;
    if qemu_io(&served, &["write -P 1 1M 1M"]).await.is_none() {
        return;
    }
    let endpoint = served.volume.frontend().endpoint;
    let Some(said) = run("nbdinfo", &[&endpoint]).await else { return };
    for line in ["export-size: 4194304", "can_multi_conn: true", "can_flush: true", "can_fua: true"]
    {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(said.contains("export=\"vol\""), "{said}");
    let map = run("nbdinfo", &["--map", &endpoint]).await.unwrap_or_default();
    let words: Vec<Vec<&str>> =
        map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let expected =
        [["0", "1048576", "3"], ["1048576", "1048576", "0"], ["2097152", "2097152", "3"]];
    assert_eq!(words, expected);
}

#[tokio::test]
async fn nbdcopy_copies_there_and_back_over_many_connections() {
    let served = Served::start().await;
    let endpoint = served.volume.frontend().endpoint;
    let (there, back) = (served.folder.path().join("there"), served.folder.path().join("back"));
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|index| (index / 4096 * 7) as u8).collect();
    std::fs::File::create(&there).unwrap().write_all(&bytes).unwrap();
    let there = there.display().to_string();
    if run("nbdcopy", &["--flush", "--connections=4", &there, &endpoint]).await.is_none() {
        return;
    }
    assert_eq!(served.fake.bytes(0, bytes.len()), bytes);
    run("nbdcopy", &["--connections=4", &endpoint, &back.display().to_string()]).await;
    assert_eq!(std::fs::read(back).unwrap(), bytes);
}

#[tokio::test]
async fn unix_sockets_serve_the_same_clients() {
    let folder = tempfile::tempdir().unwrap();
    let unix = Some(folder.path().join("nbd.sock"));
    let served = Served::start_with(engine::NbdOptions { unix, ..Default::default() }).await;
    qemu_io(&served, &["write -P 7 0 64k", "read -P 7 0 64k"]).await;
    run("nbdinfo", &["--size", &served.volume.frontend().endpoint]).await;
}
