//! Deleting, and what goes along.

use e2e::Server;

use super::{CONFIG_MAP, Kubectl};

/// An owner and a dependent; the dependent's name.
fn family(kubectl: &Kubectl<'_>, owner: &str) -> String {
    kubectl.run(&format!("create configmap {owner} --from-literal=a=b"));
    let uid = kubectl.run(&format!("get cm {owner} -o jsonpath={{.metadata.uid}}"));
    let child = format!("{owner}-child");
    let manifest = CONFIG_MAP.replace(
        "  name: settings\n",
        &format!(
            "  name: {child}\n  ownerReferences:\n  - apiVersion: v1\n    kind: ConfigMap\n    \
             name: {owner}\n    uid: {uid}\n    blockOwnerDeletion: true\n"
        ),
    );
    kubectl.run(&format!("create -f {}", kubectl.file("child.yaml", &manifest)));
    child
}

#[test]
fn cascade_decides_what_becomes_of_dependents() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let child = family(&kubectl, "background");
    kubectl.run("delete configmap background --cascade=background");
    kubectl.run(&format!("wait configmap {child} --for=delete --timeout=60s"));

    let child = family(&kubectl, "foreground");
    kubectl.run("delete configmap foreground --cascade=foreground");
    // The owner goes last: when it is gone, so is the dependent.
    assert!(kubectl.fail(&format!("get configmap {child}")).contains("NotFound"));

    let child = family(&kubectl, "orphan");
    kubectl.run("delete configmap orphan --cascade=orphan");
    assert!(kubectl.fail("get configmap orphan").contains("NotFound"));
    let owners = kubectl.run(&format!("get cm {child} -o jsonpath={{.metadata.ownerReferences}}"));
    assert_eq!(owners, "");
}

#[test]
fn a_finalizer_keeps_an_object_until_it_is_taken_off() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let manifest = CONFIG_MAP
        .replace("  name: settings\n", "  name: settings\n  finalizers: [e2e.example.com/x]\n");
    kubectl.run(&format!("create -f {}", kubectl.file("kept.yaml", &manifest)));
    kubectl.run("delete configmap settings --wait=false");
    let deleting = kubectl.run("get cm settings -o jsonpath={.metadata.deletionTimestamp}");
    assert!(!deleting.is_empty());
    let none = r#"'{"metadata":{"finalizers":null}}'"#;
    kubectl.run(&format!("patch configmap settings --type=merge -p {none}"));
    assert!(kubectl.fail("get configmap settings").contains("NotFound"));
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    kubectl.run("create namespace garden");
    kubectl.run("create configmap rose -n garden --from-literal=a=b");
    kubectl.run("delete namespace garden --timeout=60s");
    assert!(kubectl.fail("get namespace garden").contains("NotFound"));
    kubectl.run("create namespace garden");
    assert!(
        kubectl.run("get configmap -n garden -o name").lines().all(|line| !line.ends_with("rose"))
    );
}

#[test]
fn many_can_be_deleted_at_once() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    for number in 0..5 {
        kubectl.run(&format!("create configmap many-{number} --from-literal=a=b"));
        kubectl.run(&format!("label configmap many-{number} group={}", number % 2));
    }
    kubectl.run("delete configmap -l group=0");
    assert_eq!(kubectl.run("get cm -l group -o name").lines().count(), 2);
    kubectl.run("delete configmap --all");
    assert_eq!(kubectl.run("get cm -l group -o name"), "");
    assert!(kubectl.fail("delete configmap nothing").contains("NotFound"));
    kubectl.run("delete configmap nothing --ignore-not-found");
}
