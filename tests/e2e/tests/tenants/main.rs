//! Tenants' backups and restores, as tenants and administrators see them, over a played Velero.

mod crash;
mod isolation;
mod life;
mod queue;
mod velero;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use e2e::{Server, write};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use velero::Played;

const ADMIN: &str = "openshift-adp";
/// Credentials of a tenant's own store.
const KEYS: &str = "[default]\naws_access_key_id=a\naws_secret_access_key=b\n";
/// Long enough for a loaded machine; nothing waits for it in vain unless something is broken.
const TIMEOUT: Duration = Duration::from_mins(5);

/// A server whose Velero is played, and the administrator's client.
struct World {
    server: Server,
    client: Client,
    velero: Option<Played>,
}

impl World {
    async fn start() -> Self {
        let server = Server::start_with(&no_executor());
        let client = server.client().await;
        let world = Self { server, client, velero: None };
        world
            .until("the administrators' namespace", async || {
                let api: Api<k8s_openapi::api::core::v1::Namespace> =
                    Api::all(world.client.clone());
                api.get_opt(ADMIN).await.unwrap().is_some()
            })
            .await;
        world.set(&json!({"backupSyncPeriod": "10m", "garbageCollectionPeriod": "24h"})).await;
        world
    }

    /// Velero begins to work, as unkind as chance has it.
    fn play(&mut self, seed: u64) {
        self.velero = Some(Played::start(self.client.clone(), seed, None));
    }

    /// As [`World::play`], and hangs in the middle of a backup after so many; until it is restarted.
    fn play_until(&mut self, seed: u64, backups: usize) {
        self.velero = Some(Played::start(self.client.clone(), seed, Some(backups)));
    }

    async fn kill_and_start(&mut self) {
        // It loses its connections with the server, as the real one would.
        if let Some(velero) = &mut self.velero {
            velero.stop();
        }
        self.server.kill();
        self.server.start_again().unwrap();
        self.client = self.server.client().await;
        if let Some(velero) = &mut self.velero {
            velero.restart(self.client.clone());
        }
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        api(&self.client, kind, namespace)
    }

    async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.api(kind, namespace).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    async fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let list = self.api(kind, namespace).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    async fn create(&self, kind: &str, namespace: &str, object: &Value) -> Value {
        let made = self.try_create(kind, namespace, object).await.unwrap();
        serde_json::to_value(made).unwrap()
    }

