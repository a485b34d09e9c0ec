//! The service as clients see it: over a socket, its worker at work.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::worker::simulated::Simulated;
use crate::{Behaviour, BlockApi, Figures, NoAuth, Options};

/// A folder of scripts that check any Block Storage service from outside.
const CHECKS: &str = "HOLDFAST_BLOCK_CHECKS";
/// The folder of the dialect's own command-line clients.
const CLIENTS: &str = "BLOCK_CLIENTS_BIN";

async fn start(folder: &std::path::Path) -> (BlockApi, tasks::Tasks) {
    let tasks = tasks::Tasks::new();
    let backend = Arc::new(Simulated::default());
    // As the real one: nothing is done at the first look, and now and then nobody answers.
    backend.mood(|moods| {
        moods.looks = 1;
        moods.unreachable_every = 23;
    });
    let options = Options {
        database: format!("sqlite:{}", folder.join("block.db").display()),
        listen: ([127, 0, 0, 1], 0).into(),
        behaviour: Behaviour::default(),
        identity: Arc::new(NoAuth),
        images: None,
        migrate: true,
        work: true,
        figures: Figures::new(&mut telemetry::Registry::new("test")),
    };
    (BlockApi::start(options, backend, &tasks).await.unwrap(), tasks)
}

async fn script(name: &str, arguments: impl Fn(&str) -> Vec<String>) {
    let Ok(checks) = std::env::var(CHECKS) else {
        println!("skipped: no {CHECKS}");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (api, tasks) = start(folder.path()).await;
    let mut command = Command::new("python3");
    command.arg(format!("{checks}/{name}")).current_dir(&checks);
    command.args(arguments(&format!("http://{}", api.address())));
    if let Ok(clients) = std::env::var(CLIENTS) {
        command.env("CLIENTS_BIN", clients);
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    println!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let _ = tasks.stop(Duration::from_secs(10)).await;
    api.close().await;
    assert!(output.status.success(), "{name} found something");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_fields_are_as_checked_from_outside() {
    script("checks.py", |url| vec![url.to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_clients_live_with_it() {
    if std::env::var(CLIENTS).is_err() {
        println!("skipped: no {CLIENTS}");
        return;
    }
    let project = "bbbb1111bbbb1111bbbb1111bbbb1111".to_owned();
    script("life.py", |url| vec!["noauth".to_owned(), url.to_owned(), project.clone()]).await;
}
