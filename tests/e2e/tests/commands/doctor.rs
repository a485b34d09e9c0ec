//! `holdfast doctor`, on machines and installations that are well and that are not.

use std::process::{Command, Output};

use e2e::server::binary;
use serde_json::Value;
use testkit::process::poll_until;

use crate::shell::{Shell, TIMEOUT, text};

fn doctor(shell: &Shell, more: &[&str]) -> Output {
    doctor_at(shell, "127.0.0.1:0", more)
}

fn doctor_at(shell: &Shell, listen: &str, more: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["doctor", "--listen", listen, "--block-listen", "off"]);
    command.args(["--dashboard-listen", "off", "--data-dir"]).arg(shell.server.data_dir());
    command.args(more).env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn the_doctor_finds_a_fresh_installation_well_and_a_lost_store_not() {
    let shell = Shell::start();
    let well = doctor(&shell, &["-o", "json"]);
    let told: Value = serde_json::from_slice(&well.stdout).unwrap();
    let of = |check: &str| {
        let found = told.as_array().unwrap().iter().find(|it| it["check"] == check);
        found.unwrap_or_else(|| panic!("{check}: {told}"))["verdict"].clone()
    };
    for check in [
        "API",
        "versions",
        "clock of the server",
        "definitions",
        "rights",
        "data directory",
        "certificate server",
        "target default",
        "clock",
        "sparse files",
        "objects",
    ] {
        assert_eq!(of(check), "ok", "{check}: {told}");
    }
    assert!(well.status.success(), "{told}");

    let store = shell.server.scratch().join("store");
    std::fs::rename(&store, store.with_extension("away")).unwrap();
    let gone = || {
        let out = doctor(&shell, &[]);
        (!out.status.success()).then(|| text(&out.stdout))
    };
    let told = poll_until(TIMEOUT, gone).expect("the doctor misses a lost store");
    assert!(told.contains("FAIL  target default"), "{told}");
    assert!(told.contains("-> see docs/operations/backup-target.md"), "{told}");
}

#[test]
fn the_doctor_knows_who_holds_a_port_and_whose_directory_it_is() {
    let shell = Shell::start();
    // The running server holds its port, and nobody is to end it for that.
    let address = shell.server.url().trim_start_matches("https://").to_owned();
    let out = doctor_at(&shell, &address, &["--machine"]);
    let told = text(&out.stdout);
    assert!(told.contains("in use by the running server"), "{told}");

    let open = shell.server.scratch().join("open");
    std::fs::create_dir(&open).unwrap();
    let mut command = Command::new(binary());
    command.args(["doctor", "--machine", "--data-dir"]).arg(&open);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    command.args(["--listen", &taken.local_addr().unwrap().to_string()]);
    command.args(["--block-listen", "off", "--dashboard-listen", "off"]);
    let out = command.output().unwrap();
    let told = text(&out.stdout);
    assert!(!out.status.success(), "{told}");
    assert!(told.contains("FAIL  data directory") && told.contains("chmod 700"), "{told}");
    assert!(told.contains("FAIL  port of the API") && told.contains("ss -ltnp"), "{told}");
    let mut left = std::fs::read_dir(&open).unwrap();
    assert!(left.next().is_none(), "the doctor leaves something behind");
}

#[test]
fn the_doctor_says_when_nobody_answers() {
    let mut shell = Shell::start();
    shell.server.kill();
    let out = doctor(&shell, &[]);
    let told = text(&out.stdout);
    assert!(!out.status.success(), "{told}");
    assert!(told.contains("FAIL  API") && told.contains("holdfast up"), "{told}");
}
