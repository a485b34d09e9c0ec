//! The commands for people, as typed in a shell: a volume from its making to its restored twin, and
//! what the commands say when something is wrong.

use std::process::{Command, Output};
use std::time::Duration;

use e2e::Server;
use e2e::engine::{Endpoint, Nbd, blocking};
use e2e::server::binary;
use serde_json::Value;
use testkit::process::poll_until;

const MIB: u64 = 1 << 20;
/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_mins(5);

struct Shell {
    server: Server,
}

impl Shell {
    fn start() -> Self {
        let server = Server::start();
        let store = server.scratch().join("store");
        std::fs::create_dir(&store).unwrap();
        let shell = Self { server };
        let ready = || {
            let nodes = shell.json(&["node", "ls"]);
            let node = nodes.as_array().and_then(|it| it.first().cloned()).unwrap_or_default();
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array).cloned();
            let is = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            conditions.unwrap_or_default().iter().any(is).then_some(())
        };
        assert!(poll_until(PATIENCE, ready).is_some(), "no node is ready");
        let url = format!("vfs://{}", store.display());
        shell.run(&["target", "set", &url, "--poll", "10s", "--wait"]);
        shell
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(arguments).arg("--kubeconfig").arg(self.server.kubeconfig());
        command.env_remove("KUBECONFIG").current_dir(self.server.scratch());
        command.output().unwrap()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}\n{said}\n{complained}");
        said
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let told = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&told).unwrap()
    }

    /// What a command that must fail says.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(!output.status.success(), "{arguments:?}\n{}", text(&output.stdout));
        text(&output.stderr)
    }

    fn attach(&self, volume: &str) -> Endpoint {
        Endpoint::parse(self.run(&["volume", "attach", volume]).trim())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fill(endpoint: &Endpoint, at: u64, byte: u8) {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        let data = vec![byte; usize::try_from(MIB).unwrap()];
        nbd.write(at * MIB, data.into()).await.unwrap();
        nbd.flush().await.unwrap();
    });
}

fn read(endpoint: &Endpoint, at: u64) -> Vec<u8> {
    blocking(async {
        let nbd = Nbd::connect(endpoint).await.unwrap();
        nbd.read(at * MIB, u32::try_from(MIB).unwrap()).await.unwrap()
    })
}

fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|it| *it == byte)
}

#[test]
fn a_volume_is_made_backed_up_restored_and_followed() {
    let shell = Shell::start();
    shell.run(&["volume", "create", "data", "--size", "16MiB", "--replicas", "2", "--wait"]);
    let data = shell.attach("data");
    fill(&data, 3, 7);
    shell.run(&["backup", "create", "data", "--name", "one", "--wait"]);
    let listed = shell.run(&["backup", "ls", "data"]);
    assert!(listed.contains("completed") && listed.contains("2 MiB"), "{listed}");

    shell.run(&["restore", "one", "twin", "--replicas", "2", "--wait"]);
    let twin = shell.attach("twin");
    assert!(is_all(&read(&twin, 3), 7) && is_all(&read(&twin, 4), 0), "the restored bytes differ");
    shell.run(&["volume", "detach", "twin", "--wait"]);

    shell.run(&["dr", "create", "one", "standby", "--replicas", "1"]);
    fill(&data, 5, 9);
    shell.run(&["volume", "expand", "data", "32MiB", "--wait"]);
    shell.run(&["backup", "create", "data", "--name", "two", "--wait"]);
    shell.run(&["dr", "activate", "standby", "--wait"]);
    let standby = shell.attach("standby");
    assert!(is_all(&read(&standby, 3), 7) && is_all(&read(&standby, 5), 9), "the standby differs");
    let shown = shell.run(&["volume", "show", "standby"]);
    assert!(shown.contains("served at") && shown.contains("reads and writes"), "{shown}");

    let status = shell.json(&["status"]);
    assert_eq!(status.pointer("/backups/completed"), Some(&Value::from(2)), "{status}");
    shell.run(&["status", "--check"]);

    let plan = shell.run(&["backup", "forget", "data", "--keep-last", "1", "--dry-run"]);
    assert!(plan.contains("1 of 2 would be removed"), "{plan}");
    assert_eq!(shell.json(&["backup", "ls"]).as_array().map(Vec::len), Some(2));
    shell.run(&["backup", "forget", "data", "--keep-last", "1", "--wait"]);
    let names = shell.run(&["backup", "ls", "-o", "name"]);
    assert_eq!(names.trim(), "backups.longhorn.io/two");

    shell.run(&["volume", "rm", "data", "twin", "standby", "--wait"]);
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
}

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

#[test]
fn the_tour_ends_well_and_leaves_nothing() {
    let shell = Shell::start();
    let told = shell.run(&["demo", "--mebibytes", "32"]);
    assert!(told.contains("every byte was as it should be"), "{told}");
    assert_eq!(shell.json(&["volume", "ls"]), Value::Array(Vec::new()));
    assert_eq!(shell.json(&["backup", "ls"]), Value::Array(Vec::new()));
    let targets = shell.run(&["target", "ls", "-o", "name"]);
    assert_eq!(targets.trim(), "backuptargets.longhorn.io/default");
}
