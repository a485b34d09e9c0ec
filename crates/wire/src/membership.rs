//! Who may drive a volume, and which copies hold it: what every replica keeps, and the rules by
//! which that changes.
//!
//! Owns: the order of claims, what a record says, the text both have in files and messages. Never:
//! stores or sends them. `docs/decisions/0028-generations-and-membership.md` says why it is so.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Longest text of a [`Record`], in bytes: far more than the most replicas need.
pub const RECORD_MAX: u32 = 64 << 10;

/// An engine's right to a volume. The higher one counts; between equal generations the name does.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// 0: nobody has claimed it yet.
    pub generation: u64,
    /// Drawn by the engine; never used twice.
    pub engine: String,
}

/// Which copies hold all that was acknowledged, as of `serial`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Grows with every record of a volume.
    pub serial: u64,
    pub generation: u64,
    /// Ids of replicas; of those that have none, addresses.
    pub members: Vec<String>,
    /// The one the others are being made equal to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
}

impl Record {
    pub fn names(&self, id: &str) -> bool {
        self.members.iter().any(|member| member == id)
    }

    /// Its text, one line.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Whether a copy is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filling {
    /// It is, as far as is known here.
    #[default]
    No,
    /// It was taken into a volume and has yet to get what the others have.
    Wanted,
    /// It got all of that; the engine has not looked at it yet.
    Copied,
}

/// What a replica keeps in its directory.
#[must_use = "it holds once it is stored"]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    /// Drawn when it is claimed first, and its own for good.
    pub id: String,
    pub claim: Claim,
    /// `None`: it never had one, or an engine that keeps none has had it since.
    pub record: Option<Record>,
    pub filling: Filling,
    /// How often it joined a volume to be filled.
    pub adoption: u64,
}

/// Why a replica does not do what an engine asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "cut off: this volume was claimed by engine {} with generation {}, which is not below {}",
        has.engine, has.generation, asked.generation
    )]
    CutOff { has: Claim, asked: Claim },
    #[error("record {asked} is not newer than record {has}")]
    OldRecord { has: u64, asked: u64 },
}

/// By these words a text says that an engine lost its volume.
pub const CUT_OFF_TEXT: &str = "cut off: this volume was claimed by";

impl Standing {
    /// # Errors
    /// If a claim as high has been made before.
    pub fn claim(&self, claim: &Claim) -> Result<Self, Refused> {
        if *claim <= self.claim {
            return Err(Refused::CutOff { has: self.claim.clone(), asked: claim.clone() });
        }
        Ok(Self { claim: claim.clone(), ..self.clone() })
    }

    /// The copy joins a volume to be filled: what it had before no longer counts, nor does whose
    /// it was.
    pub fn adopt(&self, claim: &Claim) -> Self {
        Self {
            id: self.id.clone(),
            claim: claim.clone(),
            record: None,
            filling: Filling::Wanted,
            adoption: self.adoption.saturating_add(1),
        }
    }

    /// An engine that keeps no records takes it.
    pub fn forget_record(&self) -> Self {
        Self { record: None, ..self.clone() }
    }

    /// # Errors
    /// If the engine with this claim may not say so any more, or said something newer.
    pub fn record(&self, claim: &Claim, record: Record) -> Result<Self, Refused> {
        self.permits(claim)?;
        let has = self.record.as_ref().map_or(0, |record| record.serial);
        if record.serial <= has {
            return Err(Refused::OldRecord { has, asked: record.serial });
        }
        let filling = if record.names(&self.id) { Filling::No } else { self.filling };
        Ok(Self { record: Some(record), filling, ..self.clone() })
    }

    /// What was wanted as of this adoption has been copied here.
    pub fn filled(&self, adoption: u64) -> Self {
        let filling = match self.filling {
            Filling::Wanted if adoption == self.adoption => Filling::Copied,
            other => other,
        };
        Self { filling, ..self.clone() }
    }

    /// Whether the engine with this claim may go on.
    ///
    /// # Errors
    /// If another has claimed the replica.
    pub fn permits(&self, claim: &Claim) -> Result<(), Refused> {
        if *claim == self.claim {
            return Ok(());
        }
        Err(Refused::CutOff { has: self.claim.clone(), asked: claim.clone() })
    }
}
