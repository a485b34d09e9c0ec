//! `holdfast version`

use std::process::ExitCode;
use std::sync::LazyLock;

use serde::Serialize;

use ::cli::output::{self, Format};

pub(crate) const NUMBER: &str = env!("CARGO_PKG_VERSION");
const COMMIT: &str = env!("HOLDFAST_COMMIT");

/// The number, and the commit where it is known.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| describe(NUMBER, commit()));

fn commit() -> Option<&'static str> {
    Some(COMMIT).filter(|commit| !commit.is_empty())
}

fn describe(number: &str, commit: Option<&str>) -> String {
    let short = commit.map(|commit| commit.get(..12).unwrap_or(commit));
    short.map_or_else(|| number.to_owned(), |short| format!("{number} ({short})"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    version: &'static str,
    /// What it was built from, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    platform: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let build = Build {
        version: NUMBER,
        commit: commit(),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    let text = match args.output {
        Format::Table => format!("holdfast {}", *LONG),
        Format::Name => NUMBER.to_owned(),
        Format::Wide => format!("holdfast {} on {}", *LONG, build.platform),
        Format::Json | Format::Yaml => output::machine(&build, args.output)?,
    };
    output::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_shown_where_it_is_known() {
        assert_eq!(describe("1.2.3", None), "1.2.3");
        assert_eq!(describe("1.2.3", Some("0123456789abcdef")), "1.2.3 (0123456789ab)");
        assert_eq!(describe("1.2.3", Some("dirty")), "1.2.3 (dirty)");
    }
}
