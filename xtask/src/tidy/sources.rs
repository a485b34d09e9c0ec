//! Rules that can be seen in the text of a file: lengths, module documents, purity, words, names.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use crate::workspace;

const LINES_MAX: usize = 1000;
const LINES_WARN: usize = 800;

/// Longer than others for a reason.
const LONG: &[(&str, &str)] = &[];

/// Crates that must be pure as a whole.
const PURE_CRATES: &[&str] = &["crates/api/", "crates/objects/", "crates/people/", "crates/wire/"];
/// Modules that must be pure wherever they are.
const PURE_MODULES: &[&str] = &["decide", "machine", "model"];
/// What a pure module does not touch.
const IMPURE: &[&str] = &[
    "tokio",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::thread",
    "std::process",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
];

/// (file, what it uses all the same, why)
const IMPURE_ALLOWED: &[(&str, &str, &str)] = &[(
    "crates/objects/src/cel/mod.rs",
    "std::thread",
    "a parser that recurses gets a stack of its own; its answer is a function of its input",
)];

/// Folders of one person's machine; the pieces are joined so that this file does not hold them.
const WORKPLACES: &[&[&str]] = &[&["/ho", "me/"], &["/ro", "ot/"], &["/t", "mp/"], &["/wo", "rk/"]];

/// Names that say nothing.
const EMPTY_NAMES: &[&str] =
    &["helper", "helpers", "util", "utils", "misc", "common", "data", "info"];

pub(super) fn check(files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for file in files {
        let name = file.to_string_lossy().replace('\\', "/");
        let Some(extension) = file.extension().and_then(|it| it.to_str()) else { continue };
        if !["rs", "md", "toml", "sh", "py"].contains(&extension) {
            continue;
        }
        let path = workspace::root().join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        // What a generator wrote is checked where it is generated: `cargo xtask codegen --check`.
        if extension == "rs" && !name.contains("/generated/") {
            check_rust(&name, &text, findings);
        }
        check_words(&name, &text, findings);
    }
    for (name, _) in LONG {
        if !files.iter().any(|file| file == Path::new(name)) {
            findings.complain(format!("{name} is listed as long and does not exist"));
        }
    }
    Ok(())
}

fn check_rust(name: &str, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > LINES_MAX && !LONG.iter().any(|(long, _)| *long == name) {
        findings.complain(format!("{name} has {lines} lines; split it by concept"));
    } else if lines > LINES_WARN {
        findings.remark(format!("{name} has {lines} lines; {LINES_MAX} is the limit"));
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && *line != "#![no_main]");
    if !first.is_some_and(|line| line.starts_with("//!")) && !is_test(name) {
        findings.complain(format!("{name} does not begin with what it owns (`//!`)"));
    }
    let stem = name.rsplit('/').next().and_then(|it| it.strip_suffix(".rs")).unwrap_or(name);
    if EMPTY_NAMES.contains(&stem) {
        findings.complain(format!("{name}: the name {stem} says nothing"));
    }
    if is_pure(name) && !is_test(name) {
        for word in impurities(shipped(text)) {
            if IMPURE_ALLOWED.iter().any(|(file, used, _)| (*file, *used) == (name, word)) {
                continue;
            }
            findings.complain(format!("{name} must be pure and uses {word}"));
        }
    }
}

/// Folder names of the path that matter: those of the modules, without crate names.
fn is_pure(name: &str) -> bool {
    let pure_crate = PURE_CRATES.iter().any(|prefix| name.starts_with(prefix));
    let module = name.split_once("/src/").map_or("", |(_, module)| module);
    let parts = module.trim_end_matches(".rs").split('/');
    pure_crate || parts.into_iter().any(|part| PURE_MODULES.contains(&part))
}

/// Files that only tests see.
fn is_test(name: &str) -> bool {
    let name = name.trim_end_matches(".rs");
    name.split('/')
        .any(|part| ["tests", "testing", "noise", "fuzz", "benches", "examples"].contains(&part))
}

/// The part of a file before its tests.
fn shipped(text: &str) -> &str {
    let tests = text.find("#[cfg(test)]\nmod ").map(|at| text.split_at(at));
    match tests {
        // `mod tests;` at the top of a file only names another file.
        Some((before, rest)) if opens_a_module(rest) => before,
        _ => text,
    }
}

fn opens_a_module(rest: &str) -> bool {
    rest.lines().nth(1).is_some_and(|line| line.trim_end().ends_with('{'))
}

fn impurities(text: &str) -> Vec<&'static str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: Vec<&str> = code.collect();
    let used = |word: &&&str| code.iter().any(|line| contains_word(line, word));
    IMPURE.iter().filter(used).copied().collect()
}

/// Whole words: `tokio` is not in `tokio_like`.
pub(super) fn contains_word(line: &str, word: &str) -> bool {
    let letter = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, rest) = line.split_at(at);
        let after = rest.get(word.len()..).and_then(|rest| rest.chars().next());
        !letter(before.chars().next_back()) && !letter(after)
    })
}

fn check_words(name: &str, text: &str, findings: &mut Findings) {
    if is_test(name) {
        return;
    }
    for (number, line) in shipped(text).lines().enumerate() {
        for workplace in WORKPLACES {
            let workplace = workplace.concat();
            if starts_a_path(line, &workplace) {
                let number = number + 1;
                findings
                    .complain(format!("{name}:{number} names a place of one machine: {workplace}"));
            }
        }
    }
}

/// An absolute path begins there, not the tail of a longer one or of an address.
fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|it| !(it.is_alphanumeric() || "./-_}>".contains(it)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_rust(name, text, &mut findings);
        check_words(name, text, &mut findings);
        findings.complaints
    }

    #[test]
    fn pure_modules_are_kept_pure() {
        let dirty = "//! Decides.\nuse tokio::time;\n";
        assert_eq!(complaints("crates/tenants/src/backup/decide.rs", dirty).len(), 1);
        assert_eq!(complaints("crates/objects/src/meta.rs", dirty).len(), 1);
        assert_eq!(complaints("crates/tenants/src/backup.rs", dirty).len(), 0);
        let commented = "//! Decides.\n// never tokio\nstruct tokio_like;\n";
        assert_eq!(complaints("crates/objects/src/meta.rs", commented).len(), 0);
        let tested = "//! Decides.\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(complaints("crates/objects/src/meta.rs", tested).len(), 0);
        let named = "//! Decides.\n#[cfg(test)]\nmod tests;\nuse std::fs;\n";
        assert_eq!(complaints("crates/objects/src/meta.rs", named).len(), 1);
    }

    #[test]
    fn files_say_what_they_own_and_stay_short() {
        assert_eq!(complaints("crates/api/src/x.rs", "fn x() {}\n").len(), 1);
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        assert_eq!(complaints("crates/api/src/x.rs", &long).len(), 1);
        assert_eq!(complaints("crates/api/src/util.rs", "//! x\n").len(), 1);
    }

    #[test]
    fn places_of_one_machine_are_not_named() {
        let line = format!("//! x\nconst A: &str = \"{}x\";\n", ["/t", "mp/"].concat());
        assert_eq!(complaints("crates/cli/src/x.rs", &line).len(), 1);
        assert_eq!(complaints("crates/cli/src/x/tests.rs", &line).len(), 0);
        let relative = format!("//! x\nconst A: &str = \"var{}x\";\n", ["/t", "mp/"].concat());
        assert_eq!(complaints("crates/cli/src/x.rs", &relative).len(), 0);
    }
}
