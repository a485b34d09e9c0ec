//! Adds, removes, shows and switches replicas of a running volume.

use replica::DiskName;
use rpc::ptypes;

use wire::membership::Filling;

use crate::core::start::Found;
use crate::core::{Hold, Mode};
use crate::machine::claim::Superseded;

use super::engine::{Busy, CALL_LIMIT, Engine, Entry, Replica, created_now};
use super::link::{BadAddress, CallError, Link};
use super::mend::NotEqual;
use super::probe::{self, Looked, OpenAs, Opened, ProbeError};
use super::snapshot::SnapshotError;

/// Why the replica set was not changed. Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicaError {
    #[error("can only have one WO replica at a time")]
    SecondWo,
    #[error("cannot find any healthy replica to rebuild from")]
    NoSource,
    #[error("cannot add WO replica during expansion")]
    Expanding,
    #[error("cannot add a replica in mode ERR: one joins a volume as WO")]
    BadMode,
    #[error("replica {address} cannot join in mode RW: {why}; add it in mode WO, to be rebuilt")]
    NotSame { address: String, why: &'static str },
    #[error("replica {address} has size {size}, the volume {volume}")]
    Size { address: String, size: i64, volume: u64 },
    #[error(transparent)]
    Superseded(#[from] Superseded),
    #[error(transparent)]
    Address(#[from] BadAddress),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    NotEqual(#[from] NotEqual),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("cannot add replica {address}: {detail}")]
    Attach { address: String, detail: String },
    #[error("cannot remove last replica if volume is up")]
    Last,
    #[error(
        "cannot find the replica with address {address} in the controller server of volume {volume}"
    )]
    NotFound { address: String, volume: String },
    #[error("cannot set to mode WO")]
    SetWo,
    #[error("the replicas cannot be told who holds the volume: {0}")]
    Record(String),
}

pub(super) fn show_mode(mode: Mode) -> ptypes::ReplicaMode {
    match mode {
        Mode::Rw => ptypes::ReplicaMode::Rw,
        Mode::Wo => ptypes::ReplicaMode::Wo,
        Mode::Err => ptypes::ReplicaMode::Err,
    }
}

impl Replica {
    pub(super) fn show(&self) -> ptypes::ControllerReplica {
        let address =
            ptypes::ReplicaAddress { address: self.address.clone(), instance_name: String::new() };
        ptypes::ControllerReplica { address: Some(address), mode: show_mode(self.mode).into() }
    }
}

fn check_add(wanted: ptypes::ReplicaMode, present: &[Mode]) -> Result<Mode, ReplicaError> {
    let mode = match wanted {
        ptypes::ReplicaMode::Wo => Mode::Wo,
        ptypes::ReplicaMode::Rw => Mode::Rw,
        ptypes::ReplicaMode::Err => return Err(ReplicaError::BadMode),
    };
    if mode == Mode::Wo && present.contains(&Mode::Wo) {
        return Err(ReplicaError::SecondWo);
    }
    Ok(mode)
}

/// Why a replica may lack what the volume has, if that is not ruled out: it is to be read from at once.
/// One that was removed a moment ago is what it was then: closed well, with the layers, the head and the
/// count of changes that the others have.
fn differs(joins: &Found, head: &str, other: &ptypes::Replica) -> Option<&'static str> {
    let layers = joins.layers.iter().map(|layer| layer.name.as_str());
    let others = other.chain.iter().filter(|name| **name != other.head);
    if joins.counter.is_none() || other.revision_counter_disabled {
        return Some("without a revision counter nothing says that it has all the others have");
    }
    if joins.unclean || !joins.usable {
        return Some("it was not closed well");
    }
    if head != other.head || !layers.eq(others.map(String::as_str)) {
        return Some("its snapshots are not those of the volume");
    }
    (joins.counter != Some(other.revision_counter))
        .then_some("its revision counter is not that of the others")
}

