//! From detached to attached and back: one step at a time, and a detach that has begun runs to its
//! end before anything else starts.

use std::collections::{BTreeMap, BTreeSet};

use api::longhorn::{InstanceState, Replica, ReplicaMode, Robustness, VolumeState};
use api::scalar::Stamp;
use kube::ResourceExt;
use reconcile::Severity;

use super::draft::{
    Draft, Seen, fail, has_failed, is_active, is_at_rest, is_set, is_usable, node_of, process_state,
};
use crate::replica::address_of;

/// What a step does with the processes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Do {
    Open,
    Close,
    Nothing,
}

/// Where the volume is to be, compared with where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nowhere,
    Here,
    /// Attached or half attached, but not there.
    Elsewhere,
    /// Not attached to anything yet.
    Somewhere,
}

/// How the processes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processes {
    /// The engine answers.
    Open,
    /// Neither the engine nor a copy runs.
    Closed,
    /// The engine ended by itself.
    Broken,
    Between,
}

/// The step from a state, and what is done with the processes meanwhile.
pub(crate) fn step(state: &VolumeState, wanted: Wanted, processes: Processes) -> (VolumeState, Do) {
    use Processes as P;
    use VolumeState as S;
    use Wanted as W;
    match (state, wanted, processes) {
        // A detach, once begun, runs to its end.
        (S::Detaching, _, P::Closed) => (S::Detached, Do::Close),
        (S::Detaching, _, P::Open | P::Broken | P::Between) => (S::Detaching, Do::Close),
        (S::Unset | S::Creating, _, _) => (S::Detaching, Do::Close),
        (S::Detached, W::Nowhere, _) => (S::Detached, Do::Close),
        (S::Detached, W::Somewhere, P::Closed) => (S::Attaching, Do::Open),
        (S::Detached, W::Somewhere | W::Here | W::Elsewhere, _) => (S::Detaching, Do::Close),
        (S::Attaching, W::Somewhere, P::Open) => (S::Attached, Do::Open),
        (S::Attaching, W::Somewhere, P::Closed | P::Between) => (S::Attaching, Do::Open),
        // That it is to be detached is written down before anybody is told to end: a pass that ends
        // between the two, because somebody else wants the volume by now, leaves it as it was.
        (S::Attaching, W::Somewhere, P::Broken) => (S::Detaching, Do::Nothing),
        (S::Attaching, W::Nowhere | W::Here | W::Elsewhere, _) => (S::Detaching, Do::Nothing),
        (S::Attached, W::Here, P::Open) => (S::Attached, Do::Open),
        // It does not answer now, and nobody says that it ended.
        (S::Attached, W::Here, P::Between) => (S::Attached, Do::Nothing),
        (S::Attached, W::Here, P::Broken | P::Closed) => (S::Detaching, Do::Nothing),
        (S::Attached, W::Nowhere | W::Elsewhere | W::Somewhere, _) => (S::Detaching, Do::Nothing),
        (S::Deleting, _, _) => (S::Deleting, Do::Close),
        (S::Other(_), _, _) => (S::Detaching, Do::Close),
    }
}

