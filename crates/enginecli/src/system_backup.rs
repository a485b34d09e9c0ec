//! `system-backup`: archives of whole systems, stored and given back.

use std::path::Path;

use backupstore::format::SystemBackupCfg;
use backupstore::{ARCHIVE_MAX_BYTES, Name, SystemBackup, TargetUrl};

use super::backup_store::{argument, environment, open_target, plain_url, told};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::Error;
use super::parse::Line;

/// Between the target and the version in the URL of an archive.
const FOLDER: &str = "/backupstore/system-backups/";

/// `TARGET/backupstore/system-backups/VERSION/NAME`
fn parse(url: &str) -> Result<(TargetUrl, SystemBackup), Error> {
    let url = plain_url(url);
    let refused = || Error::refused(format!("{url:?} is not TARGET{FOLDER}VERSION/NAME"));
    let (place, query) = url.split_once('?').unwrap_or((&url, ""));
    let (target, rest) = place.split_once(FOLDER).ok_or_else(refused)?;
    let (version, name) = rest.trim_end_matches('/').split_once('/').ok_or_else(refused)?;
    let mark = if query.is_empty() { "" } else { "?" };
    let target = TargetUrl::parse(&format!("{target}/{mark}{query}")).map_err(told)?;
    let version = Name::parse(version).map_err(told)?;
    Ok((target, SystemBackup { version, name: Name::parse(name).map_err(told)? }))
}

pub(crate) async fn upload(line: &Line) -> Result<(), Error> {
    let (file, url) = (argument(line, 0, "FILE")?, argument(line, 1, "URL")?);
    let (target, backup) = parse(url)?;
    let max = usize::try_from(ARCHIVE_MAX_BYTES).unwrap_or(usize::MAX);
    let archive = durable::read_limited(Path::new(file), max)
        .map_err(|error| Error::refused(format!("cannot read {file}: {error}")))?;
    let record = SystemBackupCfg {
        git_commit: line.flags.text(&b::GIT_COMMIT),
        manager_image: line.flags.text(&b::MANAGER_IMAGE),
        engine_image: line.flags.text(&b::ENGINE_IMAGE),
        backup_target_url: target.to_string(),
        created_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        ..SystemBackupCfg::default()
    };
    let store = open_target(&target, &environment(line)?).await?;
    store.upload_system_backup(&backup, archive.into(), record).await.map_err(told)?;
    Ok(())
}

pub(crate) async fn download(line: &Line) -> Result<(), Error> {
    let (url, file) = (argument(line, 0, "URL")?, argument(line, 1, "FILE")?);
    let (target, backup) = parse(url)?;
    let store = open_target(&target, &environment(line)?).await?;
    let archive = store.download_system_backup(&backup).await.map_err(told)?;
    durable::replace(Path::new(file), &archive)
        .map_err(|error| Error::refused(format!("cannot write {file}: {error}")))
}

pub(crate) async fn list(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let target = TargetUrl::parse(&plain_url(argument(line, 0, "URL")?)).map_err(told)?;
    let found = open_target(&target, &environment(line)?)
        .await?
        .list_system_backups()
        .await
        .map_err(told)?;
    console.json(&found)
}

pub(crate) async fn get_config(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (target, backup) = parse(argument(line, 0, "URL")?)?;
    let found = open_target(&target, &environment(line)?)
        .await?
        .system_backup(&backup)
        .await
        .map_err(told)?;
    console.json(&found)
}

pub(crate) async fn delete(line: &Line) -> Result<(), Error> {
    let (target, backup) = parse(argument(line, 0, "URL")?)?;
    let store = open_target(&target, &environment(line)?).await?;
    if !line.is_peer() {
        store.system_backup(&backup).await.map_err(told)?;
    }
    store.delete_system_backup(&backup).await.map_err(told)
}
