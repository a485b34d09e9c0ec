//! The claim under which an engine calls a replica: a replica that another has claimed since refuses
//! the call. Sent in metadata that servers of the other kind do not look at.

use std::sync::{Arc, PoisonError, RwLock};

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use wire::membership::Claim;

const KEY: &str = "holdfast-claim";

/// The claim all calls of one engine carry, once it has made one. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct SharedClaim(Arc<RwLock<Option<Claim>>>);

impl SharedClaim {
    pub fn set(&self, claim: Option<Claim>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = claim;
    }

    pub fn get(&self) -> Option<Claim> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn attach(&self, metadata: &mut MetadataMap) {
        let Some(Claim { generation, engine }) = self.get() else { return };
        if let Ok(value) = AsciiMetadataValue::try_from(format!("{generation} {engine}")) {
            metadata.insert(KEY, value);
        }
    }
}

/// The claim a call came with.
pub fn claim_of(metadata: &MetadataMap) -> Option<Claim> {
    let (generation, engine) = metadata.get(KEY)?.to_str().ok()?.split_once(' ')?;
    Some(Claim { generation: generation.parse().ok()?, engine: engine.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_arrives_as_it_was_sent() {
        let (shared, mut metadata) = (SharedClaim::default(), MetadataMap::new());
        shared.attach(&mut metadata);
        assert_eq!(claim_of(&metadata), None);
        let claim = Claim { generation: 7, engine: "e-1".into() };
        shared.clone().set(Some(claim.clone()));
        shared.attach(&mut metadata);
        assert_eq!(claim_of(&metadata), Some(claim));
    }
}
