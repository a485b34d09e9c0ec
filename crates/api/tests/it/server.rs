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
    assert_eq!(rejections(document, None), Vec::<String>::new());
}

fn rejections(document: &Value, old: Option<&Value>) -> Vec<String> {
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
        rejections(&tenant_backup(&json!({}), &json!({})), None),
        ["spec.backupSpec: Required value"]
    );
    let mut bare = tenant_backup(&json!({}), &json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    assert_eq!(rejections(&bare, None), ["spec: Required value"]);
}

#[test]
fn a_phase_nobody_defined_is_refused_with_the_ones_there_are() {
    let document = tenant_backup(&json!({ "backupSpec": {} }), &json!({ "phase": "Deletion" }));
    assert_eq!(
        rejections(&document, None),
        [concat!(
            "status.phase: Unsupported value: \"Deletion\": ",
            "supported values: \"New\", \"BackingOff\", \"Created\", \"Deleting\""
        )]
    );
}

#[test]
fn a_time_to_live_in_days_is_refused_at_the_door() {
    let document = tenant_backup(&json!({ "backupSpec": { "ttl": "30d" } }), &json!({}));
    let refused = rejections(&document, None);
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
            "metadata": { "name": "vol" },
            "spec": { "size": "4194304", "backupCompressionMethod": compression, "dataSource": source },
        })
    };
    assert_eq!(
        rejections(&volume("lz4", "vol://a"), Some(&volume("lz4", ""))),
        Vec::<String>::new()
    );
    let refused = rejections(&volume("gzip", "vol://b"), Some(&volume("lz4", "vol://a")));
    assert_eq!(refused.len(), 2, "{refused:?}");
}

#[test]
fn a_volume_attachment_stays_its_volumes() {
    let of = |volume: &str| longhorn("VolumeAttachment", &json!({ "volume": volume }), &json!({}));
    assert_eq!(rejections(&of("v"), Some(&of("v"))), Vec::<String>::new());
    let refused = rejections(&of("w"), Some(&of("v")));
    assert!(refused.iter().any(|it| it.contains("immutable")), "{refused:?}");
}

#[test]
fn a_standby_volume_is_one_from_the_beginning_and_has_no_frontend() {
    let volume = |standby: bool, frontend: &str, status: &Value| {
        let url = "vfs:///d?backup=b&volume=v";
        let spec = json!({ "fromBackup": url, "Standby": standby, "frontend": frontend });
        let mut made = longhorn("Volume", &spec, status);
        made["metadata"]["name"] = json!("vol");
        made.as_object_mut().unwrap().retain(|_, it| !it.is_null());
        made
    };
    let new = |standby, frontend| rejections(&volume(standby, frontend, &Value::Null), None);
    assert!(new(true, "blockdev")[0].contains("has no frontend"), "{:?}", new(true, "blockdev"));
    assert_eq!((new(true, ""), new(false, "blockdev")), (Vec::new(), Vec::new()));
    let change = |from: bool, to: bool, status: &Value| {
        rejections(&volume(to, "blockdev", status), Some(&volume(from, "", status)))
    };
    let follows = json!({ "state": "attached", "isStandby": true });
    let active = json!({ "state": "detached", "isStandby": false });
    assert_eq!(change(true, false, &follows), Vec::<String>::new());
    assert_eq!(change(false, true, &follows), Vec::<String>::new(), "not activated yet");
    assert!(change(false, true, &active)[0].contains("cannot follow backups"));
    assert_eq!(change(false, false, &active), Vec::<String>::new());
    assert_eq!(change(true, true, &active), Vec::<String>::new(), "stored before");
}

fn longhorn(kind: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": kind,
        "metadata": { "name": "x" },
        "spec": spec,
        "status": status,
    })
}

#[test]
fn a_volume_shrinks_only_where_it_has_not_grown_yet() {
    let volume = |size: &str, status: Value| longhorn("Volume", &json!({ "size": size }), &status);
    for (status, refused) in [
        (json!({}), false),
        (json!({ "state": "creating" }), false),
        (json!({ "state": "detached" }), true),
        (json!({ "state": "attached", "expansionRequired": false }), true),
        (json!({ "state": "attached", "expansionRequired": true }), false),
        (json!({ "state": "attached", "restoreRequired": true }), false),
    ] {
        let found = rejections(
            &volume("4194304", status.clone()),
            Some(&volume("8388608", status.clone())),
        );
        assert_eq!(!found.is_empty(), refused, "{status}: {found:?}");
        assert!(found.iter().all(|it| it.contains("shrinking a volume")), "{found:?}");
        let grown =
            rejections(&volume("8388608", status.clone()), Some(&volume("4194304", status)));
        assert_eq!(grown, Vec::<String>::new());
    }
}

#[test]
fn volumes_and_jobs_that_make_no_sense_are_told_why() {
    let size = || json!("4194304");
    for (kind, spec, told) in [
        ("Volume", json!({}), "size must be positive"),
        ("Volume", json!({ "size": "-1" }), "size must be positive"),
        ("Volume", json!({ "size": size(), "dataEngine": "v2" }), "only data engine v1"),
        ("Volume", json!({ "size": size(), "backingImage": "i" }), "backing images"),
        ("Volume", json!({ "size": size(), "Standby": true }), "needs the URL of a backup"),
        ("Volume", json!({ "size": size(), "snapshotMaxCount": 1 }), "between 2 and 250"),
        ("Volume", json!({ "size": size(), "snapshotMaxSize": "1" }), "twice the size"),
        ("Volume", json!({ "size": size(), "dataSource": "x" }), "a data source is"),
        ("Volume", json!({ "size": size(), "diskSelector": ["a b"] }), "a tag consists of"),
        (
            "Volume",
            json!({ "size": size(), "dataLocality": "strict-local", "numberOfReplicas": 2 }),
            "numberOfReplicas must be 1",
        ),
        ("RecurringJob", json!({}), "a job needs a schedule"),
        ("RecurringJob", json!({ "cron": "61 * * * *" }), "invalid cron"),
        ("RecurringJob", json!({ "cron": "* * * * * *" }), "invalid cron"),
        (
            "RecurringJob",
            json!({ "cron": "@daily", "parameters": { "deadline": "soon" } }),
            "a positive duration",
        ),
    ] {
        let found = rejections(&longhorn(kind, &spec, &json!({})), None);
        assert!(found.iter().any(|it| it.contains(told)), "{kind} {spec}: {found:?}");
    }
    for spec in [
        json!({ "size": size(), "dataLocality": "strict-local", "numberOfReplicas": 1 }),
        json!({ "fromBackup": "vfs:///d?backup=b&volume=v", "Standby": true }),
        json!({ "dataSource": "snap://a/b", "size": "0" }),
        json!({ "size": size(), "nodeSelector": ["fast", "ssd-1"], "snapshotMaxSize": "0" }),
    ] {
        assert_eq!(rejections(&longhorn("Volume", &spec, &json!({})), None), Vec::<String>::new());
    }
    for cron in ["* * * * *", "*/5 0-6,12 1,15 * 1-5", "0 3 L * ?", "0 0 * JAN-MAR SUN", "@hourly"]
    {
        let job = longhorn("RecurringJob", &json!({ "cron": cron }), &json!({}));
        assert_eq!(rejections(&job, None), Vec::<String>::new(), "{cron}");
    }
}