impl Draft<'_> {
    fn wanted(&self) -> Wanted {
        let there = self.volume.spec.node_id.as_deref().unwrap_or_default();
        let here = self.status.current_node_id.as_deref().unwrap_or_default();
        match (there.is_empty(), here.is_empty(), there == here) {
            (true, _, _) => Wanted::Nowhere,
            (false, true, _) => Wanted::Somewhere,
            (false, false, true) => Wanted::Here,
            (false, false, false) => Wanted::Elsewhere,
        }
    }

    /// A process on a node that is gone cannot write: whoever comes next cuts it off.
    fn rests(&self, state: &InstanceState, node: Option<&str>) -> bool {
        is_at_rest(state) || (*state == InstanceState::Unknown && !self.is_up(node))
    }

    fn processes(&self) -> Processes {
        let engine = self.engine_state();
        let status = self.engine_status();
        let at = status.instance.owner_id.clone();
        if engine == InstanceState::Error {
            return Processes::Broken;
        }
        if engine == InstanceState::Running && status.instance.port.is_some_and(|port| port > 0) {
            return Processes::Open;
        }
        let engine_rests = self.rests(&engine, at.as_deref());
        let copies_rest =
            self.replicas.iter().all(|it| self.rests(&process_state(it), node_of(it)));
        if engine_rests && copies_rest {
            return Processes::Closed;
        }
        // Whoever began to detach it ended before that was written down: the engine was told to stop, and
        // has. Nothing else would start it again.
        let spec = self.seen.engine.as_ref().map(|it| &it.spec.instance);
        let is_told = spec.is_some_and(|it| it.desire_state == Some(InstanceState::Stopped));
        if self.state() == VolumeState::Attached && engine_rests && is_told {
            return Processes::Broken;
        }
        Processes::Between
    }

    pub(super) fn move_on(&mut self) {
        let (before, wanted, processes) = (self.state(), self.wanted(), self.processes());
        // Without an engine there is nothing to move.
        if self.engine.is_none() {
            return;
        }
        let (next, work) = step(&before, wanted, processes);
        if before == VolumeState::Attached && processes == Processes::Broken {
            let text =
                format!("Engine of volume {} dead unexpectedly, reattach the volume", self.name());
            self.status.remount_requested_at = Some(self.stamp());
            self.tell(Severity::Warning, "DetachedUnexpectedly", text);
        }
        match work {
            Do::Open => self.open(),
            Do::Close => self.close(),
            Do::Nothing => {}
        }
        match (&before, &next) {
            (VolumeState::Detached, VolumeState::Attaching) => self.renew_claim(),
            (VolumeState::Attaching, VolumeState::Attached) => self.say_attached(),
            (VolumeState::Detaching, VolumeState::Detached) => {
                self.status.current_node_id = Some(String::new());
                let text = format!("volume {} has been detached", self.name());
                self.tell(Severity::Normal, "Detached", text);
            }
            _ => {}
        }
        self.set_state(next);
    }

    /// Whoever is attached from now on has a higher right to the volume than all before, and no engine that
    /// comes late cuts it off. The clock takes part so that a volume whose object was put back to an
    /// earlier day is not behind its copies.
    fn renew_claim(&mut self) {
        let of_engine = self.engine.as_ref().and_then(|it| it.spec.claim_generation);
        let highest = self.status.claim_generation.max(of_engine).unwrap_or(0);
        let now = self.seen.now.as_second();
        self.status.claim_generation = Some(highest.saturating_add(1).max(now));
    }

    fn say_attached(&mut self) {
        let node = self.volume.spec.node_id.clone().unwrap_or_default();
        let text = format!("volume {} has been attached to {node}", self.name());
        self.status.current_node_id = Some(node);
        self.status.frontend_disabled = Some(self.volume.spec.disable_frontend == Some(true));
        self.tell(Severity::Normal, "Attached", text);
    }

    pub(super) fn stop_everything(&mut self) {
        self.volume.spec.node_id = Some(String::new());
        self.close();
    }

    /// The engine first; copies when it has ended, so that they end alike.
    fn close(&mut self) {
        if !self.is_faulted() {
            self.set_robustness(Robustness::Unknown);
        }
        let state = self.engine_state();
        let at = self.engine_status().instance.owner_id;
        let engine_rests = self.rests(&state, at.as_deref()) || state == InstanceState::Error;
        self.end_replacement();
        if let Some(engine) = &mut self.engine {
            engine.spec.instance.desire_state = Some(InstanceState::Stopped);
            engine.spec.instance.node_id = Some(String::new());
            engine.spec.replica_address_map = Some(BTreeMap::new());
        }
        if !engine_rests {
            return;
        }
        let any_data = self.replicas.iter().any(|it| is_set(it.spec.last_healthy_at.as_ref()));
        let now = self.failure();
        for replica in &mut self.replicas {
            replica.spec.instance.desire_state = Some(InstanceState::Stopped);
            let has_data = is_set(replica.spec.healthy_at.as_ref());
            // It was being filled, and the others have gone on without it.
            if any_data && !has_data && !has_failed(replica) && is_active(replica) {
                replica.spec.failed_at = Some(now.clone());
                replica.spec.last_failed_at = Some(now.clone());
            }
        }
    }

    /// Where a running engine has its copies. It alone says when one of them has failed: that the node
    /// of one is not heard of for a while is no reason to write on without it.
    fn held(&self) -> BTreeMap<String, String> {
        if !self.engine_runs() {
            return BTreeMap::new();
        }
        let status = self.engine_status();
        let Some(modes) = status.replica_mode_map else {
            // It has just begun, with what it was given.
            let given =
                self.seen.engine.as_ref().and_then(|it| it.spec.replica_address_map.clone());
            return given.unwrap_or_default();
        };
        let mut held = status.current_replica_address_map.unwrap_or_default();
        held.retain(|name, _| modes.get(name).is_some_and(|mode| *mode != ReplicaMode::Error));
        held
    }

    fn open(&mut self) {
        let runs = self.engine_runs();
        let held = self.held();
        let attached = matches!(self.state(), VolumeState::Attached) || runs;
        let any_data = self.replicas.iter().any(|it| is_set(it.spec.healthy_at.as_ref()));
        let limit = self.seen.settings.rebuilds_per_node;
        let rebuilding = self.seen.rebuilding.clone();
        let Seen { up, no_disk, .. } = self.seen;
        let mut map = BTreeMap::new();
        let mut waits = false;
        let mut away = BTreeSet::new();
        let goes = |it: &Replica| {
            let name = it.name_any();
            self.let_go.contains(&name) || self.delete.contains(&name)
        };
        // The engine lets go of it first, or begins without it. What is written from then on it does not have.
        for replica in self.replicas.iter_mut().filter(|it| is_usable(it) && goes(it)) {
            if !runs {
                away.insert(replica.name_any());
            } else if is_set(replica.spec.healthy_at.as_ref()) {
                replica.spec.healthy_at = Some(Stamp::never());
            }
        }
        for replica in self.replicas.iter_mut().filter(|it| is_usable(it) && !goes(it)) {
            let Some(node) = node_of(replica).map(str::to_owned) else { continue };
            if let Some(at) = held.get(&replica.name_any()) {
                map.insert(replica.name_any(), at.clone());
                continue;
            }
            let filling = any_data && !is_set(replica.spec.healthy_at.as_ref());
            if !up.contains(&node) {
                away.insert(replica.name_any());
                continue;
            }
            // One that has to be filled comes when the others are there.
            if filling && !attached {
                continue;
            }
            let already = replica.spec.instance.desire_state == Some(InstanceState::Running);
            let busy = rebuilding.get(&node).copied().unwrap_or(0) >= limit;
            if filling && !already && busy {
                continue;
            }
            replica.spec.instance.desire_state = Some(InstanceState::Running);
            match address_of(replica) {
                Some(at) => {
                    map.insert(replica.name_any(), at);
                }
                // It is not waited for while others are there.
                None if no_disk.contains(&replica.name_any()) => {
                    away.insert(replica.name_any());
                }
                None => waits = waits || !filling,
            }
        }
        let node = self.volume.spec.node_id.clone();
        let frontend = self.volume.spec.frontend.clone();
        let disable = self.volume.spec.disable_frontend == Some(true);
        let limits = (self.snapshot_limit(), self.volume.spec.snapshot_max_size, self.sync_limit());
        // What is written from now on the copies of nodes or disks that are away do not have. That is stored
        // before the engine begins, or one of them might be taken for good later.
        if !runs && !waits && !map.is_empty() {
            let now = self.failure();
            for replica in self.replicas.iter_mut().filter(|it| away.contains(&it.name_any())) {
                fail(replica, &now);
            }
        }
        let claim = self.status.claim_generation;
        let Some(engine) = &mut self.engine else { return };
        engine.spec.frontend = frontend;
        engine.spec.disable_frontend = Some(disable);
        (engine.spec.snapshot_max_count, engine.spec.snapshot_max_size) = (limits.0, limits.1);
        engine.spec.rebuild_concurrent_sync_limit = limits.2;
        // An engine that runs is told of copies as they come; a new one waits for all that are good.
        if runs || (!waits && !map.is_empty()) {
            engine.spec.replica_address_map = Some(map);
            engine.spec.instance.node_id = node;
            engine.spec.instance.desire_state = Some(InstanceState::Running);
        }
        if !runs {
            engine.spec.claim_generation = claim;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const STATES: [VolumeState; 5] = [
        VolumeState::Creating,
        VolumeState::Attached,
        VolumeState::Detached,
        VolumeState::Attaching,
        VolumeState::Detaching,
    ];
    const WANTED: [Wanted; 4] =
        [Wanted::Nowhere, Wanted::Here, Wanted::Elsewhere, Wanted::Somewhere];

    /// Processes that obey: closed ones open when told, open ones close, broken ones can be closed.
    fn obey(processes: Processes, work: Do) -> Processes {
        match (processes, work) {
            (Processes::Open | Processes::Broken, Do::Close) => Processes::Between,
            (Processes::Between, Do::Close) => Processes::Closed,
            (Processes::Closed, Do::Open) => Processes::Between,
            (Processes::Between, Do::Open) => Processes::Open,
            (same, _) => same,
        }
    }

    /// The place follows the state as the machine keeps it.
    fn seen(wants: bool, same: bool, state: &VolumeState) -> Wanted {
        let is_at = matches!(state, VolumeState::Attached);
        match (wants, is_at) {
            (false, _) => Wanted::Nowhere,
            (true, true) if same => Wanted::Here,
            (true, true) => Wanted::Elsewhere,
            (true, false) => Wanted::Somewhere,
        }
    }

    #[test]
    fn from_every_state_the_volume_gets_where_it_is_wanted() {
        let starts = [Processes::Open, Processes::Closed, Processes::Broken, Processes::Between];
        for start in STATES {
            for processes in starts {
                for wants in [true, false] {
                    let (mut state, mut now) = (start.clone(), processes);
                    let mut same = start != VolumeState::Attached;
                    for _ in 0..20 {
                        let wanted = seen(wants, same, &state);
                        let (next, work) = step(&state, wanted, now);
                        now = obey(now, work);
                        same = same || next == VolumeState::Detached;
                        state = next;
                    }
                    let end = if wants { VolumeState::Attached } else { VolumeState::Detached };
                    assert_eq!(state, end, "from {start:?}, {processes:?}");
                }
            }
        }
    }

    #[test]
    fn the_drawing_has_every_edge_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machines.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (_, part) = page.split_once("## A volume, between").unwrap();
        let (drawing, _) = part.split_once("\n## ").unwrap();
        let drawn: BTreeSet<(String, String)> = drawing
            .lines()
            .filter_map(|line| line.trim().split_once(" --> "))
            .map(|(from, to)| (from.to_owned(), to.to_owned()))
            .collect();
        let mut edges = BTreeSet::new();
        for state in STATES {
            for wanted in WANTED {
                for processes in
                    [Processes::Open, Processes::Closed, Processes::Broken, Processes::Between]
                {
                    let (next, _) = step(&state, wanted, processes);
                    if next != state {
                        edges.insert((state.as_str().to_owned(), next.as_str().to_owned()));
                    }
                }
            }
        }
        assert_eq!(drawn, edges);
    }

    #[test]
    fn a_detach_that_has_begun_runs_to_its_end() {
        for wanted in WANTED {
            for processes in [Processes::Open, Processes::Broken, Processes::Between] {
                let (next, work) = step(&VolumeState::Detaching, wanted, processes);
                assert_eq!((next, work), (VolumeState::Detaching, Do::Close));
            }
        }
    }

    #[test]
    fn nothing_opens_before_everything_is_closed() {
        for wanted in WANTED {
            for processes in [Processes::Open, Processes::Broken, Processes::Between] {
                let (next, _) = step(&VolumeState::Detached, wanted, processes);
                assert_ne!(next, VolumeState::Attaching, "{wanted:?} {processes:?}");
            }
        }
    }
}
