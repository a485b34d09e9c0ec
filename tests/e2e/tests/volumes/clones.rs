//! Volumes that begin as a copy of another: nothing is lost, nothing is served too early, and what is
//! killed in the middle is made anew.

use e2e::volumes::{Content, Rig};

#[test]
fn volumes_and_snapshots_are_copied_from_attached_and_detached_ones() {
    let rig = Rig::start();
    rig.volume("source", 16, 2);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 8, 1);
    rig.snapshot("source", "first");
    let then = content.clone();
    rig.write("source", &mut content, 4, 8, 2);
    // Attached, and larger than its source.
    rig.copy("of-snapshot", "snap://source/first", 32, 2);
    rig.copy("of-volume", "vol://source", 16, 1);
    rig.is_copied("of-snapshot");
    rig.is_copied("of-volume");
    // What is written to the source now is not in the copies.
    let now = content.clone();
    rig.write("source", &mut content, 0, 16, 3);
    rig.attach("of-snapshot");
    rig.holds("of-snapshot", &then, 32);
    rig.attach("of-volume");
    rig.holds("of-volume", &now, 16);
    // A copy is a volume of its own.
    let mut own = then.clone();
    rig.write("of-snapshot", &mut own, 2, 20, 4);
    rig.detach("of-snapshot");
    rig.attach("of-snapshot");
    rig.holds("of-snapshot", &own, 32);
    rig.holds("source", &content, 16);
    // Detached: it is attached for the copy, and let go.
    rig.detach("source");
    rig.copy("late-volume", "vol://source", 0, 2);
    rig.copy("late-snapshot", "snap://source/first", 16, 1);
    rig.is_copied("late-volume");
    rig.is_copied("late-snapshot");
    rig.until("the source is let go", || {
        rig.tickets("source") == 0 && rig.state("source") == "detached"
    });
    rig.attach("late-volume");
    rig.holds("late-volume", &content, 16);
    rig.attach("late-snapshot");
    rig.holds("late-snapshot", &then, 16);
    let told = rig.kubectl(&["get", "events.events.k8s.io"]);
    for reason in ["VolumeCloneInitiated", "VolumeCloneCompleted"] {
        assert!(told.contains(reason), "{reason}");
    }
    // One that cannot be made says why, and goes.
    rig.copy("small", "snap://source/first", 8, 1);
    rig.until("it is told that the volume is too small", || {
        rig.copy_state("small") == "failed"
            && rig.get("lhv", "small").unwrap().to_string().contains("is less than")
    });
    rig.copy("waits", "vol://nobody", 8, 1);
    rig.until("it is told that there is no source", || {
        rig.get("lhv", "waits").unwrap().to_string().contains("volume nobody does not exist")
    });
    rig.kubectl(&["delete", "lhv", "small", "waits", "--timeout=120s"]);
}

#[test]
fn what_is_killed_in_the_middle_of_a_copy_never_looks_complete() {
    let mut rig = Rig::start();
    rig.volume("source", 96, 1);
    rig.attach("source");
    let mut content = Content::new();
    rig.write("source", &mut content, 0, 96, 1);
    rig.copy("copy", "vol://source", 96, 2);
    rig.until("the copying has begun", || {
        !rig.text("lhe", "copy-e-0", "/spec/requestedDataSource").is_empty()
            || rig.copy_state("copy") == "completed"
    });
    // A replica, the engine, and whoever watches over them.
    for replica in rig.replicas("copy").iter().take(1) {
        rig.kill_replica_that_may_run(replica);
    }
    rig.kill_engine_that_may_run("copy");
    rig.restart_server();
    rig.is_copied("copy");
    rig.attach("copy");
    rig.holds("copy", &content, 96);
}
