//! What backups are compared with: restic and borg with their defaults, given the volume as a file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contents::{Changes, Data, Numbers, compare};
use super::target::{Direction, Target};
use crate::measure::{Cost, run, settle_with_memory};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Restic,
    Borg,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Restic => "restic",
            Self::Borg => "borg",
        }
    }

    pub(crate) fn can_use(self, target: &Target) -> bool {
        match self {
            Self::Restic => true,
            Self::Borg => !target.is_s3(),
        }
    }
}

pub(crate) struct Peer<'t> {
    kind: Kind,
    program: PathBuf,
    target: &'t Target,
    data: Data,
    image: PathBuf,
    /// Changes from backup to backup where the image does not.
    small: PathBuf,
    scratch: PathBuf,
}

impl<'t> Peer<'t> {
    /// A repository that is empty.
    pub(crate) fn start(
        kind: Kind,
        target: &'t Target,
        data: Data,
        image: &Path,
        scratch: &Path,
    ) -> Result<Self> {
        let program = e2e::engine::tool(kind.name(), "the comparison")
            .with_context(|| format!("no {}", kind.name()))?;
        let (image, scratch) = (image.to_owned(), scratch.to_owned());
        let small = scratch.join("small");
        let peer = Self { kind, program, target, data, image, small, scratch };
        peer.touch(0)?;
        match kind {
            Kind::Restic => peer.run(&["init"], None)?,
            Kind::Borg => peer.run(&["init", "--encryption", "none", &peer.archive("")], None)?,
        };
        Ok(peer)
    }

    fn command(&self, arguments: &[&str], place: Option<&Path>) -> Command {
        let mut command = Command::new(&self.program);
        // Everything they remember goes with the run.
        command.env("RESTIC_CACHE_DIR", self.scratch.join("restic-cache"));
        command.env("RESTIC_PASSWORD", "bench").env("RESTIC_REPOSITORY", self.target.restic());
        command.env("BORG_BASE_DIR", self.scratch.join("borg-home"));
        command.env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes");
        command.env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes");
        command.envs(self.target.environment()).args(arguments);
        if let Some(place) = place {
            command.current_dir(place);
        }
        command
    }

    fn run(&self, arguments: &[&str], place: Option<&Path>) -> Result<(Cost, String)> {
        run(&mut self.command(arguments, place), &self.scratch)
    }

    fn archive(&self, name: &str) -> String {
        let repository = self.target.borg().display().to_string();
        if name.is_empty() { repository } else { format!("{repository}::{name}") }
    }

    /// Gives the small file other contents.
    fn touch(&self, number: u64) -> Result<()> {
        let mut bytes = vec![0; 64 << 10];
        Numbers::new(number).noise(&mut bytes);
        let mut file = std::fs::File::create(&self.small)?;
        Ok(std::io::Write::write_all(&mut file, &bytes)?)
    }

    pub(crate) fn change(&self, changes: &Changes) -> Result<()> {
        changes.apply(&self.image)
    }

    pub(crate) fn revert(&self, changes: &Changes) -> Result<()> {
        self.data.revert(&self.image, changes)
    }

    pub(crate) fn back_up(&self, name: &str) -> Result<Cost> {
        settle_with_memory(&self.scratch, self.data.size_bytes)?;
        let before = self.target.traffic(Direction::Up, &[]);
        let mut cost = self.back_up_quietly(name)?;
        cost.moved_bytes = self.target.traffic(Direction::Up, &[]).saturating_sub(before);
        Ok(cost)
    }

    fn back_up_quietly(&self, name: &str) -> Result<Cost> {
        let (image, small) = (self.image.display().to_string(), self.small.display().to_string());
        let (cost, _) = match self.kind {
            Kind::Restic => self.run(&["backup", "--tag", name, &image, &small], None)?,
            Kind::Borg => self.run(&["create", &self.archive(name), &image, &small], None)?,
        };
        Ok(cost)
    }

    /// One more backup, of the small file's change only.
    pub(crate) fn add(&self, name: &str, number: u64) -> Result<()> {
        self.touch(number)?;
        self.back_up_quietly(name).map(drop)
    }

    pub(crate) fn restore(&self, name: &str, checks: bool) -> Result<Cost> {
        let place = self.scratch.join("restored");
        std::fs::create_dir_all(&place)?;
        self.target.warm()?;
        settle_with_memory(&self.scratch, self.data.size_bytes)?;
        let before = self.target.traffic(Direction::Down, &[]);
        let into = place.display().to_string();
        let (mut cost, _) = match self.kind {
            Kind::Restic => {
                self.run(&["restore", "latest", "--tag", name, "--target", &into], None)?
            }
            Kind::Borg => self.run(&["extract", &self.archive(name)], Some(&place))?,
        };
        if self.target.is_s3() {
            cost.moved_bytes = self.target.traffic(Direction::Down, &[]).saturating_sub(before);
        }
        if checks {
            let inside = self.image.strip_prefix("/").unwrap_or(&self.image);
            compare(&place.join(inside), &self.image, self.data.size_bytes)?;
        }
        std::fs::remove_dir_all(&place)?;
        Ok(cost)
    }

    /// Removes one backup, and what only it needed.
    pub(crate) fn delete(&self, name: &str) -> Result<Cost> {
        settle_with_memory(&self.scratch, self.data.size_bytes)?;
        let before = self.target.traffic(Direction::Down, &[]);
        let mut cost = match self.kind {
            Kind::Restic => {
                let (_, listed) = self.run(&["snapshots", "--tag", name, "--json"], None)?;
                let listed: Value = serde_json::from_str(&listed)?;
                let id = listed.pointer("/0/short_id").and_then(Value::as_str);
                self.run(&["forget", "--prune", id.context("no such snapshot")?], None)?.0
            }
            Kind::Borg => {
                let (deleted, _) = self.run(&["delete", &self.archive(name)], None)?;
                deleted.then(self.run(&["compact", &self.archive("")], None)?.0)
            }
        };
        if self.target.is_s3() {
            cost.moved_bytes = self.target.traffic(Direction::Down, &[]).saturating_sub(before);
        }
        Ok(cost)
    }
}

/// Copies a file with its holes, then makes the copy durable; what each took.
pub(crate) fn copy(image: &Path, scratch: &Path) -> Result<(Cost, Cost)> {
    let copied = scratch.join("copied");
    settle_with_memory(scratch, image.metadata()?.len())?;
    let mut command = Command::new("cp");
    let (cost, _) = run(command.arg("--sparse=auto").arg(image).arg(&copied), scratch)?;
    let start = std::time::Instant::now();
    std::fs::File::open(&copied)?.sync_all()?;
    let synced = Cost { wall_s: start.elapsed().as_secs_f64(), ..Cost::default() };
    ensure!(copied.metadata()?.len() == image.metadata()?.len(), "cp copied something else");
    std::fs::remove_file(&copied)?;
    Ok((cost, cost.then(synced)))
}
