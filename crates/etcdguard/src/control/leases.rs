//! Leases of the Kubernetes API that tell of a member and of its snapshots. They are made by
//! somebody else, empty; here they are only read and changed by merge patches.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

/// Tries of a change that somebody else came before, and the wait after the first.
const CONFLICT_TRIES: u32 = 4;
const CONFLICT_WAIT: Duration = Duration::from_millis(10);
const CONFLICT: u16 = 409;

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("lease {name} cannot be used: {source}")]
    Api { name: String, source: Box<kube::Error> },
    #[error("lease {name} gave no answer within {after:?}")]
    Timeout { name: String, after: Duration },
}

/// The leases of one namespace.
#[derive(Clone)]
pub struct Leases {
    api: Api<Lease>,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Leases").field("at", &self.api.resource_url()).finish()
    }
}

impl Leases {
    pub fn new(client: kube::Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.api.clone().into_client()
    }

    /// Whether a member has ever told of itself, by which it is known to have been in the cluster.
    pub async fn is_held(&self, name: &str, deadline: Duration) -> Result<bool, LeaseError> {
        let lease = within(name, deadline, self.get(name)).await?;
        Ok(holder(&lease).is_some())
    }

    /// Tells the lease of full snapshots of a newer one.
    pub async fn tell_full(
        &self,
        name: &str,
        snapshot: &crate::store::Snapshot,
        deadline: Duration,
    ) -> Result<(), LeaseError> {
        self.change(name, deadline, |lease| {
            let at = snapshot.created_on;
            let told = full_snapshot(lease, snapshot.last_revision, at, None);
            told.map(|it| with_history(lease, it, at))
        })
        .await
    }

    /// Reads the lease, and changes it as `change` says, if it says anything.
    pub(super) async fn change(
        &self,
        name: &str,
        deadline: Duration,
        change: impl Fn(&Lease) -> Option<Value> + Send + Sync,
    ) -> Result<(), LeaseError> {
        within(name, deadline, self.change_until_done(name, change)).await
    }

    async fn change_until_done(
        &self,
        name: &str,
        change: impl Fn(&Lease) -> Option<Value>,
    ) -> Result<(), LeaseError> {
        let mut wait = CONFLICT_WAIT;
        let mut tries = 1;
        loop {
            let Some(patch) = change(&self.get(name).await?) else { return Ok(()) };
            let patched =
                self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match patched {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status))
                    if status.code == CONFLICT && tries < CONFLICT_TRIES =>
                {
                    tokio::time::sleep(wait).await;
                    wait *= 5;
                    tries += 1;
                }
                Err(error) => return Err(failed(name, error)),
            }
        }
    }

    /// What an annotation of a lease says.
    pub(super) async fn annotation(
        &self,
        name: &str,
        key: &str,
        deadline: Duration,
    ) -> Result<Option<String>, LeaseError> {
        let lease = within(name, deadline, self.get(name)).await?;
        Ok(lease.metadata.annotations.and_then(|mut all| all.remove(key)))
    }

    pub(super) async fn annotate(
        &self,
        name: &str,
        key: &str,
        text: &str,
        deadline: Duration,
    ) -> Result<(), LeaseError> {
        self.change(name, deadline, |_| {
            Some(json!({ "metadata": { "annotations": { key: text } } }))
        })
        .await
    }

    async fn get(&self, name: &str) -> Result<Lease, LeaseError> {
        self.api.get(name).await.map_err(|error| failed(name, error))
    }
}

async fn within<T>(
    name: &str,
    after: Duration,
    work: impl Future<Output = Result<T, LeaseError>>,
) -> Result<T, LeaseError> {
    let ended = tokio::time::timeout(after, work).await;
    ended.unwrap_or_else(|_| Err(LeaseError::Timeout { name: name.to_owned(), after }))
}

fn failed(name: &str, error: kube::Error) -> LeaseError {
    LeaseError::Api { name: name.to_owned(), source: Box::new(error) }
}

pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// As leases write times.
pub(super) fn micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The revision of the newest full snapshot and when it was made. Never lowered but where what it
/// says is of an earlier history, and only where nobody else wrote meanwhile: the compaction job
/// writes it too.
pub(super) fn full_snapshot(
    lease: &Lease,
    revision: i64,
    created: Timestamp,
    since: Option<Timestamp>,
) -> Option<Value> {
    // It was renewed with the time of the snapshot that it names.
    let is_earlier = since.is_some_and(|since| renewed(lease).is_none_or(|at| at < since));
    if !is_earlier && held_revision(lease).is_some_and(|held| held > revision) {
        return None;
    }
    Some(json!({
        "metadata": { "resourceVersion": lease.metadata.resource_version },
        "spec": { "holderIdentity": revision.to_string(), "renewTime": micro(created) },
    }))
}

