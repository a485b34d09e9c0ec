//! The first page: health, work, room, the newest backups and whether they were verified.

use std::collections::BTreeMap;

use api::longhorn::{Backup, BackupState};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::ResourceExt as _;
use people::summary::{Summary, Verdict, World};
use people::units::{age, bytes, date};

use super::{Content, tone};
use crate::chart;
use crate::view::{Cell, Section, Table, Tile, Tone};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let world = read(visit).await?;
    let summary = Summary::of(&world, visit.now);
    let mut content = Content::titled("Overview");
    content.sections.push(verdict(&summary));
    content.sections.push(Section::Tiles(tiles(&summary)));
    if !summary.attention.is_empty() {
        let items = summary.attention.clone();
        let title = "Needs attention";
        content.sections.push(Section::List { title, tone: Tone::Warn, items });
    }
    if !summary.work.is_empty() {
        let items = summary.work.clone();
        content.sections.push(Section::List { title: "In progress", tone: Tone::Busy, items });
    }
    content.sections.push(Section::Charts(charts(&world.backups, visit.now)));
    content.sections.push(Section::Table(newest(&world.backups, visit.now)));
    if !summary.hidden.is_empty() {
        let hidden = summary.hidden.join(", ");
        content
            .sections
            .push(Section::Hint(format!("Not visible with your permissions: {hidden}.")));
    }
    Ok(content)
}

async fn read(visit: &Visit) -> Result<World, Oops> {
    let reader = visit.reader().deep();
    let (nodes, volumes, engines, backups, targets, jobs, tenants) = futures::try_join!(
        reader.volumes(),
        reader.volumes(),
        reader.volumes(),
        reader.volumes(),
        reader.volumes(),
        reader.volumes(),
        reader.everywhere(),
    )?;
    let hidden = [
        nodes.hidden(),
        volumes.hidden(),
        engines.hidden(),
        backups.hidden(),
        targets.hidden(),
        jobs.hidden(),
        tenants.hidden(),
    ];
    Ok(World {
        hidden: hidden.into_iter().flatten().collect(),
        nodes: nodes.items,
        volumes: volumes.items,
        engines: engines.items,
        backups: backups.items,
        targets: targets.items,
        jobs: jobs.items,
        tenants: tenants.items,
    })
}

fn verdict(summary: &Summary) -> Section {
    let (tone, text) = match summary.verdict() {
        Verdict::Well => (Tone::Good, "All is well.".to_owned()),
        Verdict::WellAsFarAsSeen => (Tone::Plain, "What can be seen is well.".to_owned()),
        Verdict::Blind => (Tone::Plain, "Nothing is visible with these permissions.".to_owned()),
        Verdict::NeedsAttention => {
            let text = match summary.attention.len() {
                1 => "One thing needs attention.".to_owned(),
                many => format!("{many} things need attention."),
            };
            (Tone::Warn, text)
        }
    };
    Section::Verdict { tone, text }
}

fn tiles(summary: &Summary) -> Vec<Tile> {
    let (nodes, volumes) = (&summary.nodes, &summary.volumes);
    let (backups, tenants) = (&summary.backups, &summary.tenants);
    let used = nodes.capacity_bytes.saturating_sub(nodes.free_bytes);
    let full = used.saturating_mul(100).checked_div(nodes.capacity_bytes);
    let newest = backups.newest_age_seconds.and_then(|it| Timestamp::from_second(it).ok());
    let newest = newest.map(|it| format!("newest {} old", age(Timestamp::UNIX_EPOCH, it)));
    vec![
        Tile {
            title: "Volumes",
            value: volumes.all.to_string(),
            detail: format!(
                "{} attached, {} degraded, {} faulted",
                volumes.attached, volumes.degraded, volumes.faulted
            ),
            tone: match (volumes.faulted, volumes.degraded) {
                (0, 0) => Tone::Good,
                (0, _) => Tone::Warn,
                _ => Tone::Bad,
            },
            href: "/volumes",
            meter: None,
        },
        Tile {
            title: "Backups",
            value: backups.completed.to_string(),
            detail: {
                let newest = newest.unwrap_or_else(|| "none complete".to_owned());
                format!("{newest}; {}", people::units::count(backups.jobs, "recurring job"))
            },
            tone: if backups.failed > 0 { Tone::Bad } else { Tone::Good },
            href: "/backups",
            meter: None,
        },
        Tile {
            title: "Standby volumes",
            value: volumes.standby.to_string(),
            detail: "follow the backups of other volumes".to_owned(),
            tone: Tone::Plain,
            href: "/standby",
            meter: None,
        },
        Tile {
            title: "Namespace backups",
            value: tenants.backups.to_string(),
            detail: format!("{} queued, {} refused", tenants.queued, tenants.refused),
            tone: if tenants.refused > 0 { Tone::Warn } else { Tone::Good },
            href: "/tenants",
            meter: None,
        },
        Tile {
            title: "Targets",
            value: format!("{} of {}", backups.targets_reachable, backups.targets),
            detail: "can be reached".to_owned(),
            tone: match (backups.targets_reachable, backups.targets) {
                (_, 0) => Tone::Plain,
                (reachable, all) if reachable == all => Tone::Good,
                _ => Tone::Bad,
            },
            href: "/targets",
            meter: None,
        },
        Tile {
            title: "Disks",
            value: bytes(nodes.free_bytes),
            detail: format!(
                "free of {}; {} of {} nodes ready",
                bytes(nodes.capacity_bytes),
                nodes.ready,
                nodes.all
            ),
            tone: if nodes.ready == nodes.all { Tone::Good } else { Tone::Bad },
            href: "/nodes",
            meter: full,
        },
    ]
}

