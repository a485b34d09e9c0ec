//! `info`, `expand`, `frontend`, `journal`, `unmap-mark-snap-chain-removed`, `profiler`,
//! `version`.

use rpc::profilerrpc::ProfilerOpReply;
use rpc::ptypes::{VersionDetailGetReply, VersionOutput, Volume};
use tonic::Status;

use crate::world::{World, run};

#[test]
fn info_prints_the_volume() {
    let world = World::healthy(0);
    world.controller.on(
        "volume_get",
        Volume {
            name: "vol".into(),
            size: 4_194_304,
            replica_count: 2,
            endpoint: "/dev/a&b<c>".into(),
            frontend: "socket".into(),
            frontend_state: "up".into(),
            is_expanding: true,
            last_expansion_error: "x".into(),
            last_expansion_failed_at: "y".into(),
            unmap_mark_snap_chain_removed: true,
            snapshot_max_count: 250,
            snapshot_max_size: 7,
        },
    );
    let wanted = "{\n\t\"name\": \"vol\",\n\t\"size\": 4194304,\n\t\"replicaCount\": 2,\n\
                  \t\"endpoint\": \"/dev/a\\u0026b\\u003cc\\u003e\",\n\t\"frontend\": \"socket\",\n\
                  \t\"frontendState\": \"up\",\n\t\"isExpanding\": true,\n\
                  \t\"lastExpansionError\": \"x\",\n\t\"lastExpansionFailedAt\": \"y\",\n\
                  \t\"unmapMarkSnapChainRemoved\": true,\n\t\"snapshotMaxCount\": 250,\n\
                  \t\"SnapshotMaxSize\": 7\n}\n";
    assert_eq!(world.ok("info"), wanted);
}

#[test]
fn names_are_sent_along() {
    let world = World::healthy(0);
    world.ok("--volume-name vol --engine-instance-name vol-e-0 info");
    world.ok("info");
    let names: Vec<_> = world.calls_of("volume_get").into_iter().map(|call| call.names).collect();
    assert_eq!(names, [[Some("vol".to_owned()), Some("vol-e-0".to_owned())], [None, None]]);
}

#[test]
fn expand_takes_plain_bytes() {
    let world = World::healthy(1);
    assert_eq!(world.ok("expand --size 8388608"), "");
    assert_eq!(world.calls_of("volume_expand")[0].request, "VolumeExpandRequest { size: 8388608 }");
    assert!(world.error("expand").contains("--size is required"));
    assert!(world.error("expand --size 8m").contains("invalid value"));
}

#[test]
fn the_frontend_is_started_and_stopped() {
    let world = World::healthy(1);
    assert_eq!(world.ok("frontend start socket"), "");
    let request = &world.calls_of("volume_frontend_start")[0].request;
    assert_eq!(request, "VolumeFrontendStartRequest { frontend: \"socket\" }");
    assert_eq!(world.ok("frontend shutdown"), "");
    assert_eq!(world.calls_of("volume_frontend_shutdown").len(), 1);
    assert_eq!(world.error("frontend start"), "frontend name is required");
}

#[test]
fn unmap_marking_is_switched_one_way_or_the_other() {
    let world = World::healthy(1);
    world.ok("unmap-mark-snap-chain-removed --enable");
    world.ok("unmap-mark-snap --disable=True");
    let calls = world.calls_of("volume_unmap_mark_snap_chain_removed_set");
    assert!(calls[0].request.contains("enabled: true"), "{calls:?}");
    assert!(calls[1].request.contains("enabled: false"), "{calls:?}");
    for line in ["unmap-mark-snap", "unmap-mark-snap --enable --disable"] {
        let text = world.error(line);
        assert_eq!(text, "exactly one of --enable and --disable is required", "{line}");
    }
}

#[test]
fn the_journal_is_asked_for_with_its_limit() {
    let world = World::healthy(1);
    assert_eq!(world.ok("journal --limit 5"), "");
    assert_eq!(world.calls_of("journal_list")[0].request, "JournalListRequest { limit: 5 }");
}

#[test]
fn the_profiler_is_one_line() {
    let world = World::healthy(0);
    assert_eq!(world.ok("profiler show"), "Profiler is not enabled\n");
    let reply = ProfilerOpReply { profiler_addr: ":31000".into() };
    world.controller.on("profiler_op", reply);
    assert_eq!(world.ok("profiler show"), "Profiler is enabled at :31000\n");
    assert_eq!(world.ok("profiler enable --port 31000"), "Profiler is enabled at :31000\n");
    assert_eq!(world.ok("profiler disable"), "Profiler is disabled\n");
    world.ok("profiler enable");
    let calls = world.calls_of("profiler_op");
    assert!(calls[2].request.contains("port_number: 31000"), "{calls:?}");
    let port: u16 = world.fill("{url}").rsplit(':').next().unwrap().parse().unwrap();
    let wanted = format!("port_number: {}", u32::from(port) + 20_001);
    assert!(calls[4].request.contains(&wanted), "{calls:?}");
    assert!(world.error("profiler enable --port 80").starts_with("invalid port 80"));
    world.controller.refuse::<ProfilerOpReply>("profiler_op", Status::unimplemented("no"));
    assert!(world.error("profiler enable").ends_with("code = Unimplemented desc = no"));
}

#[test]
fn versions_are_those_of_the_dialect() {
    let world = World::healthy(0);
    let version = VersionOutput { version: "v9".into(), cli_api_version: 11, ..Default::default() };
    world.controller.on("version_detail_get", VersionDetailGetReply { version: Some(version) });
    let text = world.ok("version");
    let keys = [
        "version",
        "gitCommit",
        "buildDate",
        "cliAPIVersion",
        "cliAPIMinVersion",
        "controllerAPIVersion",
        "controllerAPIMinVersion",
        "dataFormatVersion",
        "dataFormatMinVersion",
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[1], lines[11]), ("{", "\t\"clientVersion\": {", "\t},"));
    assert_eq!(lines[12], "\t\"serverVersion\": {");
    for (index, key) in keys.iter().enumerate() {
        assert!(lines[2 + index].starts_with(&format!("\t\t\"{key}\": ")), "{text}");
        assert!(lines[13 + index].starts_with(&format!("\t\t\"{key}\": ")), "{text}");
    }
    assert!(lines[13].contains("\"v9\"") && lines[16].ends_with("11,"), "{text}");

    // Without a controller, and with no address of one that could be.
    let outcome = run("--url nonsense version --client-only");
    assert_eq!(outcome.exit_code, 0, "{outcome:?}");
    let value: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let client = &value["clientVersion"];
    assert_eq!(value["serverVersion"], serde_json::Value::Null);
    assert_eq!(
        (client["cliAPIVersion"].as_i64(), client["cliAPIMinVersion"].as_i64()),
        (Some(12), Some(8))
    );
    assert_eq!(client["controllerAPIVersion"].as_i64(), Some(6));
    assert_eq!(client["controllerAPIMinVersion"].as_i64(), Some(4));
    assert_eq!(client["dataFormatVersion"].as_i64(), Some(1));
}
