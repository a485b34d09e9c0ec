//! A volume from its creation to its end.

use serde_json::json;

use e2e::volumes::{Content, Rig};

#[test]
fn a_volume_is_attached_written_healed_grown_and_deleted() {
    let rig = Rig::start();
    rig.volume("life", 16, 2);
    rig.attach("life");
    let mut content = Content::new();
    rig.write("life", &mut content, 0, 4, 1);
    // A copy ends by itself: the volume goes on, and is whole again.
    let replica = rig.replicas("life").remove(0);
    rig.kill_replica(&replica);
    rig.write("life", &mut content, 4, 2, 2);
    rig.until("the volume has seen the end of its copy", || {
        rig.kubectl(&["get", "events.events.k8s.io"]).contains("Degraded")
    });
    rig.until("the volume is healthy again", || rig.is_healthy("life"));
    rig.holds("life", &content, 16);
    // It grows while it is used.
    rig.patch("lhv", "life", &json!({"spec": {"size": (32_u64 << 20).to_string()}}));
    rig.until("the volume has grown", || {
        rig.text("lhe", "life-e-0", "/status/currentSize") == (32_u64 << 20).to_string()
    });
    rig.write("life", &mut content, 30, 2, 3);
    rig.holds("life", &content, 32);
    // What was written is there the next time.
    rig.detach("life");
    rig.attach("life");
    rig.holds("life", &content, 32);
    rig.kubectl(&["delete", "lhv", "life", "--timeout=120s"]);
    for kind in ["lhe", "lhr", "lhva"] {
        assert_eq!(rig.kubectl(&["get", kind, "-o", "name"]), "", "{kind}");
    }
}
