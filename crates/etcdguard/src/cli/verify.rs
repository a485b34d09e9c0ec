//! `verify`: checks a data directory, a database or a snapshot file, and changes nothing. What is not
//! there, or in use, is said to be that, and not to be damaged.

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
use crate::datadir::{self, DamageKind, Mode};
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
    /// What is wrong, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<Trouble>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What can be wrong with what is looked at. Only one of these is a reason to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Trouble {
    Damaged,
    NotFound,
    InUse,
    /// The file system, or its rights, did not let us look.
    Unreadable,
}

impl Trouble {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Damaged => "is damaged",
            Self::NotFound => "is not found",
            Self::InUse => "is in use by an etcd",
            Self::Unreadable => "cannot be read",
        }
    }

    pub(crate) fn hint(self) -> Option<&'static str> {
        match self {
            Self::Damaged => Some("restore it from the store: holdfast etcd restore"),
            Self::InUse => Some("stop the etcd first, or verify a snapshot"),
            Self::NotFound | Self::Unreadable => None,
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Self::Damaged,
            _ => Self::Unreadable,
        }
    }
}

/// What a check gives, or why it does not.
type Found = Result<Report, (Trouble, String)>;

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
    let (what, found) = look(&path, mode, context).await;
    let report = found.unwrap_or_else(|(trouble, error)| Report {
        path: path.clone(),
        what,
        trouble: Some(trouble),
        error: Some(error),
        ..Report::default()
    });
    match line.given.text("output").as_str() {
        "json" => super::print_json(&report)?,
        _ => super::print_text(&report.text())?,
    }
    match report.trouble {
        None => Ok(()),
        Some(trouble) => Err(CommandError::NotWell { path, trouble }),
    }
}

impl Report {
    fn good(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), what, valid: true, ..Self::default() }
    }

    fn text(&self) -> String {
        let trouble = self.trouble.map(Trouble::words);
        let found = match (&self.error, self.revision) {
            (Some(error), _) => format!("{}: {error}", trouble.unwrap_or_default()),
            (None, Some(revision)) => format!("is valid, revision {revision}"),
            (None, None) => "is valid".to_owned(),
        };
        let mut lines = vec![format!("{}: {} {found}", self.path.display(), self.what)];
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.push(String::new());
        lines.join("\n")
    }
}

