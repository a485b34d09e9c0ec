//! A call meant for another volume or instance is refused.

use e2e::engine::{Cli, Setup, Volume};

#[test]
fn calls_that_name_another_volume_or_instance_are_refused() {
    let mut volume = Volume::start(Setup { replicas: 2, ..Setup::default() });
    let port = volume.cli().port;
    let stranger = Cli::new(port, "another-volume");
    let text = "incorrect volume name another-volume; check controller address";
    stranger.refused(&["ls-replica"], text);
    stranger.refused(&["snapshot", "create", "s"], text);
    // Who names nobody is not checked.
    Cli::new(port, "").run(&["info"]);

    let new = volume.add_process();
    volume.replicas[new].start();
    let (address, size) = (volume.replicas[new].address(), volume.setup.size_bytes.to_string());
    let mut arguments = vec!["add-replica", &address, "--size", &size, "--current-size", &size];
    arguments.extend(["--replica-instance-name", "another-instance"]);
    let text = "incorrect instance name another-instance; check replica address";
    volume.cli().refused(&arguments, text);
    volume.add(new);
}

#[test]
fn an_engine_with_an_instance_name_checks_it() {
    let mut volume = Volume::prepare(Setup { replicas: 1, ..Setup::default() });
    volume.replicas[0].start();
    // The global flag stands before the command.
    let mut command = std::process::Command::new(e2e::server::binary());
    let ports = e2e::engine::Ports::claim().unwrap();
    command.args(["engine", "--engine-instance-name", "the-engine", "controller", &volume.name]);
    command.args(volume.engine_arguments());
    command.args(["--listen", &format!("127.0.0.1:{}", ports.base())]);
    let process = testkit::process::Process::start(command, volume.scratch(), "named").unwrap();
    let up = testkit::process::poll_until(e2e::engine::TIMEOUT, || {
        e2e::engine::is_serving(ports.base()).then_some(())
    });
    assert!(up.is_some(), "{}", process.stderr());
    let mut cli = Cli::new(ports.base(), &volume.name);
    cli.run(&["info"]);
    cli.instance = "the-engine".to_owned();
    cli.run(&["info"]);
    cli.instance = "other".to_owned();
    cli.refused(&["info"], "incorrect instance name other; check controller address");
}
