//! Cells of Pods: the state of many containers in one word.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::{age, created, name, or_none};
use crate::access::{at, integer, is_true, list, text};
use crate::time::parse;

pub(super) fn cells(obj: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(obj);
    vec![
        name(obj),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.clone().into(),
        summary.restarts(now).into(),
        created(obj, now),
        or_none(address(obj)),
        or_none(text(obj, "spec.nodeName")),
        or_none(text(obj, "status.nominatedNodeName")),
        gates(obj).into(),
    ]
}

/// The first address of the pod.
fn address(obj: &Value) -> &str {
    let first = list(obj, "status.podIPs").first().map(|address| text(address, "ip"));
    first.filter(|ip| !ip.is_empty()).unwrap_or_else(|| text(obj, "status.podIP"))
}

fn gates(obj: &Value) -> String {
    let gates = list(obj, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let held: BTreeSet<&str> = conditions(obj).collect();
    let open = gates.iter().filter(|gate| held.contains(text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len())
}

/// Types of the conditions that hold.
fn conditions(obj: &Value) -> impl Iterator<Item = &str> {
    list(obj, "status.conditions")
        .iter()
        .filter(|have| text(have, "status") == "True")
        .map(|have| text(have, "type"))
}

fn holds(obj: &Value, condition: &str) -> bool {
    conditions(obj).any(|have| have == condition)
}

struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(obj: &Value) -> Self {
        let mut summary = Self {
            reason: phase(obj).to_owned(),
            ready: 0,
            total: list(obj, "spec.containers").len() + sidecars(obj).count(),
            restarts: 0,
            last_restart: None,
        };
        let initializing = summary.read_init_containers(obj);
        if !initializing || holds(obj, "Initialized") {
            summary.read_containers(obj);
        }
        let phase = text(obj, "status.phase");
        if at(obj, "metadata.deletionTimestamp").is_some() {
            if text(obj, "status.reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// Reads up to the first init container that is not done. Says whether there is one.
    fn read_init_containers(&mut self, obj: &Value) -> bool {
        let total = list(obj, "spec.initContainers").len();
        let sidecars: BTreeSet<&str> = sidecars(obj).collect();
        for (index, status) in list(obj, "status.initContainerStatuses").iter().enumerate() {
            self.count_restarts(status);
            let terminated = at(status, "state.terminated");
            if terminated.is_some_and(|state| integer(state, "exitCode") == Some(0)) {
                continue;
            }
            let is_sidecar = sidecars.contains(text(status, "name"));
            if is_sidecar && is_true(status, "started") {
                self.ready += usize::from(is_true(status, "ready"));
                continue;
            }
            let waiting = text(status, "state.waiting.reason");
            self.reason = match (terminated, waiting) {
                (Some(state), _) => format!("Init:{}", ending(state)),
                (None, "" | "PodInitializing") => format!("Init:{index}/{total}"),
                (None, waiting) => format!("Init:{waiting}"),
            };
            return true;
        }
        false
    }

    /// The first container with something to say wins.
    fn read_containers(&mut self, obj: &Value) {
        // Init containers that are done count no more; sidecars go on.
        self.restarts = 0;
        self.last_restart = None;
        let sidecars: BTreeSet<&str> = sidecars(obj).collect();
        for status in list(obj, "status.initContainerStatuses") {
            if sidecars.contains(text(status, "name")) {
                self.count_restarts(status);
            }
        }
        let mut any_running = false;
        for status in list(obj, "status.containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(state) = at(status, "state.terminated") {
                self.reason = ending(state);
            } else if is_true(status, "ready") && at(status, "state.running").is_some() {
                any_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && any_running {
            let word = if holds(obj, "Ready") { "Running" } else { "NotReady" };
            word.clone_into(&mut self.reason);
        }
    }

    fn count_restarts(&mut self, status: &Value) {
        let count = integer(status, "restartCount").unwrap_or_default();
        self.restarts = self.restarts.saturating_add(count);
        let finished = parse(text(status, "lastState.terminated.finishedAt"));
        self.last_restart = self.last_restart.max(finished);
    }

    fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(last) if self.restarts != 0 => {
                format!("{} ({} ago)", self.restarts, age(&crate::time::seconds(last), now))
            }
            _ => self.restarts.to_string(),
        }
    }
}

fn phase(obj: &Value) -> &str {
    let gated = list(obj, "status.conditions").iter().any(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    });
    match text(obj, "status.reason") {
        _ if gated => "SchedulingGated",
        "" => text(obj, "status.phase"),
        reason => reason,
    }
}

/// Names of init containers that keep running beside the others.
fn sidecars(obj: &Value) -> impl Iterator<Item = &str> {
    list(obj, "spec.initContainers")
        .iter()
        .filter(|container| text(container, "restartPolicy") == "Always")
        .map(|container| text(container, "name"))
}

/// Why a container ended.
fn ending(state: &Value) -> String {
    let reason = text(state, "reason");
    let number = |path| integer(state, path).unwrap_or_default();
    match (reason, number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
