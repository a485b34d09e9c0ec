use std::ffi::OsString;

use super::super::Invocation;
use super::super::parse::{Asked, parse};
use super::*;

fn line(text: &str) -> Line {
    let words = text.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
    match parse(words, Invocation::Longhorn) {
        Ok(Asked::Run(line)) => line,
        other => panic!("{text}: {other:?}"),
    }
}

fn volume(flags: &str) -> Result<ControllerOptions, String> {
    let text = format!("controller vol --size 4m --current-size 4m {flags}");
    controller_options(&line(&text)).map_err(|error| error.to_string())
}

#[test]
fn a_controller_has_the_defaults_of_the_dialect() {
    let options = volume("").unwrap();
    assert_eq!(options.volume, "vol");
    assert_eq!(options.listen, "localhost:9501");
    assert_eq!((options.size_bytes, options.current_size_bytes), (4 << 20, 4 << 20));
    assert_eq!(options.frontend, "");
    assert_eq!(options.backends, [Backend::Tcp]);
    assert!(options.replicas.is_empty());
    assert!(!options.upgrade && !options.salvage && options.revision_counter);
    assert_eq!(options.replica_timeout, Duration::from_secs(8));
    assert_eq!(options.data_protocol, DataProtocol::Tcp);
    assert_eq!(options.file_sync_http_client_timeout, Duration::from_secs(5));
    assert_eq!((options.snapshot_max_count, options.snapshot_max_size), (250, 0));
    assert_eq!(options.rebuild_sync_concurrent_limit, 1);
    assert!(
        options.nbd.listen.is_none() && options.nbd.unix.is_none() && options.nbd.tls.is_none()
    );
}

#[test]
fn the_replica_timeout_falls_back_outside_its_range() {
    for (given, wanted) in [(7, 8), (8, 8), (15, 15), (30, 30), (31, 8), (0, 8), (-1, 8)] {
        let options = volume(&format!("--engine-replica-timeout {given}")).unwrap();
        assert_eq!(options.replica_timeout, Duration::from_secs(wanted), "{given}");
    }
}

#[test]
fn backends_are_a_list_that_replaces_its_default() {
    let backends = |flags: &str| volume(flags).map(|options| options.backends);
    assert_eq!(backends("--enable-backend file"), Ok(vec![Backend::File]));
    assert_eq!(
        backends("--enable-backend tcp --enable-backend file --enable-backend tcp"),
        Ok(vec![Backend::Tcp, Backend::File])
    );
    assert_eq!(
        backends("--enable-backend qcow"),
        Err("unknown backend \"qcow\": tcp or file".to_owned())
    );
}

#[test]
fn controllers_that_cannot_be_are_refused() {
    let refused = |text: &str| controller_options(&line(text)).unwrap_err().to_string();
    assert_eq!(refused("controller"), "volume name is required");
    assert!(refused("controller v --size 1").starts_with("invalid volume name \"v\""));
    assert_eq!(refused("controller vol"), "--size is required");
    assert_eq!(refused("controller vol --size 4m"), "--current-size is required");
    for flags in [
        "--rebuild-sync-concurrent-limit 0",
        "--file-sync-http-client-timeout 0",
        "--snapshot-max-count -1",
        "--data-server-protocol udp",
        "--nbd-tls-cert a.pem",
        "--nbd-tls-client-ca a.pem",
        "--nbd-listen nowhere",
    ] {
        assert!(volume(flags).is_err(), "{flags}");
    }
}

#[test]
fn nbd_takes_an_address_a_socket_and_tls() {
    let nbd = volume(
        "--nbd-listen 127.0.0.1:10809 --nbd-unix /run/x.sock --nbd-tls-cert c --nbd-tls-key k \
         --nbd-tls-client-ca ca",
    );
    let nbd = nbd.unwrap().nbd;
    assert_eq!(nbd.listen, Some(SocketAddr::from(([127, 0, 0, 1], 10809))));
    assert_eq!(nbd.unix, Some(PathBuf::from("/run/x.sock")));
    assert_eq!(nbd.tls.unwrap().client_ca, Some(PathBuf::from("ca")));
    assert_eq!(
        volume("--nbd-listen :7").unwrap().nbd.listen,
        Some(SocketAddr::from(([0, 0, 0, 0], 7)))
    );
}

#[test]
fn a_replica_takes_its_flags_behind_its_directory() {
    let options = replica_options(&line(
        "--volume-name V replica /data/r1 --size 1g --replica-instance-name R --encrypted \
         --disableRevCounter --sync-agent-port-count 7 --listen 10.0.0.2:10000 --restore-from x",
    ));
    let options = options.unwrap();
    assert_eq!(options.dir, PathBuf::from("/data/r1"));
    assert_eq!((options.volume_name.as_str(), options.instance_name.as_str()), ("V", "R"));
    assert_eq!(options.listen, "10.0.0.2:10000");
    assert_eq!(options.size_bytes, Some(1 << 30));
    assert_eq!(options.sync_agent_port_count, 7);
    assert!(options.sync_agent && options.encrypted && !options.revision_counter);
    assert!(!options.data_unix);
    assert_eq!(
        replica_options(&line("replica")).unwrap_err().to_string(),
        "directory name is required"
    );
    assert!(replica_options(&line("replica d --sync-agent-port-count 70000")).is_err());
}

#[test]
fn an_agent_needs_its_replica_and_a_port_range() {
    let options = agent_options(&line("sync-agent --replica localhost:9502")).unwrap();
    assert_eq!(options.ports, 9700..=9800);
    assert_eq!(options.listen, "localhost:9504");
    assert_eq!(options.dir, std::env::current_dir().unwrap());
    assert!(agent_options(&line("sync-agent")).is_err());
    for range in ["", "1", "2-1", "0-4", "a-b", "1-65536"] {
        assert!(port_range(range).is_err(), "{range}");
    }
}

#[test]
fn replicas_are_waited_for_unless_the_peers_name_is_used() {
    let wait = |text: &str, invocation| {
        let line = Line { invocation, ..line(&format!("controller vol --size 4m {text}")) };
        replica_wait(&line).map_err(|error| error.to_string())
    };
    assert_eq!(wait("", Invocation::Holdfast), Ok(Duration::from_secs(10)));
    assert_eq!(wait("", Invocation::Longhorn), Ok(Duration::ZERO));
    assert_eq!(wait("--replica-wait 3", Invocation::Longhorn), Ok(Duration::from_secs(3)));
    assert_eq!(wait("--replica-wait 0", Invocation::Holdfast), Ok(Duration::ZERO));
    for bad in ["-1", "x", "86401"] {
        assert!(wait(&format!("--replica-wait {bad}"), Invocation::Holdfast).is_err(), "{bad}");
    }
}
