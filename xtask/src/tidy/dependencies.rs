//! What of others' the binary carries: how many crates, and none that we decided against.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Findings;
use crate::workspace::{self, Package};

/// (crate, why it must not be there)
const BANNED: &[(&str, &str)] = &[
    ("ring", "one crypto library is enough: aws-lc-rs"),
    ("openssl-sys", "TLS is rustls"),
    ("native-tls", "TLS is rustls"),
    ("bindgen", "a build needs no libclang"),
    ("prost-build", "a build needs no protoc"),
];

pub(super) fn check(packages: &[Package], findings: &mut Findings) -> Result<()> {
    if !packages.iter().any(|package| package.name == "holdfast") {
        return Ok(());
    }
    let linked = crates("normal")?;
    findings.remark(format!("crates in the binary: {}", linked.len()));
    let built: BTreeSet<String> =
        crates("normal,build")?.iter().filter_map(|line| name(line)).collect();
    for (banned, why) in BANNED {
        if built.contains(*banned) {
            findings.complain(format!("the binary depends on {banned}: {why}"));
        }
    }
    Ok(())
}

/// Unique `name version` lines of the binary's dependencies.
fn crates(edges: &str) -> Result<BTreeSet<String>> {
    let tree = workspace::output(&mut workspace::cargo([
        "tree",
        "--package",
        "holdfast",
        "--edges",
        edges,
        "--prefix",
        "none",
        "--no-dedupe",
    ]))?;
    let identity = |line: &str| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    Ok(tree.lines().filter_map(identity).collect())
}

fn name(line: &str) -> Option<String> {
    line.split(' ').next().map(str::to_owned)
}
