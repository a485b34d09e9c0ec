//! `server`: guards a member until stopped.

use super::error::CommandError;
use super::parse::Line;
use super::{Context, settings, version};
use crate::server::config::Config;

/// Before the variables of a second store.
const SECONDARY: &str = "SECONDARY_";

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    version::tell();
    let file = line.given.text("config-file");
    // A file replaces all flags.
    let mut config =
        if file.is_empty() { settings::server(&line.given) } else { Config::from_file(&file)? };
    SECONDARY.clone_into(&mut config.secondary_snapstore_config.store_config.env_prefix);
    config.check()?;
    tracing::info!("{}", config.to_yaml());
    crate::server::serve(config, &context.environment, &context.tasks).await?;
    Ok(())
}
