//! A backend of the imagination for tests: slow, forgetful, sometimes unreachable, and it knows what
//! every volume, snapshot and backup holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::backend::{
    Backend, BackendError, BackupOrder, Capacity, Origin, Progress, Saved, Stored, Taken,
    VolumeOrder, too_small,
};

#[derive(Debug, Clone, Default)]
struct Disk {
    gib: i64,
    content: u64,
    looks: u32,
    is_removed: bool,
    snapshots: BTreeMap<String, (u64, Taken)>,
    connections: Vec<String>,
    /// The snapshot it is to be put back to, and whether it was.
    revert: Option<(String, bool)>,
}

#[derive(Debug, Clone)]
struct Kept {
    /// The volume it is of.
    source: String,
    content: u64,
    gib: i64,
    looks: u32,
    is_deleting: bool,
}

/// How unkind it is.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a mood of its own")]
pub(crate) struct Moods {
    /// Every nth call finds nobody. 0: none.
    pub(crate) unreachable_every: u32,
    /// Looks until something is done.
    pub(crate) looks: u32,
    /// Backups and restores stay under way.
    pub(crate) hold_backups: bool,
    pub(crate) hold_restores: bool,
    /// Why the next backups or restores fail.
    pub(crate) fail_backups: Option<String>,
    pub(crate) fail_restores: Option<String>,
    pub(crate) fail_extends: Option<String>,
    /// Why volumes cannot be removed or connected.
    pub(crate) fail_removals: Option<String>,
    pub(crate) fail_connections: Option<String>,
    /// What is stored is on its way out, and stays there.
    pub(crate) hold_removals: bool,
    /// Connections are never made to the end.
    pub(crate) hold_connects: bool,
    /// Connections stay up.
    pub(crate) hold_connections: bool,
    /// Snapshots stay under way.
    pub(crate) hold_snapshots: bool,
    /// Reverts are not begun.
    pub(crate) hold_reverts: bool,
    /// Who serves the bytes of volumes, by their names.
    pub(crate) disks: Option<String>,
    /// Inside TLS, by this certificate authority.
    pub(crate) authority: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    moods: Moods,
    calls: u32,
    disks: HashMap<String, Disk>,
    backups: HashMap<String, Kept>,
    /// By handle.
    store: HashMap<String, Kept>,
    /// How large volumes are with their newest backups: what is restored of any of theirs is that large.
    sources: HashMap<String, i64>,
}

