//! Walks the source tree of a crate.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One Rust file and the module its folder stands for.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) module: Vec<String>,
    pub(super) text: String,
}

/// Every Rust file below `root`, in a fixed order.
pub(super) fn below(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut folders = vec![(root.to_owned(), Vec::<String>::new())];
    while let Some((folder, module)) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let mut inner = module.clone();
                inner.push(name);
                folders.push((path, inner));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                found.push(Source { path, module: module.clone(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