/// The last copy that can be read is not taken from a volume in use.
fn check_remove(at: usize, modes: &[Mode], in_use: bool) -> Result<(), ReplicaError> {
    let others = modes.iter().enumerate().filter(|(other, _)| *other != at);
    let mut others = others.map(|(_, mode)| *mode);
    let lone = modes.len() == 1;
    let last_rw = modes.get(at) == Some(&Mode::Rw) && !others.any(|mode| mode == Mode::Rw);
    if in_use && (lone || last_rw) { Err(ReplicaError::Last) } else { Ok(()) }
}

impl Engine {
    /// Adds the replica at `address`, with a snapshot of the volume at that moment if that is
    /// `snapshot_required`.
    pub(super) async fn add(
        &self,
        address: &str,
        snapshot_required: bool,
        wanted: ptypes::ReplicaMode,
    ) -> Result<Replica, ReplicaError> {
        self.check_not_expanding(address)?;
        if snapshot_required {
            self.await_equal().await;
        }
        let _order = self.order.lock().await;
        self.add_ordered(address, snapshot_required, wanted).await
    }

    /// Adds the replica at `address` to those from which it is to be filled.
    pub(super) async fn add_to_fill(&self, address: &str) -> Result<Replica, ReplicaError> {
        self.check_not_expanding(address)?;
        self.await_equal().await;
        let _order = self.order.lock().await;
        // The volume may have been let go of meanwhile: this is no way to start it.
        if self.readable().is_empty() {
            return Err(ReplicaError::NoSource);
        }
        self.add_ordered(address, true, ptypes::ReplicaMode::Wo).await
    }

    /// To be asked before the lock is: an expansion holds it until it is done.
    fn check_not_expanding(&self, address: &str) -> Result<(), ReplicaError> {
        let expanding = self.state().expansion.running;
        if expanding && self.find(address).is_none() {
            return Err(ReplicaError::Expanding);
        }
        Ok(())
    }

    async fn add_ordered(
        &self,
        address: &str,
        snapshot_required: bool,
        wanted: ptypes::ReplicaMode,
    ) -> Result<Replica, ReplicaError> {
        if let Some(known) = self.find(address) {
            return Ok(known);
        }
        let modes: Vec<Mode> = self.replicas().iter().map(|replica| replica.mode).collect();
        let mode = check_add(wanted, &modes)?;
        let link = self.link(address)?;
        let looked = probe::look(&link).await?;
        let filling = looked.as_ref().and_then(|it| Some(it.standing.as_ref()?.filling));
        if mode == Mode::Rw && filling.is_some_and(|filling| filling != Filling::No) {
            let address = address.to_owned();
            return Err(ReplicaError::NotSame { address, why: "it was being filled" });
        }
        let wanted = self.open_as(modes.is_empty(), mode, looked.as_ref())?;
        let opened = self.open_and_set(&link, looked.as_ref(), &wanted, address).await?;
        match self.join(address, &link, &opened, mode, snapshot_required).await {
            Ok(()) => tracing::info!(replica = address, "added replica {address}"),
            Err(error) => {
                self.close_quietly(address, &link).await;
                return Err(error);
            }
        }
        if mode == Mode::Rw && modes.is_empty() {
            let serial = opened.found.standing.and_then(|it| it.record).map_or(0, |it| it.serial);
            self.volume.keep_records(wanted.claim.generation, serial).await;
        }
        if mode == Mode::Rw {
            self.record().await.map_err(|fault| ReplicaError::Record(fault.to_string()))?;
        }
        self.find(address).ok_or_else(|| self.not_found(address))
    }

    fn open_as(
        &self,
        alone: bool,
        mode: Mode,
        looked: Option<&Looked>,
    ) -> Result<OpenAs, Superseded> {
        let claim = match self.claim.get() {
            Some(claim) if mode == Mode::Wo || !alone => claim,
            Some(_) | None => self.claim_above(looked.into_iter())?,
        };
        Ok(OpenAs {
            upgrade: false,
            size: i64::try_from(self.state().size).unwrap_or(i64::MAX),
            alone,
            revision_counter: self.options.revision_counter,
            claim,
            // One that joins others has what they record of it, and nothing of its own.
            adopt: mode == Mode::Wo || !alone,
            salvage: false,
        })
    }

