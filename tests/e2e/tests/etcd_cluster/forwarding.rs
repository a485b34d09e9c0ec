//! A guard whose member follows passes requests for snapshots on to the one that leads, over TLS.

use e2e::guard::{Pki, TIMEOUT};
use serde_json::Value;

use crate::pods::Pods;

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_passes_requests_for_snapshots_on_to_the_leader() {
    let Some(mut pods) = Pods::secured("forwarding").await else { return };
    let leader = pods.serving(None);
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    for follower in followers {
        pods.sidecar_mut(follower).wait_for("/snapshot/latest", 200);
        assert_eq!(pods.sidecar(follower).get("/healthz").0, 503, "it does not lead");
        pods.put("a", "1");
        let full = pods.sidecar(follower).json("/snapshot/full");
        assert_eq!(full["kind"], "Full", "{full}");
        pods.put("b", "2");
        let delta = pods.sidecar(follower).json("/snapshot/delta");
        assert_eq!(delta["kind"], "Incr", "{delta}");
        assert_eq!(revision(&delta), revision(&full) + 1);
        let latest = pods.sidecar(follower).json("/snapshot/latest");
        assert_eq!(latest, pods.sidecar(leader).json("/snapshot/latest"));
        assert_eq!(latest["deltaSnapshots"][0]["snapName"], delta["snapName"]);
        // Rejections are the leader's, too.
        assert_eq!(pods.sidecar(follower).get("/snapshot/full?final=perhaps").0, 400);
    }

    // One that does not trust the leader asks it nothing, and says why.
    let other = Pki::new(pods.path().join("other"), &[]);
    pods.replace_guard(followers[0], &[other.authority()]);
    not_passed_on(&mut pods, followers[0], "invalid peer certificate");

    // Without the guard of the leader nobody takes snapshots; the etcd is not to blame.
    pods.sidecar_mut(leader).process.kill().unwrap();
    not_passed_on(&mut pods, followers[1], "Connection refused");
}

fn revision(snapshot: &Value) -> i64 {
    snapshot["lastRevision"].as_i64().unwrap()
}

/// That a request is not passed on, and why not.
#[track_caller]
fn not_passed_on(pods: &mut Pods, follower: usize, why: &str) {
    pods.sidecar_mut(follower).wait_for("/snapshot/full", 405);
    pods.sidecar_mut(follower).process.wait_for_line(why, TIMEOUT).unwrap();
}
