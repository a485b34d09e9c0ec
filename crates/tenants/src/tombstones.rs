//! Backups that were removed and whose data is still in the store: it must not bring them back.
//!
//! A `ConfigMap` for each tenant's namespace in that of the administrators, with a key for each identity
//! and the time after which it need not be remembered. What its tenant removed by force counts against
//! its quota until then; what an earlier namespace of the name left does not.

use std::collections::{BTreeMap, BTreeSet};

use api::scalar::Time;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use reconcile::Failure;
use serde_json::{Map, Value, json};

use crate::world::World;

const PREFIX: &str = "non-admin-tombstones-";
const LABEL: (&str, &str) = ("holdfast.io/tombstones", "true");
/// How long Velero keeps what does not say it itself.
const KEEP_HOURS: i64 = 720;
/// Behind the time of what an earlier namespace of the name left.
const FORMER: &str = "former";
/// Behind the time of what may come back, and whose volumes' data is there all the while.
const RETURNING: &str = "returning";
/// Longer lists are not written any more: they would be too long for one object.
const GRAVES_MAX: usize = 5000;

/// Whose the backup was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Present,
    /// A namespace that ends.
    Former,
    /// The one that has it now, and has taken away its location: with that it comes back.
    Returning,
}

/// Remembers it; `false` where there is no more room. The backup may then come back, which is said; its
/// deletion goes on all the same.
pub(crate) async fn record(
    world: &World,
    namespace: &str,
    nacuuid: &str,
    expiration: Option<Time>,
    owner: Owner,
) -> Result<bool, Failure> {
    let usual = World::now().timestamp() + jiff::SignedDuration::from_hours(KEEP_HOURS);
    let until = expiration.unwrap_or_else(|| usual.into());
    let value = written(until, owner);
    let failed = |error| failed(nacuuid, error);
    let name = format!("{PREFIX}{namespace}");
    let api = api(world);
    let Some(found) = api.get_opt(&name).await.map_err(failed)? else {
        let made = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name),
                labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(nacuuid.to_owned(), value)].into()),
            ..ConfigMap::default()
        };
        return api.create(&PostParams::default(), &made).await.map(|_| true).map_err(failed);
    };
    if found.data.is_some_and(|data| data.len() >= GRAVES_MAX && !data.contains_key(nacuuid)) {
        tracing::warn!(
            namespace,
            backup = nacuuid,
            max = GRAVES_MAX,
            "too many removed backups to remember; this one may come back from its store"
        );
        return Ok(false);
    }
    let body = json!({"data": {nacuuid: value}});
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await;
    done.map(|_| true).map_err(failed)
}

/// The identities that must not come back.
pub(crate) async fn read(world: &World) -> Result<Vec<String>, Failure> {
    let all = list(world).await?;
    let data = all.into_iter().flat_map(|it| it.data.unwrap_or_default());
    Ok(data.filter(|(_, value)| owner(value) != Owner::Returning).map(|(key, _)| key).collect())
}

/// What is remembered of one namespace, by whose it was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Graves {
    pub(crate) present: BTreeSet<String>,
    pub(crate) former: BTreeSet<String>,
    pub(crate) returning: BTreeSet<String>,
}

pub(crate) async fn of(world: &World, namespace: &str) -> Result<Graves, Failure> {
    let found = api(world).get_opt(&format!("{PREFIX}{namespace}")).await;
    let found = found.map_err(|error| failed("all backups", error))?;
    let data = found.and_then(|found| found.data).unwrap_or_default();
    let mut graves = Graves::default();
    for (nacuuid, value) in data {
        match owner(&value) {
            Owner::Present => graves.present.insert(nacuuid),
            Owner::Former => graves.former.insert(nacuuid),
            Owner::Returning => graves.returning.insert(nacuuid),
        };
    }
    Ok(graves)
}

/// One that has come back is counted as what it is.
pub(crate) async fn lift(world: &World, namespace: &str, nacuuid: &str) -> Result<(), Failure> {
    let body = json!({"data": {nacuuid: null}});
    let name = format!("{PREFIX}{namespace}");
    let done = api(world).patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await;
    done.map(drop).map_err(|error| failed(nacuuid, error))
}

/// Forgets those whose time is over and whose backup is gone. It may outlive its time: kept longer by an
/// administrator, in a store that is only read, or locked there.
pub(crate) async fn prune(world: &World) -> Result<(), Failure> {
    world.velero_backups.ready().await;
    let now = World::now().timestamp();
    let is_there = |nacuuid: &str| world.velero_backups.get(&world.admin_key(nacuuid)).is_some();
    for found in list(world).await? {
        let gone = forgotten(found.data.unwrap_or_default(), now, is_there);
        if gone.is_empty() {
            continue;
        }
        let (name, body) = (found.metadata.name.unwrap_or_default(), json!({ "data": gone }));
        let done = api(world).patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await;
        done.map_err(|error| failed("old backups", error))?;
    }
    Ok(())
}

/// What is taken out of a list.
fn forgotten(
    data: BTreeMap<String, String>,
    now: jiff::Timestamp,
    is_there: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    let ended = data.into_iter().filter(|(key, value)| is_over(value, now) && !is_there(key));
    ended.map(|(key, _)| (key, Value::Null)).collect()
}

fn written(until: Time, owner: Owner) -> String {
    match owner {
        Owner::Present => until.to_string(),
        Owner::Former => format!("{until} {FORMER}"),
        Owner::Returning => format!("{until} {RETURNING}"),
    }
}

fn owner(value: &str) -> Owner {
    match value.split_once(' ') {
        Some((_, FORMER)) => Owner::Former,
        Some((_, RETURNING)) => Owner::Returning,
        _ => Owner::Present,
    }
}

fn is_over(value: &str, now: jiff::Timestamp) -> bool {
    let until = value.split_once(' ').map_or(value, |(until, _)| until);
    until.parse::<jiff::Timestamp>().is_ok_and(|until| until < now)
}

async fn list(world: &World) -> Result<Vec<ConfigMap>, Failure> {
    let params = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let found = api(world).list(&params).await;
    Ok(found.map_err(|error| failed("all backups", error))?.items)
}

fn api(world: &World) -> Api<ConfigMap> {
    Api::namespaced(world.client.clone(), &world.admin)
}

fn failed(what: &str, error: kube::Error) -> Failure {
    Failure::Api { doing: format!("remember that {what} was removed"), source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_former_namespace_left_is_remembered_and_does_not_count() {
        let until = Time::new(jiff::Timestamp::from_second(1000).unwrap());
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        for it in [Owner::Present, Owner::Former, Owner::Returning] {
            let value = written(until, it);
            assert_eq!(owner(&value), it);
            assert!(is_over(&value, at(1001)) && !is_over(&value, at(999)), "{value}");
        }
    }

    #[test]
    fn a_backup_that_outlives_its_time_is_remembered_while_it_is_there() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let value = written(Time::new(at(1000)), Owner::Former);
        let data: BTreeMap<_, _> =
            ["kept", "gone"].map(|key| (key.to_owned(), value.clone())).into();
        let left = |now| {
            let found = forgotten(data.clone(), at(now), |key| key == "kept");
            found.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(left(999), Vec::<String>::new());
        assert_eq!(left(1001), ["gone"]);
    }
}
