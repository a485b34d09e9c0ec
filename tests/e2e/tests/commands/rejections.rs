//! What the commands say when something is wrong.

use std::process::Command;

use e2e::engine::blocking;
use e2e::server::binary;
use serde_json::Value;
use testkit::process::poll_until;

use crate::shell::{Shell, TIMEOUT, text};

#[test]
fn what_cannot_be_done_is_said_with_a_hint() {
    let shell = Shell::start();
    let missing = shell.refused(&["restore", "nothing", "twin"]);
    assert!(missing.contains("error: cannot find backup nothing"), "{missing}");
    assert!(missing.contains("hint: "), "{missing}");
    let no_rule = shell.refused(&["backup", "forget", "data"]);
    assert!(no_rule.contains("--keep-daily"), "{no_rule}");
    let size = shell.refused(&["volume", "create", "odd", "--size", "3MiB"]);
    assert!(size.contains("multiple of 2 MiB"), "{size}");
    let ordinary = {
        shell.run(&["volume", "create", "plain", "--size", "2MiB", "--replicas", "1", "--wait"]);
        shell.refused(&["dr", "activate", "plain"])
    };
    assert!(ordinary.contains("not a standby volume"), "{ordinary}");
    let unreachable = shell.refused(&["target", "set", "s3://bucket@region/", "--wait"]);
    assert!(unreachable.contains("backuptarget default: "), "{unreachable}");
    let output = Command::new(binary())
        .args(["status", "--kubeconfig", "/nonexistent/kubeconfig"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("cannot read the kubeconfig"));
}

/// A rejection that was asked for with `--wait` comes at once, not when the timeout is over.
#[test]
fn mistyped_names_are_refused_and_leave_nothing() {
    let shell = Shell::start();
    let missing = shell.refused(&["backup", "create", "nope", "--wait"]);
    assert!(missing.contains("error: cannot find volume nope"), "{missing}");
    assert!(missing.contains("hint: see what there is with `holdfast volume ls`"), "{missing}");
    let missing = shell.refused(&["snapshot", "create", "nope"]);
    assert!(missing.contains("cannot find volume nope"), "{missing}");
    shell.run(&["volume", "create", "data", "--size", "2MiB", "--replicas", "1", "--wait"]);
    let missing = shell.refused(&["backup", "create", "data", "--snapshot", "nope", "--wait"]);
    assert!(missing.contains("cannot find snapshot nope"), "{missing}");
    let missing = shell.refused(&["backup", "create", "data", "--target", "nope", "--wait"]);
    assert!(missing.contains("cannot find target nope"), "{missing}");
    assert_eq!(shell.json(&["snapshot", "ls"]), Value::Array(Vec::new()));
    assert_eq!(shell.json(&["backup", "ls"]), Value::Array(Vec::new()));
    let missing = shell.refused(&["backup", "forget", "nope", "--keep-last", "1"]);
    assert!(missing.contains("cannot find volume nope"), "{missing}");
    let told = shell.run(&["backup", "forget", "data", "--keep-last", "1"]);
    assert!(told.contains("has no backups"), "{told}");
    let bad = shell.refused(&["job", "create", "x", "--cron", "bad"]);
    assert!(bad.contains("invalid cron format"), "{bad}");
    assert_eq!(shell.json(&["job", "ls"]), Value::Array(Vec::new()));
    let all = shell.refused(&["tenant", "backup", "b", "-A"]);
    assert!(all.contains("unexpected argument"), "{all}");
    let missing = shell.refused(&["tenant", "restore", "nope", "-n", "default"]);
    assert!(missing.contains("cannot restore from backup nope"), "{missing}");
    assert_eq!(shell.json(&["tenant", "restores", "-A"]), Value::Array(Vec::new()));
    let missing = shell.refused(&["volume", "attach", "data", "--node", "nope"]);
    assert!(missing.contains("cannot attach volume data to node nope"), "{missing}");
    let unknown = shell.refused(&["target", "set", "ftp://host/store"]);
    assert!(unknown.contains("no driver for ftp://"), "{unknown}");
    let context = shell.refused(&["status", "--context", "nope"]);
    assert!(context.contains("cannot use context nope of the kubeconfig"), "{context}");
}

/// What programs read: the object itself, as kubectl gives it, and a list only where several were asked for.
#[test]
fn one_object_is_told_as_an_object() {
    let shell = Shell::start();
    shell.run(&["volume", "create", "data", "--size", "2MiB", "--replicas", "1", "--wait"]);
    let shown = shell.json(&["volume", "show", "data"]);
    assert_eq!(shown.pointer("/metadata/name"), Some(&Value::from("data")), "{shown}");
    assert_eq!(shown.pointer("/metadata/managedFields"), None, "{shown}");
    let listed = shell.json(&["volume", "ls"]);
    assert_eq!(listed.pointer("/0/metadata/name"), Some(&Value::from("data")), "{listed}");
    assert_eq!(listed.pointer("/0/metadata/managedFields"), None, "{listed}");
}

#[test]
fn a_target_is_judged_by_the_look_that_was_asked_for() {
    let server = e2e::Server::start();
    let store = server.scratch().join("fresh");
    std::fs::create_dir(&store).unwrap();
    let shell = Shell { server };
    let url = format!("vfs://{}", store.display());
    // The condition of the time before, that there is no URL, is no answer.
    let told = shell.run(&["target", "set", &url, "--wait"]);
    assert!(told.contains("target default is"), "{told}");
    for _ in 0..2 {
        let gone = shell.refused(&["target", "set", "vfs:///nonexistent/store", "--wait"]);
        assert!(gone.contains("backuptarget default: ") && !gone.contains("is empty"), "{gone}");
    }
    shell.run(&["target", "set", &url, "--wait"]);
    let told = shell.run(&["target", "rm", "default", "--wait"]);
    assert!(told.contains("it has no URL now"), "{told}");
    let listed = shell.run(&["target", "ls"]);
    assert!(listed.contains("not set"), "{listed}");
}

#[test]
fn a_standby_volume_is_its_sources_until_it_is_activated() {
    let shell = Shell::start();
    shell.run(&["volume", "create", "data", "--size", "2MiB", "--replicas", "1", "--wait"]);
    shell.run(&["volume", "attach", "data"]);
    shell.run(&["backup", "create", "data", "--name", "one", "--wait"]);
    shell.run(&["dr", "create", "one", "standby", "--replicas", "1"]);
    for asked in [
        ["volume", "attach", "standby"].as_slice(),
        &["snapshot", "create", "standby"],
        &["backup", "create", "standby", "--wait"],
        &["volume", "expand", "standby", "4MiB"],
    ] {
        let refused = shell.refused(asked);
        assert!(refused.contains("is a standby volume"), "{asked:?}: {refused}");
        assert!(refused.contains("holdfast dr activate standby"), "{asked:?}: {refused}");
    }
    // Within one second, and nobody has chosen a name.
    for _ in 0..3 {
        shell.run(&["snapshot", "create", "data"]);
    }
    assert!(shell.json(&["snapshot", "ls", "data"]).as_array().unwrap().len() >= 4);
    let kept = shell.refused(&["backup", "retry", "one"]);
    assert!(kept.contains("backup one is not being deleted"), "{kept}");
    let told = shell.run(&["backup", "forget", "data", "--keep-last", "1"]);
    assert!(told.contains("nothing to delete: all 1 are kept"), "{told}");
}

#[test]
fn a_volume_without_a_place_needs_attention() {
    let shell = Shell::start();
    let size = ["--size", "262144TiB", "--replicas", "1"];
    shell.run(&[["volume", "create", "huge"].as_slice(), &size].concat());
    let is_told = || {
        let status = shell.ask(&["status", "--check"]);
        (!status.status.success()).then(|| text(&status.stdout))
    };
    let told = poll_until(TIMEOUT, is_told).expect("a volume without a place is well");
    assert!(told.contains("volume huge: "), "{told}");
}

#[test]
fn a_tenant_who_sees_nothing_is_not_told_that_all_is_well() {
    let shell = Shell::start();
    let namespace = serde_json::json!({"metadata": {"name": "team-a"}});
    blocking(async {
        let client = shell.server.client().await;
        let api: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
        let namespace = serde_json::from_value(namespace).unwrap();
        api.create(&kube::api::PostParams::default(), &namespace).await.unwrap();
    });
    let made = shell.server.holdfast(&[
        "kubeconfig",
        "--user",
        "alice",
        "--namespace",
        "team-a",
        "--role",
        "edit",
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let alice = shell.server.scratch().join("alice.kubeconfig");
    e2e::write(&alice, &text(&made.stdout));
    let as_alice = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.args(arguments).arg("--kubeconfig").arg(&alice).env_remove("KUBECONFIG");
        command.output().unwrap()
    };
    let blind = as_alice(&["status", "--check"]);
    assert!(!blind.status.success());
    let told = text(&blind.stdout);
    assert!(told.contains("nothing is visible with these permissions"), "{told}");
    let asked = as_alice(&["tenant", "backup", "friday"]);
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    let told = text(&as_alice(&["status"]).stdout);
    assert!(
        told.contains("as far as these permissions show") && told.contains("1 backup,"),
        "{told}"
    );
}
