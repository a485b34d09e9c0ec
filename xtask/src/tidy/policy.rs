//! What `deny.toml` says, as far as `tidy` checks it: one file for us and for cargo-deny.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::workspace;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Policy {
    pub(super) licenses: Licenses,
    pub(super) bans: Bans,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Licenses {
    pub(super) allow: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Bans {
    pub(super) deny: Vec<Ban>,
    pub(super) skip: Vec<Skip>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ban {
    #[serde(rename = "crate")]
    pub(super) name: String,
    pub(super) reason: String,
}

/// A version beside which there is another.
#[derive(Debug, Deserialize)]
pub(super) struct Skip {
    /// `name@version`
    #[serde(rename = "crate")]
    pub(super) identity: String,
}

pub(super) fn load() -> Result<Policy> {
    let text = std::fs::read_to_string(workspace::root().join("deny.toml"))
        .context("cannot read deny.toml")?;
    toml::from_str(&text).context("cannot understand deny.toml")
}
