//! How `backup ls` shows what is in a target.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};

use backupstore::{BackupInfo, BackupStore, Name, Shown, VolumeInfo};
use futures::{StreamExt as _, stream};

use super::backup_store::told;
use super::backup_table::flags as b;
use super::error::Error;
use super::output;
use super::parse::Line;

/// Records fetched at a time.
const RECORDS_AT_ONCE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The JSON of the dialect: the names, and nothing that must be fetched.
    Peer,
    Json,
    Yaml,
    Table,
    Wide,
    Name,
}

impl Format {
    pub(super) fn of(line: &Line) -> Result<Self, Error> {
        match line.flags.text(&b::OUTPUT).as_str() {
            "" if line.is_peer() || !io::stdout().is_terminal() => Ok(Self::Peer),
            "" | "table" => Ok(Self::Table),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "wide" => Ok(Self::Wide),
            "name" => Ok(Self::Name),
            other => Err(Error::Refused(format!(
                "--output is json, yaml, table, wide or name, not {other:?}"
            ))),
        }
    }

    /// Whether the records of volumes and backups are fetched for it.
    fn shows_records(self) -> bool {
        match self {
            Self::Json | Self::Yaml | Self::Table | Self::Wide => true,
            Self::Peer | Self::Name => false,
        }
    }

    pub(super) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

pub(super) type Volumes = BTreeMap<String, VolumeInfo>;

/// Adds what the records of the listed volumes and backups say. One that cannot be read is listed
/// all the same, with the reason.
pub(super) async fn fill(
    store: &BackupStore,
    volumes: &mut Volumes,
    format: Format,
) -> Result<(), Error> {
    if !format.shows_records() {
        return Ok(());
    }
    for (name, info) in volumes {
        let volume = Name::parse(name).map_err(told)?;
        let backups = std::mem::take(&mut info.backups);
        if let Ok(found) = store.inspect_volume(&volume).await {
            *info = found;
        }
        info.backups = stream::iter(backups.into_keys())
            .map(|backup| look(store, &volume, backup))
            .buffer_unordered(RECORDS_AT_ONCE)
            .collect()
            .await;
    }
    Ok(())
}

async fn look(store: &BackupStore, volume: &Name, backup: String) -> (String, BackupInfo) {
    let found = match Name::parse(&backup) {
        Ok(name) => store.inspect_backup(volume, &name).await,
        Err(error) => Err(error),
    };
    let unread = |error: backupstore::Error| BackupInfo {
        name: backup.clone(),
        messages: Some(BTreeMap::from([("error".to_owned(), told(error).to_string())])),
        ..BackupInfo::default()
    };
    (backup.clone(), found.unwrap_or_else(unread))
}

pub(super) fn text(volumes: &Volumes, format: Format, shown: Shown) -> Result<String, Error> {
    let is_volumes = matches!(shown, Shown::VolumesOnly);
    match format {
        Format::Peer | Format::Json => {
            Ok(format!("{}\n", output::json(volumes).map_err(Error::Output)?))
        }
        Format::Yaml => serde_saphyr::to_string(volumes)
            .map_err(|error| Error::Output(io::Error::other(error.to_string()))),
        Format::Name if is_volumes => Ok(lines(volumes.keys().map(String::as_str))),
        Format::Name => {
            Ok(lines(volumes.values().flat_map(|it| it.backups.keys()).map(String::as_str)))
        }
        Format::Table if is_volumes => Ok(output::table(&volume_rows(volumes))),
        Format::Wide if is_volumes => Ok(output::table(&volume_rows(volumes))),
        Format::Table => Ok(output::table(&rows(volumes))),
        Format::Wide => Ok(output::table(&wide_rows(volumes))),
    }
}

fn lines<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.flat_map(|name| [name, "\n"]).collect()
}

