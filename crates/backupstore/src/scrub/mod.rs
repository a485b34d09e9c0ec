//! Looking after a whole target: which volume is checked next, or all backing images together, and what
//! is known of all of them.
//!
//! Owns the report that survives a restart, and what is due by it; pure but for
//! [`BackupStore::scrub`], which checks one part of one of them. It takes no lock and changes nothing in
//! the store. Never: when it is run, or where the report lies; that is for the caller.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::error::Error;
use crate::name::Name;
use crate::store::BackupStore;
use crate::subject::Subject;
use crate::verify::{DamagedPlace, Depth, Slice, VerifyOptions, VerifyReport};

/// Blocks that are fetched before the report is written: so many are lost by a crash.
const BLOCKS_AT_ONCE: u64 = 2048;
/// Damaged places that are kept of a backup; all are counted.
const PLACES_KEPT: usize = 20;
/// A volume that could not be looked at is tried again after this, or earlier where all is.
const AGAIN_AFTER: Duration = Duration::from_mins(10);

/// How often every volume is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Records, and whether blocks are there.
    pub every: Duration,
    /// Every block, fetched and hashed.
    pub deep_every: Duration,
    /// What was looked at since then is not looked at again.
    pub once_since: Option<Timestamp>,
}

impl Schedule {
    fn due(self, last: Option<Timestamp>, every: Duration) -> Timestamp {
        match (last, self.once_since) {
            (None, _) => Timestamp::MIN,
            (Some(last), Some(since)) if last >= since => Timestamp::MAX,
            (Some(last), _) => last.saturating_add(signed(every)).unwrap_or(Timestamp::MAX),
        }
    }
}

/// What is known of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScrubReport {
    pub target: String,
    pub updated: Option<Timestamp>,
    pub volumes: BTreeMap<String, VolumeScrub>,
    /// Of all of them together; nothing where there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backing_images: Option<VolumeScrub>,
}

/// What is known of a volume, or of all backing images.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeScrub {
    /// When it was last looked at to the end.
    pub checked: Option<Timestamp>,
    pub deep_checked: Option<Timestamp>,
    /// A deep pass that is not at its end.
    pub deep_pass: Option<Pass>,
    pub blocks: u64,
    pub orphan_blocks: u64,
    pub orphan_bytes: u64,
    pub healthy: Vec<String>,
    pub in_progress: Vec<String>,
    /// Backups or images that cannot be restored as they are.
    pub broken: BTreeMap<String, Broken>,
    /// Why it could not be looked at the last time.
    pub failed: Option<Failed>,
}

/// A deep pass goes through the blocks by their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    pub begun: Timestamp,
    /// The first byte of the names that come next.
    pub next: u16,
    pub checked_blocks: u64,
    /// What it has found so far.
    pub broken: BTreeMap<String, Broken>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Broken {
    /// When it was first found so.
    pub since: Timestamp,
    pub last_seen: Timestamp,
    /// Whether it takes a deep check to see.
    pub found_by: FoundBy,
    /// Its record cannot be read: why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unreadable: Option<String>,
    pub damaged_places: u64,
    pub places: Vec<DamagedPlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FoundBy {
    Quick,
    Deep,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    pub at: Timestamp,
    pub why: String,
}

/// One part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'v> {
    pub of: &'v Subject,
    depth: Depth,
    slice: Slice,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<'v> {
    Check(Part<'v>),
    /// Nothing before that moment.
    Wait(Timestamp),
}

impl BackupStore {
    /// Names of the volumes there are.
    pub async fn volumes(&self) -> Result<Vec<Name>, Error> {
        self.repository.volumes().await
    }

    /// Checks one part, and notes in the report what was found. Only a cancellation is an error: that a
    /// volume cannot be looked at is a finding like any other.
    pub async fn scrub(
        &self,
        part: Part<'_>,
        options: &VerifyOptions,
        report: &mut ScrubReport,
        control: &Control,
    ) -> Result<(), Error> {
        let options = VerifyOptions { depth: part.depth, slice: part.slice, ..options.clone() };
        let found = self.verify_of(part.of, &options, control).await;
        let now = Timestamp::now();
        report.updated = Some(now);
        let known = report.entry(part.of);
        match found {
            Ok(found) => known.note(part, &found, now),
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                let why = telemetry::Chain(&error).to_string();
                known.failed = Some(Failed { at: now, why });
            }
        }
        Ok(())
    }
}

