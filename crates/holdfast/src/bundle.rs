//! `holdfast support-bundle`: one file with what somebody needs who is asked for help, and with no
//! secret in it.
//!
//! Everything is collected first, then goes through one [`Redactor`], which knows the values of every
//! secret that was met on the way: whatever place one has slipped into, it does not get out.

mod logs;
mod objects;
mod secrets;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use people::redact::{Redactor, is_secret_name};
use serde_json::{Value, json};
use velero::tarball::{write_end, write_member};

use crate::config::{Config, Resolved, Settings};
use crate::{cli, controllers, doctor, version};
use ::cli::output::{self, Hint};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    /// The installation; without it, the one of the data directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Take this file along as well, for example what `holdfast up` has written to stderr.
    #[arg(long = "with-log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Where to write it; without it, holdfast-support-TIME.tar.gz in this directory.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let resolved = Resolved::load(&args.settings)?;
    let config = resolved.config()?;
    for log in &args.logs {
        std::fs::File::open(log)
            .with_context(|| format!("cannot read the log {}", log.display()))
            .hint("name a file that this user may read")?;
    }
    let found = cli::runtime()?.block_on(collect(args, &resolved, &config))?;
    let missed = found.missed.len();
    let members = redacted(&found)?;
    let now = Timestamp::now();
    let path = args.file.clone().unwrap_or_else(|| {
        PathBuf::from(format!("holdfast-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")))
    });
    let archive = packed(&members, now.as_second())?;
    durable::replace_private(&path, &archive)
        .with_context(|| format!("cannot write {}", path.display()))
        .hint("choose another place with --file")?;
    output::say(&format!(
        "{} ({}, {} files)\nSecrets were taken out; look through it before you send it.",
        path.display(),
        people::units::bytes(archive.len() as u64),
        members.len()
    ))?;
    if missed > 0 {
        output::say(&format!("{missed} things could not be had: notes.txt in it says which."))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is taken along, as it was found.
#[derive(Default)]
struct Found {
    documents: BTreeMap<String, Value>,
    texts: BTreeMap<String, String>,
    /// What could not be had, and why.
    missed: Vec<String>,
    /// Values that must not get out, wherever they stand.
    secrets: Vec<String>,
}

async fn collect(args: &Args, resolved: &Resolved, config: &Config) -> anyhow::Result<Found> {
    let secrets = secrets::of_machine(config, resolved, args.kubeconfig.as_deref());
    let mut found = Found { secrets, ..Found::default() };
    let build = json!({
        "version": version::LONG.as_str(),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    found.documents.insert("version.json".to_owned(), build);
    found.texts.insert("configuration.txt".to_owned(), settings(resolved));
    found.texts.insert("environment.txt".to_owned(), environment());
    found.texts.insert("machine.txt".to_owned(), machine());
    let file = match &args.kubeconfig {
        Some(named) => Some(named.clone()),
        None => config.kubeconfig("--kubeconfig")?,
    };
    let client = match controllers::connect(file.as_ref(), args.context.as_deref()).await {
        Ok(client) => Some(client),
        Err(error) => {
            found.missed.push(format!("objects, pods' logs and metrics: {error:#}"));
            None
        }
    };
    let checks = doctor::all(config, client.as_ref()).await;
    found.documents.insert("doctor.json".to_owned(), serde_json::to_value(checks)?);
    if let Some(client) = &client {
        objects::collect(client, &mut found).await;
        logs::of_pods(client, &mut found).await;
    }
    logs::of_machine(&config.data_dir, &args.logs, &mut found);
    Ok(found)
}

/// Everything as it is packed: paths and contents, without secrets.
fn redacted(found: &Found) -> anyhow::Result<BTreeMap<String, String>> {
    let mut known = found.secrets.iter().cloned().collect();
    for document in found.documents.values() {
        people::redact::harvest(document, &mut known);
    }
    let redactor = Redactor::new(known.into_iter().flat_map(secrets::forms));
    let mut members = BTreeMap::new();
    for (path, document) in &found.documents {
        let mut document = document.clone();
        redactor.json(&mut document);
        members.insert(path.clone(), serde_json::to_string_pretty(&document)?);
    }
    let texts = found.texts.iter().map(|(path, text)| (path.clone(), redactor.log(text)));
    members.extend(texts);
    members.insert("notes.txt".to_owned(), redactor.text(&found.missed.join("\n")));
    Ok(members)
}

fn packed(members: &BTreeMap<String, String>, mtime: i64) -> anyhow::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    for (path, text) in members {
        write_member(&mut out, &format!("holdfast-support/{path}"), text.as_bytes(), mtime)?;
    }
    write_end(&mut out)?;
    Ok(out.finish()?)
}

fn settings(resolved: &Resolved) -> String {
    let rows: Vec<Vec<String>> = resolved
        .values()
        .map(|(key, value, source)| vec![(*key).to_owned(), value.clone(), source.to_string()])
        .collect();
    output::table(&["KEY", "VALUE", "FROM"], &rows)
}

/// Variables that mean something to Holdfast.
fn environment() -> String {
    let known = ["HOLDFAST_", "KUBECONFIG", "OS_", "AWS_", "RUST_", "LANG", "TZ", "PATH"];
    let mut lines: Vec<String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| known.iter().any(|it| name.starts_with(it)))
        .map(|(name, value)| {
            let is_secret = is_secret_name(&name);
            format!("{name}={}", if is_secret { "…".into() } else { value.to_string_lossy() })
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

fn machine() -> String {
    let paths = [
        "/proc/version",
        "/proc/uptime",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/self/limits",
        "/proc/mounts",
        "/etc/os-release",
    ];
    let shown = paths.into_iter().map(|path| {
        // The files of the kernel have no length of their own.
        let found = std::fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
        format!("# {path}\n{found}\n")
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_can_be_unpacked() {
        let members = BTreeMap::from([("a/b.txt".to_owned(), "text".to_owned())]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        durable::replace(&path, &packed(&members, 0).unwrap()).unwrap();
        let out = std::process::Command::new("tar").arg("-xzOf").arg(&path).output().unwrap();
        assert_eq!(out.stdout, b"text", "{}", String::from_utf8_lossy(&out.stderr));
    }

    #[test]
    fn a_secret_of_one_file_is_hidden_in_all_of_them() {
        let found = Found {
            documents: BTreeMap::from([(
                "objects/core/secrets.json".to_owned(),
                json!([{"kind": "Secret", "data": {"k": "cGxhbnRlZC1pbi1hLXNlY3JldA=="}}]),
            )]),
            texts: BTreeMap::from([(
                "logs/a".to_owned(),
                "tried planted-in-a-secret, then known-by-file".to_owned(),
            )]),
            missed: vec!["planted-in-a-secret".to_owned()],
            secrets: vec!["known-by-file".to_owned()],
        };
        let members = redacted(&found).unwrap();
        assert_eq!(members["logs/a"], "tried …, then …");
        assert_eq!(members["notes.txt"], "…");
        assert!(!members["objects/core/secrets.json"].contains("cGxh"), "{members:?}");
    }
}
