//! Commands that only look.

use e2e::Server;
use testkit::process::Process;

use super::{BACKUP, CONFIG_MAP, DEPLOYMENT, Kubectl};
use e2e::server::TIMEOUT;

#[test]
fn a_fresh_server_shows_its_namespaces_and_resources() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let namespaces = kubectl.run("get ns");
    assert!(namespaces.starts_with("NAME "), "{namespaces}");
    for name in ["default", "kube-system", "kube-public"] {
        assert!(namespaces.contains(name), "{namespaces}");
    }
    assert!(namespaces.contains("Active"), "{namespaces}");
    let resources = kubectl.run("api-resources");
    for part in ["configmaps", "nonadminbackups", "backups", "leases", "customresourcedefinitions"]
    {
        assert!(resources.contains(part), "{part} is not in\n{resources}");
    }
    assert!(resources.lines().any(|line| line.contains("nab") && line.contains("NonAdminBackup")));
    assert!(kubectl.run("api-versions").contains("oadp.openshift.io/v1alpha1"));
    assert!(kubectl.run("version").contains("Server Version"));
    assert!(kubectl.run("cluster-info").contains("is running at"));
    assert_eq!(kubectl.run("get --raw /readyz"), "ok");
}

#[test]
fn explain_knows_built_in_and_our_own_resources() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let ours = kubectl.run("explain nab.spec");
    assert!(ours.contains("NonAdminBackup"), "{ours}");
    assert!(ours.contains("backupSpec"), "{ours}");
    let built_in = kubectl.run("explain deployment.spec.template.spec.containers.image");
    assert!(built_in.contains("<string>"), "{built_in}");
    assert!(kubectl.run("explain configmap --recursive").contains("binaryData"));
    let unknown = kubectl.fail("explain nab.spec.nothing");
    assert!(unknown.contains("does not exist"), "{unknown}");
    let described = kubectl.run("explain deployment.spec");
    assert!(described.contains("-required-"), "{described}");
    assert!(described.contains("Number of desired pods"), "{described}");
    // Until 1.33 it can also read the second version of OpenAPI.
    if kubectl.run("explain --help").contains("plaintext-openapiv2") {
        let older = kubectl.run("explain deployment.spec --output=plaintext-openapiv2");
        assert!(older.contains("Number of desired pods"), "{older}");
        let ours = kubectl.run("explain nab.spec --output=plaintext-openapiv2");
        assert!(ours.contains("backupSpec"), "{ours}");
    }
}

#[test]
fn get_shows_objects_in_every_form() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    kubectl.run(&format!("apply -f {}", kubectl.file("map.yaml", CONFIG_MAP)));
    kubectl.run(&format!("apply -f {}", kubectl.file("web.yaml", DEPLOYMENT)));
    let table = kubectl.run("get configmap settings");
    assert!(table.starts_with("NAME "), "{table}");
    assert!(table.contains("DATA") && table.contains("settings"), "{table}");
    let wide = kubectl.run("get deployment -o wide");
    for part in ["READY", "0/2", "CONTAINERS", "example.com/web:1", "app=web"] {
        assert!(wide.contains(part), "{part} is not in\n{wide}");
    }
    let yaml = kubectl.run("get configmap settings -o yaml");
    assert!(yaml.contains("colour: green") && yaml.contains("resourceVersion:"), "{yaml}");
    assert_eq!(kubectl.run("get cm settings -o jsonpath={.data.colour}"), "green");
    assert_eq!(kubectl.run("get cm settings -o name"), "configmap/settings\n");
    let columns = kubectl.run("get cm -o custom-columns=N:.metadata.name,C:.data.colour");
    assert!(columns.lines().any(|line| line.starts_with("settings") && line.ends_with("green")));
    assert!(kubectl.run("get cm -A --sort-by=.metadata.name").contains("NAMESPACE"));
    assert!(kubectl.run("get deploy -l app=web").contains("web"));
    assert!(kubectl.run("get cm --field-selector metadata.name=settings").contains("settings"));
    let missing = kubectl.fail("get configmap nothing");
    assert!(missing.contains("(NotFound)"), "{missing}");
    let unknown = kubectl.fail("get nothings");
    assert!(unknown.contains("the server doesn't have a resource type"), "{unknown}");
}

#[test]
fn describe_shows_an_object_with_its_events() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    kubectl.run(&format!("apply -f {}", kubectl.file("nab.yaml", BACKUP)));
    let uid = kubectl.run("get nab nightly -o jsonpath={.metadata.uid}");
    let event = format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: nightly.1, namespace: default}}\n\
         involvedObject: {{apiVersion: oadp.openshift.io/v1alpha1, kind: NonAdminBackup,\
         name: nightly, namespace: default, uid: {uid}}}\n\
         reason: Looked\nmessage: somebody looked at it\ntype: Normal\n\
         firstTimestamp: 2026-01-02T03:04:05Z\nlastTimestamp: 2026-01-02T03:04:05Z\ncount: 1\n"
    );
    kubectl.run(&format!("create -f {}", kubectl.file("event.yaml", &event)));
    let described = kubectl.run("describe nab nightly");
    for part in ["Name: ", "nightly", "API Version:", "Looked", "somebody looked at it"] {
        assert!(described.contains(part), "{part} is not in\n{described}");
    }
    let events = kubectl.run("events --for nonadminbackup/nightly");
    assert!(events.contains("somebody looked at it"), "{events}");
    assert!(kubectl.run("get events").contains("Looked"));
    assert!(kubectl.run("describe ns default").contains("Status:       Active"));
    kubectl.run("create configmap plain --from-literal=a=b");
    assert!(kubectl.run("describe configmap plain").contains("BinaryData"));
}

#[test]
fn a_watch_shows_changes_as_they_come() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    kubectl.run("create configmap first --from-literal=a=1");
    let command = kubectl.command("get configmap -w --output-watch-events");
    let mut watch = Process::start(command, server.scratch(), "watch").unwrap();
    let line = watch.wait_for_line("first", TIMEOUT).unwrap();
    assert!(line.starts_with("ADDED"), "{line}");
    kubectl.run("create configmap second --from-literal=a=1");
    let line = watch.wait_for_line("second", TIMEOUT).unwrap();
    assert!(line.starts_with("ADDED"), "{line}");
    kubectl.run("label configmap first colour=blue");
    watch.wait_for_line("MODIFIED", TIMEOUT).unwrap();
    kubectl.run("delete configmap second");
    let line = watch.wait_for_line("DELETED", TIMEOUT).unwrap();
    assert!(line.contains("second"), "{line}");
}
