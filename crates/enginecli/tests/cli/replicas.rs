//! `ls-replica`, `start-with-replicas`, `rm-replica`, `update-replica`, `verify-rebuild-replica`,
//! `replica-rebuild-status`, `sync-agent-server-reset`.

use rpc::ptypes::{
    Replica, ReplicaMode, ReplicaRebuildStatusResponse, RestoreStatusResponse, Volume,
};
use tonic::Status;

use crate::world::World;

fn chain(disks: &[&str]) -> Replica {
    Replica { chain: disks.iter().map(|disk| (*disk).to_owned()).collect(), ..Replica::default() }
}

#[test]
fn replicas_are_listed_in_padded_columns() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Wo, ReplicaMode::Err]);
    world.replicas[0].is(chain(&["volume-head-001.img", "volume-snap-a.img"]));
    world.replicas[1].is(chain(&["volume-head-000.img"]));
    let width = world.replicas.iter().map(|node| node.address.len()).max().unwrap() + 1;
    let row = |address: &str, rest: &str| format!("{:<width$}{rest}\n", world.fill(address));
    let wanted = [
        row("ADDRESS", "MODE CHAIN"),
        row("{0}", "RW   [volume-head-001.img volume-snap-a.img]"),
        row("{1}", "WO   [volume-head-000.img]"),
        row("{2}", "ERR  "),
    ];
    for line in ["ls-replica", "ls"] {
        assert_eq!(world.ok(line), wanted.concat(), "{line}");
    }
    assert!(!world.called().contains(&"replica2.replica_get".to_owned()));
}

#[test]
fn an_empty_list_has_its_head() {
    assert_eq!(World::healthy(0).ok("ls"), "ADDRESS MODE CHAIN\n");
}

#[test]
fn a_volume_is_started_once() {
    let world = World::healthy(0);
    assert_eq!(world.ok("start --size 4m --current-size 2m tcp://a:1 tcp://b:2"), "");
    let request = &world.calls_of("volume_start")[0].request;
    let wanted = "VolumeStartRequest { replica_addresses: [\"tcp://a:1\", \"tcp://b:2\"], size: \
                  4194304, current_size: 2097152 }";
    assert_eq!(request, wanted);
    assert_eq!(world.error("start-with-replicas"), "at least one replica address is required");
    world.controller.on("volume_get", Volume { replica_count: 1, ..Volume::default() });
    let text = world.error("start-with-replicas tcp://a:1");
    assert_eq!(text, "cannot add multiple replicas if volume is already up");
}

#[test]
fn a_replica_is_removed() {
    let world = World::healthy(1);
    assert_eq!(world.ok("rm {0}"), "");
    assert!(world.calls_of("replica_delete")[0].request.contains(&world.replicas[0].address));
    assert_eq!(world.error("rm-replica"), "replica address is required");
    world.controller.refuse::<()>(
        "replica_delete",
        Status::unknown("cannot remove last replica if volume is up"),
    );
    let wanted = "failed to remove replica {0}: rpc error: code = Unknown desc = cannot remove last \
                  replica if volume is up";
    assert_eq!(world.error("rm {0}"), world.fill(wanted));
}

#[test]
fn a_mode_is_set() {
    let world = World::healthy(1);
    for (word, name) in [("RW", "Rw"), ("ERR", "Err"), ("WO", "Wo")] {
        world.forget_calls();
        assert_eq!(world.ok(&format!("update {{0}} --mode {word}")), "");
        let request = &world.calls_of("replica_update")[0].request;
        assert!(request.contains(&format!("mode: {name}")), "{request}");
    }
    assert!(world.error("update {0} --mode rw").starts_with("invalid replica mode \"rw\""));
    assert!(world.error("update-replica {0}").starts_with("invalid replica mode \"\""));
}

#[test]
fn a_rebuild_is_verified_by_the_controller() {
    let world = World::healthy(1);
    assert_eq!(world.ok("verify-rebuild {0} --replica-instance-name r-1"), "");
    let request = &world.calls_of("replica_verify_rebuild")[0].request;
    let wanted = "ReplicaAddress { address: \"{0}\", instance_name: \"r-1\" }";
    assert_eq!(*request, world.fill(wanted));
    assert_eq!(world.error("verify-rebuild-replica"), "replica address is required");
}

#[test]
fn only_replicas_that_are_filled_have_a_rebuild_status() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Wo, ReplicaMode::Err]);
    let status = ReplicaRebuildStatusResponse {
        is_rebuilding: true,
        progress: 42,
        state: "in_progress".into(),
        from_replica_address_list: vec!["tcp://a:1".into()],
        ..Default::default()
    };
    world.replicas[1].agent.on("replica_rebuild_status", status);
    let wanted = "{\n\t\"{1}\": {\n\t\t\"error\": \"\",\n\t\t\"isRebuilding\": true,\n\
                  \t\t\"progress\": 42,\n\t\t\"state\": \"in_progress\",\n\
                  \t\t\"fromReplicaAddressList\": [\n\t\t\t\"tcp://a:1\"\n\t\t]\n\t}\n}\n";
    for line in ["replica-rebuild-status", "rebuild-status"] {
        assert_eq!(world.ok(line), world.fill(wanted), "{line}");
    }
    let idle = ReplicaRebuildStatusResponse::default();
    world.replicas[1].agent.on("replica_rebuild_status", idle);
    assert!(world.ok("rebuild-status").contains("\"fromReplicaAddressList\": null"));
    let restored = RestoreStatusResponse { dest_file_name: "x.img".into(), ..Default::default() };
    world.replicas[1].agent.on("restore_status", restored);
    assert_eq!(world.ok("rebuild-status"), "{}\n");
}

#[test]
fn an_agent_that_refuses_is_shown_in_the_status() {
    let world = World::new(&[ReplicaMode::Wo]);
    let refused = Status::unavailable("away");
    world.replicas[0].agent.refuse::<RestoreStatusResponse>("restore_status", refused);
    let text = world.ok("rebuild-status");
    assert!(text.contains("rpc error: code = Unavailable desc = away"), "{text}");
}

#[test]
fn agents_are_reset_unless_they_work() {
    let world = World::new(&[ReplicaMode::Rw, ReplicaMode::Rw, ReplicaMode::Err]);
    world.replicas.iter().for_each(|node| node.is(Replica::default()));
    assert_eq!(world.ok("sync-agent-server-reset"), "");
    let mut asked: Vec<String> =
        world.calls_of("reset").into_iter().map(|call| call.server).collect();
    asked.sort();
    assert_eq!(asked, ["agent0", "agent1"]);

    world.forget_calls();
    world.replicas[1].is(Replica { rebuilding: true, ..Replica::default() });
    let wanted = "{1}: cannot reset sync agent server because replica {1} is rebuilding";
    assert_eq!(world.error("sync-agent-server-reset"), world.fill(wanted));
    world.replicas[1].is(Replica::default());
    let restoring = RestoreStatusResponse { is_restoring: true, ..Default::default() };
    world.replicas[0].agent.on("restore_status", restoring);
    let wanted = "{0}: cannot reset sync agent server because replica {0} is restoring";
    assert_eq!(world.error("sync-agent-server-reset"), world.fill(wanted));
    assert!(world.calls_of("reset").is_empty());
}
