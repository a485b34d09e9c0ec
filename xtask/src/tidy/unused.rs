//! Dependencies that a manifest names and no source file does. A build would fetch and compile them
//! for nothing, and nobody would notice.

use std::path::Path;

use anyhow::Result;

use super::Findings;
use super::sources::contains_word;
use crate::workspace::{self, Dependency, Package};

/// All of these is for tests.
const FOR_TESTS: &[&str] = &["e2e"];

pub(super) fn check(
    packages: &[Package],
    files: &[std::path::PathBuf],
    findings: &mut Findings,
) -> Result<()> {
    for package in packages {
        let mut sources = Sources::read(&package.manifest_path, files)?;
        if FOR_TESTS.contains(&package.name.as_str()) {
            sources.shipped.clone_from(&sources.all);
        }
        for name in unused(&package.dependencies, &sources) {
            findings.complain(format!("crate {} does not use {name}", package.name));
        }
    }
    Ok(())
}

/// The code of a crate, without comments.
#[derive(Debug, Default)]
struct Sources {
    shipped: Vec<String>,
    /// With the tests.
    all: Vec<String>,
}

impl Sources {
    fn read(manifest: &Path, files: &[std::path::PathBuf]) -> Result<Self> {
        let folder = manifest.parent().unwrap_or(manifest);
        let mut sources = Self::default();
        for file in files.iter().filter(|it| it.extension().is_some_and(|it| it == "rs")) {
            let path = workspace::root().join(file);
            let Ok(inside) = path.strip_prefix(folder) else { continue };
            let text = std::fs::read_to_string(&path)?;
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let code = code.collect::<Vec<_>>().join("\n");
            if inside.starts_with("src") || inside == Path::new("build.rs") {
                sources.shipped.push(code.clone());
            }
            sources.all.push(code);
        }
        Ok(sources)
    }
}

fn unused<'d>(dependencies: &'d [Dependency], sources: &Sources) -> Vec<&'d str> {
    let is_unused = |it: &&Dependency| {
        let word = it.rename.as_ref().unwrap_or(&it.name).replace('-', "_");
        let code = if it.kind.as_deref() == Some("dev") { &sources.all } else { &sources.shipped };
        // What is for another platform is never compiled.
        it.target.is_none() && !code.iter().any(|code| contains_word(code, &word))
    };
    dependencies.iter().filter(is_unused).map(|it| it.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_source_names_is_found() {
        let dependency = |name: &str, kind: Option<&str>| Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            rename: None,
            target: None,
        };
        let dependencies = [
            dependency("tokio-util", None),
            dependency("used-in-tests", None),
            dependency("tempfile", Some("dev")),
            dependency("serde", None),
            dependency("for-nothing", Some("dev")),
        ];
        let shipped = vec!["use tokio_util::codec; serde_json::to_string();".to_owned()];
        let all = [shipped.clone(), vec!["tempfile::tempdir(); used_in_tests::x()".to_owned()]];
        let sources = Sources { shipped, all: all.concat() };
        assert_eq!(unused(&dependencies, &sources), ["used-in-tests", "serde", "for-nothing"]);
    }
}
