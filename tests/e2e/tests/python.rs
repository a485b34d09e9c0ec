//! The Python client, unmodified: the checks are in `python.py`, each a function of its own.

use std::path::Path;
use std::process::Command;

use e2e::{Server, skip};

#[test]
fn the_python_client_finds_nothing_amiss() {
    let Some(python) = std::env::var_os("HOLDFAST_PYTHON") else {
        return skip("HOLDFAST_PYTHON names no Python with the Kubernetes client");
    };
    let server = Server::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python.py");
    let mut command = Command::new(python);
    command.arg(script).env("KUBECONFIG", server.kubeconfig());
    let output = command.output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{said}");
    assert!(output.status.success(), "{}: {errors}", output.status);
}
