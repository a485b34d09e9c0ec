//! How the copies of a volume are, and the volume with them; more copies where some are missing, fewer
//! where there are too many.

use std::collections::BTreeMap;
use std::time::Duration;

use api::longhorn::{InstanceState, Replica, ReplicaMode, Robustness, VolumeState};
use api::scalar::{Stamp, Time};
use jiff::SignedDuration;
use kube::ResourceExt;
use reconcile::{Backoff, Severity};

use super::draft::{
    Draft, fail, has_failed, is_active, is_at_rest, is_leaving, is_set, is_there, is_usable,
    node_of, process_state,
};
use super::make::LAST_TRY;
use crate::DATA;
use crate::replica::{is_kept, is_unwanted};

/// Failed copies of a volume that restores whose failures are no further apart failed together; a time that lies
/// no further ahead is of this clock.
const SALVAGE_WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// How much later one failure may be seen than another that came after it: processes that ended are seen at once,
/// what the engine has dropped when it is looked at.
const SEEN_LATE: SignedDuration = SignedDuration::from_secs(15);
/// When a volume that follows another and lost all copies is tried again.
const FOLLOW_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// The condition of a volume that lost all copies and goes on with none of them.
const SALVAGE: &str = "Salvage";
/// The condition of a volume whose last good copy somebody has deleted.
const LAST_COPY: &str = "LastCopy";
/// The condition that tells of copies that are being filled.
const REBUILDING: &str = "Rebuilding";
/// Pauses before a failed copy is tried again.
const REUSE: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(3) };

/// What shows that another copy is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The engine reads it now. For what nobody asked to remove: it costs space, not more.
    Serves,
    /// Or it was whole last, its node is heard of, and its disk is there.
    Reachable,
}

