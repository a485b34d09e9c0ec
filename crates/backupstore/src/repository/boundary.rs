//! Keeps the boundary: nothing outside of this module reads or writes v1's names, places or bytes.

use std::path::{Path, PathBuf};

/// How a source can name the format. `Checksum::of` is the name that v1 gives to a block.
const TRACES: [&str; 6] =
    ["crate::format", "v1::", "::v1", "Checksum::of", "VolumeFolder", "BackupCfg"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

fn traces_in(text: &str) -> Vec<String> {
    // Tests may write down what a store holds.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .filter(|(_, line)| TRACES.iter().any(|trace| line.contains(trace)))
        .map(|(number, line)| format!("{}: {}", number + 1, line.trim()))
        .collect()
}

#[test]
fn only_the_repository_knows_the_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    sources(&root, &mut all);
    let below = all.iter().filter(|path| path.starts_with(root.join("repository"))).count();
    assert!(below > 10 && all.len() > 2 * below, "{below} of {} files", all.len());
    for path in all.iter().filter(|path| !path.starts_with(root.join("repository"))) {
        let mut traces = traces_in(&std::fs::read_to_string(path).unwrap());
        if path.ends_with("src/lib.rs") {
            // The one door, for programs that read such a store by themselves.
            traces.retain(|trace| !trace.ends_with("pub use repository::v1 as format;"));
        }
        assert!(traces.is_empty(), "{} knows the format: {traces:#?}", path.display());
    }
}

#[test]
fn a_trace_is_seen() {
    for bad in [
        "use crate::format::{BlockSize};",
        "use crate::repository::v1::pack;",
        "    let sum = Checksum::of(block);",
    ] {
        assert_eq!(traces_in(bad).len(), 1, "{bad}");
    }
    assert!(traces_in("use crate::block::Checksum;\n// crate::format").is_empty());
}