/// That there was a look for changes, and the revision of the newest delta. `newest` is the last
/// revision of all snapshots, where their history is not the first of the store: a lease that says
/// more is of an earlier one.
pub(super) fn delta_snapshot(
    lease: &Lease,
    revision: Option<i64>,
    newest: Option<i64>,
    now: Timestamp,
) -> Value {
    let held = held_revision(lease).filter(|held| newest.is_none_or(|newest| *held <= newest));
    let is_empty = held.is_none() && (newest.is_some() || holder(lease).is_none_or(str::is_empty));
    let fresh = match revision {
        Some(revision) if held.is_none_or(|held| revision > held) => Some(revision),
        None if is_empty => Some(0),
        Some(_) | None => None,
    };
    let mut spec = json!({ "renewTime": micro(now) });
    if let (Some(revision), Some(spec)) = (fresh, spec.as_object_mut()) {
        spec.insert("holderIdentity".to_owned(), json!(revision.to_string()));
    }
    json!({ "spec": spec })
}

/// The annotation with the newest snapshots that a lease has told of, as `TIME=REVISION` each: for
/// people who want to see when they were taken. Nothing is decided by it.
const TAKEN: &str = "holdfast.io/taken";
const MAX_TAKEN: usize = 60;

/// Adds what a change of a lease of snapshots tells to its history.
pub(super) fn with_history(lease: &Lease, mut patch: Value, at: Timestamp) -> Value {
    let told = patch.pointer("/spec/holderIdentity").and_then(Value::as_str);
    let Some(revision) = told.filter(|it| *it != "0").map(str::to_owned) else { return patch };
    let before = lease.metadata.annotations.as_ref().and_then(|all| all.get(TAKEN));
    let mut taken: Vec<&str> =
        before.map(String::as_str).unwrap_or_default().split_ascii_whitespace().collect();
    let is_known =
        taken.last().and_then(|it| it.split_once('=')).is_some_and(|it| it.1 == revision);
    if is_known {
        return patch;
    }
    let newest = format!("{}={revision}", at.strftime("%Y-%m-%dT%H:%M:%SZ"));
    taken.push(&newest);
    let kept = taken.split_off(taken.len().saturating_sub(MAX_TAKEN)).join(" ");
    if let Some(patch) = patch.as_object_mut() {
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        metadata["annotations"] = json!({ TAKEN: kept });
    }
    patch
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

fn held_revision(lease: &Lease) -> Option<i64> {
    holder(lease)?.parse().ok()
}

/// The annotation that says whether the member's peers speak TLS.
const TLS: &str = "member.etcd.gardener.cloud/tls-enabled";

/// That the member lives, who it is, and what it does.
pub(super) fn member(lease: &Lease, identity: &str, tls: bool, now: Timestamp) -> Value {
    let mut spec = Map::from_iter([("renewTime".to_owned(), json!(micro(now)))]);
    if holder(lease) != Some(identity) {
        spec.insert("holderIdentity".to_owned(), json!(identity));
    }
    let mut patch = Map::from_iter([("spec".to_owned(), Value::Object(spec))]);
    let told = lease.metadata.annotations.as_ref().and_then(|all| all.get(TLS));
    if told.map(String::as_str) != Some(if tls { "true" } else { "false" }) {
        let annotations = json!({ "annotations": { TLS: tls.to_string() } });
        patch.insert("metadata".to_owned(), annotations);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(holder: Option<&str>) -> Lease {
        let spec = LeaseSpec { holder_identity: holder.map(str::to_owned), ..Default::default() };
        let mut lease = Lease { spec: Some(spec), ..Default::default() };
        lease.metadata.resource_version = Some("7".to_owned());
        lease
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_full_lease_is_locked_and_never_lowered() {
        let time = at("2026-11-15T06:24:28.763248999Z");
        let wanted = json!({
            "metadata": { "resourceVersion": "7" },
            "spec": { "holderIdentity": "5", "renewTime": "2026-11-15T06:24:28.763248Z" },
        });
        for held in [None, Some(""), Some("5"), Some("4"), Some("words")] {
            assert_eq!(
                full_snapshot(&lease(held), 5, time, None),
                Some(wanted.clone()),
                "{held:?}"
            );
        }
        assert_eq!(full_snapshot(&lease(Some("6")), 5, time, None), None);
    }

    /// After a restore to the past revisions are lower, and the lease must not stand still.
    #[test]
    fn what_is_of_an_earlier_history_is_replaced() {
        let (time, since) = (at("2026-11-15T06:24:28Z"), at("2026-11-15T06:24:00Z"));
        let mut held = lease(Some("60"));
        let renewed = |lease: &mut Lease, at: Timestamp| {
            lease.spec.as_mut().unwrap().renew_time = Some(MicroTime(at));
        };
        renewed(&mut held, at("2026-11-15T05:00:00Z"));
        assert_eq!(full_snapshot(&held, 5, time, None), None);
        assert!(full_snapshot(&held, 5, time, Some(since)).is_some());
        renewed(&mut held, time);
        assert_eq!(full_snapshot(&held, 5, time, Some(since)), None, "of this history");
        for (delta, newest, wanted) in [
            (Some(7), Some(7), Some("7")),
            (None, Some(5), Some("0")),
            (Some(61), Some(61), Some("61")),
            (Some(7), None, None),
        ] {
            let patch = delta_snapshot(&held, delta, newest, time);
            let told = patch["spec"]["holderIdentity"].as_str();
            assert_eq!(told, wanted, "{delta:?} {newest:?}");
        }
    }

    #[test]
    fn the_delta_lease_is_renewed_always_and_raised_when_there_is_more() {
        let time = at("2026-11-15T06:24:28Z");
        let renewed = "2026-11-15T06:24:28.000000Z";
        for (held, revision, wanted) in [
            (None, None, Some("0")),
            (Some(""), None, Some("0")),
            (Some("0"), None, None),
            (Some("9"), None, None),
            (Some("9"), Some(9), None),
            (Some("9"), Some(10), Some("10")),
            (None, Some(3), Some("3")),
        ] {
            let mut spec = json!({ "renewTime": renewed });
            if let Some(wanted) = wanted {
                spec["holderIdentity"] = json!(wanted);
            }
            let patch = delta_snapshot(&lease(held), revision, None, time);
            assert_eq!(patch, json!({ "spec": spec }), "{held:?} {revision:?}");
        }
    }

    #[test]
    fn a_lease_of_snapshots_keeps_the_newest_of_its_history() {
        let time = at("2026-11-15T06:24:28.5Z");
        let mut held = lease(Some("4"));
        let told = |lease: &Lease, revision: &str| {
            let patch =
                json!({"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": revision}});
            with_history(lease, patch, time)["metadata"].take()
        };
        let first = told(&held, "5");
        assert_eq!(first["annotations"][TAKEN], "2026-11-15T06:24:28Z=5");
        assert_eq!(first["resourceVersion"], "7", "it is still locked");
        let many: Vec<String> = (0..MAX_TAKEN).map(|it| format!("x={it}")).collect();
        held.metadata.annotations = Some([(TAKEN.to_owned(), many.join(" "))].into());
        let next = told(&held, "77");
        let next: Vec<&str> = next["annotations"][TAKEN].as_str().unwrap().split(' ').collect();
        assert_eq!((next.len(), next[0]), (MAX_TAKEN, "x=1"));
        assert_eq!(next[MAX_TAKEN - 1], "2026-11-15T06:24:28Z=77");
        // What it told last is not told twice, and neither is that there is none.
        assert_eq!(told(&held, "59").get("annotations"), None);
        assert_eq!(told(&held, "0").get("annotations"), None);
        let renewal = json!({"spec": {"renewTime": "x"}});
        assert_eq!(with_history(&held, renewal.clone(), time), renewal);
    }

    #[test]
    fn the_member_lease_is_told_only_what_changed() {
        let time = at("2026-11-15T06:24:28Z");
        let renewed = "2026-11-15T06:24:28.000000Z";
        let first = member(&lease(None), "a:b:Leader", false, time);
        assert_eq!(
            first,
            json!({
                "spec": { "renewTime": renewed, "holderIdentity": "a:b:Leader" },
                "metadata": { "annotations": { TLS: "false" } },
            })
        );
        let mut known = lease(Some("a:b:Leader"));
        known.metadata.annotations = Some([(TLS.to_owned(), "true".to_owned())].into());
        let later = member(&known, "a:b:Leader", true, time);
        assert_eq!(later, json!({ "spec": { "renewTime": renewed } }));
    }
}
