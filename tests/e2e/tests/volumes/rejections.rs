//! Objects that make no sense are refused when they are written, and machines when they are started.

use std::process::Command;
use std::time::Duration;

use e2e::rejections;
use e2e::volumes::Rig;
use testkit::process::Process;

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let rig = Rig::start();
    rejections::check(&rig);
    rig.volume("fixed", 16, 2);
    rejections::check_changes(&rig, "fixed");
}

#[test]
fn the_name_of_a_node_is_one_machines() {
    let mut rig = Rig::start();
    let name = rig.node().expect("a node");
    let scratch = rig.server.scratch();
    let mut command = Command::new(e2e::server::binary());
    command.args(["node", "--node-name", &name]);
    command.arg("--data-dir").arg(scratch.join("other"));
    command.arg("--kubeconfig").arg(rig.server.kubeconfig());
    let mut second = Process::start(command, scratch, "second").unwrap();
    assert!(!second.wait_for_exit(Duration::from_mins(2)).unwrap().success());
    let told = second.stderr();
    assert!(told.contains(&format!("another machine is node {name}")), "{told}");
    assert_eq!(rig.ready_nodes(), std::slice::from_ref(&name));
    // The machine itself comes back under its name at once.
    rig.restart_server();
    rig.volume("again", 16, 1);
    rig.attach("again");
}
