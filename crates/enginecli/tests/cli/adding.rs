//! `add-replica`: who is asked what, in which order.

use rpc::Rebuilding;
use rpc::ptypes::{
    ControllerReplica, Replica, ReplicaExpandResponse, ReplicaMode, ReplicaPrepareRebuildReply,
    ReplicaRebuildConcurrentSyncLimitGetResponse, SyncFileInfo, VersionDetailGetReply,
    VersionOutput,
};
use tonic::Status;

use crate::world::World;

/// Two healthy replicas, and a third the controller does not know yet.
fn world() -> World {
    let mut world = World::healthy(2);
    world.add_node().is(closed(4 << 20));
    let file = SyncFileInfo {
        from_file_name: "volume-snap-a.img".into(),
        to_file_name: "volume-snap-a.img".into(),
        actual_size: 4096,
    };
    let prepared = ReplicaPrepareRebuildReply { replica: None, sync_file_info_list: vec![file] };
    world.controller.on("replica_prepare_rebuild", prepared);
    let verified = ControllerReplica { address: None, mode: ReplicaMode::Rw as i32 };
    world.controller.on("replica_verify_rebuild", verified);
    world
}

fn closed(size: i64) -> Replica {
    Replica { state: "closed".into(), size: size.to_string(), ..Replica::default() }
}

fn speaks(world: &World, controller_api_version: i64, limit: i32) {
    let version = VersionOutput { controller_api_version, ..Default::default() };
    world.controller.on("version_detail_get", VersionDetailGetReply { version: Some(version) });
    let reply = ReplicaRebuildConcurrentSyncLimitGetResponse { limit };
    world.controller.on("replica_rebuild_concurrent_sync_limit_get", reply);
}

const ADD: &str = "--volume-name vol add --size 4m --current-size 4m";

const REBUILD: [&str; 6] = [
    "replica2.rebuilding_set",
    "controller.replica_prepare_rebuild",
    "agent2.files_sync",
    "replica2.replica_reload",
    "controller.replica_verify_rebuild",
    "replica2.rebuilding_set",
];

#[test]
fn a_replica_is_rebuilt_step_by_step() {
    let world = world();
    speaks(&world, 6, 1);
    let line = format!(
        "{ADD} {{2}} --replica-instance-name r-3 --fast-sync --file-sync-http-client-timeout 30 \
         --grpc-timeout-seconds 99"
    );
    assert_eq!(world.ok(&line), "");
    let mut wanted = vec![
        "controller.volume_get",
        "replica2.replica_get",
        "controller.controller_replica_create",
        "controller.replica_list",
        "controller.version_detail_get",
        "controller.replica_rebuild_concurrent_sync_limit_get",
    ];
    wanted.extend(REBUILD);
    assert_eq!(world.called(), wanted);
    let create = &world.calls_of("controller_replica_create")[0];
    let text = "ControllerReplicaCreateRequest { address: \"{2}\", snapshot_required: true, mode: \
                Wo }";
    assert_eq!(create.request, world.fill(text));
    // One that can do it all is asked to; this one cannot.
    let how =
        Rebuilding { fast_sync: true, file_sync_timeout_seconds: 30, call_timeout_seconds: 99 };
    assert_eq!(create.rebuilding, Some(how));
    let set: Vec<_> =
        world.calls_of("rebuilding_set").into_iter().map(|call| call.request).collect();
    let text = |on| format!("RebuildingSetRequest {{ rebuilding: {on} }}");
    assert_eq!(set, [text(true), text(false)]);
    let sync = &world.calls_of("files_sync")[0];
    let text = "FilesSyncRequest { from_address: \"{0}\", to_host: \"127.0.0.1\", \
                sync_file_info_list: [SyncFileInfo { from_file_name: \"volume-snap-a.img\", \
                to_file_name: \"volume-snap-a.img\", actual_size: 4096 }], fast_sync: true, \
                file_sync_http_client_timeout: 30, grpc_timeout_seconds: 99, local_sync: None, \
                from_address_map: {\"{0}\": true} }";
    assert_eq!(sync.request, world.fill(text));
    assert_eq!(sync.names, [Some("vol".to_owned()), Some("r-3".to_owned())]);
    let prepare = &world.calls_of("replica_prepare_rebuild")[0];
    assert!(prepare.request.contains("instance_name: \"r-3\""), "{prepare:?}");
    // The controller has another instance name than the replica.
    assert_eq!(prepare.names, [Some("vol".to_owned()), None]);
}

#[test]
fn as_many_sources_are_used_as_the_controller_allows() {
    for (api, limit, wanted) in [(6, 1, 1), (6, 2, 2), (6, 5, 2), (5, 1, 2)] {
        let world = world();
        speaks(&world, api, limit);
        world.ok(&format!("{ADD} {{2}}"));
        let request = &world.calls_of("files_sync")[0].request;
        assert_eq!(request.matches("\": true").count(), wanted, "{api} {limit}: {request}");
    }
}

