//! Aggregated ClusterRoles: their stored rules are the union of the roles they select.

use serde_json::json;

use super::controllers::ROLES;
use crate::auth::rbac::GROUP;
use crate::failure::Failure;
use crate::internal::{self, Done};
use crate::rest::admit::{self, Endpoint};
use crate::server::Server;

pub(super) async fn aggregate(server: &Server) -> Result<Done, Failure> {
    let stale = server.rbac().stale_aggregations();
    let registry = server.registry();
    let Some(resource) = registry.resource(GROUP, "v1", "clusterroles") else {
        return Ok(Done::Unchanged);
    };
    let mut done = Done::Unchanged;
    for (name, rules) in stale {
        let Some(stored) = server.store.get(&resource.id, "", &name) else { continue };
        let changed =
            internal::change(server, &ROLES, resource, Endpoint::Main, &stored, |object| {
                admit::object_mut(object).insert("rules".into(), json!(rules));
            })
            .await?;
        if changed == Done::Overtaken {
            done = Done::Overtaken;
        }
    }
    Ok(done)
}
