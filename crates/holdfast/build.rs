//! The commit this is built from, for `holdfast version`. It is read from the files of git, so that no
//! build needs the program; a build from an archive says it by `HOLDFAST_COMMIT`, or not at all.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=HOLDFAST_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("HOLDFAST_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(checked_out).unwrap_or_default();
    println!("cargo::rustc-env=HOLDFAST_COMMIT={}", commit.trim());
}

fn checked_out() -> Option<String> {
    let folder = git_folder()?;
    let head = read(&folder.join("HEAD"))?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else { return Some(head) };
    // A checkout beside another keeps its branches there.
    let common = read(&folder.join("commondir")).map(|it| folder.join(it.trim()));
    let common = common.unwrap_or(folder);
    read(&common.join(reference)).or_else(|| packed(&read(&common.join("packed-refs"))?, reference))
}

/// `.git` above this crate: a folder, or a file that names one.
fn git_folder() -> Option<PathBuf> {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let git = here.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return Some(git);
    }
    let text = read(&git)?;
    Some(git.parent()?.join(text.trim().strip_prefix("gitdir: ")?))
}

fn packed(text: &str, reference: &str) -> Option<String> {
    let found = text.lines().filter_map(|line| line.split_once(' '));
    found.into_iter().find(|(_, name)| *name == reference).map(|(commit, _)| commit.to_owned())
}

/// Reads a file, and builds again when it changes.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text)
}