#[test]
fn the_first_replica_starts_the_volume() {
    let world = World::healthy(0);
    assert_eq!(world.ok("add-replica --size 8m --current-size 4m tcp://x:1"), "");
    assert_eq!(world.called(), ["controller.volume_get", "controller.volume_start"]);
    let wanted = "VolumeStartRequest { replica_addresses: [\"tcp://x:1\"], size: 8388608, \
                  current_size: 4194304 }";
    assert_eq!(world.calls_of("volume_start")[0].request, wanted);
}

#[test]
fn a_smaller_replica_is_expanded_and_a_larger_one_refused() {
    let world = world();
    world.replicas[2].is(closed(2 << 20));
    world.ok(&format!("{ADD} {{2}}"));
    let called = world.called();
    let wanted = ["replica2.replica_open", "replica2.replica_expand", "replica2.replica_close"];
    assert_eq!(called[2..5], wanted);
    assert_eq!(
        world.calls_of("replica_expand")[0].request,
        "ReplicaExpandRequest { size: 4194304 }"
    );

    world.forget_calls();
    world.replicas[2].is(closed(8 << 20));
    let text = world.error(&format!("{ADD} {{2}}"));
    assert_eq!(text, "cannot add new replica larger than size 4194304");
    assert!(world.calls_of("controller_replica_create").is_empty());
}

#[test]
fn a_replica_that_cannot_grow_is_closed_again() {
    let world = world();
    world.replicas[2].is(closed(2 << 20));
    let refused = Status::internal("no room");
    world.replicas[2].replica.refuse::<ReplicaExpandResponse>("replica_expand", refused);
    assert!(world.error(&format!("{ADD} {{2}}")).ends_with("code = Internal desc = no room"));
    assert_eq!(world.called().last().unwrap(), "replica2.replica_close");
}

#[test]
fn an_earlier_rebuild_is_forgotten_first() {
    let world = world();
    world.replicas[2].is(Replica { rebuilding: true, ..closed(4 << 20) });
    world.ok(&format!("{ADD} {{2}}"));
    let wanted = ["replica2.replica_open", "replica2.rebuilding_set", "replica2.replica_close"];
    assert_eq!(world.called()[2..5], wanted);
    assert!(world.calls_of("rebuilding_set")[0].request.contains("false"));
}

#[test]
fn an_open_replica_is_left_to_the_controller_to_refuse() {
    let world = world();
    world.replicas[2].is(Replica { state: "open".into(), ..closed(2 << 20) });
    let text = "replica must be closed, cannot add in state: open";
    world
        .controller
        .refuse::<ControllerReplica>("controller_replica_create", Status::unknown(text));
    let wanted = "failed to add replica {2}: rpc error: code = Unknown desc = ";
    assert_eq!(world.error(&format!("{ADD} {{2}}")), format!("{}{text}", world.fill(wanted)));
    assert!(world.calls_of("replica_open").is_empty());
}

#[test]
fn a_replica_that_serves_already_is_not_rebuilt_again() {
    let world = world();
    let known = ControllerReplica { address: None, mode: ReplicaMode::Rw as i32 };
    world.controller.on("controller_replica_create", known);
    world.ok(&format!("{ADD} {{2}}"));
    assert_eq!(world.called().last().unwrap(), "controller.controller_replica_create");
    let failed = ControllerReplica { address: None, mode: ReplicaMode::Err as i32 };
    world.controller.on("controller_replica_create", failed);
    assert!(world.error(&format!("{ADD} {{2}}")).contains("has failed"));
}

#[test]
fn a_failed_copy_leaves_the_rest_undone() {
    let world = world();
    let refused = Status::unknown("replica is already rebuilding");
    world.replicas[2].agent.refuse::<()>("files_sync", refused);
    let text = world.error(&format!("{ADD} {{2}}"));
    assert!(text.ends_with("code = Unknown desc = replica is already rebuilding"), "{text}");
    assert_eq!(world.called().last().unwrap(), "agent2.files_sync");
}

#[test]
fn a_replica_to_be_restored_is_only_added() {
    let world = world();
    // The flag stands behind the address, as existing callers write it.
    assert_eq!(world.ok(&format!("{ADD} {{2}} --restore")), "");
    let wanted =
        ["controller.volume_get", "replica2.replica_get", "controller.controller_replica_create"];
    assert_eq!(world.called(), wanted);
    let create = &world.calls_of("controller_replica_create")[0];
    let request = &create.request;
    assert!(request.contains("snapshot_required: false, mode: Wo"), "{request}");
    assert_eq!(create.rebuilding, None, "who restores fills it");

    world.replicas[2].is(closed(2 << 20));
    let text = world.error(&format!("{ADD} --restore {{2}}"));
    assert_eq!(text, "rebuilding replica size 2097152 is not the same as volume size 4194304");
}

#[test]
fn what_is_needed_is_asked_for() {
    let world = World::healthy(0);
    assert_eq!(world.error("add --size 4m --current-size 4m"), "replica address is required");
    assert_eq!(world.error("add tcp://x:1"), "--size is required");
    assert_eq!(world.error("add tcp://x:1 --size 4m"), "--current-size is required");
    let text = world.error("add tcp://x:1 --file-sync-http-client-timeout 0");
    assert!(text.starts_with("invalid --file-sync-http-client-timeout 0"), "{text}");
    assert!(world.called().is_empty());
}
