//! Commands that change things.

use e2e::Server;
use e2e::server::TIMEOUT;
use testkit::process::{Process, write_program};

use super::{BACKUP, CONFIG_MAP, DEPLOYMENT, Kubectl, still};

#[test]
fn apply_creates_changes_and_leaves_alone() {
    let server = still();
    let kubectl = Kubectl::admin(&server);
    for (name, text, from, to) in [
        ("map.yaml", CONFIG_MAP, "green", "red"),
        ("web.yaml", DEPLOYMENT, "replicas: 2", "replicas: 3"),
        ("nab.yaml", BACKUP, "24h0m0s", "48h0m0s"),
    ] {
        let file = kubectl.file(name, text);
        let apply = format!("apply -f {file}");
        assert!(kubectl.run(&apply).trim_end().ends_with(" created"), "{name}");
        assert!(kubectl.run(&apply).trim_end().ends_with(" unchanged"), "{name}");
        kubectl.file(name, &text.replace(from, to));
        let diff = kubectl.output(&format!("diff -f {file}"));
        assert_eq!(diff.status.code(), Some(1), "{name}");
        let shown = String::from_utf8_lossy(&diff.stdout).into_owned();
        assert!(shown.lines().any(|line| line.starts_with('+') && line.contains(to)), "{shown}");
        let dry = kubectl.run(&format!("{apply} --dry-run=server"));
        assert!(dry.contains("configured (server dry run)"), "{dry}");
        assert!(kubectl.run(&apply).trim_end().ends_with(" configured"), "{name}");
        assert!(kubectl.run(&apply).trim_end().ends_with(" unchanged"), "{name}");
    }
}

/// Before 1.34 kubectl asks for the second version of OpenAPI, as protobuf, to check a List.
#[test]
fn apply_takes_a_list_and_checks_what_is_in_it() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let list = |members: &[&str]| {
        let mut text = "apiVersion: v1\nkind: List\nitems:\n".to_owned();
        for member in members {
            let indented: Vec<String> = member.lines().map(|line| format!("  {line}")).collect();
            text.push_str(&indented.join("\n").replacen("  apiVersion", "- apiVersion", 1));
            text.push('\n');
        }
        text
    };
    kubectl.file("all.yaml", &list(&[CONFIG_MAP, DEPLOYMENT, BACKUP]));
    for word in [" created", " unchanged"] {
        let said = kubectl.run("apply -f all.yaml");
        assert_eq!(said.lines().filter(|line| line.ends_with(word)).count(), 3, "{said}");
    }
    let wrong = CONFIG_MAP.replace("\ndata:", "\ndta:");
    kubectl.file("wrong.yaml", &list(&[&wrong, &DEPLOYMENT.replace("name: web", "name: never")]));
    let error = kubectl.fail("apply -f wrong.yaml");
    assert!(error.contains("unknown field \"dta\""), "{error}");
}

#[test]
fn apply_on_the_server_knows_who_owns_what() {
    let server = still();
    let kubectl = Kubectl::admin(&server);
    for (name, text) in [("map.yaml", CONFIG_MAP), ("web.yaml", DEPLOYMENT), ("nab.yaml", BACKUP)] {
        let file = kubectl.file(name, text);
        let said = kubectl.run(&format!("apply --server-side -f {file}"));
        assert!(said.trim_end().ends_with(" serverside-applied"), "{said}");
    }
    kubectl.file("map.yaml", &CONFIG_MAP.replace("green", "red"));
    let conflict = kubectl.fail("apply --server-side --field-manager=other -f map.yaml");
    assert!(conflict.contains("conflict with \"kubectl\""), "{conflict}");
    assert!(conflict.contains(".data.colour"), "{conflict}");
    kubectl.run("apply --server-side --field-manager=other --force-conflicts -f map.yaml");
    assert_eq!(kubectl.run("get cm settings -o jsonpath={.data.colour}"), "red");
    let fields = kubectl.run("get cm settings -o yaml --show-managed-fields");
    assert!(fields.contains("manager: other"), "{fields}");
}

#[test]
fn mistakes_in_a_manifest_are_told_before_anything_is_stored() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    let unknown = kubectl.file("a.yaml", &CONFIG_MAP.replace("\ndata:", "\ndta:"));
    let error = kubectl.fail(&format!("apply -f {unknown}"));
    assert!(error.contains("dta"), "{error}");
    let wrong = kubectl.file("b.yaml", &BACKUP.replace("24h0m0s", "[1]"));
    let error = kubectl.fail(&format!("apply -f {wrong}"));
    assert!(error.contains("ttl"), "{error}");
    let bad_name = kubectl.file("c.yaml", &CONFIG_MAP.replace("settings", "Not_A_Name"));
    let error = kubectl.fail(&format!("create -f {bad_name}"));
    assert!(error.contains("metadata.name: Invalid value"), "{error}");
    assert!(kubectl.run("get cm,nab -o name").is_empty());
}

#[test]
fn edit_opens_an_editor_and_stores_what_it_leaves() {
    let server = still();
    let kubectl = Kubectl::admin(&server);
    kubectl.run(&format!("apply -f {}", kubectl.file("map.yaml", CONFIG_MAP)));
    kubectl.run(&format!("apply -f {}", kubectl.file("nab.yaml", BACKUP)));
    let editor = server.scratch().join("editor.sh");
    let script = "#!/bin/sh\nexec sed -i -e s/green/purple/ -e s/24h/12h/ \"$1\"\n";
    write_program(&editor, script).unwrap();
    for what in ["configmap settings", "nab nightly"] {
        let mut command = kubectl.command(&format!("edit {what}"));
        let output = command.env("EDITOR", &editor).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.trim_end().ends_with(" edited"), "{output:?}");
    }
    assert_eq!(kubectl.run("get cm settings -o jsonpath={.data.colour}"), "purple");
    assert_eq!(kubectl.run("get nab nightly -o jsonpath={.spec.backupSpec.ttl}"), "12h0m0s");
}

