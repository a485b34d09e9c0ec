//! Backups that were force-deleted: their data is still in the store, and must not bring them back.
//!
//! One `ConfigMap` in the administrators' namespace, a key for each identity, with the time after
//! which it need not be remembered.

use api::scalar::Time;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use reconcile::Failure;
use serde_json::{Map, Value, json};

use crate::world::World;

const NAME: &str = "non-admin-tombstones";
/// How long Velero keeps what does not say it itself.
const KEEP_HOURS: i64 = 720;

pub(crate) async fn record(
    world: &World,
    nacuuid: &str,
    expiration: Option<Time>,
) -> Result<(), Failure> {
    let usual = World::now().timestamp() + jiff::SignedDuration::from_hours(KEEP_HOURS);
    let until = expiration.unwrap_or_else(|| usual.into());
    let body = json!({"data": {nacuuid: until.to_string()}});
    let api = api(world);
    let done = api.patch(NAME, &PatchParams::default(), &Patch::Merge(&body)).await;
    match done {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let made = ConfigMap {
                metadata: ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() },
                data: Some([(nacuuid.to_owned(), until.to_string())].into()),
                ..ConfigMap::default()
            };
            api.create(&PostParams::default(), &made)
                .await
                .map(drop)
                .map_err(|it| failed(nacuuid, it))
        }
        Err(error) => Err(failed(nacuuid, error)),
    }
}

/// The identities that must not come back.
pub(crate) async fn read(world: &World) -> Result<Vec<String>, Failure> {
    let found = api(world).get_opt(NAME).await.map_err(|error| failed("all backups", error))?;
    let data = found.and_then(|found| found.data).unwrap_or_default();
    Ok(data.into_keys().collect())
}

/// Forgets those whose time is over: their data is gone by then.
pub(crate) async fn prune(world: &World) -> Result<(), Failure> {
    let found = api(world).get_opt(NAME).await.map_err(|error| failed("all backups", error))?;
    let now = World::now().timestamp();
    let over = |until: &str| until.parse::<jiff::Timestamp>().is_ok_and(|until| until < now);
    let data = found.and_then(|found| found.data).unwrap_or_default();
    let gone: Map<String, Value> = data
        .into_iter()
        .filter(|(_, until)| over(until))
        .map(|(key, _)| (key, Value::Null))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let body = json!({ "data": gone });
    let done = api(world).patch(NAME, &PatchParams::default(), &Patch::Merge(&body)).await;
    done.map(drop).map_err(|error| failed("old backups", error))
}

fn api(world: &World) -> Api<ConfigMap> {
    Api::namespaced(world.client.clone(), &world.admin)
}

fn failed(what: &str, error: kube::Error) -> Failure {
    Failure::Api {
        doing: format!("remember that {what} was deleted by force"),
        source: Box::new(error),
    }
}
