//! Whose the replica is: the claim and the record in `membership.json`, which connections may
//! change the volume, and which engines have been heard from.
//!
//! Owns that file. What may follow what is decided by [`wire::membership`].

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use durable::{Mode, RealDisk};
use tokio::sync::watch;
use wire::membership::{Claim, Record, Refused, Standing};

const FILE: &str = "membership.json";
/// Holds nothing but room.
const SPARE_FILE: &str = "membership.spare";
const SPARE_BYTES: usize = 64 << 10;
/// Far more than what is ever written there, in bytes.
const FILE_MAX_BYTES: usize = 1 << 20;
/// An engine that sent nothing for so many seconds of this thread keeps no other out. Engines send
/// pings every two.
pub(crate) const SILENT_TICKS: u64 = 15;

#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{} is damaged: {why}; move it away to go on with what the other files say", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("cannot read or write {}: {source}", path.display())]
    File { path: PathBuf, source: durable::Error },
    #[error(
        "the replica is driven by an engine with generation {0}, which was heard from just now"
    )]
    InUse(u64),
    #[error("a record that cannot be read: {0}")]
    Record(String),
}

/// Under which right the replica was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OpenedBy {
    /// An engine that makes no claims, or nobody yet.
    Unclaimed,
    Claim(Claim),
    /// Another process has the directory.
    HandedOver,
}

/// One data connection, as far as it matters who it is.
#[derive(Debug)]
pub(crate) struct Guest {
    greeted: Option<Claim>,
    heard: Rc<Cell<u64>>,
}

#[derive(Debug)]
pub(crate) struct Owner {
    path: PathBuf,
    /// What the file says, once it was read.
    known: Option<Standing>,
    opened_by: OpenedBy,
    turns: watch::Sender<u64>,
    ticks: u64,
    guests: Vec<Weak<Cell<u64>>>,
}

