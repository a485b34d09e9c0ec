//! A volume that is backed up, and what its snapshots hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _};
use serde_json::Value;
use testkit::process::{Scratch, poll_until};

use super::Target;
use crate::engine::{Frontend, MIB, Setup, TIMEOUT, Volume, blocking};

/// Bytes of one write at most.
const WRITE_MAX: usize = 64 << 10;

#[derive(Debug)]
pub struct Source {
    pub volume: Volume,
    /// What the volume holds now.
    pub image: Vec<u8>,
    /// What it held, by the names of snapshots.
    pub snapshots: BTreeMap<String, Vec<u8>>,
}

impl Source {
    #[track_caller]
    pub fn start(replicas: usize, mebibytes: u64) -> Self {
        Self::over(Volume::start(Self::setup(replicas, mebibytes)))
    }

    /// With a name of the caller's.
    #[track_caller]
    pub fn start_as(name: &str, replicas: usize, mebibytes: u64) -> Self {
        let scratch = Scratch::new().unwrap();
        let setup = Self::setup(replicas, mebibytes);
        let mut volume = Volume::prepare_as(scratch, name.to_owned(), setup);
        volume.restart();
        Self::over(volume)
    }

    /// Over a volume that is empty.
    pub fn over(volume: Volume) -> Self {
        let image = vec![0; usize::try_from(volume.setup.size_bytes).unwrap()];
        Self { volume, image, snapshots: BTreeMap::new() }
    }

    fn setup(replicas: usize, mebibytes: u64) -> Setup {
        // Only one engine of a name may have a frontend; the data port of a replica has no name.
        let frontend = Frontend::Nbd;
        Setup { replicas, size_bytes: mebibytes * MIB, frontend, ..Setup::default() }
    }

    pub fn name(&self) -> &str {
        &self.volume.name
    }

    pub fn size_bytes(&self) -> u64 {
        self.volume.setup.size_bytes
    }

    #[track_caller]
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.write_all(&[(offset, data.to_vec())]);
    }

    /// As many writes as asked for, of random bytes in random places.
    #[track_caller]
    pub fn scribble(&mut self, random: &mut StdRng, writes: usize) {
        let writes = (0..writes).map(|_| {
            let mut data = vec![0; random.random_range(1..=WRITE_MAX / 4096) * 4096];
            random.fill_bytes(&mut data);
            let places = (self.image.len() - data.len()) / 4096;
            ((random.random_range(0..=places) * 4096) as u64, data)
        });
        let writes: Vec<(u64, Vec<u8>)> = writes.collect();
        self.write_all(&writes);
    }

    fn write_all(&mut self, writes: &[(u64, Vec<u8>)]) {
        let endpoint = self.volume.endpoint();
        blocking(async {
            let nbd = crate::engine::Nbd::connect(&endpoint).await.unwrap();
            for (offset, data) in writes {
                nbd.write(*offset, Bytes::from(data.clone())).await.unwrap();
            }
            nbd.flush().await.unwrap();
        });
        for (offset, data) in writes {
            let at = usize::try_from(*offset).unwrap();
            self.image[at..at + data.len()].copy_from_slice(data);
        }
    }

    #[track_caller]
    pub fn snapshot(&mut self, name: &str) {
        self.volume.cli().run(&["snapshot", "create", name]);
        self.snapshots.insert(name.to_owned(), self.image.clone());
    }

    /// Begins a backup; what the command answers.
    pub fn begin(
        &self,
        target: &Target,
        snapshot: &str,
        backup: &str,
        more: &[&str],
    ) -> Result<Value, String> {
        let url = target.url();
        let mut arguments = vec!["backup", "create", snapshot, "--dest", &url];
        arguments.extend(["--backup-name", backup].iter().chain(more));
        let ran = self.volume.cli().with(&target.environment()).call(&arguments);
        if ran.code == Some(0) {
            return Ok(serde_json::from_str(&ran.stdout).unwrap());
        }
        assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
        Err(ran.stderr)
    }

    /// Waits for the end of a backup; its last status if it is complete.
    #[track_caller]
    pub fn wait(&self, backup: &str) -> Result<Value, String> {
        let cli = self.volume.cli();
        let ended = poll_until(2 * TIMEOUT, || {
            let ran = cli.call(&["backup", "status", backup]);
            if ran.code != Some(0) {
                return Some(Err(ran.stderr));
            }
            let status: Value = serde_json::from_str(&ran.stdout).unwrap();
            match status["state"].as_str().unwrap() {
                "in_progress" => None,
                "complete" => Some(Ok(status)),
                _ => Some(Err(status["error"].as_str().unwrap().to_owned())),
            }
        });
        ended.unwrap_or_else(|| panic!("{backup} does not end"))
    }

    /// A backup from its begin to its end.
    pub fn try_back_up(
        &self,
        target: &Target,
        snapshot: &str,
        backup: &str,
        more: &[&str],
    ) -> Result<Value, String> {
        let begun = self.begin(target, snapshot, backup, more)?;
        self.wait(backup).map(|_| begun)
    }

    /// One that succeeds; what the command answered.
    #[track_caller]
    pub fn back_up(&self, target: &Target, snapshot: &str, backup: &str, more: &[&str]) -> Value {
        let begun = self.try_back_up(target, snapshot, backup, more);
        begun.unwrap_or_else(|error| panic!("{backup}: {error}"))
    }
}
