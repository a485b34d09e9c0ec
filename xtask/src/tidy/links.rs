//! Relative links in documents lead somewhere.

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
