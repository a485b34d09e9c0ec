//! `holdfast doctor`: looks at this machine and at an installation, and says what to do.
//!
//! A check is a question to the machine, asked by [`host`] and [`installation`], and a verdict,
//! which is a pure function of the answer: those are in [`verdict`].

mod host;
mod installation;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli;
use crate::config::Settings;
use ::cli::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Kubeconfig of the installation to check; by default, the one in the data directory.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
    /// Look at this machine only, not at an installation.
    #[arg(long)]
    machine: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// Nothing is wrong, and something more could be had.
    Note,
    Warn,
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) check: String,
    pub(crate) told: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: impl Into<String>, told: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, check: check.into(), told: told.into(), hint: None }
    }

    pub(crate) fn note(
        check: impl Into<String>,
        told: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Note, ..Self::warn(check, told, hint) }
    }

    pub(crate) fn warn(
        check: impl Into<String>,
        told: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let hint = Some(hint.into());
        Self { verdict: Verdict::Warn, check: check.into(), told: told.into(), hint }
    }

    pub(crate) fn fail(
        check: impl Into<String>,
        told: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, told, hint) }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = examine(args)?;
    let text = match args.output {
        Format::Json | Format::Yaml => output::machine(&found, args.output)?,
        Format::Table | Format::Wide => table(&found),
        Format::Name => found.iter().map(|it| it.check.clone()).collect::<Vec<_>>().join("\n"),
    };
    output::say(&text)?;
    Ok(code(&found))
}

/// Everything that is looked at, in the order it is told.
fn examine(args: &Args) -> anyhow::Result<Vec<Finding>> {
    let config = cli::resolve(&args.settings)?;
    let mut found = host::findings(&config);
    if !args.machine {
        let file = match &args.kubeconfig {
            Some(named) => Some(named.clone()),
            None => config.kubeconfig("--kubeconfig")?,
        };
        let ask = installation::findings(file.as_ref(), args.context.as_deref());
        found.extend(cli::runtime()?.block_on(ask));
    }
    Ok(found)
}

/// What is wrong with this machine and installation, for the support bundle.
pub(crate) async fn all(
    config: &crate::config::Config,
    client: Option<&kube::Client>,
) -> Vec<Finding> {
    let mut found = host::findings(config);
    match client {
        Some(client) => found.extend(installation::of_client(client).await),
        None => found.push(installation::nobody("no kubeconfig says where it is")),
    }
    found
}

fn code(found: &[Finding]) -> ExitCode {
    let worst = found.iter().map(|it| it.verdict).max();
    if worst == Some(Verdict::Fail) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn table(found: &[Finding]) -> String {
    let width = found.iter().map(|it| it.check.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for it in found {
        lines.push(format!("{:<5} {:<width$}   {}", it.verdict.word(), it.check, it.told));
        if let Some(hint) = &it.hint {
            lines.push(format!("{:<5} {:<width$}   -> {hint}", "", ""));
        }
    }
    let count = |verdict| found.iter().filter(|it| it.verdict == verdict).count();
    lines.push(String::new());
    lines.push(match (count(Verdict::Fail), count(Verdict::Warn)) {
        (0, 0) => "all is well".to_owned(),
        (fails, warns) => format!("{fails} failed, {warns} to check"),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_what_to_do_and_ends_with_one() {
        let found = [Finding::ok("a", "fine"), Finding::fail("longer", "broken", "mend it")];
        let text = table(&found);
        assert!(text.contains("ok    a        fine\nFAIL  longer   broken\n"), "{text}");
        assert!(text.contains("-> mend it") && text.ends_with("1 failed, 0 to check"), "{text}");
        assert_eq!(format!("{:?}", code(&found)), format!("{:?}", ExitCode::FAILURE));
        let fine = [Finding::ok("a", "fine"), Finding::warn("b", "so so", "look")];
        assert_eq!(format!("{:?}", code(&fine)), format!("{:?}", ExitCode::SUCCESS));
    }
}
