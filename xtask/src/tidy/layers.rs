//! Which of our crates may use which: arrows point down only.

use super::Findings;
use crate::workspace::Package;

/// From the top: a crate may use those of rooms below its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Core,
    Platform,
    Service,
    /// Each speaks one outside dialect; they meet in resources, never in code.
    Edge,
    Binary,
    /// Never shipped; others may use it for their tests only.
    Dev,
}

const ROOMS: &[(Room, &[&str])] = &[
    (Room::Core, &["api", "objects", "people", "wire"]),
    (Room::Platform, &["durable", "blobs", "reconcile", "rpc", "tasks", "telemetry"]),
    (Room::Service, &["apiserver", "engine", "replica", "backupstore"]),
    (
        Room::Edge,
        &["tenants", "velero", "blockapi", "volumes", "etcdguard", "dashboard", "cli", "enginecli"],
    ),
    (Room::Binary, &["holdfast"]),
    (Room::Dev, &["testkit", "xtask", "e2e", "bench"]),
];

/// Edges inside a room that are meant. Core crates are otherwise independent, edge crates always.
const WITHIN: &[(&str, &str, &str)] = &[
    ("people", "api", "it tells of the resource types"),
    ("blobs", "durable", "a directory is one of the blob stores"),
    ("blobs", "telemetry", "stores are counted and timed"),
    ("reconcile", "tasks", "controllers are tasks"),
    ("reconcile", "telemetry", "passes are counted"),
    ("rpc", "telemetry", "calls are parts of traces"),
    ("engine", "replica", "an engine speaks to its replicas"),
    ("replica", "backupstore", "a replica reads and writes backups"),
    ("bench", "e2e", "it starts the same server the suites start"),
    ("e2e", "testkit", "it starts processes"),
    ("bench", "testkit", "it starts processes"),
];

fn room(name: &str) -> Option<Room> {
    ROOMS.iter().find(|(_, names)| names.contains(&name)).map(|(room, _)| *room)
}

pub(super) fn check(packages: &[Package], findings: &mut Findings) {
    for package in packages {
        let Some(home) = room(&package.name) else {
            findings.complain(format!("crate {} has no room in xtask's layers", package.name));
            continue;
        };
        if package.license.as_deref() != Some("Apache-2.0") {
            findings.complain(format!("crate {} does not say its licence", package.name));
        }
        for dependency in &package.dependencies {
            let Some(target) = room(&dependency.name) else { continue };
            let for_tests = dependency.kind.as_deref() == Some("dev");
            if !allowed((&package.name, home), (&dependency.name, target), for_tests) {
                findings.complain(format!(
                    "{} ({home:?}) must not depend on {} ({target:?})",
                    package.name, dependency.name
                ));
            }
        }
    }
}

fn allowed(from: (&str, Room), to: (&str, Room), for_tests: bool) -> bool {
    if WITHIN.iter().any(|(upper, lower, _)| (*upper, *lower) == (from.0, to.0)) {
        return true;
    }
    match to.1 {
        Room::Dev => for_tests && to.0 == "testkit",
        // Tests may look sideways: at optional parts of their own crate, at a neighbour.
        same if same == from.1 => for_tests && same != Room::Edge,
        below => below < from.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn complaints(from: &str, to: &str, kind: Option<&str>) -> usize {
        let dependency = Dependency {
            name: to.to_owned(),
            kind: kind.map(str::to_owned),
            rename: None,
            target: None,
        };
        let package = Package {
            name: from.to_owned(),
            license: Some("Apache-2.0".to_owned()),
            manifest_path: std::path::PathBuf::new(),
            dependencies: vec![dependency],
        };
        let mut findings = Findings::default();
        check(&[package], &mut findings);
        findings.complaints.len()
    }

    #[test]
    fn arrows_point_down_only() {
        for (from, to, kind, wanted) in [
            ("apiserver", "durable", None, 0),
            ("durable", "apiserver", None, 1),
            ("tenants", "velero", None, 1),
            ("tenants", "apiserver", None, 0),
            ("apiserver", "engine", None, 1),
            ("blobs", "durable", None, 0),
            ("holdfast", "testkit", None, 1),
            ("holdfast", "testkit", Some("dev"), 0),
            ("holdfast", "xtask", Some("dev"), 1),
            ("objects", "api", None, 1),
            ("api", "objects", Some("dev"), 0),
            ("tenants", "velero", Some("dev"), 1),
            ("apiserver", "serde", None, 0),
            ("stranger", "api", None, 1),
        ] {
            assert_eq!(complaints(from, to, kind), wanted, "{from} -> {to} {kind:?}");
        }
    }
}
