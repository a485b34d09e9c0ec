//! The exact JSON member names of every type, as k8s-openapi's deserialisers list them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

/// JSON member names by type and over all types.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_type: BTreeMap<String, BTreeMap<String, String>>,
    everywhere: BTreeMap<String, BTreeSet<String>>,
}

/// Prost and the JSON names differ in case, underscores, dashes and `$`: compare without them.
pub(super) fn folded(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|one| one.to_ascii_lowercase()).collect()
}

impl Names {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut names = Self::default();
        for file in super::files::below(root)? {
            let Some(kind) = file.text.lines().find_map(|line| {
                line.strip_prefix("pub struct ").map(|rest| rest.split([' ', '{', '(']).next())
            }) else {
                continue;
            };
            let id = super::prost::identifier(&file.module, kind.unwrap_or_default());
            for line in file.text.lines() {
                if let Some((name, _)) = line.trim().split_once("\" => Field::Key_") {
                    names.add(&id, name.trim_start_matches('"'));
                }
            }
        }
        Ok(names)
    }

    fn add(&mut self, id: &str, name: &str) {
        let key = folded(name);
        self.everywhere.entry(key.clone()).or_default().insert(name.to_owned());
        self.by_type.entry(id.to_ascii_lowercase()).or_default().insert(key, name.to_owned());
    }

    /// The members of a type that has a JSON form of its own.
    pub(super) fn of_type(&self, id: &str) -> Option<&BTreeMap<String, String>> {
        self.by_type.get(&id.to_ascii_lowercase())
    }

    /// The one spelling every type agrees on.
    pub(super) fn anywhere(&self, field: &str) -> Option<&str> {
        let spellings = self.everywhere.get(&folded(field))?;
        (spellings.len() == 1).then(|| spellings.first().map(String::as_str)).flatten()
    }
}