impl Owner {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            path: dir.join(FILE),
            known: None,
            opened_by: OpenedBy::Unclaimed,
            turns: watch::Sender::new(0),
            ticks: 0,
            guests: Vec::new(),
        }
    }

    pub(crate) fn standing(&mut self) -> Result<&Standing, OwnerError> {
        let found = match self.known.take() {
            Some(known) => known,
            None => self.read()?,
        };
        Ok(self.known.insert(found))
    }

    fn read(&self) -> Result<Standing, OwnerError> {
        let bytes = match durable::read_limited(&self.path, FILE_MAX_BYTES) {
            Err(error) if error.is_not_found() => return Ok(Standing::default()),
            other => {
                other.map_err(|source| OwnerError::File { path: self.path.clone(), source })?
            }
        };
        serde_json::from_slice(&bytes).map_err(|error| OwnerError::Damaged {
            path: self.path.clone(),
            why: error.to_string(),
        })
    }

    /// On disk when this returns.
    fn store(&mut self, next: Standing) -> Result<(), OwnerError> {
        let failed = |why: String| OwnerError::Damaged { path: self.path.clone(), why };
        let mut line = serde_json::to_vec(&next).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        let write = || durable::on::replace(&RealDisk, &self.path, &line, Mode::PUBLIC);
        let mut written = write();
        if written.as_ref().is_err_and(|error| error.kind() == Some(ErrorKind::StorageFull)) {
            // What a full disk must still take is kept room for.
            let _ = std::fs::remove_file(self.spare());
            written = write();
        }
        written.map_err(|source| OwnerError::File { path: self.path.clone(), source })?;
        self.known = Some(next);
        self.keep_room();
        Ok(())
    }

    fn spare(&self) -> PathBuf {
        self.path.with_file_name(SPARE_FILE)
    }

    /// Room for the next record, should the disk be full by then. Not having it is no reason to
    /// stop: only a full disk makes a difference.
    fn keep_room(&self) {
        let spare = self.spare();
        if spare.exists() {
            return;
        }
        let room = vec![b' '; SPARE_BYTES];
        if let Err(error) = durable::on::replace(&RealDisk, &spare, &room, Mode::PUBLIC) {
            tracing::debug!(%error, "no room is kept for the next record");
        }
    }

    /// Another process may have changed the file.
    pub(crate) fn look_again(&mut self) {
        self.known = None;
    }

    /// An engine claims the replica. From when this returns nobody else changes it.
    pub(crate) fn claim(&mut self, claim: &Claim, adopt: bool) -> Result<(), OwnerError> {
        let standing = self.standing()?;
        let mut next = if adopt { standing.adopt(claim) } else { standing.claim(claim)? };
        if next.id.is_empty() {
            next.id = uuid::Uuid::new_v4().to_string();
        }
        self.store(next)?;
        self.opened_by = OpenedBy::Claim(claim.clone());
        self.turn();
        Ok(())
    }

    /// An engine that makes no claims opens the replica: what was recorded no longer holds.
    pub(crate) fn open_unclaimed(&mut self) -> Result<(), OwnerError> {
        let standing = self.standing()?;
        if standing.record.is_some() {
            let next = standing.forget_record();
            self.store(next)?;
        }
        self.opened_by = OpenedBy::Unclaimed;
        self.turn();
        Ok(())
    }

    /// Another process has the directory from now on, and its engines are served by that.
    pub(crate) fn hand_over(&mut self) {
        self.opened_by = OpenedBy::HandedOver;
        self.known = None;
        self.turn();
    }

    /// The directory was another process's since the claim was made, and so was the file.
    pub(crate) fn reassert(&mut self) -> Result<(), OwnerError> {
        self.known = None;
        let OpenedBy::Claim(claim) = self.opened_by.clone() else { return Ok(()) };
        let standing = self.standing()?;
        if standing.claim == claim {
            return Ok(());
        }
        let next = standing.claim(&claim)?;
        self.store(next)
    }

    /// Refuses if an engine with a claim is at work.
    pub(crate) fn check_free(&mut self) -> Result<(), OwnerError> {
        match &self.opened_by {
            OpenedBy::Claim(claim) if self.engines() > 0 => {
                Err(OwnerError::InUse(claim.generation))
            }
            OpenedBy::Claim(_) | OpenedBy::Unclaimed | OpenedBy::HandedOver => Ok(()),
        }
    }

    /// Refuses a call of an engine that was cut off; one without a claim is none of an engine's.
    pub(crate) fn check_call(&mut self, claim: Option<&Claim>) -> Result<(), OwnerError> {
        match claim {
            Some(claim) => Ok(self.standing()?.permits(claim)?),
            None => Ok(()),
        }
    }

    pub(crate) fn record(&mut self, guest: &Guest, text: &[u8]) -> Result<(), OwnerError> {
        let record: Record =
            serde_json::from_slice(text).map_err(|error| OwnerError::Record(error.to_string()))?;
        let claim = guest.greeted.clone().unwrap_or_default();
        let next = self.standing()?.record(&claim, record)?;
        self.store(next)
    }

    pub(crate) fn filled(&mut self, adoption: u64) -> Result<(), OwnerError> {
        let standing = self.standing()?;
        let next = standing.filled(adoption);
        if next == *standing { Ok(()) } else { self.store(next) }
    }

    /// The volume is deleted: so is what was known of it.
    pub(crate) fn forget(&mut self) {
        self.known = None;
        for path in [self.path.clone(), self.spare()] {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!(%error, "cannot remove {}", path.display());
            }
        }
    }

    fn turn(&self) {
        self.turns.send_modify(|turn| *turn = turn.wrapping_add(1));
    }

    /// Wakes when connections have to look whether they may go on.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    pub(crate) fn enter(&mut self) -> Guest {
        self.guests.retain(|guest| guest.strong_count() > 0);
        let heard = Rc::new(Cell::new(self.ticks));
        self.guests.push(Rc::downgrade(&heard));
        Guest { greeted: None, heard }
    }

    pub(crate) fn greet(&mut self, guest: &mut Guest, claim: Claim) -> Result<(), OwnerError> {
        self.standing()?.permits(&claim)?;
        if self.opened_by != OpenedBy::Claim(claim.clone()) {
            return Err(OwnerError::Record("the replica was not opened with this claim".into()));
        }
        guest.greeted = Some(claim);
        Ok(())
    }

    /// Whether a guest that greeted has been cut off since: the generation that has the replica.
    pub(crate) fn cut_off(&self, guest: &Guest) -> Option<u64> {
        match (&guest.greeted, &self.opened_by) {
            (None, _) => None,
            (Some(own), OpenedBy::Claim(claim)) if own == claim => None,
            (Some(_), OpenedBy::Claim(claim)) => Some(claim.generation),
            (Some(own), OpenedBy::Unclaimed | OpenedBy::HandedOver) => Some(own.generation),
        }
    }

    /// Why this guest may not change the volume, if so.
    pub(crate) fn rejection(&self, guest: &Guest) -> Option<String> {
        match (&guest.greeted, &self.opened_by) {
            (None, OpenedBy::Claim(claim)) => Some(format!(
                "this replica is driven by an engine with generation {}; a connection without its \
                 greeting only reads",
                claim.generation
            )),
            (None, OpenedBy::HandedOver) => {
                Some("the directory was handed over to another process".to_owned())
            }
            (None, OpenedBy::Unclaimed) | (Some(_), _) => None,
        }
    }

    /// About once a second: time as this thread has it, so that a disk that hangs makes no engine
    /// look silent.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.saturating_add(1);
    }

    pub(crate) fn heard(&self, guest: &Guest) {
        guest.heard.set(self.ticks);
    }

    /// Connections that are not silent.
    pub(crate) fn engines(&self) -> u32 {
        let alive = |guest: &&Weak<Cell<u64>>| {
            let heard = guest.upgrade().map(|heard| heard.get());
            heard.is_some_and(|heard| self.ticks.saturating_sub(heard) < SILENT_TICKS)
        };
        u32::try_from(self.guests.iter().filter(alive).count()).unwrap_or(u32::MAX)
    }
}