fn charts(backups: &[Backup], now: Timestamp) -> Vec<chart::Chart> {
    let complete =
        || backups.iter().filter(|it| people::backup::state(it) == BackupState::Completed);
    let day = |at: Timestamp| at.to_zoned(TimeZone::UTC).date();
    let mut days = BTreeMap::new();
    for at in complete().filter_map(people::backup::time) {
        *days.entry(day(at)).or_insert(0) += 1;
    }
    let mut charts = vec![chart::calendar(&days, day(now))];
    charts.extend(chart::growth(complete().filter_map(stored).collect()));
    charts.extend(chart::throughput(complete().filter_map(sent).collect()));
    charts
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn stored(backup: &Backup) -> Option<chart::Stored> {
    let status = backup.status.as_ref()?;
    Some(chart::Stored {
        at: people::backup::time(backup)?,
        bytes: number(status.size.as_deref())?,
        added: number(status.newly_upload_data_size.as_deref())?,
    })
}

/// From the start of its upload to its end, where this installation has made it.
fn sent(backup: &Backup) -> Option<chart::Sent> {
    let status = backup.status.as_ref()?;
    let started = status.upload.as_ref()?.started_at?.timestamp();
    let ended = status.backup_created_at.as_ref()?.get()?;
    let seconds = ended.as_second().saturating_sub(started.as_second());
    Some(chart::Sent {
        at: ended,
        name: backup.name_any(),
        bytes: number(status.newly_upload_data_size.as_deref())?,
        seconds: u64::try_from(seconds).ok()?,
    })
}

/// The newest complete backup of each volume, the oldest of these first: that is the one to look at.
fn newest(backups: &[Backup], now: Timestamp) -> Table {
    let mut newest: BTreeMap<String, &Backup> = BTreeMap::new();
    for backup in backups.iter().filter(|it| people::backup::state(it) == BackupState::Completed) {
        let best = newest.entry(people::backup::volume_of(backup)).or_insert(backup);
        if people::backup::time(backup) > people::backup::time(best) {
            *best = backup;
        }
    }
    let mut newest: Vec<_> = newest.into_iter().collect();
    newest.sort_by_key(|(_, backup)| people::backup::time(backup));
    let rows = newest.into_iter().map(|(volume, backup)| {
        let at = people::backup::time(backup);
        let verified = people::backup::verified(backup, now);
        let word = verified.split(' ').next().unwrap_or_default().to_owned();
        vec![
            Cell::link("/volumes", &volume),
            Cell::text(backup.name_any()),
            Cell::text(at.map(date).unwrap_or_default()),
            Cell::text(at.map(|it| age(it, now)).unwrap_or_default()),
            Cell::badge(tone(&word), verified),
        ]
    });
    Table {
        title: "Newest backup of each volume".to_owned(),
        head: &["Volume", "Backup", "Date (UTC)", "Age", "Verified"],
        rows: rows.collect(),
        none: "There are no complete backups yet.",
        foot: None,
    }
}
