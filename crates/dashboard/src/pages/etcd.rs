//! What guards of etcd members tell of themselves in leases: members, and the newest snapshots.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use people::units::{age, date};

use super::Content;
use crate::chart::{Taken, timeline};
use crate::view::{Cell, Section, Table, Tone};
use crate::visit::Visit;
use crate::web::Oops;

/// A member that has not renewed its lease for so long is worth a look.
const LATE_SECONDS: i64 = 60;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let leases = visit.reader().everywhere::<Lease>().await?;
    let mut content = Content::titled("etcd");
    let (mut members, mut snapshots) = (Vec::new(), Vec::new());
    let mut taken: BTreeMap<String, Vec<Taken>> = BTreeMap::new();
    for lease in &leases.items {
        match Meaning::of(lease) {
            Meaning::Member { id, role } => members.push(member(lease, id, role, visit.now)),
            Meaning::Snapshot { kind, revision } => {
                snapshots.push(snapshot(lease, kind, revision, visit.now));
                let of = taken.entry(lease.namespace().unwrap_or_default()).or_default();
                of.extend(history(lease, kind == "full"));
            }
            Meaning::Other => {}
        }
    }
    let lines = taken.into_iter().filter_map(|(namespace, taken)| {
        let mut line = timeline(taken, visit.now)?;
        line.told = format!("Namespace {namespace}: {}", line.told);
        Some(line)
    });
    let lines: Vec<_> = lines.collect();
    if !lines.is_empty() {
        content.sections.push(Section::Charts(lines));
    }
    content.sections.push(Section::Table(Table {
        title: "Members".to_owned(),
        head: &["Namespace", "Member", "Role", "Id", "Last seen"],
        rows: members,
        none: "No etcd guard reports a member here. See holdfast etcd server --help.",
        foot: leases.foot(),
    }));
    content.sections.push(Section::Table(Table {
        title: "Newest snapshots".to_owned(),
        head: &["Namespace", "Lease", "Kind", "Revision", "Taken (UTC)", "Age"],
        rows: snapshots,
        none: "No etcd guard reports a snapshot here.",
        foot: None,
    }));
    Ok(content)
}

/// What a lease says.
#[derive(Debug, PartialEq, Eq)]
enum Meaning<'a> {
    /// `ID:ROLE`, or `ID:CLUSTER:ROLE`.
    Member {
        id: &'a str,
        role: &'a str,
    },
    Snapshot {
        kind: &'static str,
        revision: &'a str,
    },
    Other,
}

impl<'a> Meaning<'a> {
    fn of(lease: &'a Lease) -> Self {
        let holder = lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref());
        let holder = holder.unwrap_or_default();
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        let is_number = !holder.is_empty() && holder.bytes().all(|it| it.is_ascii_digit());
        let kind = match name {
            name if name.ends_with("full-snap") || name == "full-snapshot-revisions" => "full",
            name if name.ends_with("delta-snap") || name == "delta-snapshot-revisions" => "delta",
            _ => "",
        };
        if is_number && !kind.is_empty() {
            return Self::Snapshot { kind, revision: holder };
        }
        match (holder.split_once(':'), holder.rsplit_once(':')) {
            (Some((id, _)), Some((_, role @ ("Leader" | "Member" | "Follower" | "Learner")))) => {
                Self::Member { id, role }
            }
            _ => Self::Other,
        }
    }
}

/// The newest snapshots of a lease, as its guard has written them down: `TIME=REVISION` each.
const TAKEN: &str = "holdfast.io/taken";
/// Nobody sees more marks in a chart, and the lease is written by others.
const MOST: usize = 200;

fn history(lease: &Lease, is_full: bool) -> Vec<Taken> {
    let told = lease.metadata.annotations.as_ref().and_then(|it| it.get(TAKEN));
    let words = told.map(String::as_str).unwrap_or_default().split_ascii_whitespace();
    let taken = words.filter_map(|word| {
        let (at, revision) = word.split_once('=')?;
        Some(Taken { at: at.parse().ok()?, revision: revision.parse().ok()?, is_full })
    });
    taken.take(MOST).collect()
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

fn member(lease: &Lease, id: &str, role: &str, now: Timestamp) -> Vec<Cell> {
    let heard = renewed(lease);
    let is_late =
        heard.is_none_or(|at| now.as_second().saturating_sub(at.as_second()) > LATE_SECONDS);
    let told = heard.map_or_else(|| "never".to_owned(), |at| age(at, now) + " ago");
    vec![
        Cell::text(lease.namespace().unwrap_or_default()),
        Cell::text(lease.name_any()),
        Cell::badge(if role == "Leader" { Tone::Good } else { Tone::Plain }, role),
        Cell::text(id),
        Cell::badge(if is_late { Tone::Warn } else { Tone::Good }, told),
    ]
}

fn snapshot(lease: &Lease, kind: &str, revision: &str, now: Timestamp) -> Vec<Cell> {
    let at = renewed(lease);
    vec![
        Cell::text(lease.namespace().unwrap_or_default()),
        Cell::text(lease.name_any()),
        Cell::badge(Tone::Plain, kind),
        Cell::text(revision),
        Cell::text(at.map(date).unwrap_or_default()),
        Cell::text(at.map(|at| age(at, now)).unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_of_a_lease_is_read_as_far_as_it_can_be() {
        let told = "2026-11-16T12:00:00Z=5 x 2026-11-16T12:05:00Z=9 =3 2026-11-16T12:06:00Z=";
        let lease: Lease = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "etcd-main-full-snap", "annotations": {TAKEN: told}}
        }))
        .unwrap();
        let read: Vec<i64> = history(&lease, true).iter().map(|it| it.revision).collect();
        assert_eq!(read, [5, 9]);
    }

    #[test]
    fn leases_of_others_are_left_out() {
        let lease = |name: &str, holder: &str| -> Lease {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name}, "spec": {"holderIdentity": holder}
            }))
            .unwrap()
        };
        for (name, holder, wanted) in [
            ("etcd-main-0", "1af:Leader", Meaning::Member { id: "1af", role: "Leader" }),
            ("etcd-main-1", "1af:c3:Member", Meaning::Member { id: "1af", role: "Member" }),
            ("etcd-main-full-snap", "42", Meaning::Snapshot { kind: "full", revision: "42" }),
            ("delta-snapshot-revisions", "7", Meaning::Snapshot { kind: "delta", revision: "7" }),
            ("etcd-main-full-snap", "", Meaning::Other),
            ("holdfast-controllers", "host_12", Meaning::Other),
            ("node-1", "42", Meaning::Other),
        ] {
            assert_eq!(Meaning::of(&lease(name, holder)), wanted, "{name}");
        }
    }
}
