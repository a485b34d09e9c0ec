//! Controllers and a node of volumes on an API server that is not ours, each with the rights of
//! `deploy/rbac.yaml` and no other: the whole life of a volume, and no call that is forbidden.
//!
//! Needs a cluster with nothing in it: `cargo xtask peers volumes` starts one. `HOLDFAST_CLUSTER` names
//! the kubeconfig of its administrator, `HOLDFAST_CLUSTER_AUDIT` the log of its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::volumes::{Content, Home, Rig};
use e2e::{server, skip, write};
use serde_json::{Value, json};
use testkit::process::{Process, Scratch};

const MEBIBYTES: u64 = 8;
/// The accounts of `deploy/rbac.yaml`.
const ACCOUNTS: [&str; 2] = ["holdfast-controllers", "holdfast-node"];
const END_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Cluster {
    processes: BTreeMap<&'static str, Process>,
    kubeconfig: PathBuf,
    scratch: Scratch,
}

impl Home for Cluster {
    fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn log(&self) -> String {
        self.processes.values().map(Process::stderr).collect()
    }
}

impl Cluster {
    fn start(kubeconfig: PathBuf) -> Self {
        let scratch = Scratch::new().unwrap();
        let mut cluster = Self { processes: BTreeMap::new(), kubeconfig, scratch };
        let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
        cluster.kubectl(&["apply", "-f", rights]);
        for (account, words) in
            ACCOUNTS.into_iter().zip([&["controllers"][..], &["node", "--node-name", "n1"]])
        {
            let mut command = Command::new(server::binary());
            command.args(words).arg("--kubeconfig").arg(cluster.act_as(account));
            command.arg("--data-dir").arg(cluster.scratch().join(account));
            let process = Process::start(command, cluster.scratch(), account).unwrap();
            cluster.processes.insert(account, process);
        }
        cluster
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", &self.kubeconfig).current_dir(self.scratch());
        e2e::engine::run(command.args(arguments))
    }

    /// The administrator's kubeconfig, with the token of an account instead of his.
    fn act_as(&self, account: &str) -> PathBuf {
        let token = self.kubectl(&["-n", "longhorn-system", "create", "token", account]);
        let config = self.kubectl(&["config", "view", "--raw", "-o", "json"]);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.scratch().join(format!("{account}.kubeconfig"));
        write(&path, &config.to_string());
        path
    }

    fn stop(&mut self) {
        for process in self.processes.values_mut() {
            process.terminate().unwrap();
            assert!(process.wait_for_exit(END_TIMEOUT).unwrap().success());
        }
    }
}

/// Engines and replicas outlive a node that is killed.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.processes.clear();
        testkit::process::end_all_below(self.scratch.path());
    }
}

#[test]
fn controllers_and_a_node_live_with_the_rights_they_are_given_on_a_cluster() {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(kubeconfig), Some(audit)) =
        (variable("HOLDFAST_CLUSTER"), variable("HOLDFAST_CLUSTER_AUDIT"))
    else {
        return skip("HOLDFAST_CLUSTER names no kubeconfig of a cluster");
    };
    let mut rig = Rig::at(Cluster::start(kubeconfig));
    e2e::rejections::check(&rig);
    live(&rig);
    rig.server.stop();
    judge(&std::fs::read_to_string(audit).unwrap());
}

fn live(rig: &Rig<Cluster>) {
    rig.volume("life", MEBIBYTES, 2);
    rig.attach("life");
    let mut content = Content::new();
    rig.write("life", &mut content, 0, 4, 1);
    rig.backup("life", "first");
    rig.write("life", &mut content, 2, 4, 2);
    rig.backup("life", "second");
    // A copy is lost, and made good.
    rig.kill_replica(&rig.replicas("life").remove(0));
    rig.until("the volume has seen the end of its copy", || {
        rig.kubectl(&["get", "events.events.k8s.io"]).contains("Degraded")
    });
    rig.until("the volume is healthy again", || rig.is_healthy("life"));
    rig.holds("life", &content, MEBIBYTES);
    // Jobs, and the system's own backup.
    let job = json!({"task": "snapshot", "cron": "* * * * *", "retain": 1, "concurrency": 1,
        "groups": ["default"]});
    rig.create("RecurringJob", "minutely", &json!({}), &job);
    rig.create("SystemBackup", "system", &json!({}), &json!({"volumeBackupPolicy": "disabled"}));
    rig.until("the system is backed up", || rig.text("lhsb", "system", "/status/state") == "Ready");
    rig.until("the job has run", || {
        rig.text("lhrj", "minutely", "/status/lastResult") == "Succeeded"
    });
    rig.kubectl(&["delete", "lhrj", "minutely", "--timeout=120s"]);
    // What was backed up comes back.
    rig.make_from_backup("back", "second", 2, false);
    rig.is_restored("back");
    rig.attach("back");
    rig.holds("back", &content, MEBIBYTES);
    rig.create("SystemRestore", "again", &json!({}), &json!({"systemBackup": "system"}));
    rig.until("the system is restored", || {
        rig.text("lhsr", "again", "/status/state") == "Completed"
    });
    for name in ["first", "second"] {
        rig.kubectl(&["delete", "lhb", name, "--timeout=120s"]);
    }
    rig.kubectl(&["delete", "lhsb", "system", "--timeout=120s"]);
    rig.kubectl(&["delete", "lhv", "life", "back", "--timeout=120s"]);
    for kind in ["lhv", "lhe", "lhr", "lhva", "lhsnap", "lhb"] {
        assert_eq!(rig.kubectl(&["get", kind, "-o", "name"]), "", "{kind}");
    }
}

/// Every call of both accounts was allowed, and made sense.
fn judge(audit: &str) {
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for line in audit.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        let user = call["user"]["username"].as_str().unwrap_or_default();
        let Some(account) = user.strip_prefix("system:serviceaccount:longhorn-system:") else {
            continue;
        };
        *calls.entry(account.to_owned()).or_default() += 1;
        if let Some(code @ (400 | 401 | 403 | 422)) = call["responseStatus"]["code"].as_u64() {
            let (verb, what, why) =
                (&call["verb"], &call["requestURI"], &call["responseStatus"]["message"]);
            refused.insert(format!("{account}: {verb} {what}: {code} {why}"));
        }
    }
    println!("calls: {calls:?}");
    assert!(ACCOUNTS.iter().all(|account| calls.contains_key(*account)), "{calls:?}");
    assert!(refused.is_empty(), "{refused:#?}");
}
