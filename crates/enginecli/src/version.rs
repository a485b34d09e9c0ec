//! `version`: which dialect this client and its controller speak.

use rpc::ptypes::VersionOutput;
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::Session;
use super::table::flags as f;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: Speaks,
    server_version: Option<Speaks>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Speaks {
    version: String,
    git_commit: String,
    build_date: String,
    #[serde(rename = "cliAPIVersion")]
    cli_api_version: i64,
    #[serde(rename = "cliAPIMinVersion")]
    cli_api_min_version: i64,
    #[serde(rename = "controllerAPIVersion")]
    controller_api_version: i64,
    #[serde(rename = "controllerAPIMinVersion")]
    controller_api_min_version: i64,
    data_format_version: i64,
    data_format_min_version: i64,
}

impl From<VersionOutput> for Speaks {
    fn from(it: VersionOutput) -> Self {
        Self {
            version: it.version,
            git_commit: it.git_commit,
            build_date: it.build_date,
            cli_api_version: it.cli_api_version,
            cli_api_min_version: it.cli_api_min_version,
            controller_api_version: it.controller_api_version,
            controller_api_min_version: it.controller_api_min_version,
            data_format_version: it.data_format_version,
            data_format_min_version: it.data_format_min_version,
        }
    }
}

pub(crate) async fn run(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let server_version = if line.flags.switch(&f::CLIENT_ONLY) {
        None
    } else {
        let reply = Session::new(line)?.controller()?.version_detail_get(()).await;
        reply.or_failed("failed to get version of the controller")?.version.map(Speaks::from)
    };
    console.json(&Versions { client_version: engine::control::version().into(), server_version })
}
