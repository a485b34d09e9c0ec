//! What etcd itself brings along for the same ends.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use testkit::etcd::program;

use crate::measure::{self, Cost};

/// `etcdctl snapshot save`.
pub(super) fn save(endpoint: &str, path: &Path, dir: &Path) -> Result<Cost> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let mut command = Command::new(program("etcdctl").map_err(anyhow::Error::msg)?);
    command.env("ETCDCTL_API", "3").arg(format!("--endpoints={endpoint}"));
    command.args(["snapshot", "save"]).arg(path);
    Ok(measure::run(&mut command, dir)?.0)
}

/// `etcdutl snapshot restore`; what it makes is removed again.
pub(super) fn restore(snapshot: &Path, dir: &Path) -> Result<Cost> {
    let data = dir.join("utl.etcd");
    let mut command = Command::new(program("etcdutl").map_err(anyhow::Error::msg)?);
    command.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(&data);
    let (cost, _) = measure::run(&mut command, dir)?;
    super::remove(&data)?;
    Ok(cost)
}
