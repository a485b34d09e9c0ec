//! NBD clients of others work on a volume.

use std::process::Command;

use e2e::engine::{MIB, Volume, run, tool};
use serde_json::Value;

use crate::{pattern, put};

#[tokio::test(flavor = "multi_thread")]
async fn qemu_reads_what_qemu_wrote() {
    let volume = Volume::start(e2e::engine::Setup::default());
    let uri = volume.endpoint().uri();
    let Some(qemu_img) = tool("qemu-img", "qemu on a volume") else { return };
    let Some(qemu_io) = tool("qemu-io", "qemu on a volume") else { return };
    let text = run(Command::new(qemu_img).args(["info", "--output=json", &uri]));
    let info: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["virtual-size"], volume.setup.size_bytes, "{info}");
    let io = |commands: &[&str]| {
        let mut command = Command::new(&qemu_io);
        command.args(["-f", "raw"]);
        for one in commands {
            command.args(["-c", one]);
        }
        run(command.arg(&uri))
    };
    io(&["write -P 0xa5 0 1M", "write -P 0x5a 1048064 1536", "write -z 8M 64k", "flush"]);
    io(&["write -f -P 0x11 16M 4k", "discard 0 64k"]);
    let text = io(&[
        "read -P 0xa5 65536 982528",
        "read -P 0x5a 1048064 1536",
        "read -P 0 8M 64k",
        "read -P 0x11 16M 4k",
    ]);
    assert!(!text.contains("failed"), "{text}");
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_told_and_an_image_goes_in_and_out() {
    let volume = Volume::start(e2e::engine::Setup::default());
    let uri = volume.endpoint().uri();
    let Some(nbdinfo) = tool("nbdinfo", "libnbd on a volume") else { return };
    let Some(nbdcopy) = tool("nbdcopy", "libnbd on a volume") else { return };
    put(&volume.nbd().await, 256, 256, 7).await;
    let map = || -> Vec<(u64, u64, u64)> {
        let text = run(Command::new(&nbdinfo).args(["--map", "--json", &uri]));
        let map: Value = serde_json::from_str(&text).unwrap();
        let field = |one: &Value, name: &str| one[name].as_u64().unwrap();
        let extents = map.as_array().unwrap().iter();
        extents
            .map(|one| (field(one, "offset"), field(one, "length"), field(one, "type")))
            .collect()
    };
    // Type 3 is a hole that reads as zeroes.
    assert_eq!(map(), [(0, MIB, 3), (MIB, MIB, 0), (2 * MIB, 62 * MIB, 3)]);

    let image = volume.scratch().join("in.img");
    let mut contents = vec![0; 64 << 20];
    contents[5 << 20..(5 << 20) + (3 << 20)].copy_from_slice(&pattern(768, 3));
    e2e::engine::write_file(&image, &contents);
    run(Command::new(&nbdcopy).arg("--flush").arg(&image).arg(&uri));
    let copy = volume.scratch().join("out.img");
    run(Command::new(&nbdcopy).arg(&uri).arg(&copy));
    assert!(std::fs::read(&copy).unwrap() == contents);
    assert!(volume.assert_equal() == contents);
    let holes = |map: Vec<(u64, u64, u64)>| -> u64 {
        map.into_iter().filter(|one| one.2 == 3).map(|one| one.1).sum()
    };
    // Runs of zeroes in the image are written as zeroes, and those take no space.
    assert!(holes(map()) >= 60 * MIB, "{:?}", map());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_lives_on_a_volume() {
    let volume = Volume::start(e2e::engine::Setup::default());
    let uri = volume.endpoint().uri();
    let wanted_for = "a file system on a volume";
    let Some(mkfs) = tool("mkfs.ext4", wanted_for) else { return };
    let Some(fsck) = tool("e2fsck", wanted_for) else { return };
    let Some(debugfs) = tool("debugfs", wanted_for) else { return };
    let Some(nbdcopy) = tool("nbdcopy", wanted_for) else { return };
    let image = volume.scratch().join("fs.img");
    std::fs::File::create(&image).unwrap().set_len(volume.setup.size_bytes).unwrap();
    run(Command::new(mkfs).args(["-q", "-F"]).arg(&image));
    let hello = volume.scratch().join("hello");
    e2e::write(&hello, "hello from inside\n");
    let request = format!("write {} hello", hello.display());
    run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(&image));
    run(Command::new(&nbdcopy).arg("--flush").arg(&image).arg(&uri));

    let back = volume.scratch().join("back.img");
    run(Command::new(&nbdcopy).arg(&uri).arg(&back));
    run(Command::new(fsck).args(["-f", "-n"]).arg(&back));
    let text = run(Command::new(&debugfs).args(["-R", "cat hello"]).arg(&back));
    assert_eq!(text, "hello from inside\n");
    volume.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn fio_verifies_what_it_wrote() {
    let Some(fio) = tool("fio", "fio on a volume") else { return };
    let engines = run(Command::new(&fio).arg("--enghelp"));
    if !engines.lines().any(|line| line.trim() == "nbd") {
        return e2e::skip("fio on a volume: this fio was built without nbd");
    }
    let volume = Volume::start(e2e::engine::Setup::default());
    let uri = format!("--uri={}", volume.endpoint().uri());
    let mut command = Command::new(&fio);
    command.current_dir(volume.scratch());
    command.args(["--name=v", "--ioengine=nbd", &uri, "--rw=randwrite", "--bs=4k"]);
    command.args(["--iodepth=16", "--size=16m", "--verify=crc32c", "--fsync=32"]);
    run(command.args(["--verify_fatal=1", "--do_verify=1"]));
    volume.assert_equal();
}

/// Many clients at once, and those who misbehave are refused alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_rubbish_harms_nobody() {
    use e2e::engine::{Endpoint, Nbd};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let volume = Volume::start(e2e::engine::Setup::default());
    let endpoint = volume.endpoint();
    let Endpoint::Tcp { address, export } = endpoint.clone() else { panic!("{endpoint:?}") };
    let nbd = volume.nbd().await;
    put(&nbd, 0, 1, 1).await;
    let mut strangers = Vec::new();
    for rubbish in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 4096],
        b"",
        b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        // The server may close before all is sent.
        let _ = stream.write_all(rubbish).await;
        strangers.push(stream);
    }
    let unknown = Endpoint::Tcp { address: address.clone(), export: format!("not-{export}") };
    Nbd::connect(&unknown).await.expect_err("an export that does not exist");
    // Beyond the end: refused, and the connection goes on.
    let size = nbd.size_bytes();
    assert!(nbd.read(size, 4096).await.is_err());
    assert!(nbd.write(size - 512, pattern(1, 1)).await.is_err());
    for _ in 0..20 {
        let other = Nbd::connect(&endpoint).await.unwrap();
        assert_eq!(other.read(0, 4096).await.unwrap(), pattern(1, 1));
    }
    assert_eq!(nbd.read(0, 4096).await.unwrap(), pattern(1, 1));
    let mut first = strangers.swap_remove(0);
    // Greeted, and then closed; what was not read of its words makes that a reset.
    let _ = first.read_to_end(&mut Vec::new()).await;
    assert_eq!(volume.modes(), ["RW", "RW", "RW"]);
}
