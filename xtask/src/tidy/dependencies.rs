//! What of others' we use: licences, versions that are there twice, crates that we decided against,
//! where they come from. `deny.toml` says what may be; the rest of cargo-deny needs a database.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::policy::Policy;
use super::{Findings, spdx};
use crate::workspace;

/// The platforms that matter are alike in their dependencies; others need not be fetched.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Every crate that a build of ours needs on Linux.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// For the binary.
    linked: Vec<Crate>,
    /// For all of the workspace but its tests.
    built: Vec<Crate>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    /// None for our own.
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

impl Graph {
    pub(super) fn load() -> Result<Self> {
        let text = workspace::output(&mut workspace::cargo([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            PLATFORM,
        ]))?;
        let known: Metadata = serde_json::from_str(&text).context("cannot read cargo metadata")?;
        let of = |scope: &[&str]| -> Result<Vec<Crate>> {
            let needed = needed(scope)?;
            let is_needed = |it: &&Crate| needed.contains(&(it.name.clone(), it.version.clone()));
            Ok(known.packages.iter().filter(is_needed).cloned().collect())
        };
        Ok(Self { linked: of(&["--package", "holdfast"])?, built: of(&["--workspace"])? })
    }
}

/// Names and versions of what a build needs, with the features it has: metadata knows only those of
/// builds with all tests.
fn needed(scope: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let words = ["tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"];
    let mut command = workspace::cargo(words);
    let tree = workspace::output(command.args(["--target", PLATFORM]).args(scope))?;
    let identity = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
    };
    Ok(tree.lines().filter_map(identity).collect())
}

pub(super) fn check(graph: &Graph, policy: &Policy, findings: &mut Findings) {
    findings.remark(format!("crates in a build of the binary: {}", graph.linked.len()));
    licences(&graph.built, policy, findings);
    sources(&graph.built, findings);
    duplicates(&graph.linked, policy, findings);
    for ban in &policy.bans.deny {
        if graph.linked.iter().any(|it| it.name == ban.name) {
            findings.complain(format!("the binary depends on {}: {}", ban.name, ban.reason));
        }
    }
}

fn licences(built: &[Crate], policy: &Policy, findings: &mut Findings) {
    for it in built {
        let licence = it.license.as_deref().unwrap_or("no licence");
        if !spdx::is_allowed(licence, &policy.licenses.allow) {
            findings.complain(format!("{} {}: deny.toml has no {licence}", it.name, it.version));
        }
    }
}

/// Only the registry that everybody uses: it keeps what it once gave.
fn sources(built: &[Crate], findings: &mut Findings) {
    for it in built {
        if it.source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
            findings.complain(format!("{} {} does not come from a registry", it.name, it.version));
        }
    }
    let registries: BTreeSet<_> = built.iter().filter_map(|it| it.source.as_ref()).collect();
    if registries.len() > 1 {
        findings.complain(format!("crates come from several places: {registries:?}"));
    }
}

/// Each costs time to build and room in the binary; each is named with its reason, or is not there.
fn duplicates(linked: &[Crate], policy: &Policy, findings: &mut Findings) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for it in linked {
        versions.entry(&it.name).or_default().insert(&it.version);
    }
    let mut unused: BTreeSet<&str> =
        policy.bans.skip.iter().map(|skip| skip.identity.as_str()).collect();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let named: Vec<String> = versions
            .iter()
            .map(|version| format!("{name}@{version}"))
            .filter(|identity| !unused.remove(identity.as_str()))
            .collect();
        if named.len() > 1 {
            let all = named.join(", ");
            findings.complain(format!(
                "several versions of one crate: {all}; unify them, or say in deny.toml under skip \
                 who keeps the older one"
            ));
        }
    }
    for identity in unused {
        findings.complain(format!("deny.toml: {identity} is under skip and is not there twice"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Ban, Bans, Licenses, Skip};
    use super::*;

    fn package((identity, licence): &(&str, &str)) -> Crate {
        let (name, version) = identity.split_once('@').unwrap();
        Crate {
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some((*licence).to_owned()),
            source: Some("registry+there".to_owned()),
        }
    }

    fn policy(skip: &[&str]) -> Policy {
        let skip = skip.iter().map(|it| Skip { identity: (*it).to_owned() }).collect();
        let ban = Ban { name: "ring".to_owned(), reason: "one is enough".to_owned() };
        Policy {
            licenses: Licenses { allow: vec!["MIT".to_owned()] },
            bans: Bans { deny: vec![ban], skip },
        }
    }

    fn complaints(crates: &[(&str, &str)], skip: &[&str]) -> Vec<String> {
        let crates: Vec<Crate> = crates.iter().map(package).collect();
        let graph = Graph { linked: crates.clone(), built: crates };
        let mut findings = Findings::default();
        check(&graph, &policy(skip), &mut findings);
        findings.complaints
    }

    #[test]
    fn what_others_wrote_is_checked() {
        assert_eq!(complaints(&[("b@1", "MIT")], &[]), Vec::<String>::new());
        for (others, wanted) in [
            (vec![("b@1", "GPL-3.0")], "GPL-3.0"),
            (vec![("b@1", "MIT"), ("b@2", "MIT")], "several versions of one crate: b@1, b@2"),
            (vec![("ring@1", "MIT")], "the binary depends on ring: one is enough"),
        ] {
            let found = complaints(&others, &[]);
            assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
        }
    }

    #[test]
    fn a_second_version_is_named_and_the_name_is_still_needed() {
        let twice = [("b@1", "MIT"), ("b@2", "MIT")];
        assert_eq!(complaints(&twice, &["b@1"]), Vec::<String>::new());
        assert!(complaints(&twice, &["b@3"]).len() == 2);
        assert!(complaints(&[("b@2", "MIT")], &["b@1"])[0].contains("is not there twice"));
    }
}
