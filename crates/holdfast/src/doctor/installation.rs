//! Questions to the API of an installation.

use std::path::PathBuf;
use std::time::Duration;

use api::longhorn::{BackupTarget, EngineImage, Node};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::discovery::Discovery;
use kube::{Api, Client, ResourceExt as _};
use people::summary::{Summary, World};
use people::{NAMESPACE, node, or_dash, target};
use serde_json::Value;

use super::{Finding, verdict};
use crate::controllers::connect;
use crate::version;

const TIMEOUT: Duration = Duration::from_secs(20);
/// What an operator does every day: verb, group and resource.
const RIGHTS: [(&str, &str, &str); 6] = [
    ("list", "longhorn.io", "nodes"),
    ("create", "longhorn.io", "volumes"),
    ("create", "longhorn.io", "backups"),
    ("delete", "longhorn.io", "backups"),
    ("update", "longhorn.io", "backuptargets"),
    ("list", "oadp.openshift.io", "nonadminbackups"),
];

pub(super) async fn findings(file: Option<&PathBuf>, context: Option<&str>) -> Vec<Finding> {
    match connect(file, context).await {
        Ok(client) => of_client(&client).await,
        Err(error) => vec![nobody(&format!("{error:#}"))],
    }
}

pub(super) fn nobody(why: &str) -> Finding {
    Finding::fail(
        "API",
        format!("no cluster to ask: {why}"),
        "start one with `holdfast up`, name its kubeconfig with --kubeconfig, or look at the \
         machine only with --machine",
    )
}

pub(super) async fn of_client(client: &Client) -> Vec<Finding> {
    let asked = tokio::time::timeout(TIMEOUT, client.apiserver_version()).await;
    let version = match asked {
        Ok(Ok(version)) => version.git_version,
        Ok(Err(error)) => return vec![no_answer(&format!("{}", telemetry::Chain(&error)))],
        Err(_) => return vec![no_answer("it does not answer in time")],
    };
    let mut found = vec![Finding::ok("API", format!("answers as Kubernetes {version}"))];
    found.push(verdict::versions(version::NUMBER, &versions(client, &version).await));
    found.extend(clock(client).await);
    found.push(definitions(client).await);
    found.push(verdict::rights_of(&denied(client).await));
    match tokio::time::timeout(TIMEOUT, ::cli::status::read(client)).await {
        Ok(Ok(world)) => found.extend(of_world(&world)),
        Ok(Err(error)) => found.push(unread(&format!("{error:#}"))),
        Err(_) => found.push(unread("it does not answer in time")),
    }
    found
}

fn no_answer(why: &str) -> Finding {
    let hint = "is it running? start it with `holdfast up`, or check --kubeconfig";
    Finding::fail("API", why.to_owned(), hint)
}

fn unread(why: &str) -> Finding {
    Finding::fail("objects", why.to_owned(), "look at the log of the server")
}

/// Which builds of Holdfast work in an installation: the embedded server's, and those of its engines.
async fn versions(client: &Client, server: &str) -> Vec<String> {
    let images: Api<EngineImage> = Api::namespaced(client.clone(), NAMESPACE);
    // Who may not see them is told under "rights".
    let images = images.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default();
    let in_use = images.into_iter().filter_map(|it| it.status);
    let in_use = in_use.filter(|it| it.ref_count.is_some_and(|it| it > 0));
    let mut found: Vec<String> = in_use
        .filter_map(|it| Some(it.version?.trim_start_matches('v').to_owned()))
        .chain(server.split_once("-holdfast.").map(|(_, it)| it.to_owned()))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// How far this machine's clock is from the server's.
async fn clock(client: &Client) -> Option<Finding> {
    let request = http::Request::get("/version").body(kube::client::Body::empty()).ok()?;
    let asked = Timestamp::now();
    let answer = tokio::time::timeout(TIMEOUT, client.send(request)).await.ok()?.ok()?;
    let took = Timestamp::now().as_second() - asked.as_second();
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?;
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    let apart = theirs.as_second() - asked.as_second();
    // The answer was under way for a part of it.
    let apart = if (0..=took).contains(&apart) { 0 } else { apart };
    Some(verdict::server_clock(apart))
}

/// Whether the server knows every kind of this build.
async fn definitions(client: &Client) -> Finding {
    let asked = tokio::time::timeout(TIMEOUT, Discovery::new(client.clone()).run()).await;
    let discovery = match asked {
        Ok(Ok(discovery)) => discovery,
        Ok(Err(error)) => return no_answer(&telemetry::Chain(&error).to_string()),
        Err(_) => return no_answer("it does not answer in time"),
    };
    let is_served = |group: &str, version: &str, kind: &str| {
        let found = discovery.groups().find(|it| it.name() == group);
        found
            .is_some_and(|it| it.versioned_resources(version).iter().any(|(it, _)| it.kind == kind))
    };
    let all = api::crds();
    let missing: Vec<String> = all
        .iter()
        .filter(|it| {
            let (group, kind) = (word(it, "/spec/group"), word(it, "/spec/names/kind"));
            let versions = it.pointer("/spec/versions").and_then(Value::as_array);
            let mut served = versions.into_iter().flatten().filter(|it| it["served"] == true);
            !served.all(|it| is_served(group, word(it, "/name"), kind))
        })
        .map(|it| word(it, "/metadata/name").to_owned())
        .collect();
    verdict::definitions(all.len(), &missing)
}

fn word<'a>(of: &'a Value, pointer: &str) -> &'a str {
    of.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What this caller may not do, of what an operator does.
