//! kube-rs, unmodified, over TLS with the written kubeconfig.

mod controller;
mod crud;
mod election;
mod watching;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A resource these tests bring themselves.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "e2e.example.com", version = "v1", kind = "Garden", namespaced, shortname = "gdn")]
#[kube(status = "GardenStatus")]
pub struct GardenSpec {
    pub beds: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GardenStatus {
    pub planted: u32,
}

const TIMEOUT: Duration = Duration::from_mins(3);

/// Ends a wait that would otherwise never end.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(TIMEOUT, future).await;
    result.unwrap_or_else(|_| panic!("{what} did not come within {TIMEOUT:?}"))
}

/// The definition of gardens, served.
async fn with_gardens(client: &Client) -> Api<Garden> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Garden::crd()).await.unwrap();
    let established =
        await_condition(definitions, "gardens.e2e.example.com", conditions::is_crd_established());
    soon("the definition", established).await.unwrap();
    Api::namespaced(client.clone(), "default")
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("value".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}