    async fn join(
        &self,
        address: &str,
        link: &Link,
        opened: &Opened,
        mode: Mode,
        snapshot_required: bool,
    ) -> Result<(), ReplicaError> {
        let (size, volume) = (opened.found.size_bytes, self.state().size);
        let wrong = ReplicaError::Size { address: address.to_owned(), size, volume };
        let Ok(bytes) = u64::try_from(size) else { return Err(wrong) };
        let first = self.state().entries.is_empty();
        if first {
            let no_room = |error: crate::frontend::FrontendError| ReplicaError::Attach {
                address: address.to_owned(),
                detail: error.to_string(),
            };
            self.volume.resize(bytes).await.map_err(no_room)?;
            self.state().size = bytes;
        } else if bytes != volume {
            return Err(wrong);
        }
        let name = uuid::Uuid::new_v4().to_string();
        let joins_others = mode == Mode::Rw && !first;
        if joins_others {
            self.equal()?;
        }
        if snapshot_required && !first {
            self.equal()?;
            let disk = DiskName::of_snapshot(&name).map_err(SnapshotError::from)?;
            self.room_for_snapshot(&disk).await?;
        }
        if mode == Mode::Wo && snapshot_required {
            return self.join_to_be_filled(address, link, opened, name).await;
        }
        let _hold = self.hold(Hold::Changes { flush: snapshot_required }).await?;
        if joins_others {
            self.check_same(address, link, opened).await?;
        }
        if snapshot_required {
            self.snapshot_with(address, link, name).await?;
        }
        let attach = |detail| ReplicaError::Attach { address: address.to_owned(), detail };
        let member = self.attach(link, opened, mode).await.map_err(attach)?;
        let entry = Entry { address: address.to_owned(), link: link.clone(), member: Some(member) };
        self.state().entries.push(entry);
        Ok(())
    }

    /// Changes are on hold: nothing moves while they are compared.
    async fn check_same(
        &self,
        address: &str,
        link: &Link,
        opened: &Opened,
    ) -> Result<(), ReplicaError> {
        let not_same = |why| ReplicaError::NotSame { address: address.to_owned(), why };
        let seen = self.ask_readable().await.map_err(SnapshotError::from)?;
        let (Some(other), None) = (seen.first(), link.file()) else {
            return Err(not_same("a raw file does not say what it has"));
        };
        let head = link.get(self.hold_limit()).await.map_err(ProbeError::from)?.head;
        match differs(&opened.found, &head, other) {
            Some(why) => Err(not_same(why)),
            None => Ok(()),
        }
    }

    /// Whatever engine finds it half filled knows that it is: its own standing says so already, to those
    /// that look at it. Others are marked by who fills them.
    pub(super) async fn disqualify(&self, link: &Link, opened: &Opened) -> Result<(), CallError> {
        let limit = self.hold_limit();
        if opened.found.standing.is_none() {
            return Ok(());
        }
        if opened.found.counter.is_some() {
            link.set_counter(limit, 0).await?;
        }
        link.set_rebuilding(limit, true).await.map(drop)
    }

    /// One system snapshot on all replicas and on the new one: what comes after it goes to its
    /// head, what came before is copied to it. The new one first: if it cannot, nobody did.
    async fn snapshot_with(
        &self,
        address: &str,
        link: &Link,
        name: String,
    ) -> Result<(), ReplicaError> {
        let request = ptypes::ReplicaSnapshotRequest {
            name: name.clone(),
            user_created: false,
            created: created_now(),
            labels: std::collections::HashMap::new(),
        };
        let failed = |detail: String| SnapshotError::Replicas { name: name.clone(), detail };
        if let Err(error) = link.snapshot(self.hold_limit(), request.clone()).await {
            return Err(failed(format!("{address}: {error}")).into());
        }
        let replicas = self.live();
        if replicas.is_empty() {
            return Ok(());
        }
        self.snapshot_held(&replicas, request).await.map_err(|detail| failed(detail).into())
    }

