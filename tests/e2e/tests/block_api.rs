//! The Block Storage API of `up`, by the dialect's own clients. What needs volumes says so where
//! nothing acts on them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::{Server, skip};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::process::{Process, Scratch};

/// A tour may take so long, on a machine with other things to do.
const TOUR_SECONDS: &str = "1800";
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
    assert!(text(&version).contains("0006_filters"), "{}", text(&version));
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
    let line = process.wait_for_line(told, e2e::server::TIMEOUT).unwrap();
    assert!(line.contains("Block Storage"), "{line}");
    process.terminate().unwrap();
    assert!(process.wait_for_exit(e2e::server::TIMEOUT).unwrap().success());
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

#[test]
fn volumes_are_reached_inside_tls_by_what_clients_are_told() {
    let Some(folder) = clients() else { return };
    if Command::new("nbdinfo").arg("--version").output().is_err() {
        return skip("no nbdinfo, so no volume was read inside TLS");
    }
    let papers = Scratch::new().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let put = |name: &str, text: &str| {
        let path = papers.path().join(name);
        e2e::write(&path, text);
        path.display().to_string()
    };
    let (cert, ca) = (put("cert.pem", &certificate.pem()), put("ca.pem", &authority.pem()));
    let key = put("key.pem", &key.serialize_pem());
    let tls = ["--nbd-tls-cert", &cert, "--nbd-tls-key", &key, "--nbd-ca-file", &ca];
    let mut server = Server::start_with(&tls);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/block_tls.py");
    let mut command = Command::new(folder.join("python"));
    let output = command.arg(script).args([&server.block_url(), PROJECT]).output().unwrap();
    print!("{}", text(&output));
    assert!(output.status.success(), "{}\n{}", text(&output), server.stderr());
}

/// One command of a tour, and what it prints.
#[derive(Debug, Default)]
struct Step {
    command: String,
    output: String,
}

/// The commands of the `console` blocks below a heading: `$ ` before the first line of each and `> `
/// before those that belong to it.
fn tour(text: &str, heading: &str) -> Vec<Step> {
    let section = text.lines().skip_while(|line| *line != heading).skip(1);
    let (mut steps, mut is_open) = (Vec::<Step>::new(), false);
    for line in section.take_while(|line| !line.starts_with("## ")) {
        match (is_open, line) {
            (false, "```console") => is_open = true,
            (true, "```") => is_open = false,
            (false, _) => {}
            (true, line) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    steps.push(Step { command: command.to_owned(), ..Step::default() });
                } else if let (Some(more), Some(step)) = (line.strip_prefix("> "), steps.last_mut())
                {
                    step.command.push('\n');
                    step.command.push_str(more);
                } else if let Some(step) = steps.last_mut() {
                    step.output.push_str(line);
                    step.output.push('\n');
                }
            }
        }
    }
    steps
}

