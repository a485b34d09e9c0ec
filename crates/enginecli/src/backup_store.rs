//! Commands that need a backup store and no server. What goes wrong is told on standard output too:
//! that is where callers look for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use backupstore::delete::DeleteOptions;
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{
    AbilityValues, BackupStore, BackupUrl, Control, Environment, Name, Shown, Subject, TargetUrl,
};
use futures::TryFutureExt as _;

use super::backup::bytes_per_second;
use super::backup_table::{StoreVerb, flags as b};
use super::console::{Console, Manner};
use super::error::Error;
use super::flag::Flag;
use super::operation::watched;
use super::parse::Line;
use super::{backing_image, backup_list, restore_to_file, scrub, system_backup};

/// What to do about a target without a backup.
pub(super) const NOTHING_STORED: &str =
    "is it the right target? Backups lie below the path of its URL";

pub(crate) async fn run(
    verb: StoreVerb,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let done = perform(verb, line, console).await;
    // Somebody at a terminal is told once.
    if let Err(error) = &done
        && console.manner == Manner::Log
        && !error.is_closed_pipe()
    {
        console.say(&error.to_string())?;
    }
    done
}

async fn perform(verb: StoreVerb, line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    match verb {
        StoreVerb::Ls => ls(line, console).await,
        StoreVerb::Inspect => {
            let (store, url) = open(line).await?;
            let (volume, backup) = url.require_backup().map_err(told)?;
            console.json(&store.inspect_backup(volume, backup).await.map_err(told)?)
        }
        StoreVerb::InspectVolume => {
            let (store, url) = open(line).await?;
            let volume = url.require_volume().map_err(told)?;
            console.json(&store.inspect_volume(volume).await.map_err(told)?)
        }
        StoreVerb::Head => {
            let (store, url) = open(line).await?;
            let volume = url.require_volume().map_err(told)?;
            console.json(&store.head(volume, url.backup.as_ref()).await.map_err(told)?)
        }
        StoreVerb::Rm => rm(line, console).await,
        StoreVerb::RestoreToFile => restore_to_file::run(line, console).await,
        StoreVerb::CleanupAllMounts => backupstore::target::unmount_all().await.map_err(told),
        StoreVerb::LsBackingImage => backing_image::ls(line, console).await,
        StoreVerb::InspectBackingImage => backing_image::inspect(line, console).await,
        StoreVerb::RmBackingImage => backing_image::rm(line, console).await,
        StoreVerb::CreateBackingImage => backing_image::create(line, console).await,
        StoreVerb::RestoreBackingImage => backing_image::restore(line, console).await,
        StoreVerb::Verify => verify(line, console).await,
        StoreVerb::Scrub => scrub::run(line, console).await,
        StoreVerb::Gc => gc(line, console).await,
        StoreVerb::TargetInspect => {
            let (store, _) = open(line).await?;
            console.json(&store.inspect_target().await.map_err(told)?)
        }
        StoreVerb::TargetSet => {
            let set = AbilityValues {
                conditional_writes: found_or(line, &b::CONDITIONAL_WRITES)?,
                listings_at_once: found_or(line, &b::LISTINGS_AT_ONCE)?,
                one_clock: found_or(line, &b::ONE_CLOCK)?,
            };
            let (store, _) = open(line).await?;
            console.json(&store.set_target(set).await.map_err(told)?)
        }
        StoreVerb::SystemUpload => system_backup::upload(line).await,
        StoreVerb::SystemDownload => system_backup::download(line).await,
        StoreVerb::SystemList => system_backup::list(line, console).await,
        StoreVerb::SystemGetConfig => system_backup::get_config(line, console).await,
        StoreVerb::SystemDelete => system_backup::delete(line).await,
    }
}

/// The store of the first argument, and what that names.
pub(super) async fn open(line: &Line) -> Result<(BackupStore, BackupUrl), Error> {
    open_at(line, 0).await
}

/// The same of another argument.
pub(super) async fn open_at(line: &Line, at: usize) -> Result<(BackupStore, BackupUrl), Error> {
    let url = BackupUrl::parse(&plain_url(argument(line, at, "URL")?)).map_err(told)?;
    Ok((open_target(&url.target, &environment(line)?).await?, url))
}