impl Draft<'_> {
    /// Which copies have failed, and which are whole.
    pub(super) fn judge_copies(&mut self) {
        let modes = self.engine_status().replica_mode_map.filter(|_| self.engine_runs());
        // One that makes way for another is cut off by it: what it says of copies then is nothing.
        let modes = modes.filter(|_| !self.is_replacing());
        let failures = self.reported_failures();
        let (now, failure) = (self.stamp(), self.failure());
        // The engine has dropped one, and goes by its word on with others that have broken since: those are later.
        let drops = modes.iter().flatten().any(|(_, mode)| *mode == ReplicaMode::Error);
        let later = if drops { after(&failure) } else { failure.clone() };
        let seen = self.seen;
        // What an engine was told to drop is not made good by what it said before.
        let planned = self.engine.as_ref().and_then(|it| it.spec.replica_address_map.clone());
        let planned = planned.unwrap_or_default();
        let is_readable = |mode: &ReplicaMode| *mode == ReplicaMode::ReadWrite;
        let serves = modes.as_ref().is_some_and(|modes| modes.values().any(is_readable));
        let mut told = Vec::new();
        for replica in &mut self.replicas {
            let name = replica.name_any();
            // A twin is judged by whoever made it.
            if is_leaving(replica) || !is_active(replica) {
                continue;
            }
            let mode = modes.as_ref().and_then(|modes| modes.get(&name));
            let broke = process_state(replica) == InstanceState::Error
                && replica.spec.instance.desire_state == Some(InstanceState::Running);
            let reported = failures.get(&name);
            if let Some((reason, why)) = reported.filter(|_| !has_failed(replica)) {
                told.push((*reason, why.clone()));
            }
            // The engine goes on without it.
            let left_out = serves && mode.is_none() && is_usable(replica);
            let is_away = node_of(replica).is_some() && !is_there(seen, replica);
            if mode == Some(&ReplicaMode::Error)
                || broke
                || reported.is_some()
                || (left_out && is_away)
            {
                let still_counts = mode == Some(&ReplicaMode::ReadWrite);
                fail(replica, if still_counts { &later } else { &failure });
            } else if left_out {
                // Whatever it holds, it has to be filled before it counts again.
                if is_set(replica.spec.healthy_at.as_ref()) {
                    replica.spec.healthy_at = Some(Stamp::never());
                }
            } else if mode == Some(&ReplicaMode::ReadWrite)
                && planned.contains_key(&name)
                && is_usable(replica)
                && !is_set(replica.spec.healthy_at.as_ref())
            {
                replica.spec.healthy_at = Some(now.clone());
                replica.spec.last_healthy_at = Some(now.clone());
                replica.spec.rebuild_retry_count = Some(0);
            }
        }
        for (reason, why) in told {
            self.tell(Severity::Warning, reason, why);
        }
    }

    /// Copies are told that they are to leave their node or disk, and when that is taken back.
    pub(super) fn follow_eviction(&mut self) {
        for replica in &mut self.replicas {
            let asked = self.seen.evicting.contains(&replica.name_any());
            if replica.spec.eviction_requested.unwrap_or(false) != asked {
                replica.spec.eviction_requested = Some(asked);
            }
        }
    }

    /// What copies say against themselves while they restore, purge or are copied to, by name.
    fn reported_failures(&self) -> BTreeMap<String, (&'static str, String)> {
        let status = self.engine_status();
        let map = status.current_replica_address_map.unwrap_or_default();
        let (mut all, mut of_purges) = (BTreeMap::new(), BTreeMap::new());
        for (name, at) in map {
            let address = format!("tcp://{at}");
            let of_restore = status.restore_status.as_ref().and_then(|it| it.get(&address));
            let of_purge = status.purge_status.as_ref().and_then(|it| it.get(&address));
            let of_clone = status.clone_status.as_ref().and_then(|it| it.get(&address));
            let set = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
            if let Some(why) = of_restore.and_then(|it| set(it.error.as_ref())) {
                let text = format!("replica {name} failed the restore: {why}");
                all.insert(name, ("FailedRestore", text));
            } else if let Some(why) = of_purge.and_then(|it| set(it.error.as_ref())) {
                let text = format!("replica {name} failed the snapshot purge: {why}");
                of_purges.insert(name, ("FailedSnapshotPurge", text));
            } else if let Some(why) = of_clone.and_then(|it| set(it.error.as_ref())) {
                let text = format!("replica {name} failed the clone: {why}");
                all.insert(name, ("VolumeCloneFailed", text));
            }
        }
        // What all copies share is nothing against one of them: a volume is not taken down for it.
        let is_spared = |replica: &&Replica| {
            let name = replica.name_any();
            is_usable(replica)
                && self.mode(&name) == Some(ReplicaMode::ReadWrite)
                && !all.contains_key(&name)
                && !of_purges.contains_key(&name)
        };
        if self.replicas.iter().any(|it| is_spared(&it)) {
            all.extend(of_purges);
        }
        all
    }

    /// Copies the engine reads from and writes to.
    pub(super) fn whole_copies(&self) -> usize {
        let whole = |replica: &&Replica| {
            is_usable(replica) && self.mode(&replica.name_any()) == Some(ReplicaMode::ReadWrite)
        };
        self.replicas.iter().filter(whole).count()
    }

    /// Healthy, degraded or faulted; unknown while nobody can tell.
    pub(super) fn judge_volume(&mut self) {
        let before = self.robustness();
        // There is nothing in them yet.
        if self.is_unfilled_clone() && self.has_lost_all() {
            self.set_robustness(Robustness::Unknown);
            return;
        }
        if self.has_lost_all() {
            if before != Robustness::Faulted {
                let text = format!("volume {} became faulted", self.name());
                self.tell(Severity::Warning, "Faulted", text);
            }
            self.set_robustness(Robustness::Faulted);
            return;
        }
        // Somebody has said by hand which copy is good.
        if before == Robustness::Faulted
            && self.state() == VolumeState::Detached
            && self.has_good_copy()
        {
            self.set_robustness(Robustness::Unknown);
            return;
        }
        if self.engine_state() == InstanceState::Unknown && self.state() == VolumeState::Attached {
            self.say_robustness(&before, Robustness::Unknown);
            return;
        }
        if !self.engine_runs() || self.engine_status().replica_mode_map.is_none() {
            return;
        }
        let whole = self.whole_copies();
        let now =
            if whole >= self.copies_wanted() { Robustness::Healthy } else { Robustness::Degraded };
        if whole == 0 || !matches!(self.state(), VolumeState::Attached | VolumeState::Attaching) {
            return;
        }
        if now == Robustness::Degraded && before != Robustness::Degraded {
            self.status.last_degraded_at = Some(self.stamp());
        }
        self.say_robustness(&before, now);
    }

    /// Which copies are being filled, while some are.
    pub(super) fn say_rebuilding(&mut self) {
        let runs = self.state() == VolumeState::Attached && self.engine_runs();
        let is_filled = |it: &&Replica| {
            is_usable(it) && self.mode(&it.name_any()) == Some(ReplicaMode::WriteOnly)
        };
        let filled: Vec<String> = self
            .replicas
            .iter()
            .filter(is_filled)
            .filter(|_| runs)
            .map(|it| {
                let (name, node) = (it.name_any(), node_of(it).unwrap_or("(none)"));
                format!("{name} on node {node}: {} %", self.filled_percent(&name))
            })
            .collect();
        let known = self.status.conditions.iter().flatten().any(|it| it.kind == REBUILDING);
        if !filled.is_empty() {
            self.condition(REBUILDING, true, "ReplicaRebuilding", &filled.join(", "));
        } else if known {
            self.condition(REBUILDING, false, "", "");
        }
    }

    /// How far a copy is filled, in tens: each of them is a write of the volume.
    fn filled_percent(&self, name: &str) -> i32 {
        let status = self.engine_status();
        let map = status.current_replica_address_map.unwrap_or_default();
        let address = map.get(name).map(|at| format!("tcp://{at}")).unwrap_or_default();
        let of_rebuild = status.rebuild_status.as_ref().and_then(|it| it.get(&address)?.progress);
        let of_restore = status.restore_status.as_ref().and_then(|it| it.get(&address)?.progress);
        let percent = if self.restores() { of_restore } else { of_rebuild };
        percent.unwrap_or(0).clamp(0, 100) / 10 * 10
    }

    fn say_robustness(&mut self, before: &Robustness, now: Robustness) {
        if *before != now {
            let name = self.name();
            match &now {
                Robustness::Healthy if *before == Robustness::Degraded => {
                    self.tell(Severity::Normal, "Healthy", format!("volume {name} became healthy"));
                }
                Robustness::Degraded => {
                    self.tell(
                        Severity::Normal,
                        "Degraded",
                        format!("volume {name} became degraded"),
                    );
                }
                Robustness::Unknown => {
                    self.tell(
                        Severity::Warning,
                        "Unknown",
                        format!("volume {name} robustness is unknown"),
                    );
                }
                Robustness::Healthy
                | Robustness::Faulted
                | Robustness::Unset
                | Robustness::Other(_) => {}
            }
        }
        self.set_robustness(now);
    }

    /// No copy with data is left that has not failed, and at least one has.
    fn has_lost_all(&self) -> bool {
        let active = self.replicas.iter().filter(|it| is_active(it) && !is_leaving(it));
        active.clone().any(has_failed) && !self.has_good_copy()
    }

    /// A copy that has not failed and is whole; of a volume that never had data, any copy.
    fn has_good_copy(&self) -> bool {
        let any_data = self.replicas.iter().any(|it| is_set(it.spec.last_healthy_at.as_ref()));
        let is_whole = |it: &Replica| !any_data || is_set(it.spec.healthy_at.as_ref());
        self.replicas.iter().any(|it| is_usable(it) && is_whole(it))
    }

    /// What failed last is tried once more, where nothing better is left.
    pub(super) fn salvage(&mut self) {
        if self.engine_status().instance.salvage_executed == Some(true)
            && self.engine_runs()
            && let Some(engine) = &mut self.engine
        {
            engine.spec.instance.salvage_requested = Some(false);
        }
        if !self.is_faulted() {
            self.drop_condition(SALVAGE);
        }
        let may = self.is_faulted()
            && self.seen.settings.auto_salvage
            && self.state() == VolumeState::Detached
            && !self.is_unfilled_clone();
        if !may || (self.restores() && !self.follows_again()) {
            return;
        }
        match self.salvageable() {
            Ok(names) if !names.is_empty() => self.take_back(&names),
            Ok(_) => {}
            Err(why) => self.condition(SALVAGE, false, "NoCopyToSalvage", &why),
        }
    }

    /// A volume that follows another is tried again when a while has passed: a store that went away under it
    /// comes back, and what its copies hold is whole, or is completed. One that restores once has failed.
    fn follows_again(&mut self) -> bool {
        if self.status.is_standby != Some(true) {
            return false;
        }
        let failed = |it: &Replica| it.spec.failed_at.as_ref().and_then(Stamp::get);
        let last = self.replicas.iter().filter_map(failed).max();
        let waited = last.map_or(FOLLOW_AGAIN, |at| self.seen.now.duration_since(at));
        // One of a clock that was ahead is not waited for.
        if waited >= FOLLOW_AGAIN || waited < -SALVAGE_WINDOW {
            return true;
        }
        self.look_after(Duration::try_from(FOLLOW_AGAIN - waited).unwrap_or_default());
        false
    }

    /// The copies to go on with. Others may have been written to after a copy failed: only where one
    /// that failed last is there, what it failed with is. Nothing while that one has not ended yet;
    /// else what is missing.
    fn salvageable(&self) -> Result<Vec<String>, String> {
        let failed_at = |replica: &Replica| replica.spec.failed_at.as_ref().and_then(Stamp::get);
        // One that was being filled is none, whatever it held before. Where none was ever seen whole,
        // as in a new volume whose first engine did not come up, there was nothing to fill them with.
        let is_new = !self.replicas.iter().any(|it| is_set(it.spec.last_healthy_at.as_ref()));
        let was_whole = |it: &&Replica| {
            has_failed(it)
                && !is_leaving(it)
                && is_active(it)
                && (is_new || is_set(it.spec.healthy_at.as_ref()))
        };
        let whole: Vec<&Replica> = self.replicas.iter().filter(was_whole).collect();
        let Some(newest) = whole.iter().filter_map(|it| failed_at(it)).max() else {
            return Err("no copy was whole when it failed".to_owned());
        };
        let last = whole.iter().filter(|it| failed_at(it) == Some(newest));
        let is_ready = |it: &Replica| is_there(self.seen, it) && is_at_rest(&process_state(it));
        if !last.clone().any(|it| is_ready(it)) {
            let away: Vec<String> = last
                .filter(|it| !is_there(self.seen, it))
                .map(|it| format!("{} on node {}", it.name_any(), node_of(it).unwrap_or("(none)")))
                .collect();
            if away.is_empty() {
                return Ok(Vec::new());
            }
            return Err(format!("waits for what failed last, which is away: {}", away.join(", ")));
        }
        // What failed earlier may be behind: it would count as whole from here on, and be served alone where the
        // last one is not there when the volume is attached. It is filled instead. Which of two was the earlier
        // nobody knows where they were seen close to each other: the engine finds out by their records.
        // Copies that restore hold what the store gave them, and no client has written to one of them alone.
        let window = if self.restores() { SALVAGE_WINDOW } else { SEEN_LATE };
        let together = |it: &&&Replica| {
            is_ready(it) && failed_at(it).is_some_and(|at| newest.duration_since(at) <= window)
        };
        Ok(whole.iter().filter(together).map(|it| it.name_any()).collect())
    }

    fn take_back(&mut self, names: &[String]) {
        for replica in self.replicas.iter_mut().filter(|it| names.contains(&it.name_any())) {
            replica.spec.failed_at = Some(Stamp::never());
        }
        if let Some(engine) = &mut self.engine {
            engine.spec.instance.salvage_requested = Some(true);
        }
        let now = self.stamp();
        self.status.last_auto_salvaged_at = Some(now.clone());
        self.status.remount_requested_at = Some(now);
        self.set_robustness(Robustness::Unknown);
        self.drop_condition(SALVAGE);
        let text = format!("volume {}: {} will be salvaged", self.name(), names.join(", "));
        self.tell(Severity::Warning, "AutoSalvaged", text);
    }

    /// The engine has said how all copies are, and they are as planned.
    pub(super) fn is_synced(&self) -> bool {
        let status = self.engine_status();
        let Some(modes) = &status.replica_mode_map else { return false };
        let planned = self.seen.engine.as_ref().and_then(|it| it.spec.replica_address_map.as_ref());
        let planned = planned.map_or(0, BTreeMap::len);
        let settled = modes.values().all(|mode| *mode == ReplicaMode::ReadWrite);
        settled && modes.len() == planned
    }

    pub(super) fn is_growing(&self) -> bool {
        self.engine_status().current_size.is_some_and(|it| it.0 != self.size())
            || self.engine_status().is_expanding == Some(true)
    }

    /// One more copy, if one is missing: one that failed is used again, or another is made.
    pub(super) fn replenish(&mut self) {
        let may = self.state() == VolumeState::Attached
            && self.engine_runs()
            && self.seen.settings.rebuilds_per_node != 0
            && !self.is_faulted()
            && !self.is_unfilled_clone()
            && !self.is_growing()
            && !self.is_upgrading()
            && (!self.restores() || self.rebuilds_restores())
            && self.is_synced();
        // One that somebody has deleted, or wants elsewhere, serves until another does. The only copy of a
        // volume that is where its copy is has no other place.
        let may_leave = self.home().is_none();
        let leaves = |it: &Replica| may_leave && it.spec.eviction_requested == Some(true);
        let stays = |it: &&Replica| is_usable(it) && !is_unwanted(it) && !leaves(it);
        let usable = self.replicas.iter().filter(stays).count();
        let filling = self
            .replicas
            .iter()
            .any(|it| is_usable(it) && self.mode(&it.name_any()) != Some(ReplicaMode::ReadWrite));
        if !may || filling {
            return;
        }
        if usable >= self.copies_wanted() {
            self.draw_near();
            return;
        }
        // What a copy held of a backup cannot be filled up from the others: it is replaced.
        let keeps = !self.restores() && !self.clones();
        if keeps && self.use_again(None) {
            return;
        }
        let waits = keeps && self.replicas.iter().any(is_worth_waiting);
        // One of a clock that was ahead counts for nothing.
        let degraded_at = self.status.last_degraded_at.as_ref().and_then(Stamp::get);
        let degraded_at = degraded_at.filter(|at| *at <= self.seen.now);
        let timeout = self.seen.settings.replenish_wait;
        let left = degraded_at.map(|at| {
            let waited = self.seen.now.duration_since(at);
            let whole = SignedDuration::try_from(timeout).unwrap_or_default()
                + SignedDuration::from_secs(1);
            Duration::try_from(whole - waited).unwrap_or_default()
        });
        if let Some(left) = left.filter(|left| waits && !left.is_zero()) {
            self.look_after(left);
            return;
        }
        let copy = self.new_copy(LAST_TRY);
        self.create.push(copy);
        self.place_copies();
        self.drop_unplaced();
    }

    /// A copy that finds no place is not made: the condition says why.
    fn drop_unplaced(&mut self) {
        self.create.retain(|replica| node_of(replica).is_some());
    }

    /// How long it takes until a failed copy may be tried again.
    fn rest_of(&self, replica: &Replica) -> Duration {
        let tries = u32::try_from(replica.spec.rebuild_retry_count.unwrap_or(0)).unwrap_or(0);
        if tries == 0 {
            return Duration::ZERO;
        }
        let failed = replica.spec.failed_at.as_ref().and_then(Stamp::get).unwrap_or(self.seen.now);
        let waited = self.seen.now.duration_since(failed);
        // One of a clock that was ahead counts for nothing.
        if waited < -SALVAGE_WINDOW {
            return Duration::ZERO;
        }
        let pause = SignedDuration::try_from(REUSE.after(tries)).unwrap_or_default();
        Duration::try_from(pause - waited).unwrap_or_default()
    }

    /// The copy that failed last and can be filled again. Says whether one is, or will be soon.
    /// `at` names the only node that is of use.
    pub(super) fn use_again(&mut self, at: Option<&str>) -> bool {
        let reusable: Vec<usize> = (0..self.replicas.len())
            .filter(|index| {
                self.replicas.get(*index).is_some_and(|replica| {
                    is_worth_waiting(replica)
                        && is_there(self.seen, replica)
                        && at.is_none_or(|at| node_of(replica) == Some(at))
                        && replica.spec.eviction_requested != Some(true)
                })
            })
            .collect();
        let newest = reusable.into_iter().max_by_key(|index| {
            self.replicas.get(*index).and_then(|it| it.spec.failed_at.as_ref().and_then(Stamp::get))
        });
        let Some(index) = newest else { return false };
        let Some(replica) = self.replicas.get(index) else { return false };
        let rest = self.rest_of(replica);
        if !rest.is_zero() {
            self.look_after(rest);
            return false;
        }
        // It has not ended yet; its end is seen.
        if !is_at_rest(&process_state(replica)) {
            return true;
        }
        let image = self.status.current_image.clone();
        let Some(replica) = self.replicas.get_mut(index) else { return false };
        // Whatever served when it failed.
        replica.spec.instance.image = image;
        let tries = replica.spec.rebuild_retry_count.unwrap_or(0);
        replica.spec.failed_at = Some(Stamp::never());
        replica.spec.healthy_at = Some(Stamp::never());
        replica.spec.rebuild_retry_count = Some(tries.saturating_add(1));
        true
    }

    /// Copies that are of no more use.
    pub(super) fn clean_up(&mut self) {
        let stale = self.volume.spec.stale_replica_timeout.filter(|minutes| *minutes > 0);
        let now = self.seen.now;
        let names: Vec<String> = self
            .replicas
            .iter()
            .filter(|replica| {
                let old = stale.is_some_and(|minutes| {
                    let at = replica.spec.failed_at.as_ref().and_then(Stamp::get);
                    at.is_some_and(|at| {
                        now.duration_since(at) > SignedDuration::from_mins(minutes.into())
                    })
                });
                let given_up = replica.spec.rebuild_retry_count.unwrap_or(0) >= LAST_TRY;
                has_failed(replica)
                    && is_active(replica)
                    && !is_leaving(replica)
                    && (old || given_up || self.restores() || self.clones())
                    && self.is_safe_to_lose(replica, Proof::Serves)
            })
            .map(ResourceExt::name_any)
            .collect();
        self.delete.extend(names);
        if let Some(name) = self.surplus() {
            self.delete.insert(name);
        }
        self.keep_the_last();
    }

    /// Copies that somebody has deleted go when the others have all that they had.
    fn keep_the_last(&mut self) {
        for replica in &mut self.replicas {
            if !is_unwanted(replica) && !is_kept(replica) {
                replica.finalizers_mut().push(DATA.to_owned());
            }
        }
        let asked = self.replicas.iter().filter(|it| is_unwanted(it) && is_kept(it));
        let (free, last): (Vec<&Replica>, Vec<&Replica>) = asked.partition(|it| {
            self.delete.contains(&it.name_any()) || self.is_safe_to_lose(it, Proof::Reachable)
        });
        let names = |all: Vec<&Replica>| all.into_iter().map(ResourceExt::name_any).collect();
        let (free, last): (Vec<String>, Vec<String>) = (names(free), names(last));
        self.let_go.extend(free);
        if last.is_empty() {
            self.drop_condition(LAST_COPY);
            return;
        }
        let text = format!(
            "{} was deleted and has what no other copy has: it is kept until another is whole, or the volume is deleted",
            last.join(", ")
        );
        let known = self.status.conditions.iter().flatten().any(|it| it.kind == LAST_COPY);
        if !known {
            self.tell(Severity::Warning, "LastCopyKept", text.clone());
        }
        self.condition(LAST_COPY, true, "ReplicaKept", &text);
    }

    /// Another copy has all that this one ever had.
    fn is_safe_to_lose(&self, replica: &Replica, proof: Proof) -> bool {
        if !is_set(replica.spec.last_healthy_at.as_ref()) {
            return true;
        }
        let newer = |other: &Replica| {
            let healthy = other.spec.last_healthy_at.as_ref().and_then(Stamp::get);
            let failed = other.spec.last_failed_at.as_ref().and_then(Stamp::get);
            healthy.is_some() && failed.is_none_or(|failed| healthy > Some(failed))
        };
        // Of a volume at rest no copy is ever found to have failed: one on a node that is not
        // heard of, or on a disk that is not there, may be gone.
        self.replicas.iter().any(|other| {
            other.metadata.name != replica.metadata.name
                && is_usable(other)
                && !is_unwanted(other)
                && is_set(other.spec.healthy_at.as_ref())
                && (self.mode(&other.name_any()) == Some(ReplicaMode::ReadWrite)
                    || match proof {
                        Proof::Serves => false,
                        Proof::Reachable => newer(other) && is_there(self.seen, other),
                    })
        })
    }

    /// One copy too many, while all are whole: one to be evicted, or one on the fullest node.
    fn surplus(&self) -> Option<String> {
        if self.status.robustness != Some(Robustness::Healthy) || !self.is_synced() {
            return None;
        }
        let whole: Vec<&Replica> = self
            .replicas
            .iter()
            .filter(|it| is_usable(it) && !is_unwanted(it))
            .filter(|it| self.mode(&it.name_any()) == Some(ReplicaMode::ReadWrite))
            .collect();
        if whole.len() <= self.copies_wanted() {
            return None;
        }
        let beside = |replica: &Replica| {
            whole.iter().filter(|other| node_of(other) == node_of(replica)).count()
        };
        let is_near =
            |it: &Replica| self.wants_near().is_some_and(|near| node_of(it) == Some(near));
        let worst = whole.iter().max_by_key(|it| {
            (it.spec.eviction_requested == Some(true), !is_near(it), beside(it), it.name_any())
        });
        worst.map(|it| it.name_any())
    }
}

/// The next moment that stamps tell apart.
fn after(stamp: &Stamp) -> Stamp {
    let next = stamp.get().and_then(|at| at.checked_add(Duration::from_secs(1)).ok());
    next.map_or_else(|| stamp.clone(), |at| Stamp::from(Time::new(at)))
}

/// It may be filled again, here, before another is made.
fn is_worth_waiting(replica: &Replica) -> bool {
    has_failed(replica)
        && is_active(replica)
        && !is_leaving(replica)
        && node_of(replica).is_some()
        && replica.spec.rebuild_retry_count.unwrap_or(0) < LAST_TRY
}