async fn denied(client: &Client) -> Result<Vec<String>, String> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut denied = Vec::new();
    for (verb, group, resource) in RIGHTS {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(NAMESPACE.to_owned()).filter(|_| group == "longhorn.io"),
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if !answer.status.is_some_and(|it| it.allowed) {
            denied.push(format!("{verb} {resource}.{group}"));
        }
    }
    Ok(denied)
}

/// What the objects say.
fn of_world(world: &World) -> Vec<Finding> {
    let is_hidden = |kind: &str| world.hidden.iter().any(|it| it == kind);
    let mut found = Vec::new();
    if world.nodes.is_empty() && !is_hidden("nodes") {
        let hint = "start one with `holdfast node`, or everything with `holdfast up`";
        found.push(Finding::fail("nodes", "there is none", hint));
    }
    found.extend(world.nodes.iter().map(of_node));
    if !is_hidden("backuptargets") {
        found.extend(of_targets(&world.targets));
    }
    let summary = Summary::of(world, Timestamp::now());
    let rest = summary.attention.iter().filter(|it| {
        // Said above, one by one.
        let is_of_target = it.starts_with("target ") && it.contains("be reached");
        !(it.starts_with("node ") || is_of_target)
    });
    let rest: Vec<Finding> =
        rest.map(|it| Finding::warn("attention", it.clone(), "see `holdfast status`")).collect();
    if rest.is_empty() {
        let told = format!(
            "{} volumes, {} backups, {} jobs: nothing needs attention",
            world.volumes.len(),
            world.backups.len(),
            world.jobs.len()
        );
        found.push(Finding::ok("objects", told));
    }
    found.extend(rest);
    found
}

fn of_node(it: &Node) -> Finding {
    let check = format!("node {}", it.name_any());
    let why = node::why(it);
    match (node::ready(it), why.is_empty()) {
        (true, true) => Finding::ok(check, "ready"),
        (true, false) => Finding::warn(check, why, "see docs/operations/disk-full.md"),
        (false, _) => Finding::fail(check, or_dash(&why), "see docs/operations/node-gone.md"),
    }
}

fn of_targets(targets: &[BackupTarget]) -> Vec<Finding> {
    let set: Vec<_> = targets.iter().filter(|it| target::has_url(it)).collect();
    if set.is_empty() {
        let hint = "say where backups go with `holdfast target set URL`";
        return vec![Finding::warn("targets", "none is set: nothing can be backed up", hint)];
    }
    let found = set.into_iter().map(|it| {
        let check = format!("target {}", it.name_any());
        if target::is_available(it) {
            return Finding::ok(check, "reachable");
        }
        Finding::fail(check, or_dash(&target::why(it)), "see docs/operations/backup-target.md")
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn an_empty_installation_lacks_nodes_and_targets() {
        let found = of_world(&World::default());
        let told: Vec<_> = found.iter().map(|it| (it.check.as_str(), it.verdict)).collect();
        let wanted =
            [("nodes", Verdict::Fail), ("targets", Verdict::Warn), ("objects", Verdict::Ok)];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_may_not_be_seen_is_not_missing() {
        let hidden = ["nodes", "backuptargets"].map(str::to_owned).to_vec();
        let found = of_world(&World { hidden, ..World::default() });
        assert!(found.iter().all(|it| it.verdict == Verdict::Ok), "{found:?}");
    }
}
