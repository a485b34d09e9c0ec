//! Lists that go on, and shells that complete names.

use std::fs::File;
use std::process::{Child, Command};

use e2e::Server;
use e2e::server::binary;
use testkit::process::{free_port, poll_until};

use crate::shell::{Shell, TIMEOUT, text};

/// A command that goes on until it is ended.
struct Following {
    child: Child,
    said: std::path::PathBuf,
}

impl Following {
    fn start(shell: &Shell, arguments: &[&str]) -> Self {
        let said = shell.server.scratch().join(arguments.join("-"));
        let mut command = Command::new(binary());
        command.args(arguments).arg("--kubeconfig").arg(shell.server.kubeconfig());
        command.env_remove("KUBECONFIG").stdout(File::create(&said).unwrap());
        Self { child: command.spawn().unwrap(), said }
    }

    #[track_caller]
    fn says(&self, line: impl Fn(&str) -> bool) {
        let read = || std::fs::read_to_string(&self.said).unwrap();
        let found = poll_until(TIMEOUT, || read().lines().any(&line).then_some(()));
        assert!(found.is_some(), "{}", read());
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_list_that_is_watched_tells_each_change() {
    // It comes back where it was.
    let listen = format!("127.0.0.1:{}", free_port().unwrap());
    let mut shell = Shell::beside(Server::start_with(&["--listen", &listen]));
    shell.run(&["volume", "create", "first", "--size", "2MiB", "--replicas", "1", "--wait"]);
    let list = Following::start(&shell, &["volume", "ls", "--watch"]);
    list.says(|it| it.starts_with("NAME"));
    list.says(|it| it.starts_with("first "));
    let screen = Following::start(&shell, &["status", "--watch"]);
    screen.says(|it| it.starts_with("volumes   1: "));
    shell.run(&["volume", "create", "second", "--size", "2MiB", "--replicas", "1", "--wait"]);
    list.says(|it| it.starts_with("second "));
    screen.says(|it| it.starts_with("volumes   2: "));
    // What happens while nobody can be asked is told afterwards.
    shell.server.kill();
    shell.server.start_again().unwrap();
    shell.run(&["volume", "rm", "first", "--wait"]);
    list.says(|it| it == "first is deleted");
    screen.says(|it| it.starts_with("volumes   1: "));
}

/// As a shell asks when somebody presses Tab.
fn completed(shell: &Shell, words: &[&str]) -> String {
    let kubeconfig = shell.server.kubeconfig().display().to_string();
    let quoted: Vec<String> = words.iter().map(|it| format!("'{it}'")).collect();
    let script = format!(
        "source <('{}' completion bash)\n\
         COMP_WORDS=(holdfast {})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\nCOMP_TYPE=9\n\
         name=$(complete -p holdfast | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n\
         $name holdfast \"${{COMP_WORDS[$COMP_CWORD]}}\" x\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        binary().display(),
        quoted.join(" ")
    );
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", &script]).env("KUBECONFIG", kubeconfig);
    let out = command.current_dir(shell.server.scratch()).output().unwrap();
    assert!(out.status.success(), "{script}\n{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "", "nothing is to stand in somebody's line");
    text(&out.stdout)
}

#[test]
fn shells_complete_the_names_of_what_there_is() {
    let mut shell = Shell::start();
    shell.run(&["volume", "create", "orders", "--size", "2MiB", "--replicas", "1", "--wait"]);
    shell.run(&["volume", "create", "other", "--size", "2MiB", "--replicas", "1", "--wait"]);
    shell.run(&["volume", "attach", "orders"]);
    shell.run(&["backup", "create", "orders", "--name", "monday", "--wait"]);
    assert_eq!(completed(&shell, &["volume", "show", "or"]).trim(), "orders");
    let both = completed(&shell, &["volume", "rm", ""]);
    assert!(both.contains("orders") && both.contains("other"), "{both}");
    assert_eq!(completed(&shell, &["restore", "mo"]).trim(), "monday");
    assert_eq!(
        completed(&shell, &["backup", "create", "orders", "--target", "de"]).trim(),
        "default"
    );
    assert!(completed(&shell, &["backup", "for"]).contains("forget"));
    assert!(completed(&shell, &["tenant", "ls", "-n", "kube-s"]).contains("kube-system"));
    shell.server.kill();
    assert_eq!(completed(&shell, &["volume", "show", "or"]).trim(), "");
}
