//! The disk of a replica: what a process sees of it, and what is left when the power fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use engine::core::start;
use engine::machine::restore::{Restored, View};
use rpc::Features;
use testkit::sim::Rng;
use wire::frame::{Outcome, Request, Run, encode_runs};
use wire::membership::{Claim, Standing};

use crate::oracle::CELL;

pub(crate) const SECTOR: usize = 4096;

/// What ails a replica at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ailment {
    Nothing,
    Slow,
    Lying,
    Full,
    Broken,
}

/// What a replica under rebuild has: a base that is copied, and what was written meanwhile.
#[derive(Debug)]
pub(crate) struct Rebuild {
    pub(crate) name: String,
    pub(crate) base: Vec<u8>,
}

/// A snapshot, and what it sits on.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) content: Bytes,
    /// A user made it.
    kept: bool,
    /// Sectors that were written after the one below.
    written: BTreeSet<usize>,
    /// Names, the lowest first.
    below: Vec<String>,
}

/// All snapshots of a copy, and those that its head sits on, the lowest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    pub(crate) all: BTreeMap<String, Layer>,
    chain: Vec<String>,
}

/// Of a volume that is restored or was: below the head there is one disk.
const HEAD: &str = "volume-head-000.img";
const BELOW: &str = "volume-snap-restored.img";

/// What a copy knows of backups. All but what runs is on disk at once.
#[derive(Debug, Default)]
pub(crate) struct Restore {
    /// The backup that it holds, if it is whole, and those that were asked for that one.
    pub(crate) last: String,
    companions: Vec<String>,
    /// What was begun and is not done.
    pub(crate) unfinished: String,
    next_companions: Vec<String>,
    /// It holds parts of two.
    is_folding: bool,
    pub(crate) running: Option<Bytes>,
}

impl Restore {
    /// It has this one, or is on its way to it.
    pub(crate) fn follows(&self, backup: &str) -> bool {
        self.last == backup || self.unfinished == backup
    }
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) head: Vec<u8>,
    /// Sectors that were written since the last snapshot.
    written: BTreeSet<usize>,
    disk: Vec<u8>,
    /// Cells of the head that are not on disk.
    dirty: BTreeSet<usize>,
    pub(crate) counter: i64,
    disk_counter: i64,
    writes_through: bool,
    /// Survives everything; such a replica is not used.
    pub(crate) rebuilding: bool,
    pub(crate) rebuild: Option<Rebuild>,
    pub(crate) layers: Layers,
    pub(crate) ailment: Ailment,
    /// Up to where the last write was done that failed.
    pub(crate) reached: usize,
    /// What it keeps of its engines and the other copies; none if it is of a kind that does not.
    /// Every change of it is on disk at once.
    pub(crate) standing: Option<Standing>,
    pub(crate) restore: Restore,
    /// Snapshots that are being merged away.
    doomed: Option<VecDeque<String>>,
    /// What is in the files of those that are gone, for whoever still reads them.
    gone: BTreeMap<String, Bytes>,
    /// The engine it serves.
    pub(crate) engine: String,
    /// The connection it serves.
    pub(crate) session: Option<u64>,
    pub(crate) last_session: u64,
}

/// What a flush has to bring to disk: what was there when it came.
#[derive(Debug, Clone)]
pub(crate) struct Sync {
    cells: Vec<usize>,
    counter: i64,
}

impl Store {
    pub(crate) fn new(size: usize, features: Features) -> Self {
        let writes_through = !features.has(Features::FLUSH);
        Self {
            head: vec![0; size],
            written: BTreeSet::new(),
            disk: vec![0; size],
            dirty: BTreeSet::new(),
            counter: 0,
            disk_counter: 0,
            writes_through,
            rebuilding: false,
            rebuild: None,
            layers: Layers::default(),
            ailment: Ailment::Nothing,
            reached: 0,
            standing: features.has(Features::MEMBERSHIP).then(Standing::default),
            restore: Restore::default(),
            doomed: None,
            gone: BTreeMap::new(),
            engine: String::new(),
            session: None,
            last_session: 0,
        }
    }