    /// Removes a replica from the volume and closes it. One that is not known is removed already.
    pub(super) async fn remove(&self, address: &str) -> Result<(), ReplicaError> {
        let order = self.order.lock().await;
        let replicas = self.replicas();
        let Some(at) = replicas.iter().position(|replica| replica.address == address) else {
            return Ok(());
        };
        let modes: Vec<Mode> = replicas.iter().map(|replica| replica.mode).collect();
        check_remove(at, &modes, self.frontend_is_up())?;
        let Some(replica) = replicas.into_iter().nth(at) else { return Ok(()) };
        self.state().entries.retain(|entry| entry.address != address);
        if let Some(member) = replica.member {
            self.volume.detach(member).await;
        }
        // Others need not wait while a dead one is told to close.
        drop(order);
        self.close_quietly(address, &replica.link).await;
        tracing::info!(replica = address, "removed replica {address}");
        Ok(())
    }

    /// Closes a replica that is no longer used. That it cannot be told is its own trouble.
    pub(super) async fn close_quietly(&self, address: &str, link: &Link) {
        if link.file().is_some() {
            return;
        }
        if let Err(error) = link.close(self.hold_limit().min(CALL_LIMIT)).await {
            tracing::warn!(replica = address, %error, "cannot close replica {address}: {error}");
        }
    }

    /// Switches a replica to RW or ERR; one in ERR stays there.
    pub(super) async fn update(
        &self,
        address: &str,
        wanted: ptypes::ReplicaMode,
    ) -> Result<Replica, ReplicaError> {
        let _order = self.order.lock().await;
        let replica = self.find(address).ok_or_else(|| self.not_found(address))?;
        let mode = match wanted {
            ptypes::ReplicaMode::Rw => Mode::Rw,
            ptypes::ReplicaMode::Err => Mode::Err,
            ptypes::ReplicaMode::Wo => return Err(ReplicaError::SetWo),
        };
        if let Some(member) = replica.member {
            self.volume.set_mode(member, mode, "set by a caller").await;
        }
        let now = self.find(address).ok_or_else(|| self.not_found(address))?;
        if now.mode == Mode::Rw {
            self.record().await.map_err(|fault| ReplicaError::Record(fault.to_string()))?;
        }
        Ok(now)
    }

    pub(super) fn not_found(&self, address: &str) -> ReplicaError {
        ReplicaError::NotFound { address: address.to_owned(), volume: self.options.volume.clone() }
    }
}

#[cfg(test)]
mod tests {
    use rpc::ptypes::ReplicaMode as Wanted;

    use super::*;

    #[test]
    fn one_replica_at_a_time_joins_and_only_to_be_written() {
        assert_eq!(check_add(Wanted::Wo, &[Mode::Rw, Mode::Err]).ok(), Some(Mode::Wo));
        assert_eq!(check_add(Wanted::Rw, &[]).ok(), Some(Mode::Rw));
        let text = |wanted, present: &[Mode]| {
            check_add(wanted, present).map_err(|error| error.to_string())
        };
        let second = "can only have one WO replica at a time";
        assert_eq!(text(Wanted::Wo, &[Mode::Wo]), Err(second.into()));
        assert_eq!(check_add(Wanted::Rw, &[Mode::Rw]).ok(), Some(Mode::Rw));
        assert!(text(Wanted::Err, &[]).is_err());
    }

    #[test]
    fn the_last_copy_stays_while_the_volume_is_up() {
        assert!(check_remove(0, &[Mode::Rw], true).is_err());
        assert!(check_remove(0, &[Mode::Rw], false).is_ok());
        assert!(check_remove(0, &[Mode::Rw, Mode::Err], true).is_err());
        assert!(check_remove(1, &[Mode::Rw, Mode::Err], true).is_ok());
        assert!(check_remove(0, &[Mode::Rw, Mode::Rw], true).is_ok());
        assert!(check_remove(0, &[Mode::Err], true).is_err());
    }
}