impl State {
    /// How large a volume is that a stored backup is restored to.
    fn room(&self, handle: &str) -> Option<i64> {
        let kept = self.store.get(handle)?;
        Some(self.sources.get(&kept.source).copied().unwrap_or_default().max(kept.gib))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Simulated {
    state: Mutex<State>,
}

impl Simulated {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mood(&self, change: impl FnOnce(&mut Moods)) {
        change(&mut self.state().moods);
    }

    /// What a client wrote.
    pub(crate) fn write(&self, volume: &str, content: u64) {
        if let Some(disk) = self.state().disks.get_mut(volume) {
            disk.content = content;
        }
    }

    /// Whether a revert of a volume is still asked for.
    pub(crate) fn is_to_revert(&self, volume: &str) -> bool {
        let state = self.state();
        state.disks.get(volume).is_some_and(|it| matches!(it.revert, Some((_, false))))
    }

    /// Backups that are kept.
    pub(crate) fn stored(&self) -> usize {
        self.state().store.len()
    }

    pub(crate) fn content(&self, volume: &str) -> Option<u64> {
        self.state().disks.get(volume).filter(|it| !it.is_removed).map(|it| it.content)
    }

    /// How large a volume is.
    pub(crate) fn gib(&self, volume: &str) -> Option<i64> {
        self.state().disks.get(volume).filter(|it| !it.is_removed).map(|it| it.gib)
    }

    /// A newer backup of a volume is stored, of another size.
    pub(crate) fn grow_source(&self, volume: &str, gib: i64) {
        self.state().sources.insert(volume.to_owned(), gib);
    }

    /// Somebody empties the store.
    pub(crate) fn forget_stored(&self) {
        self.state().store.clear();
    }

    /// Who is connected to a volume.
    pub(crate) fn connected(&self, volume: &str) -> Vec<String> {
        self.state().disks.get(volume).map(|it| it.connections.clone()).unwrap_or_default()
    }

    /// Names of all volumes there are.
    pub(crate) fn volumes(&self) -> Vec<String> {
        let mut names: Vec<String> = self.state().disks.keys().cloned().collect();
        names.sort();
        names
    }

    /// Names of all snapshots there are.
    pub(crate) fn snapshots(&self) -> Vec<String> {
        let state = self.state();
        let all = state.disks.values().filter(|it| !it.is_removed);
        all.flat_map(|it| it.snapshots.keys().cloned()).collect()
    }

    /// Names of all backups there are, under way or not.
    pub(crate) fn backups(&self) -> Vec<String> {
        self.state().backups.keys().cloned().collect()
    }

    /// Backups under way are gone, as after a crash of those who made them.
    pub(crate) fn forget_backups(&self) {
        self.state().backups.clear();
    }

    fn call(&self) -> Result<MutexGuard<'_, State>, BackendError> {
        let mut state = self.state();
        state.calls += 1;
        let every = state.moods.unreachable_every;
        if every > 0 && state.calls.is_multiple_of(every) {
            return Err(BackendError::Unreachable("nobody is there".to_owned()));
        }
        Ok(state)
    }
}

fn refused(what: &str) -> BackendError {
    BackendError::Refused(what.to_owned())
}

#[async_trait]
impl Backend for Simulated {
    async fn ensure_volume(&self, order: &VolumeOrder) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        let state = &mut *state;
        if !state.disks.contains_key(&order.name) {
            let content = match &order.origin {
                Origin::Empty => 0,
                Origin::Volume { volume } => {
                    state.disks.get(volume).ok_or_else(|| refused("no such source"))?.content
                }
                Origin::Snapshot { volume, snapshot } => {
                    let disk = state.disks.get(volume).ok_or_else(|| refused("no such source"))?;
                    disk.snapshots.get(snapshot).ok_or_else(|| refused("no such snapshot"))?.0
                }
                Origin::Backup { handle } => {
                    if let Some(why) = &state.moods.fail_restores {
                        return Ok(Progress::Failed(why.clone()));
                    }
                    // What is not there is waited for.
                    let Some(kept) = state.store.get(handle) else { return Ok(Progress::Running) };
                    kept.content
                }
            };
            let disk = Disk { gib: order.gib, content, ..Disk::default() };
            state.disks.insert(order.name.clone(), disk);
        }
        let holds = state.moods.hold_restores && matches!(order.origin, Origin::Backup { .. });
        let looks = state.moods.looks;
        let source = match &order.origin {
            Origin::Backup { handle } => state.room(handle),
            Origin::Empty | Origin::Snapshot { .. } | Origin::Volume { .. } => None,
        };
        let disk = state.disks.get_mut(&order.name).ok_or_else(|| refused("gone"))?;
        disk.looks += 1;
        disk.gib = disk.gib.max(source.unwrap_or_default());
        if source.is_some() && disk.gib > order.gib {
            return Ok(Progress::Failed(too_small(disk.gib)));
        }
        Ok(if holds || disk.looks <= looks { Progress::Running } else { Progress::Done(()) })
    }

