//! What becomes of a volume. Pure: everything it depends on is in [`Seen`], and what it says is a
//! [`Plan`]. The parts are in the order in which they are asked, each in a file of its own.

use api::longhorn::VolumeState;
use kube::ResourceExt;
use reconcile::Severity;

use super::draft::{Draft, Plan, Seen, Source, is_leaving};
use crate::FINALIZER;

/// `fresh` gives eight hexadecimal digits, others each time.
pub(crate) fn decide(seen: &Seen, fresh: &mut dyn FnMut() -> String) -> Plan {
    if seen.volume.metadata.deletion_timestamp.is_some() {
        return leave(seen, fresh);
    }
    let mut draft = Draft::new(seen, fresh);
    if !draft.volume.finalizers().iter().any(|it| it == FINALIZER) {
        draft.volume.finalizers_mut().push(FINALIZER.to_owned());
    }
    if draft.state() == VolumeState::Unset {
        draft.set_state(VolumeState::Creating);
    }
    draft.disbelieve();
    draft.fill_in();
    draft.choose_owner();
    if let Some(why) = draft.lacks_image() {
        return draft.wait_for_image(&why);
    }
    if let Source::Missing(why) = &seen.source
        && draft.may_begin_restore()
    {
        let why = why.clone();
        return draft.wait_for_source(&why);
    }
    if draft.begin_clone().is_err() {
        return draft.wait_for_original();
    }
    draft.begin_restore();
    draft.follow_backups();
    draft.make_engine();
    draft.make_first_copies();
    draft.place_copies();
    draft.follow_size();
    draft.follow_usage();
    draft.follow_image();
    draft.follow_eviction();
    draft.judge_copies();
    draft.follow_clone();
    draft.judge_volume();
    draft.say_rebuilding();
    draft.salvage();
    draft.replenish();
    draft.clean_up();
    draft.finish_restore();
    draft.remember_restored();
    draft.finish_clone();
    draft.remember_copied();
    draft.forget_activation();
    draft.keep_tickets();
    draft.follow_revert();
    draft.settle_tickets();
    draft.move_on();
    draft.say_restore();
    draft.say_starting();
    draft.reverted();
    draft.finish()
}

/// A volume that is being deleted takes everything with it.
fn leave(seen: &Seen, fresh: &mut dyn FnMut() -> String) -> Plan {
    let mut draft = Draft::new(seen, fresh);
    if draft.state() != VolumeState::Deleting {
        draft.set_state(VolumeState::Deleting);
        let text = format!("Deleting volume {}", draft.name());
        draft.tell(Severity::Normal, "Delete", text);
    }
    // Nobody gets it any more, and nothing of it is to run.
    draft.stop_everything();
    let left = seen.engine.is_some() || !seen.replicas.is_empty() || seen.has_snapshots;
    let gone: Vec<String> =
        seen.replicas.iter().filter(|it| !is_leaving(it)).map(ResourceExt::name_any).collect();
    draft.let_go.extend(gone.iter().cloned());
    draft.delete.extend(gone);
    let mut plan = draft.finish();
    plan.dismantle = true;
    plan.release = !left;
    plan
}

#[cfg(test)]
mod tests;
