//! A server, and a shell beside it.

use std::process::{Command, Output};
use std::time::Duration;

use e2e::Server;
use e2e::engine::Endpoint;
use e2e::server::binary;
use serde_json::Value;
use testkit::process::poll_until;

/// Long enough for a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);

pub(crate) struct Shell {
    pub(crate) server: Server,
}

impl Shell {
    pub(crate) fn start() -> Self {
        Self::beside(Server::start())
    }

    pub(crate) fn beside(server: Server) -> Self {
        let store = server.scratch().join("store");
        std::fs::create_dir(&store).unwrap();
        let shell = Self::ready(server);
        let url = format!("vfs://{}", store.display());
        shell.run(&["target", "set", &url, "--poll", "10s", "--wait"]);
        shell
    }

    /// With a node that can be used, and a target as it was.
    pub(crate) fn ready(server: Server) -> Self {
        let shell = Self { server };
        let ready = || {
            let nodes = shell.json(&["node", "ls"]);
            let node = nodes.as_array().and_then(|it| it.first().cloned()).unwrap_or_default();
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array).cloned();
            let is = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            conditions.unwrap_or_default().iter().any(is).then_some(())
        };
        assert!(poll_until(TIMEOUT, ready).is_some(), "no node is ready");
        shell
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(arguments).arg("--kubeconfig").arg(self.server.kubeconfig());
        command.env_remove("KUBECONFIG").current_dir(self.server.scratch());
        command.output().unwrap()
    }

    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}\n{said}\n{complained}");
        said
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let told = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&told).unwrap()
    }

    /// What a command that must fail says.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(!output.status.success(), "{arguments:?}\n{}", text(&output.stdout));
        text(&output.stderr)
    }

    pub(crate) fn attach(&self, volume: &str) -> Endpoint {
        Endpoint::parse(self.run(&["volume", "attach", volume]).trim())
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
