//! A script that checks any Kubernetes API server from outside, if `HOLDFAST_CONFORM` names one.

use std::process::Command;

use e2e::{ADMIN_TOKEN, BOB_TOKEN, Server, skip};

#[test]
fn every_check_of_the_conformance_script_passes() {
    let Some(script) = std::env::var_os("HOLDFAST_CONFORM") else {
        return skip("HOLDFAST_CONFORM names no conformance script");
    };
    let server = Server::start();
    let mut command = Command::new("python3");
    command.arg(script).args(["--server", server.url(), "--token", ADMIN_TOKEN]);
    command.args(["--token2", BOB_TOKEN, "--ca"]).arg(server.ca());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(last) = text.lines().rfind(|line| !line.is_empty()) {
        println!("conform: {last}");
    }
    let failed: Vec<&str> = text.lines().filter(|line| !line.starts_with("PASS")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", failed.join("\n"));
}