/// What was set by hand, if it was.
fn found_or(line: &Line, flag: &Flag) -> Result<Option<bool>, Error> {
    match line.flags.text(flag).as_str() {
        "found" => Ok(None),
        "yes" => Ok(Some(true)),
        "no" => Ok(Some(false)),
        other => Err(Error::refused(format!("--{}: {other} is not yes, no or found", flag.name))),
    }
}

/// Blocks at a time, where five are usual.
pub(super) fn concurrent_limit(line: &Line) -> usize {
    usize::try_from(line.flags.integer(&b::RESTORE_CONCURRENT_LIMIT)).unwrap_or(1).max(1)
}

pub(super) async fn open_target(
    target: &TargetUrl,
    environment: &Environment,
) -> Result<BackupStore, Error> {
    BackupStore::open(target, environment).await.map_err(told)
}

/// Credentials of the Secret that is named, and only those; else of the environment.
pub(super) fn environment(line: &Line) -> Result<Environment, Error> {
    match line.flags.text(&b::CREDENTIAL_FILE).as_str() {
        "" => Ok(Environment::of_process()),
        path => Environment::from_path(Path::new(path)).map_err(told),
    }
}

pub(super) fn argument<'l>(line: &'l Line, at: usize, what: &str) -> Result<&'l str, Error> {
    let given = line.arguments.get(at).map(String::as_str).filter(|text| !text.is_empty());
    given.ok_or_else(|| Error::refused(format!("{what} is required")))
}

/// Callers paste URLs out of JSON: with quotes, and an escaped `&`.
pub(super) fn plain_url(text: &str) -> String {
    let text = text.strip_prefix('"').unwrap_or(text);
    let text = text.strip_suffix('"').unwrap_or(text);
    let text = text.replacen("\\u0026", "&", 1);
    text.replacen("u0026", "&", 1)
}

/// One line with all causes.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
pub(super) fn told(error: backupstore::Error) -> Error {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let more = error.to_string();
        // Some libraries repeat their causes in their own words.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    Error::Refused(text)
}

async fn ls(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    if let Some(missing) = url.target.directory().filter(|directory| !directory.is_dir()) {
        if !line.is_peer() {
            let what = format!("the directory {} of the target", missing.display());
            let hint = "make it, or mount what belongs there".to_owned();
            return Err(Error::NotFound { what, hint });
        }
        let text = "the directory of the target does not exist, and is listed as empty; make it, or \
                    mount what belongs there";
        console.log("warning", text, &[("directory", &missing.display().to_string())]);
    }
    let only = line.flags.switch(&b::VOLUME_ONLY);
    let shown = if only { Shown::VolumesOnly } else { Shown::Backups };
    let format = backup_list::Format::of(line)?;
    let mut volumes = match line.flags.text(&b::VOLUME).as_str() {
        "" => store.list(shown).await.map_err(told)?,
        name => {
            let volume = Name::parse(name).map_err(told)?;
            let info = store.list_volume(&volume, shown).await.map_err(told)?;
            BTreeMap::from([(volume.to_string(), info)])
        }
    };
    backup_list::fill(&store, &mut volumes, format).await?;
    if volumes.is_empty() && format.is_for_people() {
        console.log("info", "there are no backups", &[("target", &store.url().to_string())]);
        return Ok(());
    }
    console.print(&backup_list::text(&volumes, format, shown)?)
}

/// The volume of the flag, or of the URL.
fn volume(line: &Line, url: &BackupUrl) -> Result<Name, Error> {
    match line.flags.text(&b::VOLUME).as_str() {
        "" => url.require_volume().cloned().map_err(told),
        name => Name::parse(name).map_err(told),
    }
}

/// What shares blocks: the backing images where the URL names one or the flag is there, else the
/// volume of the flag or of the URL; nothing where none is named.
pub(super) fn named(line: &Line, url: &BackupUrl) -> Result<Option<Subject>, Error> {
    let volume = match line.flags.text(&b::VOLUME).as_str() {
        "" => url.volume.clone(),
        name => Some(Name::parse(name).map_err(told)?),
    };
    let is_images = line.flags.switch(&b::BACKING_IMAGES) || url.backing_image.is_some();
    match (volume, is_images) {
        (Some(volume), true) => Err(Error::refused(format!(
            "both the volume {volume} and backing images are named; look at one after the other"
        ))),
        (volume, false) => Ok(volume.map(Subject::Volume)),
        (None, true) => Ok(Some(Subject::BackingImages)),
    }
}

