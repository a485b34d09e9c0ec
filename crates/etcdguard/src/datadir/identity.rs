//! Who a member is: ids that follow from names, peer URLs and the cluster's token.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use serde::Serialize;

/// What a new data directory is to say about its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// `name=url` pairs with commas between; a name with several URLs comes several times.
    pub initial_cluster: String,
    pub token: String,
    /// The URLs of this member; must be those the initial cluster has for it.
    pub peer_urls: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the initial cluster has {0:?} where a name=url pair is expected")]
    Pair(String),
    #[error("the member {0:?} is not in the initial cluster")]
    NotAMember(String),
    #[error("the initial cluster has {cluster:?} for the member, its peer URLs are {own:?}")]
    PeerUrls { cluster: Vec<String>, own: Vec<String> },
    #[error("two members of the initial cluster have the same peer URLs")]
    Twice,
}

/// A member as the database and the log have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    pub id: u64,
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    pub name: String,
}

/// An identity whose ids are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) id: u64,
    /// The member whose directory this is.
    pub(super) own: u64,
    /// By id.
    pub(super) members: Vec<Member>,
}

impl Identity {
    /// Checks that all fits together.
    pub fn validate(&self) -> Result<(), IdentityError> {
        self.cluster().map(drop)
    }

    /// The members of the cluster, by id.
    pub fn members(&self) -> Result<Vec<Member>, IdentityError> {
        Ok(self.cluster()?.members)
    }

    pub(super) fn cluster(&self) -> Result<Cluster, IdentityError> {
        let mut urls: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for pair in self.initial_cluster.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (name, url) = pair.split_once('=').ok_or_else(|| pair_error(pair))?;
            urls.entry(name.trim()).or_default().push(url.trim().to_owned());
        }
        let mut members: Vec<Member> =
            urls.into_iter().map(|(name, urls)| member(name, urls, &self.token)).collect();
        members.sort_by_key(|member| member.id);
        if members.windows(2).any(|two| matches!(two, [a, b] if a.id == b.id)) {
            return Err(IdentityError::Twice);
        }
        let own = members.iter().find(|member| member.name == self.name);
        let own = own.ok_or_else(|| IdentityError::NotAMember(self.name.clone()))?;
        let mut expected: Vec<String> = self.peer_urls.clone();
        expected.sort();
        if own.peer_urls != expected {
            let cluster = own.peer_urls.clone();
            return Err(IdentityError::PeerUrls { cluster, own: expected });
        }
        let ids: Vec<u8> = members.iter().flat_map(|member| member.id.to_be_bytes()).collect();
        Ok(Cluster { id: first_of_sha1(&ids), own: own.id, members })
    }
}

fn pair_error(pair: &str) -> IdentityError {
    IdentityError::Pair(pair.to_owned())
}

fn member(name: &str, mut peer_urls: Vec<String>, token: &str) -> Member {
    peer_urls.sort();
    let id = first_of_sha1((peer_urls.concat() + token).as_bytes());
    Member { id, peer_urls, name: name.to_owned() }
}

fn first_of_sha1(bytes: &[u8]) -> u64 {
    let sum = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    sum.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> Identity {
        Identity {
            name: "default".into(),
            initial_cluster: "default=http://localhost:2380".into(),
            token: "etcd-cluster".into(),
            peer_urls: vec!["http://localhost:2380".into()],
        }
    }

    #[test]
    fn the_defaults_have_the_well_known_ids() {
        let cluster = default().cluster().unwrap();
        assert_eq!(cluster.own, 0x8e9e_05c5_2164_694d);
        assert_eq!(cluster.id, 0xcdf8_1819_4e3a_8c32);
        let json = serde_json::to_string(&cluster.members[0]).unwrap();
        let expected =
            r#"{"id":10276657743932975437,"peerURLs":["http://localhost:2380"],"name":"default"}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let other = Identity { name: "other".into(), ..default() };
        assert_eq!(other.validate(), Err(IdentityError::NotAMember("other".into())));
        let other = Identity { peer_urls: vec!["http://a:1".into()], ..default() };
        assert!(matches!(other.validate(), Err(IdentityError::PeerUrls { .. })));
        let other = Identity { initial_cluster: "default".into(), ..default() };
        assert_eq!(other.validate(), Err(IdentityError::Pair("default".into())));
        let twice = "default=http://localhost:2380,b=http://localhost:2380";
        let other = Identity { initial_cluster: twice.into(), ..default() };
        assert_eq!(other.validate(), Err(IdentityError::Twice));
    }
}
