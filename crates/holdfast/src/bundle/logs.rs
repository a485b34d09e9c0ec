//! The ends of logs: of the data directory, of the system's journal, of pods.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};

use super::Found;

/// Of one file that is taken along, from its end.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Logs of processes that are taken along, the newest first.
const MAX_LOGS: usize = 64;
const MAX_LINES: i64 = 5000;
/// The units of systemd, and the label of pods.
const UNITS: &str = "holdfast*";
pub(super) const PODS: &str = "app.kubernetes.io/name=holdfast";

pub(super) fn of_machine(data_dir: &Path, named: &[PathBuf], found: &mut Found) {
    let audit = ["audit.log", "audit-cluster.log"];
    let mut files = audit.map(|name| (name.to_owned(), data_dir.join(name))).to_vec();
    for (place, path) in named.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("named/{place}-{name}"), path.clone()));
    }
    let mut of_processes = of_processes(&data_dir.join("instances"));
    of_processes
        .sort_by_key(|it| std::cmp::Reverse(it.1.metadata().and_then(|it| it.modified()).ok()));
    if of_processes.len() > MAX_LOGS {
        let all = of_processes.len();
        found.missed.push(format!("logs of {all} processes: the newest {MAX_LOGS} are here"));
        of_processes.truncate(MAX_LOGS);
    }
    files.extend(of_processes);
    for (name, path) in files {
        match tail(&path) {
            Ok(text) => drop(found.texts.insert(format!("logs/{name}"), text)),
            Err(error) => found.missed.push(format!("logs/{name}: {error:#}")),
        }
    }
    if let Some(text) = journal() {
        found.texts.insert("logs/journal.txt".to_owned(), text);
    }
}

/// Logs and records of engines and replicas: `KIND-NAME/log` and `KIND-NAME/record.json`.
fn of_processes(instances: &Path) -> Vec<(String, PathBuf)> {
    let folders = std::fs::read_dir(instances).into_iter().flatten().filter_map(Result::ok);
    let mut found = Vec::new();
    for folder in folders {
        let process = folder.file_name().to_string_lossy().into_owned();
        let files = std::fs::read_dir(folder.path()).into_iter().flatten().filter_map(Result::ok);
        for file in files.filter(|it| it.path().is_file()) {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("log") || name == "record.json" {
                found.push((format!("instances/{process}/{name}"), file.path()));
            }
        }
    }
    found
}

fn tail(path: &Path) -> anyhow::Result<String> {
    use std::io::{Read as _, Seek as _};
    let mut file = std::fs::File::open(path).context("cannot open it")?;
    let length = file.metadata()?.len();
    file.seek(std::io::SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line of what was cut may be half a secret.
    Ok(match text.split_once('\n') {
        Some((_, rest)) if length > MAX_LOG_BYTES => rest.to_owned(),
        _ => text,
    })
}

/// What the journal has of the units, where there is one.
fn journal() -> Option<String> {
    let lines = MAX_LINES.to_string();
    let asked = std::process::Command::new("journalctl")
        .args([
            "--no-pager",
            "--quiet",
            "--output",
            "short-iso",
            "--unit",
            UNITS,
            "--lines",
            &lines,
        ])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .output();
    let text = String::from_utf8_lossy(&asked.ok()?.stdout).into_owned();
    Some(text).filter(|it| !it.trim().is_empty())
}

pub(super) async fn of_pods(client: &Client, found: &mut Found) {
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = match pods.list(&ListParams::default().labels(PODS)).await {
        Ok(pods) => pods.items,
        Err(error) => return found.missed.push(format!("logs of pods: {error}")),
    };
    for pod in pods {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        for previous in [false, true] {
            let how = LogParams { tail_lines: Some(MAX_LINES), previous, ..LogParams::default() };
            let run = if previous { "previous" } else { "current" };
            let path = format!("logs/pods/{namespace}/{name}/{run}.txt");
            match api.logs(&name, &how).await {
                Ok(text) => drop(found.texts.insert(path, text)),
                // Most have not been started twice.
                Err(_) if previous => {}
                Err(error) => found.missed.push(format!("{path}: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = "x".repeat(1 << 10) + "\n";
        let many = usize::try_from(MAX_LOG_BYTES >> 10).unwrap() + 2;
        durable::replace(&path, format!("{}end\n", line.repeat(many)).as_bytes()).unwrap();
        let text = tail(&path).unwrap();
        assert!(text.len() < usize::try_from(MAX_LOG_BYTES).unwrap(), "{}", text.len());
        assert!(text.starts_with(&line) && text.ends_with("\nend\n"));
        durable::replace(&path, b"all\nof it\n").unwrap();
        assert_eq!(tail(&path).unwrap(), "all\nof it\n");
    }

    #[test]
    fn processes_give_their_logs_and_records() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["log", "record.json", "other"] {
            let process = dir.path().join("replica-r1");
            std::fs::create_dir_all(&process).unwrap();
            durable::replace(process.join(name), b"x").unwrap();
        }
        let mut names: Vec<_> = of_processes(dir.path()).into_iter().map(|it| it.0).collect();
        names.sort();
        assert_eq!(names, ["instances/replica-r1/log", "instances/replica-r1/record.json"]);
    }
}
