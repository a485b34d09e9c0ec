//! The dashboard in a real browser: signing in, making, backing up, restoring, letting a standby
//! volume take over, deleting; what hostile names do there, what a tenant sees, and whether everybody
//! can use it. The browser is driven by `dashboard.py`, each check a function of its own.

use std::path::Path;
use std::process::{Command, Output};

use e2e::server::{BOB_TOKEN, binary};
use e2e::{Server, skip};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn holdfast(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).arg("--kubeconfig").arg(server.kubeconfig());
    command.env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn people_do_their_work_in_a_browser() {
    let Some(python) = std::env::var_os("HOLDFAST_PYTHON") else {
        return skip("HOLDFAST_PYTHON names no Python with the Kubernetes client");
    };
    let Some(browser) = std::env::var_os("HOLDFAST_CHROMIUM") else {
        return skip("HOLDFAST_CHROMIUM names no browser");
    };
    let mut server = Server::start();
    let url = server.dashboard_url();
    let blocks = server.block_url();
    let store = server.scratch().join("store");
    std::fs::create_dir(&store).unwrap();
    let target = format!("vfs://{}", store.display());
    let set = holdfast(&server, &["target", "set", &target, "--wait"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let token = std::fs::read_to_string(server.data_dir().join("dashboard-token")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard.py");
    let output = Command::new(python)
        .arg(script)
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOLDFAST_BIN", binary())
        .env("DASHBOARD_URL", url)
        .env("DASHBOARD_TOKEN", token.trim())
        .env("BLOCK_URL", blocks)
        .env("BOB_TOKEN", BOB_TOKEN)
        .env("HOLDFAST_CHROMIUM", browser)
        .env("SCRATCH", server.scratch())
        .output()
        .unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    print!("{said}");
    assert!(output.status.success(), "{}: {said}\n{errors}\n{}", output.status, server.stderr());
}
