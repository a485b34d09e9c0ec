//! Snapshots never change, and every replica has the same.

use std::collections::BTreeMap;

use e2e::engine::Volume;

/// Names of ours begin like this; others are made by rebuilds and go with a purge.
const OURS: &str = "s-";

/// What each snapshot held when it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    kept: BTreeMap<String, Vec<u8>>,
    /// Those whose creation was cut off: they may exist or not.
    unsure: Vec<String>,
    number: u32,
}

impl Snapshots {
    pub(crate) fn next_name(&mut self) -> String {
        self.number += 1;
        format!("{OURS}{:05}", self.number)
    }

    /// Its creation was acknowledged, so from now on it must exist.
    pub(crate) fn acknowledged(&mut self, name: &str) {
        self.kept.entry(name.to_owned()).or_default();
    }

    /// Its removal was asked for.
    pub(crate) fn removed(&mut self, name: &str) {
        self.kept.remove(name);
        self.unsure.push(name.to_owned());
    }

    /// Those that are not ours may be merged away from now on.
    pub(crate) fn purged(&mut self) {
        self.kept.retain(|name, _| name.starts_with(OURS));
    }

    /// The oldest of ours beyond `most`.
    pub(crate) fn beyond(&self, most: usize) -> Vec<String> {
        let ours: Vec<&String> = self.kept.keys().filter(|name| name.starts_with(OURS)).collect();
        ours.iter().take(ours.len().saturating_sub(most)).map(|&name| name.clone()).collect()
    }

    /// Looks at every replica's files, and through them at the head; complaints.
    pub(crate) fn check(&mut self, volume: &Volume, head: &[u8]) -> Vec<String> {
        let listed = volume.cli().snapshots();
        let mut complaints = Vec::new();
        for name in self.kept.keys().filter(|name| !listed.contains(name)) {
            complaints.push(format!("snapshot {name} is gone"));
        }
        self.kept.retain(|name, _| listed.contains(name));
        for replica in &volume.replicas {
            let mut missing = listed.clone();
            replica.layers().each(|name, contents| {
                missing.retain(|one| one != name);
                if name == "volume-head" {
                    if contents != head {
                        complaints.push(format!("the head of {} differs", replica.address()));
                    }
                } else if listed.iter().any(|one| one == name)
                    && !self.unsure.iter().any(|one| one == name)
                {
                    let first = self.kept.entry(name.to_owned()).or_default();
                    if first.is_empty() {
                        *first = contents.to_vec();
                    } else if first != contents {
                        complaints.push(format!("{name} of {} changed", replica.address()));
                    }
                }
            });
            for name in missing {
                complaints.push(format!("{} has no snapshot {name}", replica.address()));
            }
        }
        complaints
    }
}
