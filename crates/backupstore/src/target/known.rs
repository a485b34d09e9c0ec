//! What is known of a target as a store: probed once, kept in the target for all who use it, shown, and
//! set by hand where a probe cannot tell.

use aws_lc_rs::digest;
use blobs::{Listing, Times, get_limited};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::places;
use crate::error::Error;
use crate::name::hex;
use crate::store::{Abilities, BackupStore};

const RECORD_MAX_BYTES: u64 = 64 << 10;
/// After that a service is tried again.
const PROBED_EVERY: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Of the checksum that tells one service from another.
const IDENTITY_DIGITS: usize = 16;

/// One thing each that a store can do or not; what is missing is not known, or not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbilityValues {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditional_writes: Option<bool>,
    /// Whether a listing shows at once what was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listings_at_once: Option<bool>,
    /// Whether all objects are stamped by one clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_clock: Option<bool>,
}

impl AbilityValues {
    fn of(abilities: Abilities) -> Self {
        Self {
            conditional_writes: Some(abilities.conditional_put),
            listings_at_once: Some(abilities.listing == Listing::AtOnce),
            one_clock: Some(abilities.times == Times::OfStore),
        }
    }

    /// What is not known here is as in `other`.
    fn or(self, other: Self) -> Self {
        Self {
            conditional_writes: self.conditional_writes.or(other.conditional_writes),
            listings_at_once: self.listings_at_once.or(other.listings_at_once),
            one_clock: self.one_clock.or(other.one_clock),
        }
    }

    fn over(self, stated: Abilities) -> Abilities {
        let all = self.or(Self::of(stated));
        let is = |value: Option<bool>| value.unwrap_or(false);
        Abilities {
            conditional_put: is(all.conditional_writes),
            listing: if is(all.listings_at_once) { Listing::AtOnce } else { Listing::Later },
            times: if is(all.one_clock) { Times::OfStore } else { Times::OfWriter },
        }
    }
}

/// The record in the target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    /// Which service was probed: a copy of the target elsewhere is probed anew.
    #[serde(default)]
    service: String,
    #[serde(default)]
    probed: Option<Timestamp>,
    #[serde(default)]
    found: AbilityValues,
    #[serde(default)]
    set: AbilityValues,
}

impl Known {
    /// Services are replaced, and proxies put before them, at the same place. Also one that was probed in
    /// the future.
    fn is_due(&self) -> bool {
        let age = |probed: Timestamp| Timestamp::now().duration_since(probed);
        self.probed
            .is_none_or(|probed| !(SignedDuration::ZERO..PROBED_EVERY).contains(&age(probed)))
    }
}

/// What a target can do, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetInfo {
    pub url: String,
    /// When it was tried; nothing for a directory, whose file system tells.
    pub probed: Option<Timestamp>,
    pub found: AbilityValues,
    pub set: AbilityValues,
    /// What locks and records go by.
    pub used: AbilityValues,
    /// What is to be known of the mount that it lies on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
}

/// Whether a store is to be tried before it is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It is what it says.
    Stated,
    /// That of a file system, but for what was set by hand.
    Settable,
    /// The service is tried once; by this it is known again.
    Probed { service: String },
}

impl Trust {
    /// Of the service at that place.
    pub(crate) fn probed(place: &str) -> Self {
        let mut service = hex(digest::digest(&digest::SHA512, place.as_bytes()).as_ref());
        service.truncate(IDENTITY_DIGITS);
        Self::Probed { service }
    }
}

impl BackupStore {
    /// Learns what the store can do, the first time that it matters.
    pub(crate) async fn learn(&self) -> Result<(), Error> {
        let learned = self.repository.learned().get_or_try_init(|| async {
            let known = self.known().await?;
            Ok::<_, Error>(self.abilities_by(&known))
        });
        learned.await.map(drop)
    }

    fn abilities_by(&self, known: &Known) -> Abilities {
        let stated = Abilities::stated_by(self.repository.store());
        known.set.or(self.found_here(known)).over(stated)
    }

    /// What was found of another service says nothing of this one, or of a directory: the record may have
    /// come with a copy of the target, or be that of a bucket whose objects are also files.
    fn found_here(&self, known: &Known) -> AbilityValues {
        match &self.trust {
            Trust::Probed { service } if known.service == *service => known.found,
            Trust::Stated | Trust::Settable | Trust::Probed { .. } => AbilityValues::default(),
        }
    }

    /// What is known to those who only look, and try nothing.
    async fn seen_abilities(&self) -> Result<Abilities, Error> {
        if let Some(learned) = self.repository.learned().get() {
            return Ok(*learned);
        }
        let known = match &self.trust {
            Trust::Stated => Known::default(),
            Trust::Settable | Trust::Probed { .. } => self.read_known().await?,
        };
        Ok(self.abilities_by(&known))
    }

