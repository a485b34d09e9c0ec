use serde_json::{Value, json};

use crate::support::{DEFINITIONS, World};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn by<'a>(all: &'a Value, member: &str, name: &str) -> Option<&'a Value> {
    all.as_array().unwrap().iter().find(|one| one[member] == name)
}

#[tokio::test]
async fn plain_discovery_lists_groups_versions_and_resources() {
    let world = World::start().await;
    world.widgets().await;
    let core = world.get("/api").await.is(200);
    assert_eq!((&core["kind"], &core["versions"]), (&json!("APIVersions"), &json!(["v1"])));
    assert!(core["serverAddressByClientCIDRs"][0]["serverAddress"].is_string());
    let groups = world.get("/apis").await.is(200);
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    for name in [
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
        "example.com",
    ] {
        assert!(by(&groups["groups"], "name", name).is_some(), "{name}");
    }
    let group = world.get("/apis/example.com").await.is(200);
    assert_eq!(group["kind"], "APIGroup");
    let v1 = json!({"groupVersion": "example.com/v1", "version": "v1"});
    let alpha = json!({"groupVersion": "example.com/v1alpha1", "version": "v1alpha1"});
    assert_eq!(group["versions"], json!([v1, alpha]));
    assert_eq!(group["preferredVersion"], v1);
    let list = world.get("/apis/example.com/v1").await.is(200);
    assert_eq!(
        (&list["kind"], &list["groupVersion"]),
        (&json!("APIResourceList"), &json!("example.com/v1"))
    );
    let widgets = by(&list["resources"], "name", "widgets").unwrap();
    assert_eq!(widgets["singularName"], "widget");
    assert_eq!(widgets["namespaced"], true);
    assert_eq!(widgets["kind"], "Widget");
    assert_eq!(widgets["shortNames"], json!(["wd"]));
    assert_eq!(widgets["categories"], json!(["all"]));
    let scale = by(&list["resources"], "name", "widgets/scale").unwrap();
    assert_eq!((&scale["group"], &scale["kind"]), (&json!("autoscaling"), &json!("Scale")));
    assert!(by(&list["resources"], "name", "widgets/status").is_some());
    let core = world.get("/api/v1").await.is(200);
    let token = by(&core["resources"], "name", "serviceaccounts/token").unwrap();
    assert_eq!(token["group"], "authentication.k8s.io");
    assert_eq!(token["kind"], "TokenRequest");
    assert_eq!(token["verbs"], json!(["create"]));
}

#[tokio::test]
async fn aggregated_discovery_is_told_apart_by_its_type() {
    let world = World::start().await;
    world.widgets().await;
    let old = AGGREGATED.replace("v=v2", "v=v2beta1");
    let accept = format!("{AGGREGATED},{old},application/json");
    let answer = world.get_as("/apis", &accept).await;
    assert_eq!(answer.header("content-type"), AGGREGATED);
    let list = answer.is(200);
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
    let items = list["items"].as_array().unwrap();
    let group = items.iter().find(|one| one["metadata"]["name"] == "example.com").unwrap();
    assert_eq!(group["versions"][0]["version"], "v1");
    assert_eq!(group["versions"][0]["freshness"], "Current");
    let resource = by(&group["versions"][0]["resources"], "resource", "widgets").unwrap();
    assert_eq!(resource["scope"], "Namespaced");
    assert_eq!(resource["singularResource"], "widget");
    assert_eq!(resource["responseKind"]["kind"], "Widget");
    let subs = &resource["subresources"];
    assert_eq!(
        by(subs, "subresource", "scale").unwrap()["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    assert!(by(subs, "subresource", "status").is_some());
    let core = world.get_as("/api", &accept).await;
    assert_eq!(core.header("content-type"), AGGREGATED);
    let core = core.is(200);
    assert!(core["items"][0]["metadata"].get("name").is_none());
    let plain = world.get_as("/apis", &format!("{old},application/json")).await;
    assert_eq!(plain.header("content-type"), "application/json");
    assert_eq!(plain.is(200)["kind"], "APIGroupList");
    world.get_as("/apis", &old).await.fails(406, "NotAcceptable");
}

#[tokio::test]
async fn a_type_appears_and_goes_with_its_definition() {
    let world = World::start().await;
    world.get("/apis/example.com").await.fails(404, "NotFound");
    world.widgets().await;
    world.get("/apis/example.com/v1").await.is(200);
    let index = world.get("/openapi/v3").await.is(200);
    assert!(index["paths"].get("apis/example.com/v1").is_some());
    assert!(index["paths"].get("apis/example.com/v1beta1").is_none());
    let mut watch = world.watch("/apis/example.com/v1/widgets?watch=true").await;
    world.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.is(200);
    assert!(watch.next().await.is_none());
    world.get("/apis/example.com").await.fails(404, "NotFound");
    let index = world.get("/openapi/v3").await.is(200);
    assert!(index["paths"].get("apis/example.com/v1").is_none());
}

#[tokio::test]
async fn openapi_documents_have_what_kubectl_looks_for() {
    let world = World::start().await;
    world.widgets().await;
    let index = world.get("/openapi/v3").await.is(200);
    for (path, entry) in index["paths"].as_object().unwrap() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        let document = world.get(url).await.is(200);
        for member in ["openapi", "info", "paths"] {
            assert!(document.get(member).is_some(), "{path} {member}");
        }
        let mut kinds = 0;
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            assert_references(&document, schema, name);
            kinds += schema["x-kubernetes-group-version-kind"].as_array().map_or(0, Vec::len);
        }
        assert!(kinds > 0, "{path}");
        for (place, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let gvk = &operation["x-kubernetes-group-version-kind"];
                assert!(gvk["kind"].is_string(), "{place} {method}");
                assert!(operation["x-kubernetes-action"].is_string(), "{place} {method}");
                if method == "patch" {
                    for name in ["fieldValidation", "dryRun", "fieldManager"] {
                        assert!(by(&operation["parameters"], "name", name).is_some(), "{place}");
                    }
                    assert!(operation.get("requestBody").is_none(), "{place}");
                }
            }
        }
    }
    let core = world.get("/openapi/v3/api/v1").await.is(200);
    assert!(core["paths"]["/api/v1/namespaces/{name}"]["patch"].is_object());
    let custom = world.get("/openapi/v3/apis/example.com/v1").await.is(200);
    let schema = &custom["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["description"], "What is wanted.");
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
}