/// Without what differs from one run to the next: ids, times, ports, and the spaces around them.
fn lasting(text: &str) -> Vec<String> {
    let is_id = |word: &str| {
        word.len() == 36
            && word.bytes().enumerate().all(|(at, it)| match at {
                8 | 13 | 18 | 23 => it == b'-',
                _ => it.is_ascii_hexdigit(),
            })
    };
    let is_of_word = |it: char| it.is_ascii_alphanumeric() || "-:.".contains(it);
    let mask = |word: &str| {
        let word = word.strip_prefix("volume-").unwrap_or(word);
        let is_time = word.len() >= 19 && word.starts_with("20") && word.contains('T');
        let is_port = word.len() == 5 && word.bytes().all(|it| it.is_ascii_digit());
        if is_id(word) {
            "ID".to_owned()
        } else if is_time {
            "TIME".to_owned()
        } else if is_port {
            "PORT".to_owned()
        } else if word.starts_with("127.0.0.1:") {
            "ADDRESS".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| {
        let mut out = String::new();
        let mut word = String::new();
        for it in line.chars().chain([' ']) {
            if is_of_word(it) {
                word.push(it);
            } else {
                out.push_str(&mask(&std::mem::take(&mut word)));
                out.push(it);
            }
        }
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // Frames of tables are as wide as what is in them.
    text.lines().filter(|it| !it.starts_with("+-")).map(line).collect()
}

#[test]
fn what_differs_between_runs_is_left_out_and_nothing_else() {
    let table = "+---+\n| id  | 1bb4f5f0-9ad9-4ef4-95c0-ba5b5a3c4a42 |\n| size | 2 |\n";
    assert_eq!(lasting(table), ["| id | ID |", "| size | 2 |"]);
    let uri = "nbd://127.0.0.1:22903/volume-aad28a6f-fdf0-49a8-99e5-0253b1e0712a 2026-11-16T21:09:33.387744";
    assert_eq!(lasting(uri), ["nbd://ADDRESS/ID TIME"]);
}

#[test]
fn the_tour_of_the_guide_prints_what_it_says() {
    let Some(folder) = clients() else { return };
    let is_there = |it: &&str| Command::new(it).arg("--help").output().is_ok();
    if let Some(missing) = ["kubectl", "qemu-io", "jq", "curl"].iter().find(|it| !is_there(it)) {
        return skip(&format!("the tour of Block Storage: {missing} is not installed"));
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/block-storage.md");
    let steps = tour(&std::fs::read_to_string(guide).unwrap(), "## A tour");
    assert!(steps.len() > 30, "the tour has {} steps", steps.len());
    let mut server = Server::start();
    let (told, url) = ("http://127.0.0.1:8776", server.block_url());
    let mut script = "exec 2>&1\n".to_owned();
    for step in &steps {
        script.push_str(&step.command);
        script.push_str("\necho '@@ end of a step'\n");
    }
    let scratch = Scratch::new().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&path)));
    let mut command = Command::new("timeout");
    command.args([TOUR_SECONDS, "bash", "-c", &script.replace(told, &url)]);
    command.current_dir(scratch.path()).env("PATH", path.unwrap());
    let output = command.env("KUBECONFIG", server.kubeconfig()).output().unwrap();
    let said = text(&output).replace(&url, told);
    let mut parts = said.split("@@ end of a step\n");
    for step in &steps {
        let seen = parts.next().unwrap_or_default();
        assert_eq!(lasting(seen), lasting(&step.output), "{}\n{}", step.command, server.stderr());
    }
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// What Schemathesis may be answered when it breaks the document, without a token as well.
const REJECTIONS: &str = "[checks]\n\
    negative_data_rejection.expected-statuses = [204, 400, 401, 403, 404, 405, 406, 409, 413]\n";

/// Answers are what the document says, nothing that breaks it is taken, and nothing breaks.
#[test]
fn requests_made_up_by_the_document_are_answered_as_it_says() {
    let Some(program) = std::env::var_os("HOLDFAST_SCHEMATHESIS") else {
        return skip("HOLDFAST_SCHEMATHESIS names no program that makes up requests");
    };
    let mut server = Server::start();
    let url = server.block_url();
    let scratch = Scratch::new().unwrap();
    let config = scratch.path().join("schemathesis.toml");
    e2e::write(&config, REJECTIONS);
    let document = format!("{url}/v3/openapi.json");
    let examples = std::env::var("HOLDFAST_SCHEMATHESIS_EXAMPLES");
    let mut command = Command::new(program);
    command.arg("--config-file").arg(&config).args(["run", &document, "--url", &url]);
    command.args(["--generation-deterministic", "--continue-on-failure", "--warnings", "off"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"]);
    command.args(["--checks", "not_a_server_error,status_code_conformance"]);
    command.args(["--checks", "content_type_conformance,response_schema_conformance"]);
    command.args(["--checks", "negative_data_rejection"]);
    command.args(["--header", &format!("X-Auth-Token: admin:{PROJECT}")]);
    command.args(["--max-examples", examples.as_deref().unwrap_or("5")]);
    let output = command.current_dir(scratch.path()).output().unwrap();
    print!("{}", text(&output));
    assert!(output.status.success(), "{}: {}", output.status, server.stderr());
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
