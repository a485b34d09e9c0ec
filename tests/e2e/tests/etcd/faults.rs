//! What goes wrong around a guard: it is killed, its store fails, its etcd goes.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use e2e::guard::{Rig, TIMEOUT, hash_kv};
use testkit::process::poll_until;

use crate::{QUIET, guarded};

#[test]
fn killed_again_and_again_it_never_leaves_half_an_object() {
    let Some(mut rig) = Rig::new("killed guard") else { return };
    for key in 0..40 {
        rig.put(&format!("k{key}"), &"x".repeat(2000));
    }
    for round in 0..6_u64 {
        rig.put("round", &round.to_string());
        let mut sidecar = rig.sidecar(&["--delta-snapshot-period=1s"]);
        let enough = usize::try_from(round / 2 + 1).unwrap();
        let _ = poll_until(std::time::Duration::from_millis(300 * (round + 1)), || {
            (rig.names("").len() > enough).then_some(())
        });
        sidecar.process.kill().unwrap();
    }
    let sidecar = guarded(&mut rig, &[]);
    rig.put("last", "x");
    sidecar.json("/snapshot/delta");
    let hash = rig.hash_kv();
    assert_eq!(sidecar.stop(), Some(0));
    let restored = rig.restore("restored", &[]);
    let member = rig.boot(&restored);
    assert_eq!(hash_kv(&member.seat.client, 0), hash);
}

#[test]
fn a_store_that_fails_is_told_and_tried_again() {
    let Some(mut rig) = Rig::new("failing store") else { return };
    let mut arguments = QUIET.to_vec();
    arguments.push("--storage-provider=FAILED");
    let mut sidecar = rig.sidecar_without_store(&arguments);
    sidecar.wait_until_healthy();
    assert_eq!(sidecar.get("/snapshot/full").0, 500);
    assert_eq!(sidecar.get("/snapshot/latest").0, 500);
    assert_eq!(sidecar.stop(), Some(0));
}

#[test]
fn without_its_etcd_a_guard_waits_and_leads_again_with_it() {
    let Some(mut rig) = Rig::new("etcd restart") else { return };
    rig.put("a", "1");
    let mut sidecar = guarded(&mut rig, &[]);
    rig.stop_etcd();
    sidecar.wait_for("/healthz", 503);
    let answer = sidecar.get("/snapshot/full");
    assert!(answer.0 == 405 || answer.0 == 500, "{answer:?}");
    rig.start_etcd();
    sidecar.wait_until_healthy();
    rig.put("b", "2");
    let delta = poll_until(TIMEOUT, || {
        let (status, body) = sidecar.get("/snapshot/delta");
        (status == 200).then_some(body)
    });
    assert!(delta.is_some(), "{}", sidecar.process.stderr());
    assert_eq!(sidecar.stop(), Some(0));
}

#[test]
fn a_guard_without_a_name_says_so_and_ends() {
    let Some(rig) = Rig::new("no name") else { return };
    let mut command = rig.command("server");
    command.env_remove("POD_NAME").arg(format!("--endpoints={}", rig.endpoint()));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("POD_NAME"), "{text}");
}

/// A service that knows nobody by these credentials will know nobody tomorrow.
#[test]
fn a_guard_whose_credentials_cannot_work_says_so_and_ends() {
    let Some(rig) = Rig::new("hopeless credentials") else { return };
    let at = refusing();
    let dir = rig.path().join("credentials");
    std::fs::create_dir(&dir).unwrap();
    for (name, value) in [
        ("accessKeyID", "nobody"),
        ("secretAccessKey", "wrong"),
        ("region", "us-east-1"),
        ("endpoint", &format!("http://{at}")),
        ("s3ForcePathStyle", "true"),
    ] {
        File::create(dir.join(name)).unwrap().write_all(value.as_bytes()).unwrap();
    }
    let mut command = rig.command("server");
    command.env("AWS_APPLICATION_CREDENTIALS", &dir).args([
        "--storage-provider=S3",
        "--store-container=bkt",
        &format!("--endpoints={}", rig.endpoint()),
    ]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("InvalidAccessKeyId"), "{text}");
}

/// Answers everybody that it does not know them.
fn refusing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 16 << 10]);
            let answer = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message>\
                          </Error>";
            let head = "Content-Type: application/xml\r\nConnection: close\r\n";
            let _ = write!(stream, "HTTP/1.1 403 Forbidden\r\n{head}\r\n{answer}");
        }
    });
    at
}

#[test]
fn passwords_are_never_printed() {
    let Some(mut rig) = Rig::new("passwords") else { return };
    let mut sidecar = rig.sidecar(&["--etcd-username=root", "--etcd-password=geheim-1"]);
    sidecar.wait_for("/healthz", 503);
    let told = poll_until(TIMEOUT, || {
        let text = sidecar.process.stderr();
        text.contains("etcdConnectionConfig").then_some(text)
    })
    .unwrap();
    assert!(!told.contains("geheim-1"), "{told}");
}