    /// Waits until what was done by now is listed; false where it is at once.
    pub(crate) async fn listings_are_awaited(&self) -> Result<bool, Error> {
        match self.seen_abilities().await?.listing {
            Listing::AtOnce => Ok(false),
            Listing::Later => {
                self.clock.sleep(self.schedule.settle).await;
                Ok(true)
            }
        }
    }

    /// What the target's record says, after a probe where that has still to be made.
    async fn known(&self) -> Result<Known, Error> {
        let known = match &self.trust {
            Trust::Stated => return Ok(Known::default()),
            Trust::Settable | Trust::Probed { .. } => self.read_known().await?,
        };
        match &self.trust {
            Trust::Probed { service } if known.service != *service || known.is_due() => {
                self.probe_anew(known, service).await
            }
            Trust::Stated | Trust::Settable | Trust::Probed { .. } => Ok(known),
        }
    }

    async fn read_known(&self) -> Result<Known, Error> {
        let key = places::record()?;
        match get_limited(self.repository.store(), &key, RECORD_MAX_BYTES).await {
            Ok(blob) => Ok(serde_json::from_slice(&blob.bytes).unwrap_or_else(|error| {
                tracing::warn!("{key} cannot be read, and is not regarded: {error}");
                Known::default()
            })),
            Err(error) if error.is_not_found() => Ok(Known::default()),
            Err(error) => Err(error.into()),
        }
    }

    async fn probe_anew(&self, known: Known, service: &str) -> Result<Known, Error> {
        let found = Abilities::probe(self.repository.store()).await?;
        tracing::info!(target = %self.url, ?found, "the target was tried for what it can do");
        let found = AbilityValues::of(found);
        let probed = Some(Timestamp::now());
        let known = Known { service: service.to_owned(), probed, found, ..known };
        if let Err(error) = self.write_known(&known).await {
            tracing::warn!("what the target can do cannot be kept in it: {error}");
        }
        Ok(known)
    }

    async fn write_known(&self, known: &Known) -> Result<(), Error> {
        let bytes = serde_json::to_vec(known).map_err(Error::Record)?;
        self.repository.store().put(&places::record()?, bytes.into()).await?;
        Ok(())
    }

    /// What the target can do, tried anew.
    pub async fn inspect_target(&self) -> Result<TargetInfo, Error> {
        let known = match &self.trust {
            Trust::Probed { service } => {
                let known = self.read_known().await?;
                self.probe_anew(known, service).await?
            }
            Trust::Stated | Trust::Settable => self.known().await?,
        };
        Ok(self.target_info(&known))
    }

    /// Sets what a target is taken to be able to, for all who use it; what is not given is as found.
    pub async fn set_target(&self, set: AbilityValues) -> Result<TargetInfo, Error> {
        let known = Known { set, ..self.known().await? };
        self.write_known(&known).await?;
        Ok(self.target_info(&known))
    }

    fn target_info(&self, known: &Known) -> TargetInfo {
        let stated = Abilities::stated_by(self.repository.store());
        let is_probed = matches!(self.trust, Trust::Probed { .. });
        TargetInfo {
            url: self.url.to_string(),
            probed: known.probed.filter(|_| is_probed),
            found: self.found_here(known).or(AbilityValues::of(stated)),
            set: known.set,
            used: AbilityValues::of(self.abilities_by(known)),
            caveat: self.caveat.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Environment, TargetUrl};

    /// Whoever reaches the same directory as a bucket has tried that; or the bucket was copied.
    #[tokio::test]
    async fn what_was_found_of_a_service_says_nothing_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let url = TargetUrl::parse(&format!("vfs://{}", dir.path().display())).unwrap();
        let open = || async { BackupStore::open(&url, &Environment::default()).await.unwrap() };
        let no = Some(false);
        let found = AbilityValues { conditional_writes: no, listings_at_once: no, one_clock: no };
        let (service, probed) = ("0123456789abcdef".to_owned(), Some(Timestamp::now()));
        let known = Known { service, probed, found, set: AbilityValues::default() };
        let store = open().await;
        store.write_known(&known).await.unwrap();
        store.learn().await.unwrap();
        assert!(store.abilities().is_strong(), "{:?}", store.abilities());
        assert!(open().await.seen_abilities().await.unwrap().is_strong());
        // What was set by hand is for all who use it; what was found stays for whom it is.
        let set = AbilityValues { listings_at_once: no, ..AbilityValues::default() };
        let used = open().await.set_target(set).await.unwrap().used;
        assert_eq!((used.listings_at_once, used.one_clock), (no, Some(true)));
        assert_eq!(open().await.inspect_target().await.unwrap().used, used);
        assert_eq!(open().await.read_known().await.unwrap(), Known { set, ..known });
    }
}
