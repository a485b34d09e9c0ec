//! Tickets: who wants a volume attached where, and who gets it. Pure.
//!
//! A volume is attached where the ticket of the highest priority wants it, and stays there while any
//! ticket wants it there the way it is. Only this module decides about `Volume.spec.nodeID`.

use std::collections::{BTreeMap, BTreeSet};

use api::condition::{self, Verdict};
use api::longhorn::{
    AttacherType, AttachmentTicket, AttachmentTicketStatus, Condition, VolumeAttachment,
};
use api::scalar::Time;

/// How a volume is attached, or is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Empty: nowhere.
    pub node: String,
    pub disable_frontend: bool,
    pub last_attached_by: String,
}

/// What decides about tickets.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub tickets: &'a BTreeMap<String, AttachmentTicket>,
    /// As `spec` has it.
    pub wanted: &'a Place,
    /// Nothing of it is attached or under way.
    pub is_detached: bool,
    pub is_faulted: bool,
    /// Nodes a volume can be attached to.
    pub up: &'a BTreeSet<String>,
}

/// Where the volume is to be from now on.
pub fn decide(seen: &Seen<'_>) -> Place {
    if !seen.wanted.node.is_empty() {
        return if must_leave(seen) { Place::default() } else { seen.wanted.clone() };
    }
    if !seen.is_detached || seen.is_faulted {
        return seen.wanted.clone();
    }
    let reachable = seen.tickets.iter().filter(|(_, ticket)| seen.up.contains(node(ticket)));
    // The highest priority; of equals, the smallest id.
    let best =
        reachable.max_by(|a, b| priority(a.1).cmp(&priority(b.1)).then_with(|| b.0.cmp(a.0)));
    best.map_or_else(Place::default, |(_, ticket)| Place {
        node: node(ticket).to_owned(),
        disable_frontend: parameter(ticket, "disableFrontend") == "true",
        last_attached_by: parameter(ticket, "lastAttachedBy").to_owned(),
    })
}

fn must_leave(seen: &Seen<'_>) -> bool {
    if seen.is_faulted {
        return true;
    }
    let here: Vec<&AttachmentTicket> =
        seen.tickets.values().filter(|ticket| fits(ticket, seen.wanted)).collect();
    let elsewhere =
        seen.tickets.values().any(|ticket| is_workload(ticket) && node(ticket) != seen.wanted.node);
    here.is_empty() || (elsewhere && here.iter().all(|ticket| is_interruptible(ticket)))
}

fn node(ticket: &AttachmentTicket) -> &str {
    ticket.node_id.as_deref().unwrap_or_default()
}

fn parameter<'t>(ticket: &'t AttachmentTicket, name: &str) -> &'t str {
    ticket.parameters.as_ref().and_then(|it| it.get(name)).map_or("", String::as_str)
}

/// Whether the ticket is content with the volume as it is.
fn fits(ticket: &AttachmentTicket, place: &Place) -> bool {
    node(ticket) == place.node && agrees(ticket, place)
}

fn agrees(ticket: &AttachmentTicket, place: &Place) -> bool {
    match parameter(ticket, "disableFrontend") {
        "any" => true,
        "true" => place.disable_frontend,
        _ => !place.disable_frontend,
    }
}

fn priority(ticket: &AttachmentTicket) -> u32 {
    match ticket.kind.as_ref() {
        Some(AttacherType::VolumeRestoreController | AttacherType::VolumeExpansionController) => {
            2000
        }
        Some(AttacherType::LonghornApi) => 1000,
        Some(
            AttacherType::CsiAttacher
            | AttacherType::SalvageController
            | AttacherType::ShareManagerController,
        ) => 900,
        Some(
            AttacherType::SnapshotController
            | AttacherType::BackupController
            | AttacherType::VolumeCloneController
            | AttacherType::VolumeEvictionController
            | AttacherType::VolumeRebuildingController
            | AttacherType::BackingImageDataSourceController,
        ) => 800,
        Some(AttacherType::Other(_)) | None => 0,
    }
}

fn is_workload(ticket: &AttachmentTicket) -> bool {
    matches!(
        ticket.kind,
        Some(
            AttacherType::CsiAttacher
                | AttacherType::LonghornApi
                | AttacherType::ShareManagerController
        )
    )
}

fn is_interruptible(ticket: &AttachmentTicket) -> bool {
    matches!(
        ticket.kind,
        Some(
            AttacherType::SnapshotController
                | AttacherType::BackupController
                | AttacherType::VolumeRebuildingController
        )
    )
}

/// What keeps tickets of others from being satisfied, whatever they ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed<'a> {
    /// It follows another volume until it is activated.
    Standby,
    /// Its only copy is on this node.
    At(&'a str),
}

