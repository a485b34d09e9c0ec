//! `holdfast support-bundle`: what is needed is there, and no secret is, wherever one was planted.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use e2e::engine::blocking;
use e2e::server::binary;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::shell::{Shell, text};

const IN_SECRET: &str = "planted-in-a-secret";
const IN_BINARY: &str = "planted-in-data-of-a-secret";
const IN_ANNOTATION: &str = "planted-in-an-annotation";
const IN_FILE: &str = "planted-in-a-credentials-file";
const IN_URL: &str = "planted-in-a-url";
const IN_QUERY: &str = "planted-in-a-query";
const IN_ENVIRONMENT: &str = "planted-in-the-environment";
const IN_DATABASE: &str = "planted-in-a-database-url";
const IN_LOG: &str = "planted-in-a-log";
const IN_LABEL: &str = "planted-in-a-container";
const IN_APPLIED: &str = "planted-in-what-was-applied";
const IN_SHARED: &str = "planted-in-a-shared-credentials-file";
const IN_KUBECONFIG: &str = "planted-in-a-kubeconfig-of-somebody-else";
const IN_PROXY: &str = "planted-in-the-address-of-a-proxy";
const IN_GUARD: &str = "planted-in-the-configuration-of-a-guard";
const IN_TARGET: &str = "planted-in-the-secret-of-a-target";
const IN_KEY: &str = "cGxhbnRlZGluYWtleXBsYW50ZWRpbmFrZXk";
const ALL: [&str; 17] = [
    IN_SECRET,
    IN_BINARY,
    IN_ANNOTATION,
    IN_FILE,
    IN_URL,
    IN_QUERY,
    IN_ENVIRONMENT,
    IN_DATABASE,
    IN_LOG,
    IN_LABEL,
    IN_APPLIED,
    IN_SHARED,
    IN_KUBECONFIG,
    IN_PROXY,
    IN_GUARD,
    IN_TARGET,
    IN_KEY,
];

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

async fn make<K>(api: &Api<K>, object: Value)
where
    K: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn plant(client: kube::Client) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "longhorn-system");
    let applied = json!({"kind": "Secret", "stringData": {"k": IN_ANNOTATION}}).to_string();
    let cloud = format!("[default]\naws_secret_access_key={IN_FILE}\nregion=us-east-1\n");
    let store = json!({
        "metadata": {"name": "store", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": applied}},
        "stringData": {"AWS_SECRET_ACCESS_KEY": IN_SECRET, "cloud": cloud},
        "data": {"other": base64(IN_BINARY)},
    });
    make(&secrets, store).await;
    let target = json!({
        "metadata": {"name": "target"},
        "stringData": {"CIFS_USERNAME": "ann", "CIFS_PASSWORD": IN_TARGET},
    });
    make(&secrets, target).await;
    // Where nobody looks for one: values of Secrets in the message of an event.
    let events: Api<Event> = Api::namespaced(client.clone(), "longhorn-system");
    let loose = json!({
        "metadata": {"name": "loose"}, "reason": "Loose",
        "involvedObject": {"kind": "Volume", "name": "v", "namespace": "longhorn-system"},
        "message": format!("tried {IN_BINARY}, {IN_FILE} and {}", base64(IN_SECRET)),
    });
    make(&events, loose).await;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({
        "metadata": {"name": "holdfast-0", "labels": {"app.kubernetes.io/name": "holdfast"}},
        "spec": {"containers": [{"name": "c", "image": "i",
            "args": [format!("--block-database-url=postgres://u:{IN_LABEL}@db/x")],
            "env": [{"name": "DB_PASSWORD", "value": IN_LABEL}]}]},
    });
    make(&pods, pod).await;
    let gvk = GroupVersionKind::gvk("longhorn.io", "v1beta2", "Volume");
    let resource = ApiResource::from_gvk(&gvk);
    let volumes: Api<DynamicObject> = Api::namespaced_with(client, "longhorn-system", &resource);
    let inner = json!({"kind": "List", "items": [{"kind": "Secret", "data": {"k": IN_APPLIED}}]});
    let volume = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": {"name": "innocent", "annotations": {"applied": inner.to_string()}},
        "spec": {"size": "2097152", "numberOfReplicas": 1},
    });
    make(&volumes, volume).await;
}

/// A log as somebody would hand it in.
fn log(path: &Path) {
    let text = format!(
        "2026-11-16T02:00:00Z INFO the store answers\n\
         Authorization: Bearer {IN_LOG}\n\
         {{\"level\":\"info\",\"message\":\"password={IN_LOG}\"}}\n\
         -----BEGIN EC PRIVATE KEY-----\n{IN_KEY}\n-----END EC PRIVATE KEY-----\n\
         GET http://127.0.0.1/x?X-Amz-Signature={IN_QUERY}&y=1\n\
         connected to cifs://ann:{IN_URL}@127.0.0.1/share with {IN_URL}\n\
         mount -o username=ann,password={IN_LOG},uid=0\n\
         etcdctl --password {IN_LOG} snapshot save\n\
         refused with {IN_SHARED} and {IN_KUBECONFIG}, by way of http://ann:{IN_PROXY}@127.0.0.1:3128/\n\
         holdfast etcd server --etcd-username=root --etcd-password={IN_GUARD} --endpoints=http://127.0.0.1:2379\n\
         etcd-password: {IN_GUARD}\n  etcdPassword: \"{IN_GUARD}\"\n\
         conninfo: host=db user=cinder password={IN_GUARD} dbname=cinder\n\
         PGPASSWORD={IN_GUARD} psql; mount.cifs //h/s /mnt -o user=ann,pass={IN_TARGET}\n"
    );
    e2e::write(path, &text);
}