    async fn try_create(
        &self,
        kind: &str,
        namespace: &str,
        object: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let resource = resource(kind);
        let mut object = object.clone();
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind, namespace).create(&PostParams::default(), &object).await
    }

    async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: &Value) {
        let params = PatchParams::default();
        self.api(kind, namespace).patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        match self.api(kind, namespace).delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done.unwrap()),
        }
    }

    /// The settings of the administrators, in force when this returns.
    async fn set(&self, section: &Value) {
        let text = json!({ "nonAdmin": section }).to_string();
        let body = json!({"metadata": {"name": "non-admin-config"}, "data": {"config.yaml": text}});
        if self.get("ConfigMap", ADMIN, "non-admin-config").await.is_some() {
            self.patch("ConfigMap", ADMIN, "non-admin-config", &body).await;
        } else {
            self.create("ConfigMap", ADMIN, &body).await;
        }
        self.until("the settings to be taken", async || {
            let good = self.get("ConfigMap", ADMIN, "non-admin-config-last-good").await;
            good.is_some_and(|good| good["data"]["config.yaml"] == json!(text))
        })
        .await;
    }

    async fn namespace(&self, name: &str) {
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        let mut wanted = k8s_openapi::api::core::v1::Namespace::default();
        wanted.metadata.name = Some(name.to_owned());
        api.create(&PostParams::default(), &wanted).await.unwrap();
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let wait = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("in vain: {what}"));
    }

    /// Waits until the object is as wanted, and gives it.
    async fn see(
        &self,
        kind: &str,
        place: (&str, &str),
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let (mut seen, began) = (None, std::time::Instant::now());
        while began.elapsed() < TIMEOUT {
            seen = self.get(kind, place.0, place.1).await;
            match &seen {
                Some(found) if holds(found) => return found.clone(),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("{kind} {place:?} in vain: {what}: {seen:#?}");
    }

    async fn gone(&self, kind: &str, namespace: &str, name: &str) {
        self.until(&format!("{kind} {name} to be gone"), async || {
            self.get(kind, namespace, name).await.is_none()
        })
        .await;
    }

    /// A tenant's backup that has come to Created.
    async fn created(&self, namespace: &str, name: &str, spec: &Value) -> Value {
        let object = json!({"metadata": {"name": name}, "spec": {"backupSpec": spec}});
        self.create("NonAdminBackup", namespace, &object).await;
        self.see("NonAdminBackup", (namespace, name), "to be Created", is_created).await
    }

    /// One whose Velero backup is done.
    async fn ready(&self, namespace: &str, name: &str) -> Value {
        self.created(namespace, name, &json!({})).await;
        self.see("NonAdminBackup", (namespace, name), "to be Completed", |it| {
            it.pointer("/status/veleroBackup/status/phase") == Some(&json!("Completed"))
                && position(it) == Some(0)
        })
        .await
    }

    /// kubectl with a kubeconfig.
    fn kubectl(&self, kubeconfig: &PathBuf, arguments: &[&str]) -> Output {
        let program = std::env::var_os("HOLDFAST_KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).current_dir(self.server.scratch());
        command.arg("--cache-dir").arg(self.server.scratch().join("cache")).args(arguments);
        command.output().expect("cannot run kubectl")
    }

    /// A kubeconfig of a tenant, made as the manual says.
    fn tenant(&self, user: &str, namespace: &str, role: &str) -> PathBuf {
        let made = self.server.holdfast(&[
            "kubeconfig",
            "--user",
            user,
            "--namespace",
            namespace,
            "--role",
            role,
        ]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = self.server.scratch().join(format!("{user}.kubeconfig"));
        write(&path, &String::from_utf8(made.stdout).unwrap());
        path
    }
}

/// The executor of the server is off, where it has one: Velero is played.
fn no_executor() -> Vec<&'static str> {
    let help = Command::new(e2e::server::binary()).args(["up", "--help"]).output().unwrap();
    let has = String::from_utf8_lossy(&help.stdout).contains("--no-velero");
    if has { vec!["--no-velero"] } else { Vec::new() }
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "ConfigMap" | "Secret" | "Event" => ("", "v1"),
        "Backup"
        | "Restore"
        | "DeleteBackupRequest"
        | "DownloadRequest"
        | "BackupStorageLocation" => ("velero.io", "v1"),
        _ => ("oadp.openshift.io", "v1alpha1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn api(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(kind))
}

fn is_created(object: &Value) -> bool {
    object.pointer("/status/phase") == Some(&json!("Created")) && position(object).is_some()
}

fn position(object: &Value) -> Option<i64> {
    object.pointer("/status/queueInfo/estimatedQueuePosition")?.as_i64()
}

fn nacuuid(object: &Value) -> String {
    let places = [
        "/status/veleroBackup/nacuuid",
        "/status/veleroRestore/nacuuid",
        "/status/veleroBackupStorageLocation/nacuuid",
    ];
    let found = places.iter().find_map(|place| object.pointer(place)?.as_str());
    found.unwrap_or_default().to_owned()
}

/// `Type=Status Reason: message` of each condition.
fn conditions(object: &Value) -> Vec<String> {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    list.into_iter()
        .flatten()
        .map(|it| {
            let (kind, status) = (text(it, "type"), text(it, "status"));
            format!("{kind}={status} {}: {}", text(it, "reason"), text(it, "message"))
        })
        .collect()
}