impl ScrubReport {
    pub fn new(target: String) -> Self {
        Self { target, ..Self::default() }
    }

    /// What is known of one.
    pub fn of(&self, subject: &Subject) -> Option<&VolumeScrub> {
        match subject {
            Subject::Volume(volume) => self.volumes.get(volume.as_str()),
            Subject::BackingImages => self.backing_images.as_ref(),
        }
    }

    fn entry(&mut self, subject: &Subject) -> &mut VolumeScrub {
        match subject {
            Subject::Volume(volume) => self.volumes.entry(volume.to_string()).or_default(),
            Subject::BackingImages => self.backing_images.get_or_insert_default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &VolumeScrub> {
        self.volumes.values().chain(&self.backing_images)
    }

    /// Forgets what is no more.
    pub fn retain(&mut self, subjects: &[Subject]) {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut has_images = false;
        for subject in subjects {
            match subject {
                Subject::Volume(volume) => drop(names.insert(volume.as_str())),
                Subject::BackingImages => has_images = true,
            }
        }
        self.volumes.retain(|name, _| names.contains(name.as_str()));
        self.backing_images = self.backing_images.take().filter(|_| has_images);
    }

    /// What is due longest, of what there is.
    pub fn next<'v>(
        &self,
        subjects: &'v [Subject],
        schedule: Schedule,
        now: Timestamp,
    ) -> Next<'v> {
        let blank = VolumeScrub::default();
        let known = |of: &Subject| self.of(of).unwrap_or(&blank);
        let due = subjects.iter().map(|of| (known(of).due(schedule), of));
        match due.min_by_key(|((when, depth), _)| (*when, *depth == Depth::Deep)) {
            Some(((when, depth), of)) if when <= now => {
                Next::Check(Part { of, depth, slice: known(of).slice(depth) })
            }
            Some(((when, _), _)) => Next::Wait(when),
            None => {
                Next::Wait(now.saturating_add(signed(schedule.every)).unwrap_or(Timestamp::MAX))
            }
        }
    }

    /// Whether all that is complete can be restored, as far as was looked, and all could be looked at.
    pub fn is_healthy(&self) -> bool {
        self.all().all(VolumeScrub::is_healthy)
    }

    /// Backups and images that are broken.
    pub fn broken(&self) -> usize {
        self.all().map(|it| it.broken.len()).sum()
    }

    /// Volumes, and the images as one, that could not be looked at.
    pub fn failed(&self) -> usize {
        self.all().filter(|it| it.failed.is_some()).count()
    }
}

impl VolumeScrub {
    pub fn is_healthy(&self) -> bool {
        self.broken.is_empty() && self.failed.is_none()
    }

    /// When it is to be looked at again, and how.
    fn due(&self, schedule: Schedule) -> (Timestamp, Depth) {
        let deep = match &self.deep_pass {
            // After what was due before it began.
            Some(pass) => pass.begun,
            None => schedule.due(self.deep_checked, schedule.deep_every),
        };
        let quick = schedule.due(self.checked, schedule.every);
        // The short look first: it tells early what is missing.
        let (when, depth) = if quick <= deep { (quick, Depth::Quick) } else { (deep, Depth::Deep) };
        match &self.failed {
            Some(failed) => {
                (when.max(schedule.due(Some(failed.at), AGAIN_AFTER.min(schedule.every))), depth)
            }
            None => (when, depth),
        }
    }

    fn slice(&self, depth: Depth) -> Slice {
        match (depth, &self.deep_pass) {
            (Depth::Quick, _) => Slice::ALL,
            (Depth::Deep, pass) => {
                let from = pass.as_ref().map_or(0, |pass| pass.next);
                let parts = self.blocks.div_ceil(BLOCKS_AT_ONCE).clamp(1, u64::from(Slice::END));
                let width = u64::from(Slice::END).div_ceil(parts);
                let width = u16::try_from(width).unwrap_or(Slice::END);
                Slice { from, to: from.saturating_add(width).min(Slice::END) }
            }
        }
    }