/// How each ticket stands.
pub fn statuses(
    volume: &str,
    tickets: &BTreeMap<String, AttachmentTicket>,
    old: &BTreeMap<String, AttachmentTicketStatus>,
    (attached, closed): (&Place, Option<Closed<'_>>),
    now: Time,
) -> BTreeMap<String, AttachmentTicketStatus> {
    let one = |(id, ticket): (&String, &AttachmentTicket)| {
        let here = !attached.node.is_empty() && node(ticket) == attached.node;
        let satisfied = here && agrees(ticket, attached);
        let restores = ticket.kind == Some(AttacherType::VolumeRestoreController);
        // A volume that follows another is attached for that alone.
        let satisfied = satisfied && (closed != Some(Closed::Standby) || restores);
        let (reason, message) = if closed == Some(Closed::Standby) && !restores {
            let text = format!(
                "volume {volume} is a standby volume and follows another: activate it (spec.Standby: false) before it is attached"
            );
            ("StandbyVolume", text)
        } else if here && !satisfied {
            let text = format!(
                "volume {volume} has already attached to node {} with incompatible parameters",
                attached.node
            );
            ("AttachedWithIncompatibleParameters", text)
        } else if let Some(Closed::At(home)) = closed
            && node(ticket) != home
        {
            let text = format!(
                "volume {volume} is strict-local and its only copy is on node {home}: it can be attached there"
            );
            ("CopyIsElsewhere", text)
        } else {
            ("", String::new())
        };
        let known = old.get(id).and_then(|it| it.conditions.clone());
        let mut conditions: Vec<Condition> = known.unwrap_or_default();
        condition::set(
            &mut conditions,
            &Verdict::new("Satisfied", satisfied, reason, message),
            now,
        );
        let status = AttachmentTicketStatus {
            id: Some(id.clone()),
            satisfied,
            conditions: Some(conditions),
            generation: ticket.generation,
        };
        (id.clone(), status)
    };
    tickets.iter().map(one).collect()
}

/// Longer ids are cut, and do not say any more whose they are.
const ID_MAX_CHARS: usize = 253;

/// The names of the objects for which tickets of this sort are, as far as their ids say so.
pub(crate) fn holders(attachment: &VolumeAttachment, kind: &AttacherType) -> Vec<String> {
    let prefix = format!("{}-", kind.as_str());
    let tickets = attachment.spec.attachment_tickets.iter().flatten();
    let of_kind = tickets.filter(|(id, ticket)| {
        ticket.kind.as_ref() == Some(kind) && id.chars().count() < ID_MAX_CHARS
    });
    of_kind.filter_map(|(id, _)| id.strip_prefix(&prefix).map(str::to_owned)).collect()
}

/// The attachment without the ticket that an object of ours had; nothing if it had none.
pub(crate) fn without(
    attachment: &VolumeAttachment,
    kind: AttacherType,
    object: &str,
) -> Option<VolumeAttachment> {
    let (id, _) = own(kind, object, "", "");
    let mut next = attachment.clone();
    next.spec.attachment_tickets.as_mut()?.remove(&id)?;
    Some(next)
}

/// A ticket of one of our own controllers: its id and the ticket.
pub(crate) fn own(
    kind: AttacherType,
    object: &str,
    node: &str,
    disable_frontend: &str,
) -> (String, AttachmentTicket) {
    let id: String = format!("{}-{object}", kind.as_str()).chars().take(ID_MAX_CHARS).collect();
    let parameters = [("disableFrontend", disable_frontend), ("lastAttachedBy", "")];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let ticket = AttachmentTicket {
        id: Some(id.clone()),
        kind: Some(kind),
        node_id: Some(node.to_owned()),
        parameters: Some(parameters.into_iter().collect()),
        generation: Some(0),
    };
    (id, ticket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(kind: AttacherType, node: &str, frontend: &str) -> AttachmentTicket {
        own(kind, "x", node, frontend).1
    }

    fn tickets(all: &[(&str, AttachmentTicket)]) -> BTreeMap<String, AttachmentTicket> {
        all.iter().map(|(id, ticket)| ((*id).to_owned(), ticket.clone())).collect()
    }

    fn settle(all: &[(&str, AttachmentTicket)], wanted: &Place, faulted: bool) -> Place {
        let up = ["n1", "n2"].map(str::to_owned).into_iter().collect();
        decide(&Seen {
            tickets: &tickets(all),
            wanted,
            is_detached: wanted.node.is_empty(),
            is_faulted: faulted,
            up: &up,
        })
    }

    fn at(node: &str, disable_frontend: bool) -> Place {
        Place { node: node.into(), disable_frontend, last_attached_by: String::new() }
    }

    #[test]
    fn the_highest_priority_wins_and_the_smallest_id_among_equals() {
        let api = ticket(AttacherType::LonghornApi, "n1", "false");
        let csi = ticket(AttacherType::CsiAttacher, "n2", "false");
        let restore = ticket(AttacherType::VolumeRestoreController, "n2", "true");
        let nowhere = Place::default();
        assert_eq!(settle(&[("b", api.clone()), ("a", csi)], &nowhere, false), at("n1", false));
        let other = ticket(AttacherType::LonghornApi, "n2", "false");
        assert_eq!(settle(&[("b", api.clone()), ("a", other)], &nowhere, false), at("n2", false));
        assert_eq!(settle(&[("b", api.clone()), ("a", restore)], &nowhere, false), at("n2", true));
        let away = ticket(AttacherType::VolumeRestoreController, "n9", "true");
        assert_eq!(settle(&[("a", away), ("b", api.clone())], &nowhere, false), at("n1", false));
        assert_eq!(settle(&[("b", api)], &nowhere, true), nowhere);
        assert_eq!(settle(&[], &nowhere, false), nowhere);
    }

    #[test]
    fn a_volume_stays_while_somebody_wants_it_as_it_is() {
        let api = ticket(AttacherType::LonghornApi, "n1", "false");
        let any = ticket(AttacherType::BackupController, "n1", "any");
        let here = at("n1", false);
        assert_eq!(settle(&[("a", api.clone())], &here, false), here);
        assert_eq!(settle(&[("a", any.clone())], &here, false), here);
        assert_eq!(settle(&[], &here, false), Place::default());
        assert_eq!(settle(&[("a", api.clone())], &here, true), Place::default());
        assert_eq!(settle(&[("a", api)], &at("n1", true), false), Place::default());
    }

    #[test]
    fn work_that_can_wait_gives_way_to_somebody_elsewhere() {
        let backup = ticket(AttacherType::BackupController, "n1", "any");
        let expansion = ticket(AttacherType::VolumeExpansionController, "n1", "false");
        let csi = ticket(AttacherType::CsiAttacher, "n2", "false");
        let here = at("n1", false);
        assert_eq!(settle(&[("a", backup), ("b", csi.clone())], &here, false), Place::default());
        assert_eq!(settle(&[("a", expansion), ("b", csi)], &here, false), here);
    }

    /// Whoever removed the object by force has left it: the volume would stay attached for ever.
    #[test]
    fn a_ticket_says_whose_it_is_and_goes_without_them() {
        let mut attachment = VolumeAttachment::default();
        let long = "l".repeat(300);
        let kind = AttacherType::BackupController;
        let all = [(kind.clone(), "b-1"), (kind.clone(), &long), (AttacherType::CsiAttacher, "x")];
        let all = all.map(|(kind, name)| own(kind, name, "n1", "any"));
        attachment.spec.attachment_tickets = Some(all.into());
        assert_eq!(holders(&attachment, &kind), ["b-1"]);
        assert_eq!(holders(&attachment, &AttacherType::SnapshotController), Vec::<String>::new());
        let left = without(&attachment, kind.clone(), "b-1").unwrap();
        assert_eq!(left.spec.attachment_tickets.as_ref().unwrap().len(), 2);
        assert_eq!(without(&left, kind, "b-1"), None);
    }

    #[test]
    fn a_ticket_is_satisfied_by_node_and_frontend() {
        let all = tickets(&[
            ("a", ticket(AttacherType::LonghornApi, "n1", "false")),
            ("b", ticket(AttacherType::VolumeRestoreController, "n1", "true")),
            ("c", ticket(AttacherType::LonghornApi, "n2", "false")),
        ]);
        let now = Time::new(jiff::Timestamp::UNIX_EPOCH);
        let found = statuses("v", &all, &BTreeMap::new(), (&at("n1", true), None), now);
        assert!(!found["a"].satisfied && found["b"].satisfied && !found["c"].satisfied);
        let reason = found["a"].conditions.as_ref().unwrap()[0].reason.clone();
        assert_eq!(reason.as_deref(), Some("AttachedWithIncompatibleParameters"));
        assert_eq!(found["c"].conditions.as_ref().unwrap()[0].reason.as_deref(), Some(""));
        let standby = Some(Closed::Standby);
        let found = statuses("v", &all, &BTreeMap::new(), (&at("n1", true), standby), now);
        assert!(!found["a"].satisfied && found["b"].satisfied && !found["c"].satisfied);
        for id in ["a", "c"] {
            let told = found[id].conditions.as_ref().unwrap()[0].message.clone().unwrap();
            assert!(told.contains("activate it"), "{told}");
        }
    }
}
