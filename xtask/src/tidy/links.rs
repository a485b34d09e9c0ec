//! Relative links in documents lead somewhere, and every page of the book is in its summary.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use crate::workspace;

pub(super) fn check(files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "md")) {
        let path = workspace::root().join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for target in targets(&text) {
            if !folder.join(target).exists() {
                findings.complain(format!("{}: nothing is at {target}", file.display()));
            }
        }
    }
    check_summary(files, findings)
}

/// Every page below `docs` is reached from its summary; decisions have a list of their own.
fn check_summary(files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    let read = |path: &str| {
        let path = workspace::root().join(path);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (summary, decisions) = (read("docs/SUMMARY.md")?, read("docs/decisions/README.md")?);
    let (summary, decisions) = (targets(&summary), targets(&decisions));
    let pages = files.iter().filter(|file| file.extension().is_some_and(|it| it == "md"));
    let pages = pages.filter_map(|file| file.strip_prefix("docs").ok()?.to_str());
    for page in pages.filter(|it| *it != "SUMMARY.md") {
        let decision = page.strip_prefix("decisions/").filter(|it| *it != "README.md");
        let (list, is_in) = match decision {
            Some(name) => ("docs/decisions/README.md", decisions.contains(&name)),
            None => ("docs/SUMMARY.md", summary.contains(&page)),
        };
        if !is_in {
            findings.complain(format!("docs/{page}: {list} does not list it"));
        }
    }
    Ok(())
}

/// What inline links point at inside the repository, without the part after `#`.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_into_the_repository_count() {
        let text = "[a](docs/a.md#part) [b](https://example.com) [c](#here) [d](e.md \"title\")\n\
                    ```\n[f](g.md)\n```\n";
        assert_eq!(targets(text), ["docs/a.md", "e.md"]);
    }
}