#[test]
fn every_type_of_patch_is_taken() {
    let server = still();
    let kubectl = Kubectl::admin(&server);
    kubectl.run(&format!("apply -f {}", kubectl.file("web.yaml", DEPLOYMENT)));
    kubectl.run(&format!("apply -f {}", kubectl.file("nab.yaml", BACKUP)));
    // Strategic: the container is found by its name, and keeps its ports.
    let containers =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"b"}]}}}}"#;
    kubectl.run(&format!("patch deployment web -p '{containers}'"));
    let path = "jsonpath={.spec.template.spec.containers[0].image}{.spec.template.spec.containers[0].ports[0].containerPort}";
    assert_eq!(kubectl.run(&format!("get deployment web -o {path}")), "b80");
    let merge = r#"'{"spec":{"backupSpec":{"ttl":"1h0m0s"}}}'"#;
    kubectl.run(&format!("patch nab nightly --type=merge -p {merge}"));
    let json = r#"'[{"op":"replace","path":"/spec/replicas","value":5}]'"#;
    kubectl.run(&format!("patch deployment web --type=json -p {json}"));
    assert_eq!(kubectl.run("get deployment web -o jsonpath={.spec.replicas}"), "5");
    let strategic = kubectl.fail(&format!("patch nab nightly -p {merge}"));
    assert!(strategic.contains("strategic-merge-patch+json is not supported"), "{strategic}");
    let status = r#"'{"status":{"phase":"Created"}}'"#;
    kubectl.run(&format!("patch nab nightly --subresource=status --type=merge -p {status}"));
    assert_eq!(kubectl.run("get nab nightly -o jsonpath={.status.phase}"), "Created");
}

#[test]
fn wait_returns_when_it_is_so() {
    let server = still();
    let kubectl = Kubectl::admin(&server);
    kubectl.run(&format!("apply -f {}", kubectl.file("nab.yaml", BACKUP)));
    let for_phase =
        kubectl.command("wait nab nightly --for=jsonpath={.status.phase}=Created --timeout=60s");
    let mut waiting = Process::start(for_phase, server.scratch(), "wait").unwrap();
    let status = r#"'{"status":{"phase":"Created","conditions":[{"type":"Accepted","status":"True","reason":"Ok","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}'"#;
    kubectl.run(&format!("patch nab nightly --subresource=status --type=merge -p {status}"));
    assert!(waiting.wait_for_exit(TIMEOUT).unwrap().success(), "{}", waiting.stderr());
    assert!(waiting.stdout().contains("condition met"));
    kubectl.run("wait nab nightly --for=condition=Accepted --timeout=60s");
    let late = kubectl.fail("wait nab nightly --for=condition=Never --timeout=1s");
    assert!(late.contains("timed out"), "{late}");
    let for_end = kubectl.command("wait nab nightly --for=delete --timeout=60s");
    let mut waiting = Process::start(for_end, server.scratch(), "wait-delete").unwrap();
    kubectl.run("delete nab nightly --wait=false");
    assert!(waiting.wait_for_exit(TIMEOUT).unwrap().success(), "{}", waiting.stderr());
}

#[test]
fn create_label_annotate_scale_and_replace_work() {
    let server = Server::start();
    let kubectl = Kubectl::admin(&server);
    for line in [
        "create namespace garden",
        "create configmap plain --from-literal=a=b",
        "create secret generic hidden --from-literal=password=swordfish",
        "create serviceaccount robot",
        "create role reader --verb=get,list --resource=configmaps",
        "create rolebinding readers --role=reader --serviceaccount=default:robot",
        "create clusterrole watcher --verb=watch --resource=pods",
        "create clusterrolebinding watchers --clusterrole=watcher --group=team-b",
        "create deployment made --image=example.com/made:1 --replicas=1",
        "run one --image=example.com/one:1",
    ] {
        let said = kubectl.run(line);
        assert!(said.trim_end().ends_with(" created"), "kubectl {line}: {said}");
    }
    let token = kubectl.run("create token robot");
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    kubectl.run("label configmap plain colour=blue");
    assert!(kubectl.fail("label configmap plain colour=red").contains("--overwrite"));
    kubectl.run("label configmap plain colour=red --overwrite");
    kubectl.run("annotate configmap plain 'note=two words'");
    assert_eq!(kubectl.run("get cm plain -o jsonpath={.metadata.labels.colour}"), "red");
    kubectl.run("scale deployment made --replicas=4");
    assert_eq!(kubectl.run("get deployment made -o jsonpath={.spec.replicas}"), "4");
    let replaced = kubectl.file("plain.yaml", &CONFIG_MAP.replace("settings", "plain"));
    kubectl.run(&format!("replace -f {replaced}"));
    assert_eq!(kubectl.run("get cm plain -o jsonpath={.data.colour}"), "green");
    let before = kubectl.run("get cm plain -o jsonpath={.metadata.uid}");
    kubectl.run(&format!("replace --force -f {replaced}"));
    assert_ne!(kubectl.run("get cm plain -o jsonpath={.metadata.uid}"), before);
}
