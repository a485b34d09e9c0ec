//! The Block Storage API of `up`, by the dialect's own clients. What needs volumes says so where
//! nothing acts on them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::{Server, skip};
use testkit::process::{Process, Scratch};

const PROJECT: &str = "cccc2222cccc2222cccc2222cccc2222";

fn clients() -> Option<PathBuf> {
    let folder = std::env::var_os("HOLDFAST_OPENSTACK_BIN").map(PathBuf::from);
    if folder.is_none() {
        skip("HOLDFAST_OPENSTACK_BIN names no folder of the stock clients");
    }
    folder
}

fn text(output: &Output) -> String {
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{said}{errors}")
}

fn openstack(folder: &Path, url: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(folder.join("openstack"));
    command.args(["--os-auth-type", "admin_token", "--os-token", &format!("admin:{PROJECT}")]);
    command.args(["--os-endpoint", &format!("{url}/v3/{PROJECT}")]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn cinder(folder: &Path, url: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(folder.join("cinder"));
    command.args(["--os-auth-type", "noauth", "--os-endpoint", &format!("{url}/v3")]);
    command.args(["--os-user-id", "admin", "--os-project-id", PROJECT]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

#[test]
fn stock_clients_find_types_limits_and_services_and_rows_outlive_a_kill() {
    let Some(folder) = clients() else { return };
    let mut server = Server::start();
    let url = server.block_url();
    assert!(openstack(&folder, &url, &["volume", "type", "list"]).contains("__DEFAULT__"));
    let services = openstack(&folder, &url, &["volume", "service", "list"]);
    assert!(services.contains("cinder-backup") && services.contains("up"), "{services}");
    openstack(
        &folder,
        &url,
        &["volume", "type", "create", "fast", "--property", "holdfast:replicas=3"],
    );
    assert!(cinder(&folder, &url, &["absolute-limits"]).contains("maxTotalVolumes"));
    assert!(cinder(&folder, &url, &["version-list"]).contains("3.72"));
    assert!(cinder(&folder, &url, &["availability-zone-list"]).contains("nova"));
    server.kill();
    server.start_again().unwrap();
    let url = server.block_url();
    let shown = openstack(&folder, &url, &["volume", "type", "show", "fast"]);
    assert!(shown.contains("holdfast:replicas='3'"), "{shown}");
    // Operators look at the same database.
    server.stop();
    let checked = server.holdfast(&["block-api", "upgrade", "check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let version = server.holdfast(&["block-api", "db", "version"]);
    assert!(text(&version).contains("0003_qos_and_encryption"), "{}", text(&version));
}

#[test]
fn a_port_that_is_taken_is_told_and_keeps_nothing_else_from_running() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let scratch = Scratch::new().unwrap();
    let mut command = Command::new(e2e::server::binary());
    command.arg("up").arg("--data-dir").arg(scratch.path().join("data"));
    command.args(["--listen", "127.0.0.1:0", "--dashboard-listen", "off", "--block-listen"]);
    command.arg(taken.local_addr().unwrap().to_string());
    let mut process = Process::start(command, scratch.path(), "up").unwrap();
    let told = "is taken; choose another with --block-listen";
    let line = process.wait_for_line(told, e2e::server::PATIENCE).unwrap();
    assert!(line.contains("Block Storage"), "{line}");
    process.terminate().unwrap();
    assert!(process.wait_for_exit(e2e::server::PATIENCE).unwrap().success());
}

#[test]
fn volumes_live_by_stock_clients() {
    let Some(folder) = clients() else { return };
    let mut server = Server::start();
    let url = server.block_url();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/block_api.py");
    let mut command = Command::new(folder.join("python"));
    command.arg(script).args([&url, PROJECT]).env("KUBECONFIG", server.kubeconfig());
    let output = command.output().unwrap();
    print!("{}", text(&output));
    assert!(output.status.success(), "{}\n{}", output.status, server.stderr());
}

/// A kill of the server in the middle of every operation at once, sooner and later: the next one drives
/// the rows to their ends.
#[test]
fn rows_come_to_their_ends_after_a_kill_in_the_middle() {
    let Some(folder) = clients() else { return };
    let mut server = Server::start();
    let scratch = Scratch::new().unwrap();
    let known = scratch.path().join("known.json");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/block_crash.py");
    let step = |server: &mut Server, step: &[&str]| {
        let mut command = Command::new(folder.join("python"));
        command.arg(&script).args([&server.block_url(), PROJECT]).arg(&known).args(step);
        let output = command.output().unwrap();
        print!("{}", text(&output));
        assert!(output.status.success(), "{step:?}: {}\n{}", text(&output), server.stderr());
    };
    for seconds in ["0", "1.5"] {
        step(&mut server, &["prepare"]);
        step(&mut server, &["begin", seconds]);
        server.kill();
        server.start_again().unwrap();
        step(&mut server, &["check"]);
    }
}
