//! The tickets of the volume's own controllers, and what becomes of all of them.

use api::longhorn::{
    AttacherType, Robustness, Volume, VolumeAttachment, VolumeAttachmentStatus, VolumeState,
    VolumeStatus,
};
use api::scalar::Time;
use jiff::Timestamp;
use kube::ResourceExt;

use super::draft::Draft;
use crate::attachment::{self, Closed, Place, Seen};

impl Draft<'_> {
    /// A volume that restores, grows or is copied to attaches itself.
    pub(super) fn keep_tickets(&mut self) {
        let restores = self.restores() && !self.is_faulted();
        self.keep(AttacherType::VolumeRestoreController, restores, "true");
        self.keep(AttacherType::VolumeCloneController, self.works_at_clone(), "true");
        let grows =
            self.status.expansion_required == Some(true) && !self.restores() && !self.clones();
        // One that is attached grows where it is.
        let elsewhere = self.tickets.values().any(|ticket| {
            ticket.kind != Some(AttacherType::VolumeExpansionController)
                && ticket.kind != Some(AttacherType::VolumeRestoreController)
        });
        self.keep(AttacherType::VolumeExpansionController, grows && !elsewhere, "any");
    }

    fn keep(&mut self, kind: AttacherType, wanted: bool, disable_frontend: &str) {
        let name = self.name();
        self.keep_as(kind, &name, wanted, disable_frontend);
    }

    pub(super) fn keep_as(
        &mut self,
        kind: AttacherType,
        name: &str,
        wanted: bool,
        disable_frontend: &str,
    ) {
        let owner = self.status.owner_id.clone().unwrap_or_default();
        let (id, mut ticket) = attachment::own(kind, name, &owner, disable_frontend);
        let known = self.tickets.get(&id);
        if !wanted {
            self.tickets.remove(&id);
            return;
        }
        // It stays where it is while its node is there.
        if let Some(node) =
            known.and_then(|it| it.node_id.clone()).filter(|it| self.seen.up.contains(it))
        {
            ticket.node_id = Some(node);
        }
        if ticket.node_id.as_deref().is_none_or(str::is_empty) {
            return;
        }
        self.tickets.insert(id, ticket);
    }

    /// Where the volume is to be, by the tickets.
    pub(super) fn settle_tickets(&mut self) {
        if self.seen.attachment.is_none() {
            return;
        }
        let wanted = place(&self.volume);
        // While it restores, is copied to or reverted, nobody else gets it.
        let tickets = if self.revert_has_begun() {
            let own = self.revert_ticket();
            let mut tickets = self.tickets.clone();
            tickets.retain(|id, _| *id == own);
            tickets
        } else if self.clones() {
            let own =
                attachment::own(AttacherType::VolumeCloneController, &self.name(), "", "true").0;
            let mut tickets = self.tickets.clone();
            tickets.retain(|id, _| *id == own);
            tickets
        } else if self.restores() {
            let own = |kind: Option<&AttacherType>| {
                matches!(kind, Some(AttacherType::VolumeRestoreController))
            };
            let mut tickets = self.tickets.clone();
            tickets.retain(|_, ticket| own(ticket.kind.as_ref()));
            tickets
        } else {
            self.tickets.clone()
        };
        // Its only copy is on one node, and so is the volume.
        let mut tickets = tickets;
        if let Some(home) = self.home() {
            tickets.retain(|_, ticket| ticket.node_id.as_deref() == Some(home));
        }
        let state = self.state();
        let next = attachment::decide(&Seen {
            tickets: &tickets,
            wanted: &wanted,
            is_detached: state == VolumeState::Detached,
            is_faulted: self.status.robustness == Some(Robustness::Faulted),
            up: &self.seen.up,
        });
        if next != wanted {
            self.volume.spec.node_id = Some(next.node);
            self.volume.spec.disable_frontend = Some(next.disable_frontend);
            self.volume.spec.last_attached_by = Some(next.last_attached_by);
        }
    }
}

fn place(volume: &Volume) -> Place {
    Place {
        node: volume.spec.node_id.clone().unwrap_or_default(),
        disable_frontend: volume.spec.disable_frontend == Some(true),
        last_attached_by: volume.spec.last_attached_by.clone().unwrap_or_default(),
    }
}

/// Says how each ticket stands.
pub(super) fn report(
    attachment: &mut VolumeAttachment,
    volume: &Volume,
    status: &VolumeStatus,
    home: Option<&str>,
    now: Timestamp,
) {
    let attached = status.state == Some(VolumeState::Attached);
    let mut at = place(volume);
    if !attached {
        at.node.clear();
    }
    let tickets = attachment.spec.attachment_tickets.clone().unwrap_or_default();
    let closed =
        if status.is_standby == Some(true) { Some(Closed::Standby) } else { home.map(Closed::At) };
    let known = attachment.status.as_ref().and_then(|it| it.attachment_ticket_statuses.clone());
    let statuses = attachment::statuses(
        &volume.name_any(),
        &tickets,
        &known.unwrap_or_default(),
        (&at, closed),
        Time::new(now),
    );
    attachment.status = Some(VolumeAttachmentStatus { attachment_ticket_statuses: Some(statuses) });
}
