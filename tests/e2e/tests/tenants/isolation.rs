//! What a hostile tenant tries, and that it gets nowhere.

use serde_json::{Value, json};

use super::{ADMIN, KEYS, World, conditions, nacuuid};

const NAB: &str = "NonAdminBackup";
const SYNCED: &str = "openshift.io/oadp-nab-synced-from-nacuuid";

fn refused(it: &Value) -> bool {
    it["status"]["phase"] == json!("BackingOff")
}

/// A victim with a completed backup, and an attacker's namespace.
async fn victim(world: &mut World) -> (Value, Value) {
    world.play(4);
    world.namespace("victim").await;
    world.namespace("attacker").await;
    let it = world.ready("victim", "nab").await;
    let velero = world.get("Backup", ADMIN, &nacuuid(&it)).await.unwrap();
    (it, velero)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_label_neither_shows_nor_deletes_another_tenants_backup() {
    let mut world = World::start().await;
    let (mine, velero) = victim(&mut world).await;
    let identity = nacuuid(&mine);
    let forged = |name: &str, more: Value| {
        let mut spec = json!({"backupSpec": {}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": name, "labels": {SYNCED: identity}}, "spec": spec})
    };
    world.create(NAB, "attacker", &forged("steal", json!({}))).await;
    let it = world.see(NAB, ("attacker", "steal"), "BackingOff", refused).await;
    assert_eq!(
        conditions(&it),
        [
            "Accepted=False VeleroBackupNotFound: related Velero Backup to be synced from does not exist"
        ]
    );
    assert!(it["status"].get("veleroBackup").is_none(), "{it}");
    world.patch(NAB, "attacker", "steal", &json!({"spec": {"deleteBackup": true}})).await;
    world.gone(NAB, "attacker", "steal").await;
    world.create(NAB, "attacker", &forged("force", json!({"forceDeleteBackup": true}))).await;
    world.gone(NAB, "attacker", "force").await;
    // One that has an identity of its own does not get another by a label.
    world.created("attacker", "late", &json!({})).await;
    world
        .patch(
            NAB,
            "attacker",
            "late",
            &json!({"metadata": {"labels": {SYNCED: identity}}, "spec": {"deleteBackup": true}}),
        )
        .await;
    world.gone(NAB, "attacker", "late").await;
    // The same name in another namespace is another backup.
    world.create(NAB, "attacker", &json!({"metadata": {"name": "nab", "labels": {SYNCED: identity}}, "spec": {"backupSpec": {}}})).await;
    world.see(NAB, ("attacker", "nab"), "BackingOff", refused).await;
    let after = world.get("Backup", ADMIN, &identity).await.unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], velero["metadata"]["resourceVersion"]);
    // The status cannot be made with the object.
    let mut planted = json!({"metadata": {"name": "planted"}, "spec": {"backupSpec": {"includedNamespaces": ["victim"]}}});
    planted["status"] = mine["status"].clone();
    let made = world.create(NAB, "attacker", &planted).await;
    assert!(made.get("status").is_none_or(|it| it.get("veleroBackup").is_none()), "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_backup_in_a_tenants_bucket_reaches_nobody_else() {
    let mut world = World::start().await;
    let (mine, _) = victim(&mut world).await;
    let secret = json!({"metadata": {"name": "cloud"}, "stringData": {"cloud": KEYS}});
    world.create("Secret", "attacker", &secret).await;
    let spec = json!({"provider": "aws", "objectStorage": {"bucket": "b"}, "credential": {"name": "cloud", "key": "cloud"}, "config": {"region": "x"}});
    let location =
        json!({"metadata": {"name": "loc"}, "spec": {"backupStorageLocationSpec": spec}});
    world.create("NonAdminBackupStorageLocation", "attacker", &location).await;
    let it = world
        .see("NonAdminBackupStorageLocation", ("attacker", "loc"), "Created", |it| {
            it["status"]["phase"] == json!("Created")
        })
        .await;
    let place = nacuuid(&it);
    // As Velero's sync would bring it from the attacker's bucket: it claims to be the victim's.
    let plant = |identity: &str, name: &str| {
        json!({
        "metadata": {"name": identity,
            "labels": {"openshift.io/oadp": "True", "app.kubernetes.io/managed-by": "oadp-nac-controller",
                "openshift.io/oadp-nab-origin-nacuuid": identity},
            "annotations": {"openshift.io/oadp-nab-origin-namespace": "victim", "openshift.io/oadp-nab-origin-name": name}},
        "spec": {"includedNamespaces": ["victim"], "storageLocation": place},
        "status": {"phase": "Completed", "completionTimestamp": "2026-01-01T00:00:00Z"}})
    };
    world.create("Backup", ADMIN, &plant("victim-planted-1", "planted")).await;
    // And one in the place of a backup of the victim's that is gone.
    world.delete("Backup", ADMIN, &nacuuid(&mine)).await;
    world
        .see(NAB, ("victim", "nab"), "that it is gone", |it| {
            conditions(it)[0].contains("VeleroBackupNotFound")
        })
        .await;
    world.create("Backup", ADMIN, &plant(&nacuuid(&mine), "nab")).await;
    world.set(&json!({"backupSyncPeriod": "1s", "garbageCollectionPeriod": "0"})).await;
    // A backup of the administrators' place does come back, so the sync has looked.
    world.create("BackupStorageLocation", ADMIN, &json!({"metadata": {"name": "default"}, "spec": {"default": true, "provider": "aws", "objectStorage": {"bucket": "admin"}}})).await;
    let mut honest = plant("victim-honest-1", "honest");
    honest["spec"]["storageLocation"] = json!("default");
    world.create("Backup", ADMIN, &honest).await;
    world.see(NAB, ("victim", "honest"), "to be synced", super::is_created).await;
    assert_eq!(world.get(NAB, "victim", "planted").await, None);
    let it = world.get(NAB, "victim", "nab").await.unwrap();
    assert!(conditions(&it)[0].contains("VeleroBackupNotFound"), "{it}");
    assert!(it["status"]["veleroBackup"].get("status").is_none(), "{it}");
    world
        .create(
            "NonAdminRestore",
            "victim",
            &json!({"metadata": {"name": "r"}, "spec": {"restoreSpec": {"backupName": "nab"}}}),
        )
        .await;
    let it = world.see("NonAdminRestore", ("victim", "r"), "BackingOff", refused).await;
    assert!(conditions(&it)[0].ends_with("NonAdminBackup is not ready to be restored"), "{it}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_owner_of_a_name_gets_nothing_of_the_former() {
    let mut world = World::start().await;
    world.create("BackupStorageLocation", ADMIN, &json!({"metadata": {"name": "default"}, "spec": {"default": true, "provider": "aws", "objectStorage": {"bucket": "admin"}}})).await;
    let (mine, _) = victim(&mut world).await;
    let identity = nacuuid(&mine);
    // As a Velero fills it in.
    let place = json!({"spec": {"storageLocation": "default"}});
    world.patch("Backup", ADMIN, &identity, &place).await;
    // Its finalizer is taken off, as the message about deletions offers, and its namespace goes.
    world.delete(NAB, "victim", "nab").await;
    world.patch(NAB, "victim", "nab", &json!({"metadata": {"finalizers": null}})).await;
    world.gone(NAB, "victim", "nab").await;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.client.clone());
    namespaces.delete("victim", &kube::api::DeleteParams::default()).await.unwrap();
    world
        .until("the namespace to be gone", async || {
            namespaces.get_opt("victim").await.unwrap().is_none()
        })
        .await;
    world.namespace("victim").await;
    // Who knows the identity gets nothing by it.
    let forged = json!({"metadata": {"name": "nab", "labels": {SYNCED: identity}}, "spec": {"backupSpec": {}}});
    world.create(NAB, "victim", &forged).await;
    let it = world.see(NAB, ("victim", "nab"), "BackingOff", refused).await;
    assert!(conditions(&it)[0].contains("VeleroBackupNotFound"), "{it}");
    world.patch(NAB, "victim", "nab", &json!({"spec": {"forceDeleteBackup": true}})).await;
    world.gone(NAB, "victim", "nab").await;
    // The sync remembers it as the former namespace's, and gives it to nobody.
    world.set(&json!({"backupSyncPeriod": "1s", "garbageCollectionPeriod": "0"})).await;
    let graves = "non-admin-tombstones-victim";
    world
        .see("ConfigMap", (ADMIN, graves), "the backup to be remembered", |it| {
            it["data"][&identity].as_str().is_some_and(|it| it.ends_with(" former"))
        })
        .await;
    world
        .see("Backup", (ADMIN, &identity), "only the list to hold it", |it| {
            it["metadata"]["annotations"].get("holdfast.io/namespace-uid").is_none()
        })
        .await;
    assert_eq!(world.get(NAB, "victim", "nab").await, None);
    world.create(NAB, "victim", &forged).await;
    let it = world.see(NAB, ("victim", "nab"), "BackingOff", refused).await;
    assert!(conditions(&it)[0].contains("VeleroBackupNotFound"), "{it}");
    world.patch(NAB, "victim", "nab", &json!({"spec": {"forceDeleteBackup": true}})).await;
    world.gone(NAB, "victim", "nab").await;
    // An administrator gives it back.
    world.patch("ConfigMap", ADMIN, graves, &json!({"data": {identity.clone(): null}})).await;
    let it = world.see(NAB, ("victim", "nab"), "to be given back", super::is_created).await;
    assert_eq!(nacuuid(&it), identity);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_that_a_former_tenant_left_is_not_the_next_owners() {
    let world = World::start().await;
    world.namespace("victim").await;
    let marks = |kind: &str, name: &str, identity: &str| {
        json!({"name": identity,
            "labels": {"openshift.io/oadp": "True", "app.kubernetes.io/managed-by": "oadp-nac-controller",
                format!("openshift.io/oadp-{kind}-origin-nacuuid"): identity},
            "annotations": {format!("openshift.io/oadp-{kind}-origin-namespace"): "victim",
                format!("openshift.io/oadp-{kind}-origin-name"): name}})
    };
    // Its finalizer was taken off, and its namespace is gone: the Velero location is left over.
    let left = "victim-loc-00000000-0000-4000-8000-000000000000";
    let spec = json!({"provider": "aws", "objectStorage": {"bucket": "b", "prefix": "victim"}});
    world
        .create(
            "BackupStorageLocation",
            ADMIN,
            &json!({"metadata": marks("nabsl", "loc", left), "spec": spec}),
        )
        .await;
    // The next owner of the name has a location of the same name.
    let secret = json!({"metadata": {"name": "cloud"}, "stringData": {"cloud": KEYS}});
    world.create("Secret", "victim", &secret).await;
    let spec = json!({"provider": "aws", "objectStorage": {"bucket": "mine"}, "credential": {"name": "cloud", "key": "cloud"}, "config": {"region": "x"}});
    let location =
        json!({"metadata": {"name": "loc"}, "spec": {"backupStorageLocationSpec": spec}});
    world.create("NonAdminBackupStorageLocation", "victim", &location).await;
    let it = world
        .see("NonAdminBackupStorageLocation", ("victim", "loc"), "Created", |it| {
            it["status"]["phase"] == json!("Created")
        })
        .await;
    let own = nacuuid(&it);
    assert_ne!(own, left);
    let found = |name: &str, place: &str| {
        let identity = format!("victim-{name}-11111111-1111-4111-8111-111111111111");
        json!({"metadata": marks("nab", name, &identity),
            "spec": {"includedNamespaces": ["victim"], "storageLocation": place},
            "status": {"phase": "Completed", "completionTimestamp": "2026-01-01T00:00:00Z"}})
    };
    let former = found("former", left);
    world.create("Backup", ADMIN, &former).await;
    world.set(&json!({"backupSyncPeriod": "1s", "garbageCollectionPeriod": "0"})).await;
    world.create("Backup", ADMIN, &found("present", &own)).await;
    world.see(NAB, ("victim", "present"), "to be synced", super::is_created).await;
    assert_eq!(world.get(NAB, "victim", "former").await, None);
    // Nor does who knows the identity get it.
    let label = former["metadata"]["name"].clone();
    let forged = json!({"metadata": {"name": "former", "labels": {SYNCED: label}}, "spec": {"backupSpec": {}}});
    world.create(NAB, "victim", &forged).await;
    let it = world.see(NAB, ("victim", "former"), "BackingOff", refused).await;
    assert!(conditions(&it)[0].contains("VeleroBackupNotFound"), "{it}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_makes_room_in_a_quota_by_saying_why_a_backup_goes() {
    let mut world = World::start().await;
    let (mine, _) = victim(&mut world).await;
    let notes = json!({"annotations": {"holdfast.io/leaves-with-location": "made-up"}});
    let change = json!({"metadata": notes, "spec": {"forceDeleteBackup": true}});
    world.patch(NAB, "victim", "nab", &change).await;
    world.gone(NAB, "victim", "nab").await;
    let list = world.get("ConfigMap", ADMIN, "non-admin-tombstones-victim").await;
    let list = list.expect("its data lies with the administrators, and is remembered");
    assert!(list["data"].get(nacuuid(&mine)).is_some(), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one list of specs, and what each is refused with")]
async fn no_spec_leads_out_of_the_namespace() {
    let mut world = World::start().await;
    victim(&mut world).await;
    world.ready("attacker", "own").await;
    for (number, spec) in [
        json!({"includedNamespaces": ["victim"]}),
        json!({"includedNamespaces": ["*"]}),
        json!({"excludedNamespaces": ["x"]}),
        json!({"includeClusterResources": true}),
        json!({"includedClusterScopedResources": ["clusterroles"]}),
        json!({"volumeSnapshotLocations": ["x"]}),
        json!({"storageLocation": "default"}),
        json!({"resourcePolicy": {"kind": "configmap", "name": "x"}}),
        json!({"hooks": {"resources": [{"name": "h", "pre": [{"exec": {"command": ["id"]}}]}]}}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("b{number}");
        world
            .create(
                NAB,
                "attacker",
                &json!({"metadata": {"name": name}, "spec": {"backupSpec": spec}}),
            )
            .await;
        let it = world.see(NAB, ("attacker", &name), "BackingOff", refused).await;
        assert!(conditions(&it)[0].starts_with("Accepted=False InvalidBackupSpec"), "{it}");
        assert_eq!(nacuuid(&it), "");
    }
    for (number, spec) in [
        json!({"backupName": "nab"}),
        json!({"backupName": "own", "includedNamespaces": ["victim"]}),
        json!({"backupName": "own", "namespaceMapping": {"attacker": "victim"}}),
        json!({"backupName": "own", "scheduleName": "s"}),
        json!({"backupName": "own", "includeClusterResources": true}),
        json!({"backupName": "own", "existingResourcePolicy": "recreate"}),
        json!({"backupName": "own", "restoreStatus": {"includedResources": ["*"]}}),
        json!({"backupName": "own", "resourceModifier": {"kind": "configmap", "name": "x"}}),
        json!({"backupName": "own", "hooks": {"resources": [{"name": "h"}]}}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("r{number}");
        world
            .create(
                "NonAdminRestore",
                "attacker",
                &json!({"metadata": {"name": name}, "spec": {"restoreSpec": spec}}),
            )
            .await;
        let it = world.see("NonAdminRestore", ("attacker", &name), "BackingOff", refused).await;
        assert!(conditions(&it)[0].starts_with("Accepted=False InvalidRestoreSpec"), "{it}");
    }
    assert!(world.list("Restore", ADMIN).await.is_empty());
    for (number, change) in [
        json!({"objectStorage": {"bucket": "b", "prefix": "../victim"}}),
        json!({"objectStorage": {"bucket": "b", "prefix": "/victim"}}),
        json!({"config": {"credentialsFile": "/etc/shadow"}}),
        json!({"provider": "directory"}),
        json!({"default": true}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("l{number}");
        let mut spec = json!({"provider": "aws", "objectStorage": {"bucket": "b"}, "credential": {"name": "c", "key": "k"}});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        world
            .create(
                "NonAdminBackupStorageLocation",
                "attacker",
                &json!({"metadata": {"name": name}, "spec": {"backupStorageLocationSpec": spec}}),
            )
            .await;
        let it = world
            .see("NonAdminBackupStorageLocation", ("attacker", &name), "BackingOff", refused)
            .await;
        assert!(conditions(&it)[0].starts_with("Accepted=False BslSpecValidation"), "{it}");
    }
    // A text that would make a Velero run a command, or use the identity of its machine.
    for (name, text) in [
        ("runs", format!("{KEYS}credential_process = /bin/id\n")),
        ("empty", "[default]\n".to_owned()),
    ] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"k": text}});
        world.create("Secret", "attacker", &secret).await;
        let spec = json!({"provider": "aws", "objectStorage": {"bucket": "b"}, "credential": {"name": name, "key": "k"}});
        let location =
            json!({"metadata": {"name": name}, "spec": {"backupStorageLocationSpec": spec}});
        world.create("NonAdminBackupStorageLocation", "attacker", &location).await;
        let it = world
            .see("NonAdminBackupStorageLocation", ("attacker", name), "BackingOff", refused)
            .await;
        let said = &conditions(&it)[0];
        assert!(said.contains("BSL credentials secret can not be used: Secret"), "{it}");
    }
    assert!(world.list("BackupStorageLocation", ADMIN).await.is_empty());
    // An address in the administrators' bucket is not handed out.
    world.create("NonAdminDownloadRequest", "attacker", &json!({"metadata": {"name": "d"}, "spec": {"target": {"kind": "BackupLog", "name": "own"}}})).await;
    let it = world.see("NonAdminDownloadRequest", ("attacker", "d"), "BackingOff", refused).await;
    assert!(
        conditions(&it)[0].starts_with("NonAdminBackupStorageLocationNotUsed=True Error"),
        "{it}"
    );
}
