//! `backup scrub`: checks the volumes and backing images of a target, for ever or once, and keeps a
//! report of what is broken since when. It takes no lock, and goes on where it was after a restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use backupstore::scrub::{Next, Part, Schedule, ScrubReport, VolumeScrub};
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{BackupStore, Control, Subject};
use jiff::Timestamp;

use super::backup_store::{NOTHING_STORED, concurrent_limit, named, open, rate, told};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::Error;
use super::operation::watched;
use super::parse::Line;
use super::{output, value};

const FILE: &str = "scrub-report.json";
const REPORT_MAX_BYTES: usize = 256 << 20;
/// New volumes are looked for at least so often.
const LIST_EVERY: Duration = Duration::from_mins(10);

/// How it is run.
struct Scrub {
    store: BackupStore,
    /// Only this one.
    only: Option<Subject>,
    schedule: Schedule,
    options: VerifyOptions,
    report_at: Option<PathBuf>,
}

pub(super) async fn run(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let only = named(line, &url)?;
    let is_once = line.flags.switch(&b::ONCE);
    let mut options = VerifyOptions::new(Depth::Deep);
    options.concurrent_limit = concurrent_limit(line);
    options.fetch.bytes_per_second = rate(line);
    let schedule = Schedule {
        every: duration(line, &b::EVERY)?,
        deep_every: duration(line, &b::DEEP_EVERY)?,
        once_since: is_once.then(Timestamp::now),
    };
    let report_at = place(&line.flags.text(&b::REPORT));
    if report_at.is_none() && !is_once {
        return Err(Error::refused("--report is required without --once"));
    }
    let mut report = load(report_at.as_deref(), &store)?;
    let scrub = Scrub { store, only, schedule, options, report_at };
    match scrub.go_on(&mut report, is_once, console).await {
        // The way to end one that runs for ever.
        Err(Error::Interrupted { .. }) if !is_once => return Ok(()),
        done => done?,
    }
    console.json(&report)?;
    if report.volumes.is_empty() && report.backing_images.is_none() && !line.is_peer() {
        let what = format!("a backup at {}", report.target);
        return Err(Error::NotFound { what, hint: NOTHING_STORED.to_owned() });
    }
    if report.is_healthy() {
        return Ok(());
    }
    let images = report.backing_images.as_ref().map_or(0, |images| images.broken.len());
    let backups = report.broken().saturating_sub(images);
    let images = if images > 0 { format!(", {images} backing images, too") } else { String::new() };
    let failed = report.failed();
    let text =
        format!("{backups} backups are broken{images}, {failed} volumes could not be checked");
    Err(Error::Refused(text))
}

fn duration(line: &Line, flag: &super::flag::Flag) -> Result<Duration, Error> {
    let text = line.flags.text(flag);
    let name = flag.name;
    value::duration(&text)
        .ok_or_else(|| Error::refused(format!("--{name}: {text:?} is not a time, as in 12h or 7d")))
}

/// A file, or one in a directory that is there.
fn place(text: &str) -> Option<PathBuf> {
    let path = Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())?;
    Some(if path.is_dir() { path.join(FILE) } else { path })
}

fn load(path: Option<&Path>, store: &BackupStore) -> Result<ScrubReport, Error> {
    let target = store.url().to_string();
    let Some(path) = path.filter(|path| path.exists()) else { return Ok(ScrubReport::new(target)) };
    let refused = |why: &str| Error::refused(format!("{}: {why}", path.display()));
    let bytes = durable::read_limited(path, REPORT_MAX_BYTES)
        .map_err(|error| refused(&error.to_string()))?;
    let report: ScrubReport = serde_json::from_slice(&bytes)
        .map_err(|error| refused(&format!("it is not a report of a scrub: {error}")))?;
    if report.target == target {
        Ok(report)
    } else {
        Err(refused(&format!("it is the report of another target, {}", report.target)))
    }
}