fn subject(line: &Line, url: &BackupUrl) -> Result<Subject, Error> {
    named(line, url)?.ok_or_else(|| {
        Error::refused(format!(
            "{:?} names no volume: name one with --volume, or ask for --backing-images",
            url.target.to_string()
        ))
    })
}

pub(super) fn delete_options(line: &Line) -> Result<DeleteOptions, Error> {
    Ok(DeleteOptions { lock_timeout: lock_timeout(line)?, ..DeleteOptions::default() })
}

/// How long to wait for a lock.
pub(super) fn lock_timeout(line: &Line) -> Result<Duration, Error> {
    let seconds = u64::try_from(line.flags.integer(&b::LOCK_TIMEOUT));
    let seconds = seconds.map_err(|_| Error::refused("--lock-timeout is negative"))?;
    Ok(Duration::from_secs(seconds))
}

/// Bytes a second, where they are limited.
pub(super) fn rate(line: &Line) -> Option<u64> {
    Some(bytes_per_second(line)).filter(|rate| *rate > 0)
}

/// What is not there cannot be removed. A peer's command says that it is gone now.
pub(super) fn found(is_there: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    if is_there {
        return Ok(());
    }
    let hint = "`holdfast engine backup ls URL` lists what is".to_owned();
    Err(Error::NotFound { what: what(), hint })
}

async fn rm(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let (options, control) = (delete_options(line)?, Control::default());
    let work = async {
        if !line.flags.text(&b::VOLUME).is_empty() {
            let volume = volume(line, &url)?;
            if !line.is_peer() {
                let volumes = store.list(Shown::VolumesOnly).await.map_err(told)?;
                let is_there = volumes.contains_key(volume.as_str());
                found(is_there, || format!("the volume {volume} in the target"))?;
            }
            return store.delete_volume(&volume, &options, &control).await.map_err(told);
        }
        let (volume, backup) = url.require_backup().map_err(told)?;
        let deleted = store.delete_backup(volume, backup, &options, &control).await;
        let existed = deleted.map_err(told)?.existed || line.is_peer();
        found(existed, || format!("the backup {backup} of {volume}"))
    };
    watched("removing", &control, console, work).await
}

async fn verify(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let of = subject(line, &url)?;
    let depth = if line.flags.switch(&b::DEEP) { Depth::Deep } else { Depth::Quick };
    let (options, control) = (VerifyOptions::new(depth), Control::default());
    let work = store.verify_of(&of, &options, &control).map_err(told);
    let report = watched("verifying", &control, console, work).await?;
    console.json(&report)?;
    if report.is_healthy() {
        return Ok(());
    }
    let (damaged, unreadable) = (report.damaged.len(), report.unreadable.len());
    let what = match &of {
        Subject::Volume(volume) => format!("backups of {volume}"),
        Subject::BackingImages => "backing images".to_owned(),
    };
    Err(Error::Refused(format!("{damaged} {what} are damaged, {unreadable} cannot be read")))
}

async fn gc(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let (of, control) = (subject(line, &url)?, Control::default());
    let options = delete_options(line)?;
    let work = async {
        let found = if line.flags.switch(&b::DRY_RUN) {
            store.report_garbage_of(&of, &control).await
        } else {
            store.collect_garbage_of(&of, &options, &control).await
        };
        found.map_err(told)
    };
    let found = watched("looking for garbage", &control, console, work).await?;
    console.json(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_urls_are_understood() {
        for pasted in [
            "vfs:///a?backup=x&volume=y",
            "vfs:///a?backup=x\\u0026volume=y",
            "\"vfs:///a?backup=xu0026volume=y\"",
        ] {
            assert_eq!(plain_url(pasted), "vfs:///a?backup=x&volume=y");
        }
    }
}
