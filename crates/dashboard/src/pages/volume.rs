//! One volume: its copies, the tree of its snapshots, its backups.

use std::collections::{BTreeMap, BTreeSet};

use api::longhorn::{Backup, Engine, Replica, Snapshot, Volume};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::backup::volume_of;
use people::snapshot::{ready, taken};
use people::units::{age, bytes, date};
use people::volume::{Copy, robustness, state, why};

use super::volumes::{of_volume, word};
use super::{Content, backups, tone};
use crate::view::{Cell, Field, Form, Section, Table, Tone, Twig, path};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit, name: &str) -> Result<Content, Oops> {
    let reader = visit.reader();
    let (volume, engines, replicas, snapshots, mut backups) = futures::try_join!(
        reader.volume_named::<Volume>(name),
        reader.volumes::<Engine>(),
        reader.volumes::<Replica>(),
        reader.volumes::<Snapshot>(),
        reader.volumes::<Backup>(),
    )?;
    backups.items.retain(|it| volume_of(it) == name);
    let own = snapshots.items.iter().filter(|it| it.spec.volume.as_deref() == Some(name));
    let engine =
        engines.items.iter().find(|it| it.spec.instance.volume_name.as_deref() == Some(name));
    let mut content = Content::titled(format!("Volume {name}"));
    content.forms = forms(name, visit.now);
    content.sections.push(Section::Facts(facts(&volume, engine, visit.now)));
    let told = why(&volume);
    if !told.is_empty() {
        content.sections.push(Section::Verdict { tone: Tone::Warn, text: told });
    }
    let copies = of_volume(name, &engines.items, &replicas.items);
    content.sections.push(Section::Table(copies_table(copies)));
    let twigs = tree(&own.collect::<Vec<_>>(), visit.now);
    content.sections.push(Section::Tree { title: "Snapshots, oldest first", twigs });
    content.sections.push(Section::Table(backups::table(
        "Backups",
        "This volume has no backups yet.",
        &mut backups,
        visit.now,
    )));
    Ok(content)
}

