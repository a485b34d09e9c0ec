//! Writes the definitions of every kind of ours as YAML, for clusters that are not the embedded one.
//!
//! Owns the files in `deploy/crds`, all of them: a file there that no kind accounts for is removed.
//! What is in a definition is said by crate `api` alone.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Where the files go, from the root of the workspace.
const FOLDER: &str = "deploy/crds";

/// Writes the files; with `check`, compares them and fails if one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let folder = root()?.join(FOLDER);
    let wanted = wanted()?;
    if check {
        let stale = stale(&folder, &wanted)?;
        ensure!(
            stale.is_empty(),
            "out of date in {FOLDER}: {}; run `cargo xtask crds`",
            stale.join(", ")
        );
        return Ok(());
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in &wanted {
        write(&folder.join(name), text)?;
    }
    for name in existing(&folder)?.into_keys().filter(|name| !wanted.contains_key(name)) {
        let path = folder.join(name);
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn root() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(folder.parent().context("xtask is not in a workspace")?.to_owned())
}

/// File name to text, for every definition.
fn wanted() -> Result<BTreeMap<String, String>> {
    api::crds().iter().map(|crd| Ok((file_name(crd)?, yaml(crd)?))).collect()
}

fn file_name(crd: &Value) -> Result<String> {
    let name = crd.pointer("/metadata/name").and_then(Value::as_str);
    Ok(format!("{}.yaml", name.context("a definition has no name")?))
}

fn yaml(crd: &Value) -> Result<String> {
    // Line width and key order must not depend on features other crates turn on.
    serde_saphyr::to_string(&sorted(crd)).context("cannot write a definition as YAML")
}

/// A tree whose members are in order of their names.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Sorted<'a> {
    Object(BTreeMap<&'a str, Sorted<'a>>),
    Array(Vec<Sorted<'a>>),
    Scalar(&'a Value),
}

fn sorted(value: &Value) -> Sorted<'_> {
    match value {
        Value::Object(map) => {
            Sorted::Object(map.iter().map(|(key, value)| (key.as_str(), sorted(value))).collect())
        }
        Value::Array(items) => Sorted::Array(items.iter().map(sorted).collect()),
        scalar => Sorted::Scalar(scalar),
    }
}

/// Names of files that are absent, different or no longer wanted.
fn stale(folder: &Path, wanted: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let existing = existing(folder)?;
    let changed = wanted.iter().filter(|(name, text)| existing.get(*name) != Some(text));
    let left = existing.keys().filter(|name| !wanted.contains_key(*name));
    Ok(changed.map(|(name, _)| name).chain(left).cloned().collect())
}

fn existing(folder: &Path) -> Result<BTreeMap<String, String>> {
    if !folder.exists() {
        return Ok(BTreeMap::new());
    }
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(name, text);
        }
    }
    Ok(found)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_as_the_same_definition() {
        for crd in api::crds() {
            let text = yaml(&crd).unwrap();
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, crd, "{}", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn the_files_of_this_commit_are_up_to_date() {
        run(true).unwrap();
    }
}
