//! Three real etcd members, each with its guard beside it, and leases on the embedded API server:
//! who leads, who takes over, who is replaced, and what is left when all is lost.

mod forwarding;
mod leases;
mod pods;

use e2e::guard::{TIMEOUT, hash_kv, revision};
use testkit::process::poll_until;

use crate::leases::Api;
use crate::pods::Pods;

/// The role a member's lease tells.
fn role(holder: &str) -> &str {
    holder.rsplit(':').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_leases_follow_the_leader() {
    let Some(mut pods) = Pods::start("leader changes").await else { return };
    let first = pods.serving(None);
    let other = (first + 1) % 3;
    pods.put("a", "1");
    assert!(pods.sidecar(first).json("/snapshot/delta").is_object());
    pods.wait_for_roles(first).await;

    pods.move_leader(first, other);
    assert_eq!(pods.serving(Some(first)), other);
    pods.put("b", "2");
    assert!(pods.sidecar(other).json("/snapshot/delta").is_object());
    pods.wait_for_roles(other).await;
    let saved = revision(&pods.seats[other].client).to_string();
    pods.api.wait_for_holder("delta-snap", |holder| holder == saved).await;

    // The leader dies with changes that are in no snapshot yet.
    pods.put("c", "3");
    pods.kill_etcd(other);
    let third = pods.serving(Some(other));
    let newest = revision(&pods.seats[third].client);
    let delta = poll_until(TIMEOUT, || {
        let (status, body) = pods.sidecar(third).get("/snapshot/latest");
        let latest: serde_json::Value = serde_json::from_str(&body).ok()?;
        let last = latest["deltaSnapshots"].as_array()?.last()?["lastRevision"].as_i64()?;
        (status == 200 && last == newest).then_some(())
    });
    assert!(delta.is_some(), "{}", pods.sidecar(third).process.stderr());
    pods.restores_to(newest, third);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_its_data_is_replaced_and_votes_again() {
    let Some(mut pods) = Pods::start("member replaced").await else { return };
    let first = pods.serving(None);
    let lost = (first + 1) % 3;
    pods.put("a", "1");
    // A member is known by the lease that it held.
    pods.wait_for_roles(first).await;
    let before = pods.listed(lost).unwrap();
    pods.kill_etcd(lost);
    std::fs::remove_dir_all(pods.data_dir(lost)).unwrap();
    pods.initialize(lost);
    pods.start_etcd(lost, "existing");
    let voting = poll_until(TIMEOUT, || pods.listed(lost).filter(|(_, learner)| !learner));
    let (id, _) = voting.unwrap_or_else(|| panic!("{}", pods.sidecar(lost).process.stderr()));
    assert_ne!(id, before.0);
    let [one, two] = [first, lost].map(|pod| pods.seats[pod].client.clone());
    let equal = poll_until(TIMEOUT, || {
        (revision(&one) == revision(&two) && hash_kv(&one, 0) == hash_kv(&two, 0)).then_some(())
    });
    assert!(equal.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_quorum_silences_the_guards_and_the_backup_brings_everything_back() {
    let Some(mut pods) = Pods::start("quorum lost").await else { return };
    let first = pods.serving(None);
    for round in 0..5 {
        pods.put("a", &round.to_string());
    }
    assert!(pods.sidecar(first).json("/snapshot/delta").is_object());
    let newest = revision(&pods.seats[first].client);
    let hash = hash_kv(&pods.seats[first].client, 0);
    let others: Vec<usize> = (0..3).filter(|pod| *pod != first).collect();
    for pod in &others {
        pods.kill_etcd(*pod);
    }
    pods.sidecar_mut(first).wait_for("/healthz", 503);
    let renewed = pods.api.lease(&pods.seats[first].name).await["spec"]["renewTime"].clone();

    // Back as they were.
    for pod in &others {
        pods.start_etcd(*pod, "existing");
    }
    pods.serving(None);
    pods.api.wait_for_renewal(&pods.seats[first].name, &renewed).await;

    // And all of it gone: one member from the backup is the same again.
    (0..3).for_each(|pod| pods.kill_etcd(pod));
    (0..3).for_each(|pod| std::fs::remove_dir_all(pods.data_dir(pod)).unwrap());
    assert_eq!(pods.restores_to(newest, first), hash);
}