fn facts(volume: &Volume, engine: Option<&Engine>, now: Timestamp) -> Vec<(&'static str, String)> {
    let status = volume.status.clone().unwrap_or_default();
    let served = engine.and_then(|it| it.status.as_ref()?.endpoint.clone());
    let from = volume.spec.from_backup.clone().or_else(|| volume.spec.data_source.clone());
    let facts = [
        ("State", state(volume).as_str().to_owned()),
        ("Robustness", robustness(volume).as_str().to_owned()),
        ("Size", volume.spec.size.map(|it| bytes(it.0.unsigned_abs())).unwrap_or_default()),
        ("Used", status.actual_size.map(|it| bytes(it.unsigned_abs())).unwrap_or_default()),
        ("Node", status.current_node_id.unwrap_or_default()),
        ("Served at", served.unwrap_or_default()),
        ("Made from", from.map(|it| people::redact::url(&it)).unwrap_or_default()),
        ("Age", people::age(volume, now)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn forms(name: &str, now: Timestamp) -> Vec<Form> {
    let folder = path("/volumes", name);
    let named = people::snapshot::named(name, now);
    vec![
        Form {
            id: "back-up".to_owned(),
            label: "Back up",
            told: "Takes a snapshot and backs it up. Only changed blocks are sent.".to_owned(),
            action: format!("{folder}/backup"),
            button: "Back up now",
            tone: Tone::Good,
            fields: vec![Field::name("Name of the backup", named.clone())],
        },
        Form {
            id: "snapshot".to_owned(),
            label: "Snapshot",
            told: "Takes a snapshot, which is kept in the volume.".to_owned(),
            action: format!("{folder}/snapshot"),
            button: "Take snapshot",
            tone: Tone::Plain,
            fields: vec![Field::name("Name of the snapshot", named)],
        },
        Form {
            id: "delete-volume".to_owned(),
            label: "Delete",
            told: format!(
                "Deletes volume {name} with all its copies and snapshots. Its backups are kept."
            ),
            action: format!("{folder}/delete"),
            button: "Delete permanently",
            tone: Tone::Bad,
            fields: Vec::new(),
        },
    ]
}

fn copies_table(copies: Vec<Copy>) -> Table {
    let rows = copies.into_iter().map(|it| {
        vec![
            Cell::text(it.name),
            if it.mode == "-" { Cell::text("") } else { Cell::badge(tone(it.mode), it.mode) },
            word(&it.state),
            Cell::text(it.node),
            match it.progress {
                Some(progress) => Cell::going(Some(progress), Tone::Busy, it.work),
                None => Cell::text(""),
            },
        ]
    });
    Table {
        title: "Copies".to_owned(),
        head: &["Copy", "Mode", "State", "Node", "Work"],
        rows: rows.collect(),
        none: "This volume has no copies yet.",
        foot: None,
    }
}

/// The tree of snapshots as lines: a chain stays at its depth, a branch goes one deeper.
fn tree(snapshots: &[&Snapshot], now: Timestamp) -> Vec<Twig> {
    let mut children: BTreeMap<String, Vec<&Snapshot>> = BTreeMap::new();
    let names: BTreeSet<String> = snapshots.iter().map(|it| it.name_any()).collect();
    for snapshot in snapshots {
        let parent = snapshot.status.as_ref().and_then(|it| it.parent.clone());
        // One that is not an object here is as good as none.
        let parent = parent.filter(|it| names.contains(it)).unwrap_or_default();
        children.entry(parent).or_default().push(snapshot);
    }
    for below in children.values_mut() {
        // Taken off a stack: the newest goes in first.
        below.sort_by_key(|it| std::cmp::Reverse((taken(it), it.name_any())));
    }
    let below = |of: &str| children.get(of).cloned().unwrap_or_default();
    let mut twigs = Vec::new();
    let mut seen = BTreeSet::new();
    let mut stack: Vec<(usize, &Snapshot)> = below("").into_iter().map(|it| (0, it)).collect();
    while let Some((depth, snapshot)) = stack.pop() {
        let name = snapshot.name_any();
        if !seen.insert(name.clone()) {
            continue;
        }
        twigs.push(Twig { depth, name: name.clone(), detail: detail(snapshot, now) });
        let below = below(&name);
        let deeper = depth + usize::from(below.len() > 1);
        stack.extend(below.into_iter().map(|it| (deeper, it)));
    }
    twigs
}

fn detail(snapshot: &Snapshot, now: Timestamp) -> String {
    let status = snapshot.status.clone().unwrap_or_default();
    let when = taken(snapshot).map(|at| format!("{}, {} ago", date(at), age(at, now)));
    let size = status.size.map(|it| bytes(it.unsigned_abs()));
    let stand = match (status.error.filter(|it| !it.is_empty()), ready(snapshot)) {
        (Some(error), _) => Some(error),
        (None, true) => None,
        (None, false) => Some("being taken".to_owned()),
    };
    let told: Vec<_> = [when, size, stand].into_iter().flatten().collect();
    told.join(" · ")
}

#[cfg(test)]
mod tests {
    use api::longhorn::SnapshotStatus;

    use super::*;

    fn snapshot(name: &str, parent: &str, hour: u8) -> Snapshot {
        let mut it = people::snapshot::asked("v", name);
        it.status = Some(SnapshotStatus {
            parent: Some(parent.to_owned()),
            creation_time: Some(format!("2026-11-16T{hour:02}:00:00Z").as_str().into()),
            ready_to_use: Some(true),
            ..SnapshotStatus::default()
        });
        it
    }

    fn lines(snapshots: &[Snapshot]) -> Vec<(usize, String)> {
        let all: Vec<_> = snapshots.iter().collect();
        let twigs = tree(&all, "2026-11-16T12:00:00Z".parse().unwrap());
        twigs.into_iter().map(|it| (it.depth, it.name)).collect()
    }

    #[test]
    fn a_chain_stays_straight_and_a_branch_goes_deeper() {
        let all = [
            snapshot("c", "b", 3),
            snapshot("a", "", 1),
            snapshot("b", "a", 2),
            snapshot("d", "b", 4),
            snapshot("e", "c", 5),
        ];
        let wanted = [(0, "a"), (0, "b"), (1, "c"), (1, "e"), (1, "d")];
        assert_eq!(lines(&all), wanted.map(|(depth, name)| (depth, name.to_owned())));
    }

    #[test]
    fn a_circle_ends_and_a_lost_parent_is_none() {
        assert_eq!(lines(&[snapshot("a", "b", 1), snapshot("b", "a", 2)]), []);
        assert_eq!(lines(&[snapshot("a", "gone", 1)]), [(0, "a".to_owned())]);
    }
}
