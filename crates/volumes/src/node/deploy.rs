//! Engine images on this node: whether the program of each is here, and which versions it speaks.
//!
//! Owns: the entry of this node in `nodeDeploymentMap`, and, for the first node that has the program, the
//! versions. Whether an image can be used is said by the controllers ([`crate::image`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use api::longhorn::EngineImage;
use reconcile::{Failure, Key, Next, Reconciler, Severity};
use serde::Deserialize;
use tokio::process::Command;

use super::{Agent, launch};
use crate::image;

/// Programs come and go without a word.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(20);
const ASK_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Images {
    agent: Arc<Agent>,
    /// What programs said, by the file they were.
    said: Mutex<HashMap<PathBuf, Said>>,
}

/// What a program said when its file was of this time and length.
#[derive(Debug, Clone)]
struct Said {
    stamp: (SystemTime, u64),
    answer: Result<Speaks, String>,
}

/// What a program says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Speaks {
    #[serde(default)]
    version: String,
    #[serde(default)]
    git_commit: String,
    #[serde(default)]
    build_date: String,
    #[serde(rename = "cliAPIVersion")]
    cli_api_version: i32,
    #[serde(rename = "cliAPIMinVersion")]
    cli_api_min_version: i32,
    #[serde(rename = "controllerAPIVersion")]
    controller_api_version: i32,
    #[serde(rename = "controllerAPIMinVersion")]
    controller_api_min_version: i32,
    #[serde(default)]
    data_format_version: i32,
    #[serde(default)]
    data_format_min_version: i32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reply {
    client_version: Speaks,
}

impl Images {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self { agent, said: Mutex::default() }
    }

    /// Asks a program, once for each file it was.
    async fn ask(&self, program: &Path) -> Result<Speaks, String> {
        let found = tokio::fs::metadata(program).await.map_err(|error| error.to_string())?;
        let stamp = (found.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.len());
        let known = self.said.lock().unwrap_or_else(PoisonError::into_inner).get(program).cloned();
        if let Some(known) = known.filter(|known| known.stamp == stamp) {
            return known.answer;
        }
        let answer = ask(program).await;
        let mut all = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(program.to_owned(), Said { stamp, answer: answer.clone() });
        answer
    }
}

async fn ask(program: &Path) -> Result<Speaks, String> {
    let mut command = Command::new(program);
    command.args(["version", "--client-only"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(ASK_TIMEOUT, command.output()).await;
    let done = done.map_err(|_| "it does not say its version in time".to_owned())?;
    let done = done.map_err(|error| format!("it cannot be run: {error}"))?;
    if !done.status.success() {
        return Err(format!("it does not say its version: {}", done.status));
    }
    let read = serde_json::from_slice(&done.stdout);
    let reply: Reply = read.map_err(|error| format!("it says no version: {error}"))?;
    Ok(reply.client_version)
}

impl Reconciler for Images {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let agent = &self.agent;
        let Some(object) = agent.images.get(key).filter(|_| !agent.lease.is_lost()) else {
            return Ok(Next::WAIT);
        };
        let name = object.spec.image.clone().unwrap_or_default();
        // The one of this build is wherever this build is.
        if name == image::DEFAULT || object.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WAIT);
        }
        let found = match launch::program(&agent.options.programs, &name) {
            None => Err(None),
            Some(program) => self.ask(&program).await.map_err(Some),
        };
        let next = shown(&object, &agent.options.name, found.as_ref().ok());
        let was_here = deployed(&object, &agent.options.name);
        if was_here != deployed(&next, &agent.options.name)
            && let Err(Some(why)) = &found
        {
            let text = format!("the program of {name} on node {}: {why}", agent.options.name);
            agent.context.events.say(object.as_ref(), Severity::Warning, "FailedDeployment", &text);
        }
        agent.images.merge(&object, &next).await?;
        Ok(Next::WAIT)
    }
}

fn deployed(object: &EngineImage, node: &str) -> Option<bool> {
    object.status.as_ref()?.node_deployment_map.as_ref()?.get(node).copied()
}

/// The object with what this node has to say.
fn shown(object: &EngineImage, node: &str, found: Option<&Speaks>) -> EngineImage {
    let mut next = object.clone();
    let status = next.status.get_or_insert_default();
    let fits =
        found.is_some_and(|found| status.cli_api_version.is_none_or(|_| same(status, found)));
    let others = status.node_deployment_map.iter().flatten();
    let is_elsewhere = others.clone().any(|(other, is)| other != node && *is);
    // What one program says counts for all: one that says something else is another.
    if let Some(found) = found
        && (fits || !is_elsewhere)
    {
        status.version = Some(found.version.clone());
        status.git_commit = Some(found.git_commit.clone());
        status.build_date = Some(found.build_date.clone());
        status.cli_api_version = Some(found.cli_api_version);
        status.cli_api_min_version = Some(found.cli_api_min_version);
        status.controller_api_version = Some(found.controller_api_version);
        status.controller_api_min_version = Some(found.controller_api_min_version);
        status.data_format_version = Some(found.data_format_version);
        status.data_format_min_version = Some(found.data_format_min_version);
    }
    let is_here = found.is_some() && (fits || !is_elsewhere);
    status.node_deployment_map.get_or_insert_default().insert(node.to_owned(), is_here);
    next
}

fn same(status: &api::longhorn::EngineImageStatus, found: &Speaks) -> bool {
    status.cli_api_version == Some(found.cli_api_version)
        && status.controller_api_version == Some(found.controller_api_version)
        && status.controller_api_min_version == Some(found.controller_api_min_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::longhorn::EngineImageSpec;

    fn speaks(cli: i32) -> Speaks {
        let text = format!(
            r#"{{"clientVersion": {{"version": "v1", "cliAPIVersion": {cli},
            "cliAPIMinVersion": 1, "controllerAPIVersion": 3, "controllerAPIMinVersion": 2}},
            "serverVersion": null}}"#
        );
        serde_json::from_str::<Reply>(&text).unwrap().client_version
    }

    #[test]
    fn an_image_is_on_the_nodes_whose_program_says_the_same() {
        let image = EngineImage::new("ei-1", EngineImageSpec { image: Some("a:1".into()) });
        let image = shown(&image, "n1", Some(&speaks(3)));
        assert_eq!(deployed(&image, "n1"), Some(true));
        assert_eq!(image.status.as_ref().unwrap().cli_api_version, Some(3));
        let image = shown(&image, "n2", None);
        assert_eq!((deployed(&image, "n1"), deployed(&image, "n2")), (Some(true), Some(false)));
        // Another program of that name is not that image.
        let image = shown(&image, "n2", Some(&speaks(4)));
        assert_eq!(deployed(&image, "n2"), Some(false));
        assert_eq!(image.status.as_ref().unwrap().cli_api_version, Some(3));
        // Where nobody else has it, it may be replaced.
        let image = shown(&image, "n1", Some(&speaks(4)));
        assert_eq!(deployed(&image, "n1"), Some(true));
        assert_eq!(image.status.as_ref().unwrap().cli_api_version, Some(4));
    }

    #[tokio::test]
    async fn a_program_that_says_nothing_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("longhorn");
        assert!(ask(&program).await.unwrap_err().starts_with("it cannot be run"));
        assert!(ask(Path::new("/bin/false")).await.unwrap_err().contains("does not say"));
        assert!(ask(Path::new("/bin/echo")).await.unwrap_err().contains("says no version"));
    }
}
