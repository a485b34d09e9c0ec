//! What a plan comes to: one write after the other, in the order in which they are done.
//!
//! A pass may end between any two of them, killed or because somebody else wrote first, and the next one
//! goes on from what is stored then. The walks of `decide` end passes at every one of these places.

use api::longhorn::{BackupTarget, BackupVolume, Engine, Replica, Volume, VolumeAttachment};
use api::scalar::Time;
use kube::ResourceExt;

use super::clone::AtOriginal;
use super::draft::{Plan, Seen};
use crate::replica::is_unwanted;

/// One write. Those that change an object change what is wanted first, and then its status.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'p> {
    /// Asked of the engine, before anything says that it is done.
    Revert(&'p str),
    Replica(&'p Replica, &'p Replica),
    MakeReplica(&'p Replica),
    Engine(&'p Engine, &'p Engine),
    MakeEngine(&'p Engine),
    Attachment(&'p VolumeAttachment, &'p VolumeAttachment),
    AtOriginal(&'p AtOriginal),
    /// Whatever was told comes after it.
    Volume(&'p Volume),
    /// The store is to be read anew.
    Sync(&'p BackupVolume, Time),
    /// What volumes the store has is to be read anew.
    SyncTarget(&'p BackupTarget, Time),
    /// Its process may end, and its data go, when it is deleted.
    LetGo(&'p Replica),
    Delete(&'p Replica),
}

/// Copies, then the engine, the attachment, the volume: a volume that has moved on is proof that the
/// others were told. What is not needed any more goes last.
pub(super) fn steps<'p>(seen: &'p Seen, plan: &'p Plan) -> Vec<Step<'p>> {
    let mut all = Vec::new();
    all.extend(plan.revert.as_deref().map(Step::Revert));
    let replicas = seen.replicas.iter().zip(&plan.replicas).filter(|(old, new)| old != new);
    all.extend(replicas.map(|(old, new)| Step::Replica(old, new)));
    all.extend(plan.create.iter().map(Step::MakeReplica));
    match (&seen.engine, &plan.engine) {
        (Some(old), Some(new)) if old != new => all.push(Step::Engine(old, new)),
        (None, Some(new)) => all.push(Step::MakeEngine(new)),
        (Some(_), Some(_)) | (_, None) => {}
    }
    if let (Some(old), Some(new)) = (&seen.attachment, &plan.attachment)
        && old != new
    {
        all.push(Step::Attachment(old, new));
    }
    // Before the volume says that it needs it no more.
    all.extend(plan.at_original.as_ref().map(Step::AtOriginal));
    all.push(Step::Volume(&plan.volume));
    match (&seen.backup_volume, &seen.target, plan.sync) {
        (Some(store), _, Some(at)) => all.push(Step::Sync(store, at)),
        (None, Some(target), Some(at)) => all.push(Step::SyncTarget(target, at)),
        (None, None, Some(_)) | (_, _, None) => {}
    }
    for replica in &seen.replicas {
        let name = replica.name_any();
        let goes = plan.delete.contains(&name);
        if (goes || plan.let_go.contains(&name)) && !plan.held.contains(&name) {
            all.push(Step::LetGo(replica));
        }
        if goes && !is_unwanted(replica) {
            all.push(Step::Delete(replica));
        }
    }
    all
}
