//! `verify`: checks a data directory, a database or a snapshot file, and changes nothing.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use serde::Serialize;
use tokio::io::AsyncRead;

use super::Context;
use super::error::CommandError;
use super::parse::Line;
use crate::bolt::Bolt;
use crate::datadir::{self, Mode};
use crate::store::compress::unpack;
use crate::store::delta::Events;
use crate::store::full::Checked;
use crate::store::name;
use crate::store::snapshot::{Kind, Layout, Snapshot};

/// What was found.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    path: PathBuf,
    /// `data directory`, `database`, `full snapshot` or `delta`.
    what: &'static str,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<i64>,
    /// The hash by which members are compared, over all rows.
    #[serde(rename = "hashKV", skip_serializing_if = "Option::is_none")]
    hash_kv: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a check gives, or why it does not.
type Found = Result<Report, String>;

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    let [path] = line.arguments.as_slice() else {
        return Err(CommandError::Usage("name one directory or file".to_owned()));
    };
    let mode = match line.given.text("validation-mode").as_str() {
        "full" => Mode::Full,
        "sanity" => Mode::Sanity,
        other => {
            return Err(CommandError::Usage(format!("validation-mode: {other:?} is no mode")));
        }
    };
    let path = PathBuf::from(path);
    let found = look(&path, mode, context).await;
    let report = found.unwrap_or_else(|(what, error)| Report {
        path: path.clone(),
        what,
        error: Some(error),
        ..Report::default()
    });
    match line.given.text("output").as_str() {
        "json" => super::print_json(&report)?,
        _ => super::print_text(&report.text())?,
    }
    if report.valid { Ok(()) } else { Err(CommandError::Damaged { path }) }
}

impl Report {
    fn good(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), what, valid: true, ..Self::default() }
    }

    fn text(&self) -> String {
        let found = match (&self.error, self.revision) {
            (Some(error), _) => format!("is damaged: {error}"),
            (None, Some(revision)) => format!("is valid, revision {revision}"),
            (None, None) => "is valid".to_owned(),
        };
        let mut lines = vec![format!("{}: {} {found}", self.path.display(), self.what)];
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.push(String::new());
        lines.join("\n")
    }
}

async fn look(
    path: &Path,
    mode: Mode,
    context: &Context,
) -> Result<Report, (&'static str, String)> {
    let (what, found) = if path.is_dir() {
        let dir = path.to_owned();
        ("data directory", blocking(context, move || directory(&dir, mode)).await)
    } else {
        match path.file_name().and_then(|it| it.to_str()).map(|it| name::parse(Layout::V2, it)) {
            Some(Ok(snapshot)) if snapshot.is_encrypted => {
                ("snapshot", Err("it is encrypted; use a drill to look into it".to_owned()))
            }
            Some(Ok(snapshot)) => match snapshot.kind {
                Kind::Full => ("full snapshot", full(path, &snapshot, context).await),
                Kind::Incr => ("delta", delta(path, &snapshot).await),
            },
            Some(Err(_)) | None => {
                let path = path.to_owned();
                ("database", blocking(context, move || database(&path, "database")).await)
            }
        }
    };
    found.map_err(|error| (what, error))
}

async fn blocking(context: &Context, work: impl FnOnce() -> Found + Send + 'static) -> Found {
    let done = context.tasks.blocking("verify", work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

fn chain(error: &dyn std::error::Error) -> String {
    telemetry::Chain(error).to_string()
}

fn directory(path: &Path, mode: Mode) -> Found {
    let checked = datadir::check(path, mode).map_err(|error| chain(&error))?;
    let mut report = Report::good(path, "data directory");
    report.revision = Some(checked.revision);
    report.warnings = checked.warnings;
    if mode == Mode::Full {
        let bolt = Bolt::open(&path.join(datadir::DATABASE)).map_err(|error| chain(&error))?;
        let hash = datadir::hash_kv(&bolt, None).map_err(|error| chain(&error))?;
        report.hash_kv = Some(hash.hash);
        one_history(&bolt)?;
    }
    Ok(report)
}

/// Two etcds that were mixed in a store, and restored from it, show in their rows.
fn one_history(bolt: &Bolt) -> Result<(), String> {
    match crate::restore::mixture(bolt).map_err(|error| chain(&error))? {
        Some(what) => Err(format!("it holds two histories: {what}")),
        None => Ok(()),
    }
}

fn database(path: &Path, what: &'static str) -> Found {
    let bolt = Bolt::open(path).map_err(|error| chain(&error))?;
    let checked = datadir::check_database(&bolt).map_err(|error| chain(&error))?;
    let hash = datadir::hash_kv(&bolt, None).map_err(|error| chain(&error))?;
    one_history(&bolt)?;
    let mut report = Report::good(path, what);
    report.revision = Some(checked.current.revision);
    report.hash_kv = Some(hash.hash);
    Ok(report)
}

/// The bytes of a snapshot file as they were before they were packed.
fn plain(path: &Path, snapshot: &Snapshot) -> io::Result<Pin<Box<dyn AsyncRead + Send>>> {
    let file = tokio::fs::File::from_std(File::open(path)?);
    Ok(Box::pin(unpack(snapshot.compression, file)))
}

/// Unpacks it to look into it; what was unpacked goes again.
async fn full(path: &Path, snapshot: &Snapshot, context: &Context) -> Found {
    let text = |error: io::Error| error.to_string();
    let mut source = Checked::new(plain(path, snapshot).map_err(text)?);
    let place = super::scratch::Scratch::new("verify").map_err(text)?;
    let copy = place.path().join("db");
    let mut target = tokio::fs::File::create(&copy).await.map_err(text)?;
    tokio::io::copy(&mut source, &mut target).await.map_err(text)?;
    tokio::io::AsyncWriteExt::flush(&mut target).await.map_err(text)?;
    drop(target);
    let found = blocking(context, move || database(&copy, "full snapshot")).await;
    drop(place);
    found.map(|report| Report { path: path.to_owned(), ..report })
}

async fn delta(path: &Path, snapshot: &Snapshot) -> Found {
    let source = plain(path, snapshot).map_err(|error| error.to_string())?;
    let mut events = Events::of(source);
    let (mut count, mut first, mut last) = (0, None, 0);
    while let Some(event) = events.next().await.map_err(|error| chain(&error))? {
        count += 1;
        first = first.or(Some(event.mod_revision));
        last = event.mod_revision;
    }
    let named = (snapshot.start_revision, snapshot.last_revision);
    let held = (first.unwrap_or_default(), last);
    if held != named {
        let text = "it is named for revisions";
        return Err(format!(
            "{text} {} to {}, and holds {} to {}",
            named.0, named.1, held.0, held.1
        ));
    }
    let mut report = Report::good(path, "delta");
    report.revision = Some(last);
    report.events = Some(count);
    Ok(report)
}