/// Of each volume the newest first.
fn backups(volumes: &Volumes) -> impl Iterator<Item = (&str, &BackupInfo)> {
    volumes.iter().flat_map(|(volume, info)| {
        let mut backups: Vec<&BackupInfo> = info.backups.values().collect();
        backups.sort_by(|left, right| right.created.cmp(&left.created));
        backups.into_iter().map(move |backup| (volume.as_str(), backup))
    })
}

fn rows(volumes: &Volumes) -> Vec<[String; 5]> {
    let head = ["VOLUME", "BACKUP", "CREATED", "SIZE", "URL"].map(str::to_owned);
    let row = |(volume, it): (&str, &BackupInfo)| {
        [volume.to_owned(), it.name.clone(), it.created.clone(), size(it.size), it.url.clone()]
    };
    [head].into_iter().chain(backups(volumes).map(row)).collect()
}

fn wide_rows(volumes: &Volumes) -> Vec<[String; 8]> {
    let head = ["VOLUME", "BACKUP", "CREATED", "SIZE", "NEW", "SNAPSHOT", "LABELS", "URL"]
        .map(str::to_owned);
    let row = |(volume, it): (&str, &BackupInfo)| {
        let labels = it.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
        [
            volume.to_owned(),
            it.name.clone(),
            it.created.clone(),
            size(it.size),
            size(it.newly_uploaded_data_size),
            it.snapshot_name.clone(),
            labels.collect::<Vec<_>>().join(","),
            it.url.clone(),
        ]
    };
    [head].into_iter().chain(backups(volumes).map(row)).collect()
}

fn volume_rows(volumes: &Volumes) -> Vec<[String; 5]> {
    let head = ["VOLUME", "SIZE", "STORED", "LAST BACKUP", "AT"].map(str::to_owned);
    let row = |(name, it): (&String, &VolumeInfo)| {
        let (last, at) = (it.last_backup_name.clone(), it.last_backup_at.clone());
        [name.clone(), size(it.size), size(it.data_stored), last, at]
    };
    [head].into_iter().chain(volumes.iter().map(row)).collect()
}

/// `512 B`, `1.5 GiB`
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut tenths, mut unit) = (u128::from(bytes) * 10, None);
    for name in UNITS {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1024, Some(name));
    }
    unit.map_or_else(
        || format!("{bytes} B"),
        |unit| format!("{}.{} {unit}", tenths / 10, tenths % 10),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes() -> Volumes {
        let backup = |name: &str, created: &str, size: u64| {
            let (name, created) = (name.to_owned(), created.to_owned());
            let url = format!("vfs:///a?backup={name}&volume=v");
            (name.clone(), BackupInfo { name, created, size, url, ..BackupInfo::default() })
        };
        let backups = BTreeMap::from([
            backup("one", "2026-01-01T00:00:00Z", 512),
            backup("two", "2026-01-02T00:00:00Z", 3 << 29),
        ]);
        let volume = VolumeInfo { backups, ..VolumeInfo::default() };
        BTreeMap::from([("v".to_owned(), volume)])
    }

    #[test]
    fn a_table_shows_date_size_and_url_the_newest_first() {
        let text = text(&volumes(), Format::Table, Shown::Backups).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for word in ["v ", "two", "2026-01-02T00:00:00Z", "1.5 GiB", "vfs:///a?backup=two&volume=v"]
        {
            assert!(lines[1].contains(word), "{word}: {text}");
        }
        assert!(lines[2].contains("512 B"), "{text}");
    }

    #[test]
    fn other_forms_are_for_programs() {
        let of = |format| text(&volumes(), format, Shown::Backups).unwrap();
        assert_eq!(of(Format::Name), "one\ntwo\n");
        assert!(of(Format::Yaml).contains("Created: "), "{}", of(Format::Yaml));
        assert!(of(Format::Json).starts_with("{\n\t\"v\": {"), "{}", of(Format::Json));
        assert!(of(Format::Wide).starts_with("VOLUME "), "{}", of(Format::Wide));
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        for (bytes, wanted) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536 << 10, "1.5 MiB")]
        {
            let shown = size(bytes);
            assert_eq!(shown, wanted, "{bytes}");
        }
    }
}
