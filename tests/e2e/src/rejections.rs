//! Objects of volumes that no server may take, and what it has to say about each. Nothing is stored:
//! every write is a dry run.

use serde_json::{Value, json};

use crate::volumes::{Home, Rig};

const GIB: &str = "1073741824";

/// Kind, spec, and a part of what is told.
fn made() -> Vec<(&'static str, Value, &'static str)> {
    let volume = |more: Value| {
        let mut spec = json!({"size": GIB, "numberOfReplicas": 2});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let job = |more: Value| {
        let mut spec = json!({"task": "snapshot", "cron": "0 * * * *", "retain": 1});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let mut all = vec![
        ("Volume", json!({"numberOfReplicas": 1}), "size must be positive"),
        ("Volume", volume(json!({"size": "0"})), "size must be positive"),
        ("Volume", volume(json!({"size": "-4096"})), "size must be positive"),
        ("Volume", volume(json!({"size": "1Gi"})), "spec.size"),
        ("Volume", volume(json!({"numberOfReplicas": 21})), "less than or equal to 20"),
        ("Volume", volume(json!({"numberOfReplicas": -1})), "greater than or equal to 0"),
        ("Volume", volume(json!({"staleReplicaTimeout": -1})), "greater than or equal to 0"),
        ("Volume", volume(json!({"dataEngine": "v2"})), "only data engine v1 is served here"),
        ("Volume", volume(json!({"dataEngine": "v7"})), "Unsupported value"),
        ("Volume", volume(json!({"backingImage": "ubuntu"})), "backing images are not served here"),
        ("Volume", volume(json!({"dataLocality": "strict-local"})), "numberOfReplicas must be 1"),
        ("Volume", volume(json!({"Standby": true})), "needs the URL of a backup"),
        (
            "Volume",
            volume(
                json!({"Standby": true, "fromBackup": "vfs:///d?backup=b&volume=v", "frontend": "blockdev"}),
            ),
            "has no frontend",
        ),
        ("Volume", volume(json!({"dataSource": "snap://only"})), "a data source is vol://VOLUME"),
        (
            "Volume",
            volume(json!({"dataSource": "vol://v", "fromBackup": "vfs:///d?backup=b&volume=v"})),
            "not from both",
        ),
        ("Volume", volume(json!({"snapshotMaxCount": 1})), "between 2 and 250"),
        ("Volume", volume(json!({"snapshotMaxSize": "4096"})), "at least twice the size"),
        ("Volume", volume(json!({"nodeSelector": ["fast", "a b"]})), "a tag consists of"),
        ("Volume", volume(json!({"diskSelector": [""]})), "a tag consists of"),
        ("RecurringJob", json!({"task": "snapshot"}), "a job needs a schedule"),
        ("RecurringJob", job(json!({"task": "format"})), "Unsupported value"),
        ("RecurringJob", job(json!({"retain": -1})), "greater than or equal to 0"),
        ("RecurringJob", job(json!({"retentionPolicy": "age-based"})), "retainAge must be set"),
        (
            "RecurringJob",
            job(json!({"retentionPolicy": "age-based", "retainAge": "a week"})),
            "a duration consists of",
        ),
        ("RecurringJob", job(json!({"parameters": {"speed": "9"}})), "the parameters of a job are"),
        ("RecurringJob", job(json!({"parameters": {"deadline": "0s"}})), "a positive duration"),
        ("Snapshot", json!({"createSnapshot": true}), "spec.volume"),
        (
            "BackupTarget",
            json!({"backupTargetURL": "vfs:///d", "bytesPerSecond": "-1"}),
            "must not be negative",
        ),
        (
            "BackupTarget",
            json!({"backupTargetURL": "vfs:///d", "verification": {"cron": "*/0 * * * *"}}),
            "invalid cron",
        ),
    ];
    for cron in [
        "",
        "often",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5,*/00 * * * *",
    ] {
        let told = if cron.is_empty() { "a job needs a schedule" } else { "invalid cron" };
        all.push(("RecurringJob", job(json!({"cron": cron})), told));
    }
    all
}

/// Schedules that are none of these.
const SCHEDULES: [&str; 8] = [
    "* * * * *",
    "*/5 0-6,12 1,15 * 1-5",
    "0 3 L * ?",
    "30 23 31 12 7",
    "0 0 * JAN-MAR SUN",
    "0 0 * * 5#2",
    "@daily",
    "@hourly",
];

/// Every write that makes no sense is refused, with a reason.
pub fn check<H: Home>(rig: &Rig<H>) {
    for (kind, spec, told) in made() {
        let why = rig.try_create(kind, "refused", &spec).unwrap_err();
        assert!(why.contains(told), "{kind} {spec}: {told:?} is not in\n{why}");
    }
    for name in ["n".repeat(64), "n".to_owned()] {
        let why = rig.try_create("Volume", &name, &json!({"size": GIB})).unwrap_err();
        assert!(why.contains("2 to 63 characters"), "{why}");
    }
    for cron in SCHEDULES {
        let spec = json!({"task": "snapshot", "cron": cron, "retain": 1});
        rig.try_create("RecurringJob", "taken", &spec).unwrap();
    }
    let setting =
        |value: &str| rig.try_patch("lhs", "default-replica-count", &json!({"value": value}));
    setting("2").unwrap();
    for value in ["many", "0", "21", "-1", "99999999999999999999"] {
        let why = setting(value).unwrap_err();
        assert!(why.contains("must be a whole number from 1 to 20"), "{value}: {why}");
    }
    let method = json!({"value": "zip"});
    let why = rig.try_patch("lhs", "backup-compression-method", &method).unwrap_err();
    assert!(why.contains("must be one of lz4, gzip, none"), "{why}");
    let why = rig.try_patch("lhs", "auto-salvage", &json!({"value": "maybe"})).unwrap_err();
    assert!(why.contains("must be true or false"), "{why}");
}

/// What a volume is cannot be changed once it is; `volume` is detached and has 16 MiB.
pub fn check_changes<H: Home>(rig: &Rig<H>, volume: &str) {
    for (spec, told) in [
        (json!({"size": (8_u64 << 20).to_string()}), "shrinking a volume is not supported"),
        (json!({"size": null}), "size must be positive"),
        (json!({"dataEngine": "v2"}), "only data engine v1"),
        (json!({"backupCompressionMethod": "gzip"}), "field is immutable"),
        (json!({"backupBlockSize": "16777216"}), "while it is unknown"),
        (json!({"encrypted": true}), ""),
        (json!({"dataLocality": "strict-local"}), "numberOfReplicas must be 1"),
        (json!({"numberOfReplicas": 99}), "less than or equal to 20"),
    ] {
        let done = rig.try_patch("lhv", volume, &json!({ "spec": spec }));
        match told {
            // What was never set may be.
            "" => done.unwrap(),
            told => {
                let why = done.unwrap_err();
                assert!(why.contains(told), "{spec}: {told:?} is not in\n{why}");
            }
        }
    }
    rig.try_patch("lhv", volume, &json!({"spec": {"size": (32_u64 << 20).to_string()}})).unwrap();
    // What a copy holds is one volume's, and lies in one place.
    let (copy, engine) = (rig.replicas(volume).remove(0), format!("{volume}-e-0"));
    for (kind, name, spec, told) in [
        ("lhr", &copy, json!({"volumeName": "other"}), "volumeName is immutable"),
        ("lhr", &copy, json!({"volumeName": null}), "volumeName is immutable"),
        (
            "lhr",
            &copy,
            json!({"dataDirectoryName": "a-00000000"}),
            "dataDirectoryName is immutable",
        ),
        ("lhr", &copy, json!({"nodeID": ""}), "cannot be emptied"),
        ("lhr", &copy, json!({"diskID": null}), "cannot be emptied"),
        ("lhe", &engine, json!({"volumeName": "other"}), "volumeName is immutable"),
    ] {
        let why = rig.try_patch(kind, name, &json!({ "spec": spec })).unwrap_err();
        assert!(why.contains(told), "{kind} {spec}: {told:?} is not in\n{why}");
    }
}
