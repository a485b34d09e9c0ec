//! What is answered over HTTP.

use e2e::guard::Rig;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use crate::guarded;

#[test]
fn every_path_answers_as_the_dialect_says() {
    let Some(mut rig) = Rig::new("http") else { return };
    rig.put("a", "1");
    let sidecar = guarded(&mut rig, &[]);
    assert_eq!(sidecar.get("/healthz"), (200, "{\"health\":true}".to_owned()));
    assert_eq!(sidecar.get("/initialization/status"), (200, "New".to_owned()));
    assert_eq!(sidecar.get("/snapshot/delta"), (200, "null".to_owned()));
    rig.put("b", "2");
    let last = sidecar.json("/snapshot/full?final=true");
    assert_eq!(last["isFinal"], true);
    assert!(last["snapName"].as_str().unwrap().ends_with(".gz.final"), "{last}");
    let again = sidecar.json("/snapshot/full?final=true");
    assert_eq!(again["snapName"], last["snapName"], "nothing changed");
    assert_eq!(sidecar.get("/snapshot/full?final=perhaps").0, 400);
    rig.put("c", "3");
    assert_eq!(sidecar.json("/snapshot/full")["lastRevision"], rig.revision());
    rig.put("d", "4");
    sidecar.json("/snapshot/delta");
    let latest = sidecar.json("/snapshot/latest");
    assert_eq!(latest["fullSnapshot"]["lastRevision"], rig.revision() - 1);
    assert_eq!(latest["deltaSnapshots"][0]["lastRevision"], rig.revision());
    assert!(latest["fullSnapshot"]["prefix"].as_str().unwrap().ends_with("/etcd-main/v2/"));
    assert_eq!(sidecar.try_ask("POST", "/snapshot/latest").unwrap().0, 200);
    assert_eq!(sidecar.get("/nope").0, 404);
    assert_eq!(sidecar.get("/debug/pprof/").0, 404);
    let config = sidecar.get("/config");
    assert_eq!(config.0, 200, "{}", config.1);
    assert!(
        config.1.contains(&format!("advertise-client-urls: {}", rig.endpoint()))
            || config.1.contains(&format!("advertise-client-urls: \"{}\"", rig.endpoint())),
        "{}",
        config.1
    );
    assert_eq!(std::fs::read_to_string(rig.home().join("etcd.conf.yaml")).unwrap(), config.1);
    let metrics = sidecar.get("/metrics").1;
    for line in [
        "etcdbr_cluster_size 1",
        "etcdbr_snapshot_gc_total{kind=\"Chunk\",succeeded=\"false\"} 0",
        "etcdbr_snapshot_latest_revision{kind=\"Full\"} 4",
        "etcdbr_snapshot_latest_revision{kind=\"Incr\"} 5",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in:\n{metrics}");
    }
    assert_eq!(sidecar.stop(), Some(0));
}

#[test]
fn without_a_store_there_is_health_and_no_snapshot() {
    let Some(mut rig) = Rig::new("no store") else { return };
    let mut sidecar = rig.sidecar_without_store(&[]);
    sidecar.wait_until_healthy();
    for path in ["/snapshot/full", "/snapshot/delta", "/snapshot/latest"] {
        assert_eq!(sidecar.get(path).0, 405, "{path}");
    }
    assert_eq!(sidecar.stop(), Some(0));
}

#[test]
fn hostile_requests_hurt_nobody_else() {
    let Some(mut rig) = Rig::new("hostile requests") else { return };
    let sidecar = guarded(&mut rig, &["--etcd-username=root"]);
    let idle: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, sidecar.port)).unwrap()).collect();
    for noise in [
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        b"GET /snapshot/full?final=%ff%00 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000)).into_bytes(),
        format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(5000)).into_bytes(),
        b"POST /initialization/status HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
        b"GET http://169.254.0.1/snapshot/latest HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
    ] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, sidecar.port)).unwrap();
        // It may answer and close before all of it is sent: then a write, the half-close or the
        // read ends in a reset, and that is as good an answer as any.
        let _ = stream.write_all(&noise).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(sidecar.get("/healthz").0, 200);
    drop(idle);
    assert_eq!(sidecar.stop(), Some(0));
}