fn tar(how: &str, file: &Path) -> String {
    let out = Command::new("tar").arg(how).arg(file).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn a_support_bundle_holds_what_is_needed_and_no_secret() {
    let shell = Shell::start();
    let scratch = shell.server.scratch().to_owned();
    blocking(async { plant(shell.server.client().await).await });
    let url = format!("cifs://ann:{IN_URL}@127.0.0.1/share");
    shell.run(&["target", "set", &url, "--name", "hostile"]);
    let (file, up) = (scratch.join("bundle.tar.gz"), scratch.join("up.log"));
    log(&up);
    let mut command = Command::new(binary());
    command.args(["support-bundle", "--data-dir"]).arg(shell.server.data_dir());
    command.arg("--file").arg(&file).arg("--with-log").arg(&up).env_remove("KUBECONFIG");
    command.arg("--token-auth-file").arg(scratch.join("tokens.csv"));
    command.env("OS_PASSWORD", IN_ENVIRONMENT).env("HOLDFAST_LOG", "info");
    let shared = scratch.join("shared");
    e2e::write(&shared, &format!("[default]\naws_secret_access_key = {IN_SHARED}\n"));
    command.env("AWS_SHARED_CREDENTIALS_FILE", &shared);
    command.env("HTTPS_PROXY", format!("http://ann:{IN_PROXY}@127.0.0.1:3128/"));
    let home = scratch.join("home");
    std::fs::create_dir_all(home.join(".kube")).unwrap();
    let kubeconfig = format!("users:\n- name: u\n  user:\n    token: {IN_KUBECONFIG}\n");
    e2e::write(&home.join(".kube/config"), &kubeconfig);
    command.env("HOME", &home);
    command.env("HOLDFAST_BLOCK_DATABASE_URL", format!("postgres://ann:{IN_DATABASE}@db/x"));
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));

    let all = tar("-xzOf", &file);
    for planted in ALL {
        assert!(!all.contains(planted), "{planted} is in the bundle");
        assert!(!all.contains(&base64(planted)), "{planted} is in the bundle, encoded");
    }
    for file in ["pki/admin.key", "pki/ca.key", "pki/sa.key", "dashboard-token"] {
        let secret = std::fs::read_to_string(shell.server.data_dir().join(file)).unwrap();
        for line in secret.lines().filter(|it| !it.starts_with("-----")) {
            assert!(!all.contains(line), "{file} is in the bundle");
        }
    }
    let token = e2e::server::ADMIN_TOKEN;
    assert!(!all.contains(token), "a static token is in the bundle");
    let names = tar("-tzf", &file);
    for name in [
        "version.json",
        "server.json",
        "configuration.txt",
        "environment.txt",
        "machine.txt",
        "doctor.json",
        "metrics.txt",
        "notes.txt",
        "logs/audit.log",
        "logs/named/0-up.log",
        "objects/longhorn.io/backuptargets.json",
        "objects/longhorn.io/nodes.json",
        "objects/longhorn.io/volumes.json",
        "objects/core/events.json",
        "objects/core/secrets.json",
        "objects/core/pods.json",
        "objects/apiextensions.k8s.io/customresourcedefinitions.json",
    ] {
        assert!(names.contains(&format!("holdfast-support/{name}\n")), "no {name} in\n{names}");
    }
    for kept in [
        "cifs://ann:…@127.0.0.1/share",
        "AWS_SECRET_ACCESS_KEY",
        "the store answers",
        "longhorn-system",
        "HOLDFAST_LOG=info",
        "\"innocent\"",
    ] {
        assert!(all.contains(kept), "{kept} is not in the bundle");
    }
}

#[test]
fn a_support_bundle_is_made_also_when_nobody_answers() {
    let mut shell = Shell::start();
    shell.server.kill();
    let file = shell.server.scratch().join("bundle.tar.gz");
    let mut command = Command::new(binary());
    command.args(["support-bundle", "--data-dir"]).arg(shell.server.data_dir());
    let out = command.arg("--file").arg(&file).env_remove("KUBECONFIG").output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("could not be had"), "{}", text(&out.stdout));
    let (names, all) = (tar("-tzf", &file), tar("-xzOf", &file));
    assert!(names.contains("doctor.json") && names.contains("logs/audit.log"), "{names}");
    assert!(all.contains("the server's version"), "notes say what is missing");
}
