//! The handle of one backup store, and what is known of it as a store.

use std::sync::Arc;

use blobs::{Listing, Store, Times};

use crate::clock::{BootClock, Clock};
use crate::error::Error;
use crate::lock::{LockSchedule, Processes, SystemProcesses};
use crate::repository::Repository;
use crate::target::{TargetUrl, Trust};

/// One backup store. Clones are the same store.
#[derive(Debug, Clone)]
pub struct BackupStore {
    pub(crate) repository: Repository,
    pub(crate) url: TargetUrl,
    pub(crate) schedule: LockSchedule,
    /// How it is known what the store can do.
    pub(crate) trust: Trust,
    /// What those who delete should know of it.
    pub(crate) caveat: Option<String>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) processes: Arc<dyn Processes>,
}

/// What the protocol of locks and records builds upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Writes can be made conditional on what they replace.
    pub conditional_put: bool,
    pub listing: Listing,
    pub times: Times,
}

impl Abilities {
    /// What the store says of itself.
    pub fn stated_by(store: &dyn Store) -> Self {
        let stated = store.capabilities();
        let (conditional_put, listing) = (stated.conditional_put, stated.listing);
        Self { conditional_put, listing, times: stated.times }
    }

    /// Whether nothing has to be made up for by waiting.
    pub(crate) fn is_strong(self) -> bool {
        self.conditional_put && self.listing == Listing::AtOnce && self.times == Times::OfStore
    }
}

impl BackupStore {
    /// A store that is open already; `url` is what backup URLs are made of.
    pub fn new(store: Arc<dyn Store>, url: TargetUrl) -> Self {
        let (schedule, clock) = (LockSchedule::default(), Arc::new(BootClock));
        let (repository, processes) = (Repository::new(store), Arc::new(SystemProcesses));
        let (trust, caveat) = (Trust::Stated, None);
        Self { repository, url, schedule, trust, caveat, clock, processes }
    }

    /// With other times for locks, for tests: peers keep to the usual ones.
    #[must_use]
    pub fn with_schedule(mut self, schedule: LockSchedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// With what the store was found to be able to, whatever it says.
    #[must_use]
    pub fn with_abilities(mut self, abilities: Abilities) -> Self {
        self.repository = self.repository.with_abilities(abilities);
        self
    }

    /// That has to be tried, or may be set by hand.
    #[must_use]
    pub(crate) fn trusted(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// What was learned, or what the store says until then.
    pub(crate) fn abilities(&self) -> Abilities {
        self.repository.abilities()
    }

    /// With another clock for leases, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With other processes than those of this machine, for tests.
    #[must_use]
    pub fn with_processes(mut self, processes: Arc<dyn Processes>) -> Self {
        self.processes = processes;
        self
    }

    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Asks the store for its first level: fails where it cannot be reached or refuses us.
    pub async fn check(&self) -> Result<(), Error> {
        self.repository.store().list_level(&blobs::Prefix::ROOT).await?;
        Ok(())
    }
}