async fn look(path: &Path, mode: Mode, context: &Context) -> (&'static str, Found) {
    if let Err(error) = std::fs::metadata(path) {
        return ("path", Err((Trouble::of(&error), error.to_string())));
    }
    if path.is_dir() {
        let dir = path.to_owned();
        ("data directory", blocking(context, move || directory(&dir, mode)).await)
    } else {
        match path.file_name().and_then(|it| it.to_str()).map(|it| name::parse(Layout::V2, it)) {
            Some(Ok(snapshot)) if snapshot.is_encrypted => {
                let text = "it is encrypted; use a drill to look into it".to_owned();
                ("snapshot", Err((Trouble::Unreadable, text)))
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
    }
}

async fn blocking(context: &Context, work: impl FnOnce() -> Found + Send + 'static) -> Found {
    let done = context.tasks.blocking("verify", work).await;
    done.unwrap_or_else(|error| Err((Trouble::Unreadable, error.to_string())))
}

fn damaged(error: &dyn std::error::Error) -> (Trouble, String) {
    (Trouble::Damaged, telemetry::Chain(error).to_string())
}

fn unread(error: &io::Error) -> (Trouble, String) {
    (Trouble::of(error), error.to_string())
}

/// A database that an etcd has open is written to while we look: it would seem damaged.
fn check_free(path: &Path) -> Result<(), (Trouble, String)> {
    let is_held = File::open(path).and_then(|file| datadir::is_held(&file));
    match is_held {
        Ok(false) => Ok(()),
        Ok(true) => Err((Trouble::InUse, "its lock is held".to_owned())),
        Err(error) => Err(unread(&error)),
    }
}

fn of_directory(damage: &datadir::Damage) -> (Trouble, String) {
    // Another directory, or one that no etcd has written to yet.
    if let datadir::Damage::Structure(missing) = damage
        && missing.ends_with("member")
    {
        return (Trouble::NotFound, "it holds no data of an etcd (no member/)".to_owned());
    }
    let trouble = match damage.kind() {
        DamageKind::Missing => Trouble::NotFound,
        DamageKind::Locked => Trouble::InUse,
        DamageKind::Unknown => Trouble::Unreadable,
        DamageKind::Structure | DamageKind::Corrupt => Trouble::Damaged,
    };
    (trouble, telemetry::Chain(damage).to_string())
}

fn directory(path: &Path, mode: Mode) -> Found {
    let checked = datadir::check(path, mode).map_err(|error| of_directory(&error))?;
    let mut report = Report::good(path, "data directory");
    report.revision = Some(checked.revision);
    report.warnings = checked.warnings;
    if mode == Mode::Full {
        let bolt = Bolt::open(&path.join(datadir::DATABASE)).map_err(|error| damaged(&error))?;
        let hash = datadir::hash_kv(&bolt, None).map_err(|error| damaged(&error))?;
        report.hash_kv = Some(hash.hash);
        one_history(&bolt)?;
    }
    Ok(report)
}

/// Two etcds that were mixed in a store, and restored from it, show in their rows.
fn one_history(bolt: &Bolt) -> Result<(), (Trouble, String)> {
    match crate::restore::mixture(bolt).map_err(|error| damaged(&error))? {
        Some(what) => Err((Trouble::Damaged, format!("it holds two histories: {what}"))),
        None => Ok(()),
    }
}

fn database(path: &Path, what: &'static str) -> Found {
    check_free(path)?;
    let bolt = Bolt::open(path).map_err(|error| damaged(&error))?;
    let checked = datadir::check_database(&bolt).map_err(|error| damaged(&error))?;
    let hash = datadir::hash_kv(&bolt, None).map_err(|error| damaged(&error))?;
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
    let text = |error: io::Error| unread(&error);
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
    let source = plain(path, snapshot).map_err(|error| unread(&error))?;
    let mut events = Events::of(source);
    let (mut count, mut first, mut last) = (0, None, 0);
    while let Some(event) = events.next().await.map_err(|error| damaged(&error))? {
        count += 1;
        first = first.or(Some(event.mod_revision));
        last = event.mod_revision;
    }
    let named = (snapshot.start_revision, snapshot.last_revision);
    let held = (first.unwrap_or_default(), last);
    if held != named {
        let text = "it is named for revisions";
        let text = format!("{text} {} to {}, and holds {} to {}", named.0, named.1, held.0, held.1);
        return Err((Trouble::Damaged, text));
    }
    let mut report = Report::good(path, "delta");
    report.revision = Some(last);
    report.events = Some(count);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use tasks::Tasks;

    use super::super::Invocation;
    use super::*;
    use crate::store::Environment;

    async fn trouble(path: &Path) -> Option<Trouble> {
        let (tasks, environment) = (Tasks::new(), Environment::default());
        let context = Context { tasks, environment, invocation: Invocation::Holdfast };
        look(path, Mode::Sanity, &context).await.1.err().map(|(trouble, _)| trouble)
    }

    #[tokio::test]
    async fn only_what_is_damaged_is_said_to_be() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(trouble(&place.path().join("gone")).await, Some(Trouble::NotFound));
        assert_eq!(trouble(place.path()).await, Some(Trouble::NotFound));
        let database = place.path().join("db");
        durable::replace(&database, b"not a database").unwrap();
        assert_eq!(trouble(&database).await, Some(Trouble::Damaged));
        let etcd = File::open(&database).unwrap();
        etcd.lock().unwrap();
        assert_eq!(trouble(&database).await, Some(Trouble::InUse));
    }
}
