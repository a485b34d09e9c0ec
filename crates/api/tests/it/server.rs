//! What our own API server makes of the definitions, and of objects written by them.

use std::sync::Arc;

use objects::crd::{self, Definition};
use objects::node::Node;
use objects::prune::prune;
use objects::validate::validate;
use serde_json::{Value, json};

/// The schema the server would use for a document.
fn schema_of(document: &Value) -> Arc<Node> {
    let group = document["apiVersion"].as_str().unwrap().split('/').next().unwrap().to_owned();
    let crd = api::crds()
        .into_iter()
        .find(|c| c["spec"]["group"] == group && c["spec"]["names"]["kind"] == document["kind"])
        .unwrap();
    Definition::parse(&crd).unwrap().storage().unwrap().schema.clone()
}

/// The server keeps every member of the document and finds nothing wrong with it.
pub(crate) fn accepts(document: &Value) {
    let node = schema_of(document);
    let mut kept = document.clone();
    // The shape of metadata is the server's, not the definition's.
    kept.as_object_mut().unwrap().remove("metadata");
    assert_eq!(prune(&node, &mut kept), Vec::<String>::new());
    assert_eq!(refusals(document, None), Vec::<String>::new());
}

fn refusals(document: &Value, old: Option<&Value>) -> Vec<String> {
    let causes = validate(&schema_of(document), document, old);
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn tenant_backup(spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "oadp.openshift.io/v1alpha1",
        "kind": "NonAdminBackup",
        "metadata": { "name": "x", "namespace": "y" },
        "spec": spec,
        "status": status,
    })
}

#[test]
fn every_definition_may_be_installed() {
    for mut crd in api::crds() {
        crd::default(&mut crd);
        let causes = crd::validate(&crd, None);
        assert!(causes.is_empty(), "{}: {causes:?}", crd["metadata"]["name"]);
    }
}

#[test]
fn a_request_without_its_velero_spec_is_refused() {
    assert_eq!(
        refusals(&tenant_backup(&json!({}), &json!({})), None),
        ["spec.backupSpec: Required value"]
    );
    let mut bare = tenant_backup(&json!({}), &json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    assert_eq!(refusals(&bare, None), ["spec: Required value"]);
}

#[test]
fn a_phase_nobody_defined_is_refused_with_the_ones_there_are() {
    let document = tenant_backup(&json!({ "backupSpec": {} }), &json!({ "phase": "Deletion" }));
    assert_eq!(
        refusals(&document, None),
        [concat!(
            "status.phase: Unsupported value: \"Deletion\": ",
            "supported values: \"New\", \"BackingOff\", \"Created\", \"Deleting\""
        )]
    );
}

#[test]
fn a_time_to_live_in_days_is_refused_at_the_door() {
    let document = tenant_backup(&json!({ "backupSpec": { "ttl": "30d" } }), &json!({}));
    let refused = refusals(&document, None);
    assert!(refused.len() == 1 && refused[0].starts_with("spec.backupSpec.ttl: "), "{refused:?}");
}

#[test]
fn what_a_newer_velero_says_is_taken_whole() {
    accepts(&tenant_backup(
        &json!({ "backupSpec": {} }),
        &json!({ "veleroBackup": {
            "status": { "phase": "Hibernating", "new": { "deep": [1] }, "progress": { "eta": "2h" } },
            "spec": { "ttl": "30d", "invented": true },
        } }),
    ));
}

#[test]
fn a_volume_keeps_what_it_was_made_with() {
    let volume = |compression: &str, source: &str| {
        json!({
            "apiVersion": "longhorn.io/v1beta2",
            "kind": "Volume",
            "metadata": { "name": "v" },
            "spec": { "backupCompressionMethod": compression, "dataSource": source },
        })
    };
    assert_eq!(refusals(&volume("lz4", "vol://a"), Some(&volume("lz4", ""))), Vec::<String>::new());
    let refused = refusals(&volume("gzip", "vol://b"), Some(&volume("lz4", "vol://a")));
    assert_eq!(refused.len(), 2, "{refused:?}");
}
