//! The numbers by which callers tell what this build can do.

use rpc::ptypes;

pub fn version() -> ptypes::VersionOutput {
    ptypes::VersionOutput {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        git_commit: option_env!("HOLDFAST_GIT_COMMIT").unwrap_or_default().to_owned(),
        build_date: option_env!("HOLDFAST_BUILD_DATE").unwrap_or_default().to_owned(),
        cli_api_version: 12,
        cli_api_min_version: 8,
        controller_api_version: 6,
        controller_api_min_version: 4,
        data_format_version: 1,
        data_format_min_version: 1,
    }
}
