//! `holdfast version`

use std::process::ExitCode;

use serde::Serialize;

use crate::output::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    platform: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    };
    let text = match args.output {
        Format::Table => format!("holdfast {}", version.version),
        Format::Wide => format!("holdfast {} on {}", version.version, version.platform),
        Format::Json | Format::Yaml => output::machine(&version, args.output)?,
    };
    output::say(&text)?;
    Ok(ExitCode::SUCCESS)
}