/// Every `$ref` below `schema` leads somewhere.
#[track_caller]
fn assert_references(document: &Value, schema: &Value, name: &str) {
    match schema {
        Value::Object(members) => {
            if let Some(target) = members.get("$ref").and_then(Value::as_str) {
                let pointer = target.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{name}: {target}");
            }
            members.values().for_each(|one| assert_references(document, one, name));
        }
        Value::Array(items) => items.iter().for_each(|one| assert_references(document, one, name)),
        _ => {}
    }
}

#[tokio::test]
async fn the_index_changes_when_a_definition_does() {
    let world = World::start().await;
    world.widgets().await;
    let url = async || {
        let index = world.get("/openapi/v3").await.is(200);
        index["paths"]["apis/example.com/v1"]["serverRelativeURL"].clone()
    };
    let before = url().await;
    assert_eq!(before, url().await);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let change = json!([{"op": "add", "path":
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour",
        "value": {"type": "string"}}]);
    let request = http::Request::patch(path).header("content-type", "application/json-patch+json");
    world.send(request, axum::body::Body::from(change.to_string())).await.is(200);
    assert_ne!(before, url().await);
    let document = world.get(url().await.as_str().unwrap()).await.is(200);
    let spec = "/components/schemas/com.example.v1.Widget/properties/spec/properties/colour";
    assert!(document.pointer(spec).is_some());
}

#[tokio::test]
async fn version_2_of_openapi_is_json_or_protobuf() {
    let world = World::start().await;
    world.widgets().await;
    let document = world.get("/openapi/v2").await.is(200);
    assert_eq!(document["swagger"], "2.0");
    for (name, schema) in document["definitions"].as_object().unwrap() {
        assert_references(&document, schema, name);
    }
    let patch = &document["paths"]["/api/v1/namespaces/{name}"]["patch"];
    let parameter = by(&patch["parameters"], "name", "fieldValidation").unwrap();
    assert_eq!(parameter["type"], "string");
    for media in ["spec.v2@v1.0+protobuf", "spec.v2.v1.0+protobuf"] {
        let media = format!("application/com.github.proto-openapi.{media}");
        let answer = world.get_as("/openapi/v2", &media).await;
        assert_eq!(answer.code.as_u16(), 200);
        // The first member is the version of the format.
        assert!(answer.body.starts_with(b"\x0a\x032.0"));
        let has = |text: &str| answer.body.windows(text.len()).any(|one| one == text.as_bytes());
        assert!(has("io.k8s.api.core.v1.Pod") && has("com.example.v1.Widget"));
        assert!(has("x-kubernetes-group-version-kind"));
    }
}