    async fn remove_volume(&self, name: &str) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        if let Some(why) = &state.moods.fail_removals {
            return Ok(Progress::Failed(why.clone()));
        }
        if let Some(disk) = state.disks.get_mut(name) {
            if !disk.is_removed {
                disk.is_removed = true;
                return Ok(Progress::Running);
            }
            state.disks.remove(name);
        }
        Ok(Progress::Done(()))
    }

    async fn extend_volume(&self, name: &str, gib: i64) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        if let Some(why) = &state.moods.fail_extends {
            return Ok(Progress::Failed(why.clone()));
        }
        let disk = state.disks.get_mut(name).ok_or_else(|| refused("no such volume"))?;
        if disk.gib < gib {
            disk.gib = gib;
            return Ok(Progress::Running);
        }
        Ok(Progress::Done(()))
    }

    async fn ensure_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<Taken>, BackendError> {
        let mut state = self.call()?;
        let holds = state.moods.hold_snapshots;
        let disk = state.disks.get_mut(volume).ok_or_else(|| refused("no such volume"))?;
        if holds {
            return Ok(Progress::Running);
        }
        if let Some((_, taken)) = disk.snapshots.get(name) {
            return Ok(Progress::Done(*taken));
        }
        let taken = Taken { at: jiff::Timestamp::now(), gib: Some(disk.gib) };
        disk.snapshots.insert(name.to_owned(), (disk.content, taken));
        Ok(Progress::Running)
    }

    async fn ask_revert(&self, volume: &str, snapshot: &str) -> Result<(), BackendError> {
        let mut state = self.call()?;
        let disk = state.disks.get_mut(volume).ok_or_else(|| refused("no such volume"))?;
        disk.revert = Some((snapshot.to_owned(), false));
        Ok(())
    }

    async fn find_revert(
        &self,
        volume: &str,
        snapshot: &str,
    ) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        let holds = state.moods.hold_reverts;
        let disk = state.disks.get_mut(volume).ok_or_else(|| refused("no such volume"))?;
        match disk.revert.clone() {
            Some((wanted, true)) if wanted == snapshot => Ok(Progress::Done(())),
            Some((wanted, false)) if !holds && disk.connections.is_empty() => {
                let Some((content, _)) = disk.snapshots.get(&wanted) else {
                    return Ok(Progress::Failed("no such snapshot".to_owned()));
                };
                disk.content = *content;
                disk.revert = Some((wanted, true));
                Ok(Progress::Running)
            }
            _ => Ok(Progress::Running),
        }
    }

    async fn cancel_revert(&self, volume: &str) -> Result<(), BackendError> {
        let mut state = self.call()?;
        if let Some(disk) = state.disks.get_mut(volume) {
            disk.revert = None;
        }
        Ok(())
    }

    async fn remove_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        if let Some(disk) = state.disks.get_mut(volume) {
            disk.snapshots.remove(name);
        }
        Ok(Progress::Done(()))
    }

    async fn start_backup(&self, order: &BackupOrder) -> Result<(), BackendError> {
        let mut state = self.call()?;
        let disk = state.disks.get(&order.volume).ok_or_else(|| refused("no such volume"))?;
        let (content, taken) =
            disk.snapshots.get(&order.snapshot).ok_or_else(|| refused("no such snapshot"))?;
        let gib = taken.gib.unwrap_or(disk.gib);
        let source = order.volume.clone();
        let kept = Kept { source, content: *content, gib, looks: 0, is_deleting: false };
        state.backups.entry(order.name.clone()).or_insert(kept);
        Ok(())
    }

    async fn find_backup(&self, name: &str) -> Result<Option<Progress<Saved>>, BackendError> {
        let mut state = self.call()?;
        let (holds, looks) = (state.moods.hold_backups, state.moods.looks);
        let fails = state.moods.fail_backups.clone();
        let Some(kept) = state.backups.get_mut(name) else { return Ok(None) };
        kept.looks += 1;
        if holds || kept.looks <= looks {
            return Ok(Some(Progress::Running));
        }
        if let Some(why) = fails {
            return Ok(Some(Progress::Failed(why)));
        }
        let (handle, kept) = (format!("sim://{name}"), kept.clone());
        if !state.store.contains_key(&handle) {
            state.sources.insert(kept.source.clone(), kept.gib);
        }
        state.store.insert(handle.clone(), kept);
        Ok(Some(Progress::Done(Saved { handle, container: None, objects: 1 })))
    }

    async fn find_stored(&self, handle: &str) -> Result<Option<Stored>, BackendError> {
        let state = self.call()?;
        let is_kept = state.store.get(handle).is_some_and(|it| !it.is_deleting);
        Ok(is_kept.then(|| Stored { gib: state.room(handle) }))
    }

    async fn remove_backup(
        &self,
        name: &str,
        handle: Option<&str>,
    ) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        if state.backups.remove(name).is_some() {
            return Ok(Progress::Running);
        }
        let holds = state.moods.hold_removals;
        if let Some(kept) = handle.and_then(|it| state.store.get_mut(it)).filter(|_| holds) {
            kept.is_deleting = true;
            return Ok(Progress::Running);
        }
        if let Some(handle) = handle {
            state.store.remove(handle);
        }
        Ok(Progress::Done(()))
    }

    async fn connect(
        &self,
        volume: &str,
        attachment: &str,
        _connector: &Value,
    ) -> Result<Progress<Value>, BackendError> {
        let mut state = self.call()?;
        if let Some(why) = &state.moods.fail_connections {
            return Ok(Progress::Failed(why.clone()));
        }
        let address = state.moods.disks.clone().unwrap_or_else(|| "127.0.0.1:1".to_owned());
        let authority = state.moods.authority.clone();
        let holds = state.moods.hold_connects;
        let disk = state.disks.get_mut(volume).ok_or_else(|| refused("no such volume"))?;
        if !disk.connections.iter().any(|it| it == attachment) {
            disk.connections.push(attachment.to_owned());
        }
        if holds {
            return Ok(Progress::Running);
        }
        let scheme = if authority.is_some() { "nbds" } else { "nbd" };
        Ok(Progress::Done(json!({
            "driver_volume_type": "nbd", "uri": format!("{scheme}://{address}/{volume}"),
            "tls": {"ca_certificate": authority},
        })))
    }

    async fn disconnect(
        &self,
        volume: &str,
        attachment: &str,
    ) -> Result<Progress<()>, BackendError> {
        let mut state = self.call()?;
        if state.moods.hold_connections {
            return Ok(Progress::Running);
        }
        if let Some(disk) = state.disks.get_mut(volume) {
            disk.connections.retain(|it| it != attachment);
        }
        Ok(Progress::Done(()))
    }

    async fn connections(&self, volume: &str) -> Result<Vec<String>, BackendError> {
        drop(self.call()?);
        Ok(self.connected(volume))
    }

    async fn capacity(&self) -> Result<Capacity, BackendError> {
        Ok(Capacity { total_gib: Some(1000), free_gib: Some(900) })
    }
}
