//! Who a call is meant for: a server refuses calls that name another volume or instance.
//!
//! Ports are reused. A caller that kept an address too long would otherwise change the wrong
//! volume; the names it sends along are how it finds out.

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Request, Status};

const VOLUME: &str = "volume-name";
const INSTANCE: &str = "instance-name";

/// Which address the caller is told to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    Controller,
    /// The replica and its sync agent.
    Replica,
}

/// The names of a server, or those a client expects to find. Empty: not known, nothing is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub volume: String,
    pub instance: String,
}

impl Identity {
    /// Refuses a call that names another volume or instance.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`, with the name that was sent.
    #[allow(clippy::result_large_err, reason = "tonic's own error type")]
    pub fn check(&self, metadata: &MetadataMap, party: Party) -> Result<(), Status> {
        let party = match party {
            Party::Controller => "controller",
            Party::Replica => "replica",
        };
        for (key, word, own) in
            [(VOLUME, "volume", &self.volume), (INSTANCE, "instance", &self.instance)]
        {
            match sent(metadata, key) {
                Some(name) if !own.is_empty() && name != own => {
                    return Err(Status::failed_precondition(format!(
                        "incorrect {word} name {name}; check {party} address"
                    )));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Adds the names to a call. One that cannot be a header value is left out, as if not known.
    pub fn attach<T>(&self, request: &mut Request<T>) {
        for (key, name) in [(VOLUME, &self.volume), (INSTANCE, &self.instance)] {
            if name.is_empty() {
                continue;
            }
            if let Ok(value) = AsciiMetadataValue::try_from(name.as_str()) {
                request.metadata_mut().insert(key, value);
            }
        }
    }
}

/// The one value of `key`, if it was sent exactly once and is not empty.
fn sent<'m>(metadata: &'m MetadataMap, key: &str) -> Option<&'m str> {
    let mut values = metadata.get_all(key).iter();
    let only = values.next()?.to_str().ok()?;
    (values.next().is_none() && !only.is_empty()).then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&'static str, &'static str)]) -> MetadataMap {
        let mut map = MetadataMap::new();
        for (key, value) in pairs {
            map.append(*key, AsciiMetadataValue::from_static(value));
        }
        map
    }

    #[test]
    fn only_a_differing_name_that_both_sides_know_is_refused() {
        let server = Identity { volume: "v".into(), instance: "e".into() };
        let anonymous = Identity::default();
        let refused = |identity: &Identity, pairs: &[(&'static str, &'static str)], party| {
            identity.check(&metadata(pairs), party).err().map(|status| status.message().to_owned())
        };
        assert_eq!(refused(&server, &[], Party::Controller), None);
        assert_eq!(refused(&server, &[(VOLUME, "v"), (INSTANCE, "e")], Party::Controller), None);
        assert_eq!(
            refused(&server, &[(VOLUME, "w")], Party::Controller).as_deref(),
            Some("incorrect volume name w; check controller address")
        );
        assert_eq!(
            refused(&server, &[(INSTANCE, "f")], Party::Replica).as_deref(),
            Some("incorrect instance name f; check replica address")
        );
        assert_eq!(refused(&anonymous, &[(VOLUME, "w")], Party::Replica), None);
        assert_eq!(refused(&server, &[(VOLUME, "w"), (VOLUME, "w")], Party::Replica), None);
    }
}