impl Scrub {
    /// Ends when nothing is due, if it is only for once.
    async fn go_on(
        &self,
        report: &mut ScrubReport,
        is_once: bool,
        console: &mut Console<'_>,
    ) -> Result<(), Error> {
        loop {
            let subjects = match self.subjects(console).await {
                Ok(subjects) => subjects,
                Err(error @ Error::Interrupted { .. }) => return Err(error),
                Err(error) if is_once => return Err(error),
                Err(error) => {
                    console.log("warning", &format!("volumes cannot be listed: {error}"), &[]);
                    pause(LIST_EVERY, console).await?;
                    continue;
                }
            };
            report.retain(&subjects);
            let now = Timestamp::now();
            match report.next(&subjects, self.schedule, now) {
                Next::Check(part) => self.check(part, report, console).await?,
                Next::Wait(_) if is_once => return self.save(report),
                Next::Wait(until) => {
                    self.save(report)?;
                    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    pause(left.min(LIST_EVERY), console).await?;
                }
            }
        }
    }

    async fn subjects(&self, console: &mut Console<'_>) -> Result<Vec<Subject>, Error> {
        if let Some(only) = &self.only {
            return Ok(vec![only.clone()]);
        }
        let control = Control::default();
        let work = async { self.store.subjects().await.map_err(told) };
        watched("listing volumes", &control, console, work).await
    }

    async fn check(
        &self,
        part: Part<'_>,
        report: &mut ScrubReport,
        console: &mut Console<'_>,
    ) -> Result<(), Error> {
        let (of, control) = (part.of, Control::default());
        let before = report.of(of).cloned().unwrap_or_default();
        let work =
            async { self.store.scrub(part, &self.options, report, &control).await.map_err(told) };
        watched(&format!("checking {of}"), &control, console, work).await?;
        self.save(report)?;
        if let Some(after) = report.of(of) {
            tell(of, &before, after, console);
        }
        Ok(())
    }

    fn save(&self, report: &ScrubReport) -> Result<(), Error> {
        let Some(path) = &self.report_at else { return Ok(()) };
        let mut text = output::json(report).map_err(Error::Output)?;
        text.push('\n');
        durable::replace(path, text.as_bytes())
            .map_err(|error| Error::refused(format!("cannot write {}: {error}", path.display())))
    }
}

/// What is new since the last look.
fn tell(of: &Subject, before: &VolumeScrub, after: &VolumeScrub, console: &mut Console<'_>) {
    let volume = match of {
        Subject::Volume(volume) => Some(("volume", volume.as_str())),
        Subject::BackingImages => None,
    };
    let (noun, field) = match of {
        Subject::Volume(_) => ("a backup", "backup"),
        Subject::BackingImages => ("a backing image", "image"),
    };
    let with = |more: &[(&'static str, &str)], console: &mut Console<'_>, level, text: &str| {
        let fields: Vec<(&str, &str)> = volume.iter().chain(more).copied().collect();
        console.log(level, text, &fields);
    };
    for (name, broken) in &after.broken {
        if !before.broken.contains_key(name) {
            let places = broken.damaged_places.to_string();
            let why =
                broken.unreadable.as_deref().or(broken.places.first().map(|it| it.damage.as_str()));
            let more = [
                (field, name.as_str()),
                ("places", places.as_str()),
                ("error", why.unwrap_or_default()),
            ];
            with(&more, console, "warning", &format!("{noun} is broken"));
        }
    }
    for name in before.broken.keys().filter(|name| after.healthy.contains(name)) {
        with(&[(field, name.as_str())], console, "info", &format!("{noun} is well again"));
    }
    if let Some(failed) = &after.failed {
        let what = match of {
            Subject::Volume(_) => "a volume could not be checked",
            Subject::BackingImages => "the backing images could not be checked",
        };
        with(&[("error", failed.why.as_str())], console, "warning", what);
    }
}

async fn pause(time: Duration, console: &mut Console<'_>) -> Result<(), Error> {
    let control = Control::default();
    let work = async {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = control.cancelled() => Err(Error::refused("cancelled")),
        }
    };
    watched("nothing is due", &control, console, work).await
}
