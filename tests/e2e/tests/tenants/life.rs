//! Lives of backups and restores: created, refused, restored, and deleted in three ways.

use e2e::write;
use serde_json::{Value, json};

use super::{ADMIN, KEYS, World, conditions, nacuuid, position};

const NAB: &str = "NonAdminBackup";
const ACCEPTED: &str = "Accepted=True BackupAccepted: backup accepted";
const QUEUED: &str = "Queued=True BackupScheduled: Created Velero Backup object";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_backs_up_and_restores_with_kubectl_and_its_own_kubeconfig() {
    let mut world = World::start().await;
    let alice = world.tenant("alice", "team-a", "edit");
    let said = |arguments: &[&str]| {
        let output = world.kubectl(&alice, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    write(
        &world.server.scratch().join("nab.yaml"),
        "apiVersion: oadp.openshift.io/v1alpha1\nkind: NonAdminBackup\nmetadata: {name: nightly}\nspec: {backupSpec: {ttl: 24h0m0s}}\n",
    );
    said(&["apply", "-f", "nab.yaml"]);
    said(&["wait", "nab/nightly", "--for=jsonpath={.status.phase}=Created", "--timeout=120s"]);
    // Velero has not begun: what a queued one shows, field by field.
    let it = world.see(NAB, ("team-a", "nightly"), "its place", super::is_created).await;
    assert_eq!(conditions(&it), [ACCEPTED, QUEUED]);
    assert_eq!(position(&it), Some(1));
    let identity = nacuuid(&it);
    let velero = &it["status"]["veleroBackup"];
    assert_eq!(velero["status"], json!({}));
    assert_eq!((&velero["name"], &velero["namespace"]), (&json!(identity), &json!(ADMIN)));
    assert!(identity.starts_with("team-a-nightly-"), "{identity}");
    assert_eq!(it["metadata"]["finalizers"], json!(["nonadminbackup.oadp.openshift.io/finalizer"]));
    assert_eq!(it["spec"], json!({"backupSpec": {"ttl": "24h0m0s"}}));
    world.play(1);
    let output = world.kubectl(
        &alice,
        &[
            "wait",
            "nab/nightly",
            "--timeout=120s",
            "--for=jsonpath={.status.veleroBackup.status.phase}=Completed",
        ],
    );
    assert!(output.status.success(), "{output:?}");
    let it =
        world.see(NAB, ("team-a", "nightly"), "position 0", |it| position(it) == Some(0)).await;
    let velero = world.get("Backup", ADMIN, &identity).await.unwrap();
    assert_eq!(it["status"]["veleroBackup"]["status"], velero["status"]);
    assert_eq!(it["status"]["veleroBackup"]["spec"], velero["spec"]);
    assert_eq!(it["status"]["phase"], json!("Created"));
    assert_eq!(velero["spec"]["includedNamespaces"], json!(["team-a"]));

    write(
        &world.server.scratch().join("nar.yaml"),
        "apiVersion: oadp.openshift.io/v1alpha1\nkind: NonAdminRestore\nmetadata: {name: back}\nspec: {restoreSpec: {backupName: nightly}}\n",
    );
    for arguments in [
        &["apply", "-f", "nar.yaml"][..],
        &[
            "wait",
            "nar/back",
            "--timeout=120s",
            "--for=jsonpath={.status.veleroRestore.status.phase}=Completed",
        ],
    ] {
        let output = world.kubectl(&alice, arguments);
        assert!(output.status.success(), "{output:?}");
    }
    let output = world.kubectl(&alice, &["get", "nab,nar"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["REQUEST-PHASE", "VELERO-PHASE", "nightly", "back", "Created", "Completed"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    // What tenants may not touch: the status, and the administrators' namespace.
    for arguments in [
        &[
            "patch",
            "nab",
            "nightly",
            "--subresource=status",
            "--type=merge",
            "-p",
            "{\"status\":{\"phase\":\"New\"}}",
        ][..],
        &["get", "backups.velero.io", "-n", ADMIN],
        &["get", "nabslrequest", "-n", ADMIN],
    ] {
        let output = world.kubectl(&alice, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("orbidden"), "{output:?}");
    }
    let output = world.kubectl(&alice, &["delete", "nar", "back", "--timeout=120s"]);
    assert!(output.status.success(), "{output:?}");
    for reason in ["BackupCreated", "BackupCompleted", "RestoreCompleted"] {
        world
            .until(&format!("the event {reason}"), async || {
                let events = world.list("Event", "team-a").await;
                events.iter().any(|it| it["reason"] == json!(reason))
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_deleted_in_three_ways() {
    let mut world = World::start().await;
    world.play(2);
    world.namespace("team-a").await;
    // By the API: held, with the words users know, and nothing is touched.
    let it = world.ready("team-a", "held").await;
    let velero = world.get("Backup", ADMIN, &nacuuid(&it)).await;
    world.delete(NAB, "team-a", "held").await;
    let it = world
        .see(NAB, ("team-a", "held"), "Deleting", |it| it["status"]["phase"] == json!("Deleting"))
        .await;
    assert_eq!(
        conditions(&it),
        [
            ACCEPTED,
            QUEUED,
            "Deleting=True DeletionPending: backup deletion requires setting \
         spec.deleteBackup or spec.forceDeleteBackup to true or finalizer removal"
        ]
    );
    assert_eq!(world.get("Backup", ADMIN, &nacuuid(&it)).await, velero);
    // Then by the flag: Velero is asked, and all goes, restores as well.
    world
        .create(
            "NonAdminRestore",
            "team-a",
            &json!({"metadata": {"name": "r"}, "spec": {"restoreSpec": {"backupName": "other"}}}),
        )
        .await;
    world.patch(NAB, "team-a", "held", &json!({"spec": {"deleteBackup": true}})).await;
    world.gone(NAB, "team-a", "held").await;
    assert_eq!(world.get("Backup", ADMIN, &nacuuid(&it)).await, None);
    assert!(world.get("NonAdminRestore", "team-a", "r").await.is_some());
    // By force: no request, no wait, and it does not come back from the store.
    let it = world.ready("team-a", "forced").await;
    world.create("NonAdminRestore", "team-a", &json!({"metadata": {"name": "mine"}, "spec": {"restoreSpec": {"backupName": "forced"}}})).await;
    world
        .patch(
            NAB,
            "team-a",
            "forced",
            &json!({"spec": {"forceDeleteBackup": true, "deleteBackup": true}}),
        )
        .await;
    world.gone(NAB, "team-a", "forced").await;
    world.gone("Backup", ADMIN, &nacuuid(&it)).await;
    let graves = world.get("ConfigMap", ADMIN, "non-admin-tombstones-team-a").await.unwrap();
    assert!(graves["data"].get(nacuuid(&it)).is_some(), "{graves}");
    // Deleted with its restores.
    world.ready("team-a", "whole").await;
    world.create("NonAdminRestore", "team-a", &json!({"metadata": {"name": "of-whole"}, "spec": {"restoreSpec": {"backupName": "whole"}}})).await;
    world.see("NonAdminRestore", ("team-a", "of-whole"), "Created", super::is_created).await;
    world.patch(NAB, "team-a", "whole", &json!({"spec": {"deleteBackup": true}})).await;
    world.gone(NAB, "team-a", "whole").await;
    world.gone("NonAdminRestore", "team-a", "of-whole").await;
    // Velero takes its time to clear them away.
    world
        .until("the requests to be gone", async || {
            world.list("DeleteBackupRequest", ADMIN).await.is_empty()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_backup_is_done_and_wrong_specs_come_back_to_life() {
    let mut world = World::start().await;
    world.play(3);
    world.namespace("team-a").await;
    world.created("team-a", "fails-1", &json!({})).await;
    let it =
        world.see(NAB, ("team-a", "fails-1"), "position 0", |it| position(it) == Some(0)).await;
    assert_eq!(it["status"]["veleroBackup"]["status"]["phase"], json!("Failed"));
    assert_eq!(it["status"]["phase"], json!("Created"));
    let made =
        json!({"metadata": {"name": "n"}, "spec": {"backupSpec": {"includedNamespaces": ["b"]}}});
    world.create(NAB, "team-a", &made).await;
    let backing_off = |it: &Value| it["status"]["phase"] == json!("BackingOff");
    let it = world.see(NAB, ("team-a", "n"), "BackingOff", backing_off).await;
    assert_eq!(
        conditions(&it),
        ["Accepted=False InvalidBackupSpec: NonAdminBackup \
        spec.backupSpec.includedNamespaces is restricted, can not contain namespaces other than: team-a"]
    );
    world
        .patch(NAB, "team-a", "n", &json!({"spec": {"backupSpec": {"includedNamespaces": null}}}))
        .await;
    let it = world.see(NAB, ("team-a", "n"), "Created", super::is_created).await;
    assert_eq!(conditions(&it), [ACCEPTED, QUEUED]);
    // Settings bind from the moment they change, and wrong ones change nothing.
    world.set(&json!({"enforceBackupSpec": {"ttl": "36h"}, "maxBackupsPerNamespace": 2})).await;
    let made = json!({"metadata": {"name": "long"}, "spec": {"backupSpec": {"ttl": "99h"}}});
    world.create(NAB, "team-a", &made).await;
    let it = world.see(NAB, ("team-a", "long"), "BackingOff", backing_off).await;
    assert!(
        conditions(&it)[0].ends_with(
            "the administrator has restricted spec.backupSpec.ttl field value to 36h0m0s"
        ),
        "{:?}",
        conditions(&it)
    );
    world.patch(NAB, "team-a", "long", &json!({"spec": {"backupSpec": {"ttl": null}}})).await;
    let it = world
        .see(NAB, ("team-a", "long"), "the quota", |it| {
            conditions(it)
                .first()
                .is_some_and(|it| it.contains("has 2 backups and the administrator allows 2"))
        })
        .await;
    assert_eq!(nacuuid(&it), "");
    world
        .patch(
            "ConfigMap",
            ADMIN,
            "non-admin-config",
            &json!({"data": {"config.yaml": "nonAdmin: {maxBackups: 9}"}}),
        )
        .await;
    world
        .until("the event about the settings", async || {
            let events = world.list("Event", ADMIN).await;
            events.iter().any(|it| it["reason"] == json!("InvalidSettings"))
        })
        .await;
    world.patch(NAB, "team-a", "n", &json!({"spec": {"deleteBackup": true}})).await;
    world.gone(NAB, "team-a", "n").await;
    let it = world.see(NAB, ("team-a", "long"), "its place", super::is_created).await;
    let velero = world.get("Backup", ADMIN, &nacuuid(&it)).await.unwrap();
    assert_ne!(velero["spec"]["ttl"], json!(null), "{velero}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_say_which_namespaces_have_tenants() {
    let mut world = World::start().await;
    world.play(3);
    world.namespace("team-a").await;
    world.ready("team-a", "before").await;
    world.set(&json!({"tenantNamespaceSelector": {"matchLabels": {"backups": "yes"}}})).await;
    let object = json!({"metadata": {"name": "after"}, "spec": {"backupSpec": {}}});
    world.create(NAB, "team-a", &object).await;
    let is_refused = |it: &Value| it["status"]["phase"] == "BackingOff";
    let it = world.see(NAB, ("team-a", "after"), "to be refused", is_refused).await;
    assert!(conditions(&it)[0].contains("(tenantNamespaceSelector)"), "{:?}", conditions(&it));
    // What was begun is not taken away, and goes when its tenant wants it to.
    let it = world.get(NAB, "team-a", "before").await.unwrap();
    assert_eq!(conditions(&it)[0], ACCEPTED);
    world.patch(NAB, "team-a", "before", &json!({"spec": {"deleteBackup": true}})).await;
    world.gone(NAB, "team-a", "before").await;
    let alice = world.server.kubeconfig();
    let output = world.kubectl(&alice, &["label", "namespace", "team-a", "backups=yes"]);
    assert!(output.status.success(), "{output:?}");
    world.see(NAB, ("team-a", "after"), "to come to life", super::is_created).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_secret_of_a_location_is_copied() {
    let mut world = World::start().await;
    world.play(4);
    world.namespace("team-a").await;
    let secret = json!({"metadata": {"name": "cloud"}, "stringData": {"cloud": KEYS}});
    world.create("Secret", "team-a", &secret).await;
    let spec = json!({"provider": "aws", "credential": {"name": "cloud", "key": "cloud"},
        "objectStorage": {"bucket": "b"}, "config": {"region": "r"}});
    let location =
        json!({"metadata": {"name": "own"}, "spec": {"backupStorageLocationSpec": spec}});
    world.create("NonAdminBackupStorageLocation", "team-a", &location).await;
    let made = |it: &Value| it["status"]["phase"] == "Created";
    let place = ("team-a", "own");
    let it = world.see("NonAdminBackupStorageLocation", place, "to be Created", made).await;
    let identity = nacuuid(&it);
    let change = json!({"stringData": {"cloud": KEYS.replace("=a", "=new")}});
    world.patch("Secret", "team-a", "cloud", &change).await;
    let wanted = world.get("Secret", "team-a", "cloud").await.unwrap()["data"].clone();
    let same = |it: &Value| it["data"] == wanted;
    world.see("Secret", (ADMIN, &identity), "to have the new credentials", same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_asks_for_backups_as_its_tenant_would() {
    const NAS: &str = "NonAdminSchedule";
    let mut world = World::start().await;
    world.play(5);
    world.namespace("team-a").await;
    let alice = world.tenant("alice", "team-a", "edit");
    let schedule = |name: &str, text: &str, template: Value| {
        json!({"apiVersion": "oadp.openshift.io/v1alpha1", "kind": NAS, "metadata": {"name": name},
            "spec": {"scheduleSpec": {"schedule": text, "template": template}}})
    };
    let apply = |object: &Value| {
        let path = world.server.scratch().join("schedule.json");
        write(&path, &object.to_string());
        let output = world.kubectl(&alice, &["apply", "-f", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
    };
    apply(&schedule("nosy", "@every 1s", json!({"includedNamespaces": ["kube-system"]})));
    let refused = |it: &Value| it["status"]["phase"] == "BackingOff";
    let it = world.see(NAS, ("team-a", "nosy"), "to be refused", refused).await;
    assert!(conditions(&it)[0].starts_with("Accepted=False InvalidScheduleSpec"), "{it}");

    apply(&schedule("often", "@every 1s", json!({"ttl": "1h"})));
    let followed = |it: &Value| it["status"]["lastBackupName"].is_string();
    let it = world.see(NAS, ("team-a", "often"), "to be followed", followed).await;
    assert_eq!(it["status"]["phase"], "Created");
    assert_eq!(conditions(&it), ["Accepted=True ScheduleAccepted: schedule accepted"]);
    let first = it["status"]["lastBackupName"].as_str().unwrap().to_owned();
    let ended = |it: &Value| it["status"]["veleroBackup"]["status"]["phase"] == "Completed";
    let backup = world.see(NAB, ("team-a", &first), "to end", ended).await;
    assert_eq!(backup["metadata"]["labels"]["velero.io/schedule-name"], "often");
    assert_eq!(backup["spec"]["backupSpec"], json!({"ttl": "1h"}));
    let another = |it: &Value| it["status"]["lastBackupName"] != json!(first);
    world.see(NAS, ("team-a", "often"), "to ask again", another).await;

    // Once it is paused, what has expired is still removed, and nothing else.
    let pause = r#"{"spec":{"scheduleSpec":{"paused":true}}}"#;
    let output = world.kubectl(&alice, &["patch", "nas", "often", "--type=merge", "-p", pause]);
    assert!(output.status.success(), "{output:?}");
    // Somebody holds it, so it is seen how it goes: its data is not asked to go with it, which a store that
    // was away for a moment may still have.
    let mut holders = backup["metadata"]["finalizers"].as_array().unwrap().clone();
    holders.push(json!("example.com/hold"));
    world.patch(NAB, "team-a", &first, &json!({"metadata": {"finalizers": holders}})).await;
    world.delete("Backup", ADMIN, &nacuuid(&backup)).await;
    let goes = |it: &Value| {
        let asked = it["spec"]["deleteBackup"] == json!(true);
        it["metadata"]["deletionTimestamp"].is_string() || asked
    };
    let it = world.see(NAB, ("team-a", &first), "to go", goes).await;
    assert_eq!(it["spec"].get("deleteBackup"), None, "{it}");
    world.patch(NAB, "team-a", &first, &json!({"metadata": {"finalizers": null}})).await;
    world.gone(NAB, "team-a", &first).await;
    let output = world.kubectl(&alice, &["delete", "nas", "often"]);
    assert!(output.status.success(), "{output:?}");
    world.gone(NAS, "team-a", "often").await;
    assert!(!world.list(NAB, "team-a").await.is_empty(), "backups stay");
}