    fn note(&mut self, part: Part<'_>, found: &VerifyReport, now: Timestamp) {
        self.failed = None;
        self.blocks = found.blocks;
        self.orphan_blocks = found.orphan_blocks;
        self.orphan_bytes = found.orphan_bytes;
        self.in_progress.clone_from(&found.in_progress);
        let names: BTreeSet<&str> = names(found).collect();
        self.broken.retain(|name, _| names.contains(name.as_str()));
        let seen = match part.depth {
            Depth::Quick => {
                self.checked = Some(now);
                let quick = broken(found, now);
                // What took a deep look to be seen, a quick one does not clear.
                self.broken.retain(|name, broken| {
                    broken.found_by == FoundBy::Deep || quick.contains_key(name)
                });
                quick
            }
            Depth::Deep => self.note_deep(part.slice, found, now),
        };
        for (name, new) in seen {
            match self.broken.get_mut(&name) {
                Some(old) => old.see(new, part.depth),
                None => drop(self.broken.insert(name, new)),
            }
        }
        self.healthy = names
            .into_iter()
            .filter(|name| !self.broken.contains_key(*name))
            .map(str::to_owned)
            .collect();
    }

    /// What the pass has found so far; at its end all else is well.
    fn note_deep(
        &mut self,
        slice: Slice,
        found: &VerifyReport,
        now: Timestamp,
    ) -> BTreeMap<String, Broken> {
        let mut pass = self.deep_pass.take().unwrap_or(Pass {
            begun: now,
            next: 0,
            checked_blocks: 0,
            broken: BTreeMap::new(),
        });
        pass.next = slice.to;
        pass.checked_blocks = pass.checked_blocks.saturating_add(found.checked_blocks);
        for (name, new) in broken(found, now) {
            match pass.broken.get_mut(&name) {
                Some(old) => old.add(new),
                None => drop(pass.broken.insert(name, new)),
            }
        }
        let names: BTreeSet<&str> = names(found).collect();
        pass.broken.retain(|name, _| names.contains(name.as_str()));
        let seen = pass.broken.clone();
        if slice.to >= Slice::END {
            self.deep_checked = Some(now);
            self.checked = Some(now);
            self.broken.retain(|name, _| seen.contains_key(name));
        } else {
            self.deep_pass = Some(pass);
        }
        seen
    }
}

impl Broken {
    /// It is broken still.
    fn see(&mut self, new: Self, depth: Depth) {
        let found_by = match (depth, self.found_by) {
            (Depth::Quick, FoundBy::Deep) => FoundBy::Deep,
            (Depth::Quick, FoundBy::Quick) | (Depth::Deep, _) => new.found_by,
        };
        *self = Self { since: self.since, found_by, ..new };
    }

    /// More of the same backup, from another part of the pass.
    fn add(&mut self, more: Self) {
        self.last_seen = more.last_seen;
        self.unreadable = more.unreadable;
        if more.found_by == FoundBy::Deep {
            self.found_by = FoundBy::Deep;
        }
        self.damaged_places = self.damaged_places.max(more.damaged_places);
        for place in more.places {
            let is_known = self.places.iter().any(|known| known.offset == place.offset);
            if !is_known && self.places.len() < PLACES_KEPT {
                self.places.push(place);
            }
        }
    }
}

/// All that is complete, and those that cannot be read.
fn names(found: &VerifyReport) -> impl Iterator<Item = &str> {
    let damaged = found.damaged.iter().map(|it| it.name.as_str());
    let unreadable = found.unreadable.iter().map(|it| it.name.as_str());
    found.healthy.iter().map(String::as_str).chain(damaged).chain(unreadable)
}

fn broken(found: &VerifyReport, now: Timestamp) -> BTreeMap<String, Broken> {
    let blank = Broken {
        since: now,
        last_seen: now,
        found_by: FoundBy::Quick,
        unreadable: None,
        damaged_places: 0,
        places: Vec::new(),
    };
    let damaged = found.damaged.iter().map(|it| {
        let places = it.places.iter().take(PLACES_KEPT).cloned().collect();
        let found_by = if it.deep_places > 0 { FoundBy::Deep } else { FoundBy::Quick };
        let damaged_places = it.damaged_places;
        let new = Broken { found_by, damaged_places, places, ..blank.clone() };
        (it.name.clone(), new)
    });
    let unreadable = found
        .unreadable
        .iter()
        .map(|it| (it.name.clone(), Broken { unreadable: Some(it.why.clone()), ..blank.clone() }));
    damaged.chain(unreadable).collect()
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests;
