//! All volumes.

use api::longhorn::{Engine, Replica, Robustness, Volume, VolumeState};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::units::{age, bytes};
use people::volume::{Copy, robustness, state, why};

use super::{Content, tone};
use crate::view::{Cell, Field, Form, Input, Section, Table, Tone};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let reader = visit.reader();
    let (volumes, engines, replicas) = futures::try_join!(
        reader.volumes::<Volume>(),
        reader.volumes::<Engine>(),
        reader.volumes::<Replica>(),
    )?;
    let mut content = Content::titled("Volumes");
    content.forms = vec![create()];
    let rows = volumes.items.iter().map(|it| row(it, &engines.items, &replicas.items, visit.now));
    content.sections.push(Section::Table(Table {
        title: "All volumes".to_owned(),
        head: &["Volume", "State", "Robustness", "Copies", "Size", "Used", "Last backup", "Why"],
        rows: rows.collect(),
        none: "There are no volumes yet. Create one with the button above, or with holdfast volume create.",
        foot: volumes.foot(),
    }));
    Ok(content)
}

fn create() -> Form {
    Form {
        id: "create-volume".to_owned(),
        label: "New volume",
        told: "Creates an empty volume.".to_owned(),
        action: "/volumes".to_owned(),
        button: "Create",
        tone: Tone::Good,
        fields: vec![
            Field::name("Name", ""),
            Field {
                name: "size",
                label: "Size",
                value: "1GiB".to_owned(),
                input: Input::Text {
                    pattern: "[0-9]+ ?([KMGT]i?B?|[kmgt]i?b?)?",
                    title: "A multiple of 2 MiB, for example 10GiB",
                },
                is_required: true,
            },
            Field::replicas("3"),
        ],
    }
}

fn row(volume: &Volume, engines: &[Engine], replicas: &[Replica], now: Timestamp) -> Vec<Cell> {
    let name = volume.name_any();
    let status = volume.status.clone().unwrap_or_default();
    let last = status.last_backup_at.and_then(|it| it.get());
    vec![
        Cell::link("/volumes", &name),
        word(state(volume).as_str()),
        health(volume),
        copies(&of_volume(&name, engines, replicas)),
        Cell::text(volume.spec.size.map(|it| bytes(it.0.unsigned_abs())).unwrap_or_default()),
        Cell::text(status.actual_size.map(|it| bytes(it.unsigned_abs())).unwrap_or_default()),
        Cell::text(last.map_or_else(|| "never".to_owned(), |at| age(at, now) + " ago")),
        Cell::text(why(volume)),
    ]
}

/// Nobody knows how the copies of a volume are while none of them runs, and that is as it should be.
pub(super) fn health(volume: &Volume) -> Cell {
    match (state(volume), robustness(volume)) {
        (VolumeState::Detached, it @ Robustness::Unknown) => Cell::badge(Tone::Plain, it.as_str()),
        (_, it) => word(it.as_str()),
    }
}

pub(super) fn word(word: &str) -> Cell {
    if word.is_empty() || word == "-" { Cell::text("") } else { Cell::badge(tone(word), word) }
}

/// The copies of one volume.
pub(super) fn of_volume(name: &str, engines: &[Engine], replicas: &[Replica]) -> Vec<Copy> {
    let engine = engines.iter().find(|it| it.spec.instance.volume_name.as_deref() == Some(name));
    let status = engine.and_then(|it| it.status.clone()).unwrap_or_default();
    let own = replicas.iter().filter(|it| it.spec.instance.volume_name.as_deref() == Some(name));
    own.map(|it| Copy::of(it, &status)).collect()
}

/// What is done to copies now, or how many there are.
fn copies(copies: &[Copy]) -> Cell {
    let slowest = copies.iter().filter(|it| it.progress.is_some()).min_by_key(|it| it.progress);
    match slowest {
        Some(copy) => Cell::going(copy.progress, Tone::Busy, copy.work.clone()),
        None => Cell::text(copies.len().to_string()),
    }
}