    /// Each cell that was not synced is on disk or is not, and so is the counter.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) {
        for cell in std::mem::take(&mut self.dirty) {
            let range = cell * CELL..(cell + 1) * CELL;
            if rng.permille(500) {
                self.disk[range.clone()].copy_from_slice(&self.head[range]);
            } else {
                self.head[range.clone()].copy_from_slice(&self.disk[range]);
            }
        }
        let ahead = usize::try_from(self.counter - self.disk_counter).unwrap();
        self.disk_counter += i64::try_from(rng.below(ahead + 1)).unwrap();
        self.counter = self.disk_counter;
        self.end_process();
    }

    pub(crate) fn end_process(&mut self) {
        self.session = None;
        self.rebuild = None;
        self.restore.running = None;
        self.doomed = None;
        self.gone.clear();
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.dirty.is_empty() && self.counter == self.disk_counter
    }

    pub(crate) fn begin_sync(&self) -> Sync {
        Sync { cells: self.dirty.iter().copied().collect(), counter: self.counter }
    }

    pub(crate) fn sync(&mut self, sync: &Sync) {
        for cell in &sync.cells {
            let range = cell * CELL..(cell + 1) * CELL;
            self.disk[range.clone()].copy_from_slice(&self.head[range]);
            self.dirty.remove(cell);
        }
        self.disk_counter = self.disk_counter.max(sync.counter);
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        self.head[offset..offset + data.len()].copy_from_slice(data);
        self.dirty.extend(offset / CELL..(offset + data.len()).div_ceil(CELL));
        self.written.extend(offset / SECTOR..(offset + data.len()).div_ceil(SECTOR));
    }

    fn change(&mut self, offset: usize, data: &[u8], rng: &mut Rng) -> Outcome {
        let is_full = self.ailment == Ailment::Full && !data.is_empty();
        if is_full || self.ailment == Ailment::Broken {
            // A part may have been written.
            let cells = rng.below(data.len() / CELL + 1);
            self.put(offset, &data[..cells * CELL]);
            self.reached = offset + cells * CELL;
            if self.writes_through {
                self.sync(&self.begin_sync());
            }
            let text = if is_full { "no space left on device" } else { "i/o error" };
            return Outcome::Error(format!("write at {offset}: {text}"));
        }
        self.put(offset, data);
        self.counted();
        Outcome::Count(u32::try_from(data.len()).unwrap())
    }

    fn counted(&mut self) {
        self.counter += 1;
        if self.writes_through {
            self.sync(&self.begin_sync());
        }
    }

    /// Does what a frame asks for; `sync` is what a flush has to do.
    pub(crate) fn apply(&mut self, request: &Request, sync: &Sync, rng: &mut Rng) -> Outcome {
        let at = |offset: &i64| usize::try_from(*offset).unwrap();
        let broken = || Outcome::Error("i/o error".to_owned());
        match request {
            Request::Read { .. } | Request::Flush { .. } if self.ailment == Ailment::Broken => {
                broken()
            }
            Request::Read { offset, size, .. } => {
                let range = at(offset)..at(offset) + *size as usize;
                Outcome::Data(self.head[range].to_vec().into())
            }
            Request::Write { offset, data, .. } => self.change(at(offset), data, rng),
            Request::Zero { offset, size, .. } => {
                self.change(at(offset), &vec![0; *size as usize], rng)
            }
            Request::Unmap { offset, size, .. } | Request::Discard { offset, size, .. } => {
                let start = at(offset).next_multiple_of(SECTOR);
                let end = (at(offset) + *size as usize) / SECTOR * SECTOR;
                let inner = end.saturating_sub(start);
                self.put(start.min(end), &vec![0; inner]);
                self.counted();
                Outcome::Count(u32::try_from(inner).unwrap())
            }
            Request::Flush { .. } => {
                self.sync(sync);
                Outcome::Count(0)
            }
            Request::Status { size, .. } => {
                Outcome::Data(encode_runs(&[Run { len: *size, hole: false }]))
            }
            Request::Record { mark, data, .. } => self.record(*mark, data, rng),
            Request::Ping { .. } | Request::Hello { .. } | Request::Close => Outcome::Count(0),
        }
    }

    fn record(&mut self, mark: bool, data: &[u8], rng: &mut Rng) -> Outcome {
        let text = match self.ailment {
            Ailment::Full if rng.permille(500) => "no space left on device",
            Ailment::Broken => "i/o error",
            _ => "",
        };
        if !text.is_empty() {
            return Outcome::Error(text.to_owned());
        }
        let Some(standing) = &self.standing else { return Outcome::Error("unknown".to_owned()) };
        match standing.record(&standing.claim, serde_json::from_slice(data).unwrap()) {
            Err(refused) => Outcome::Error(refused.to_string()),
            Ok(next) => {
                self.standing = Some(next);
                if mark {
                    self.counted();
                }
                Outcome::Count(0)
            }
        }
    }

    /// Why it can change none of its files, if so.
    fn refusal(&self) -> Result<(), String> {
        match self.ailment {
            Ailment::Full => Err("no space left on device".to_owned()),
            Ailment::Broken => Err("i/o error".to_owned()),
            Ailment::Nothing | Ailment::Slow | Ailment::Lying => Ok(()),
        }
    }

    /// What it holds becomes a snapshot. This and what follows is on disk at once.
    pub(crate) fn snapshot(&mut self, name: &str, kept: bool) -> Result<(), String> {
        self.refusal()?;
        if let Some(rebuild) = &mut self.rebuild {
            name.clone_into(&mut rebuild.name);
        }
        self.sync(&self.begin_sync());
        let (content, below) = (self.head.clone().into(), self.layers.chain.clone());
        let layer = Layer { content, kept, written: std::mem::take(&mut self.written), below };
        self.layers.all.insert(name.to_owned(), layer);
        self.layers.chain.push(name.to_owned());
        Ok(())
    }

    /// Whether it is half filled is on disk at once.
    pub(crate) fn mark(&mut self, rebuilding: bool) -> Result<(), String> {
        self.refusal()?;
        self.rebuilding = rebuilding;
        if rebuilding {
            (self.counter, self.disk_counter) = (0, 0);
        }
        Ok(())
    }

    pub(crate) fn revert(&mut self, name: &str) -> Result<(), String> {
        self.refusal()?;
        let layer = self.layers.all.get(name).ok_or_else(|| format!("no snapshot {name}"))?;
        self.layers.chain.clone_from(&layer.below);
        self.layers.chain.push(name.to_owned());
        let size = self.head.len();
        self.head = layer.content.to_vec();
        self.head.resize(size, 0);
        self.disk.clone_from(&self.head);
        self.dirty.clear();
        self.written.clear();
        Ok(())
    }

    pub(crate) fn expand(&mut self, size: usize) -> Result<(), String> {
        self.refusal()?;
        self.head.resize(size, 0);
        self.disk.resize(size, 0);
        Ok(())
    }

    /// What the head sits on, top first.
    pub(crate) fn chain(&self) -> Vec<start::Layer> {
        let layer =
            |name: &String| start::Layer { name: name.clone(), kept: self.layers.all[name].kept };
        self.layers.chain.iter().rev().map(layer).collect()
    }

    /// Sectors that it may hold otherwise than one that has the same up to `base`.
    pub(crate) fn written_above(&self, base: Option<&str>) -> BTreeSet<usize> {
        let top = self.layers.chain.iter().rev();
        let above = top.take_while(|name| Some(name.as_str()) != base);
        let layers = above.flat_map(|name| &self.layers.all[name].written);
        layers.chain(&self.written).copied().collect()
    }

    /// An engine claims it; `adopt` to fill it.
    pub(crate) fn claim(
        &mut self,
        claim: Option<&Claim>,
        adopt: bool,
        session: u64,
    ) -> Result<(), String> {
        let (Some(standing), Some(claim)) = (&self.standing, claim) else { return Ok(()) };
        let mut next = if adopt {
            standing.adopt(claim)
        } else {
            standing.claim(claim).map_err(|refused| refused.to_string())?
        };
        if next.id.is_empty() {
            next.id = format!("copy-{session}");
        }
        self.standing = Some(next);
        Ok(())
    }

    /// What it shows of itself.
    pub(crate) fn view(&self) -> View {
        let identity = self.standing.as_ref();
        let restore = &self.restore;
        View {
            identity: identity.map(|it| format!("{}@{}", it.id, it.adoption)),
            is_rebuilding: self.rebuilding,
            is_purging: self.doomed.is_some(),
            head: HEAD.to_owned(),
            disks: vec![HEAD.to_owned(), BELOW.to_owned()],
            restored: Restored {
                last: restore.last.clone(),
                companions: restore.companions.clone(),
                unfinished: restore.unfinished.clone(),
                running: restore.running.as_ref().map(|_| restore.unfinished.clone()),
                ..Restored::default()
            },
            ..View::default()
        }
    }

    /// Begins, as an agent does, with what no user keeps now.
    pub(crate) fn begin_purge(&mut self) -> Result<(), String> {
        if self.doomed.is_some() || self.rebuilding {
            return Err("replica is purging or rebuilding".to_owned());
        }
        let unkept = self.layers.chain.iter().filter(|name| !self.layers.all[*name].kept);
        self.doomed = Some(unkept.cloned().collect());
        Ok(())
    }

    /// Merges the next of them into what sits on it; whether it went, none if there is none left. The parent
    /// of the head stays.
    pub(crate) fn go_on_purging(&mut self) -> Option<bool> {
        if self.refusal().is_err() {
            return self.doomed.as_ref().map(|_| false);
        }
        let next = self.doomed.as_mut().map(VecDeque::pop_front)?;
        let Some(name) = next else {
            self.doomed = None;
            return None;
        };
        let Some(at) = self.layers.chain.iter().position(|it| *it == name) else {
            return Some(false);
        };
        let sits_on_it = |layer: &Layer| layer.below.last() == Some(&name);
        let is_shared = self.layers.all.values().filter(|layer| sits_on_it(layer)).count() > 1;
        let Some(child) = self.layers.chain.get(at + 1).cloned().filter(|_| !is_shared) else {
            return Some(false);
        };
        let Some(mut merged) = self.layers.all.remove(&name) else { return Some(false) };
        self.layers.chain.remove(at);
        for layer in self.layers.all.values_mut() {
            layer.below.retain(|below| *below != name);
        }
        if let Some(child) = self.layers.all.get_mut(&child) {
            child.written.append(&mut merged.written);
            self.gone.insert(name, child.content.clone());
        }
        Some(true)
    }

    /// What is in the file of a snapshot.
    pub(crate) fn file(&self, name: &str) -> Option<&Bytes> {
        let layer = self.layers.all.get(name).map(|layer| &layer.content);
        layer.or_else(|| self.gone.get(name))
    }

    /// Begins, as an agent does; what it holds stays whole meanwhile. That it was begun is on disk.
    pub(crate) fn begin_restore(
        &mut self,
        backup: String,
        companions: Vec<String>,
        content: Bytes,
    ) -> Result<(), String> {
        self.refusal()?;
        if self.restore.running.is_some() {
            return Err("there is one already in progress".to_owned());
        }
        if self.restore.last == backup {
            return Err(format!("already restored backup {backup}"));
        }
        self.restore.unfinished = backup;
        self.restore.next_companions = companions;
        self.restore.running = Some(content);
        Ok(())
    }

    /// Does the next part of what is being restored; whether more is to be done. What comes first leaves it
    /// half old and half new.
    pub(crate) fn go_on_restoring(&mut self) -> bool {
        if self.refusal().is_err() {
            return true;
        }
        let Some(content) = self.restore.running.clone() else { return false };
        let half = content.len() / 2;
        if !self.restore.is_folding {
            self.restore.is_folding = true;
            self.restore.last.clear();
            self.head[..half].copy_from_slice(&content[..half]);
            self.disk[..half].copy_from_slice(&content[..half]);
            return true;
        }
        self.head.copy_from_slice(&content);
        self.disk.copy_from_slice(&content);
        let backup = std::mem::take(&mut self.restore.unfinished);
        let companions = std::mem::take(&mut self.restore.next_companions);
        self.restore = Restore { last: backup, companions, ..Restore::default() };
        false
    }

    /// Empties it, to be filled from another.
    pub(crate) fn begin_rebuild(&mut self, size: usize) {
        self.head = vec![0; size];
        self.disk = vec![0; size];
        self.dirty.clear();
        self.written.clear();
        self.layers = Layers::default();
        self.restore = Restore::default();
        self.doomed = None;
        self.gone.clear();
        let base = vec![0xee; size];
        self.rebuild = Some(Rebuild { name: String::new(), base });
        self.counter = 0;
        self.disk_counter = 0;
    }

    /// The copy is complete, with `layers` of the one it was made from; false if there was none under
    /// way.
    pub(crate) fn end_rebuild(&mut self, counter: i64, layers: Layers) -> bool {
        let Some(rebuild) = self.rebuild.take() else { return false };
        for sector in 0..self.head.len() / SECTOR {
            if !self.written.contains(&sector) {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                self.head[range.clone()].copy_from_slice(&rebuild.base[range]);
            }
        }
        self.layers = layers;
        if let Some(copied) = self.layers.all.get_mut(&rebuild.name) {
            copied.content = rebuild.base.into();
        }
        self.dirty.clear();
        self.disk.copy_from_slice(&self.head);
        (self.counter, self.disk_counter) = (counter, counter);
        self.standing = self.standing.as_ref().map(|standing| standing.filled(standing.adoption));
        true
    }
}
