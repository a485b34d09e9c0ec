//! What is measured over NBD: a volume of ours, or the peer.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::engine::{Setup, Volume, tool};
use e2e::server::resident_bytes;

use super::peer::QemuNbd;
use super::table::Measured;
use crate::usage;

pub(crate) enum Subject {
    Qemu { peer: QemuNbd, size_bytes: u64 },
    Ours { volume: Box<Volume>, uri: String },
}

const MIB: f64 = 1024.0 * 1024.0;

impl Subject {
    pub(crate) fn qemu(size_bytes: u64) -> Result<Self> {
        Ok(Self::Qemu { peer: QemuNbd::start(size_bytes)?, size_bytes })
    }

    pub(crate) fn ours(setup: Setup) -> Result<Self> {
        let volume = Box::new(Volume::start(setup));
        let uri = volume.endpoint().uri();
        ensure!(uri.starts_with("nbd://"), "{uri} is not TCP, as the peer is");
        Ok(Self::Ours { volume, uri })
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Qemu { .. } => "qemu-nbd".to_owned(),
            Self::Ours { volume, .. } => format!("holdfast x{}", volume.replicas.len()),
        }
    }

    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Qemu { peer, .. } => peer.uri(),
            Self::Ours { uri, .. } => uri.clone(),
        }
    }

    fn size_bytes(&self) -> u64 {
        match self {
            Self::Qemu { size_bytes, .. } => *size_bytes,
            Self::Ours { volume, .. } => volume.setup.size_bytes,
        }
    }

    /// What each process is, and its id.
    fn processes(&self) -> Vec<(String, u32)> {
        let (mut all, volume) = match self {
            Self::Qemu { peer, .. } => return vec![("qemu-nbd".to_owned(), peer.process.id())],
            Self::Ours { volume, .. } => (Vec::new(), volume),
        };
        if let Some(engine) = &volume.engine {
            all.push(("engine".to_owned(), engine.process.id()));
        }
        for (index, replica) in volume.replicas.iter().enumerate() {
            let Some(process) = &replica.process else { continue };
            all.push((format!("replica {index}"), process.id()));
            let agents = usage::children(process.id()).into_iter();
            all.extend(agents.map(|agent| (format!("agent {index}"), agent)));
        }
        all
    }

    pub(crate) fn processor_seconds(&self) -> f64 {
        self.processes().iter().map(|(_, pid)| usage::processor_seconds(*pid)).sum()
    }

    /// Resident memory of each process, in MiB.
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    pub(crate) fn memory(&self) -> Vec<(String, f64)> {
        let resident = |pid: u32| resident_bytes(pid).unwrap_or(0) as f64 / MIB;
        self.processes().into_iter().map(|(what, pid)| (what, resident(pid))).collect()
    }

    /// A whole image written.
    pub(crate) fn copy_in(&self, image: &Path) -> Result<Measured> {
        let mut command = Command::new(nbdcopy()?);
        self.copy(command.arg("--flush").arg(image).arg(self.uri()))
    }

    /// The whole volume read.
    pub(crate) fn copy_out(&self) -> Result<Measured> {
        let mut command = Command::new(nbdcopy()?);
        self.copy(command.arg(self.uri()).arg("null:"))
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn copy(&self, command: &mut Command) -> Result<Measured> {
        let (before, start) = (self.processor_seconds(), Instant::now());
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seconds = start.elapsed().as_secs_f64();
        let spent = self.processor_seconds() - before;
        let mebibytes = self.size_bytes() as f64 / MIB;
        eprintln!("  nbdcopy, {}: {:.0} MiB/s", self.name(), mebibytes / seconds);
        Ok(Measured {
            value: mebibytes / seconds,
            latency_us: 0.0,
            cpu_us: spent * 1e6 / mebibytes,
        })
    }
}

fn nbdcopy() -> Result<std::path::PathBuf> {
    tool("nbdcopy", "copying").context("no nbdcopy")
}
