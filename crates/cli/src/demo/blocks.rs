//! The same volumes by the Block Storage API: one is extended while its backup runs.

use std::time::Duration;

use anyhow::Context as _;
use api::longhorn::{BackupTarget, Volume};
use kube::Api;
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};

use super::disk::Disk;
use super::http::{self, Answer, at};
use super::steps::{MARK, Met, TIMEOUT};
use super::{Tour, found};
use crate::connection::explained;
use crate::output::Hint;
use crate::waiting::Progress;

/// A project of its own: names in others do not matter.
const PROJECT: &str = "holdfast-demo";
const TOKEN: &str = "demo:holdfast-demo";
/// The release of the protocol that has both status fields.
const RELEASE: &str = "volume 3.72";
const VOLUME: &str = "demo-block";
const BACKUP: &str = "demo-block-one";
const BACK: &str = "demo-block-back";
/// The server that uses the volume.
const SERVER: &str = "8a0e0b6c-11f5-4c4d-9b3a-0b0f3f6a1c11";
/// Says what the rate of a target was before the tour lowered it.
const RATE_BEFORE: &str = "holdfast.io/demo-rate-before";
/// What a backup may send in a second, so that it lasts longer than all that is done beside it.
const RATE: u64 = 512 << 10;
const MEBIBYTES: u64 = 16;
const SEED: u64 = 3;
const EVERY: Duration = Duration::from_millis(200);

/// The service, as the tour uses it.
struct Blocks {
    url: String,
    client: reqwest::Client,
}

impl Blocks {
    /// None where it is not served to whoever asks.
    fn of(tour: &Tour<'_>) -> anyhow::Result<Option<Self>> {
        let Some(url) = tour.at.block_storage() else { return Ok(None) };
        Ok(Some(Self { url, client: http::client()? }))
    }

    async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let headers = [("x-auth-token", TOKEN), ("openstack-api-version", RELEASE)];
        http::ask(&self.client, method, &format!("{}{path}", self.url), &headers, body)
            .await
            .context("the Block Storage API cannot be asked")
            .hint("is `holdfast up` still running?")
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let answer = self.raw(method.clone(), path, body).await?;
        let why = answer.why();
        anyhow::ensure!(answer.is_good(), "Block Storage refuses {method} {path}: {why}");
        Ok(answer.body)
    }

    async fn get(&self, path: &str, member: &str) -> anyhow::Result<Value> {
        let mut told = self.ask(Method::GET, path, None).await?;
        Ok(told.get_mut(member).map(Value::take).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, Some(&body)).await
    }

    /// Those of the project, with all that is told of them.
    async fn all(&self, of: &str) -> anyhow::Result<Vec<Value>> {
        let found = self.get(&format!("/{of}/detail"), of).await?;
        Ok(found.as_array().cloned().unwrap_or_default())
    }

    /// Stays until something is as it should be; `look` says so with nothing, else how far it is.
    async fn until(
        &self,
        what: &str,
        path: &str,
        member: &str,
        look: impl Fn(&Value) -> Option<String>,
    ) -> anyhow::Result<Value> {
        let mut progress = Progress::new(what.to_owned());
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let seen = self.get(path, member).await?;
            let Some(how) = look(&seen) else {
                progress.end();
                return Ok(seen);
            };
            progress.say(&how);
            anyhow::ensure!(!how.starts_with("error"), "{what} is in {how}: {}", reason(&seen));
            let is_late = tokio::time::Instant::now() > end;
            anyhow::ensure!(!is_late, "{what} was not done after {} s ({how})", TIMEOUT.as_secs());
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn until_gone(&self, what: &str, path: &str) -> anyhow::Result<()> {
        let mut progress = Progress::new(what.to_owned());
        let end = tokio::time::Instant::now() + TIMEOUT;
        while self.raw(Method::GET, path, None).await?.status != 404 {
            progress.say("being removed");
            let is_late = tokio::time::Instant::now() > end;
            anyhow::ensure!(!is_late, "{what} was not gone after {} s", TIMEOUT.as_secs());
            tokio::time::sleep(EVERY).await;
        }
        progress.end();
        Ok(())
    }

    /// Attaches a volume to a server and says by which attachment, and where it is served.
    async fn attach(&self, volume: &str) -> anyhow::Result<(String, String)> {
        let asked = json!({"attachment": {
            "volume_uuid": volume, "instance_uuid": SERVER, "connector": {"host": "demo"}}});
        let made = self.post("/attachments", asked).await?;
        let attachment = text(at(&made, "/attachment/id"))?;
        let path = format!("/attachments/{attachment}");
        let seen = self.get(&path, "attachment").await?;
        let uri = text(at(&seen, "/connection_info/uri"))?;
        self.post(&format!("{path}/action"), json!({"os-complete": {}})).await?;
        Ok((attachment, uri))
    }

    async fn detach(&self, attachment: &str) -> anyhow::Result<()> {
        self.ask(Method::DELETE, &format!("/attachments/{attachment}"), None).await.map(drop)
    }
}

fn text(value: &Value) -> anyhow::Result<String> {
    value.as_str().map(str::to_owned).context("the Block Storage API left something out")
}

fn reason(seen: &Value) -> &str {
    at(seen, "/fail_reason").as_str().unwrap_or("it does not say why")
}

/// Nothing is done to it any more: a volume has two fields that say so.
fn is_available(seen: &Value) -> Option<String> {
    let of = |name: &str| seen.get(name).and_then(Value::as_str).map(str::to_owned);
    match (of("status").unwrap_or_default(), of("backup_status")) {
        (status, None) => (status != "available").then_some(status),
        (_, backup) => backup,
    }
}

fn is_marked(it: &Value) -> bool {
    at(it, "/metadata").get(MARK).is_some()
}

fn is_named(it: &Value, names: &[&str]) -> bool {
    at(it, "/name").as_str().is_some_and(|it| names.contains(&it))
}

pub(super) async fn a_volume_grows_during_its_backup(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let title = "Extend a Block Storage volume while its backup runs";
    let Some(blocks) = Blocks::of(tour)? else {
        return tour
            .skip(title, "the kubeconfig names no Block Storage API that asks nobody")
            .await;
    };
    tour.step(
        title,
        &[
            format!(
                "export OS_AUTH_TYPE=admin_token OS_ENDPOINT={}/{PROJECT} OS_TOKEN={TOKEN} OS_VOLUME_API_VERSION=3.72",
                blocks.url
            ),
            format!("openstack volume create --size 1 {VOLUME}"),
            format!("openstack volume backup create --force --name {BACKUP} {VOLUME}"),
            format!("openstack volume set --size 2 {VOLUME}"),
            format!("openstack volume backup restore {BACKUP} {BACK}"),
        ],
    )
    .await?;
    let mark = json!({MARK: "tour"});
    let asked = json!({"volume": {"name": VOLUME, "size": 1, "metadata": mark}});
    let volume = text(at(&blocks.post("/volumes", asked).await?, "/volume/id"))?;
    let path = format!("/volumes/{volume}");
    blocks.until("the volume", &path, "volume", is_available).await?;
    let (attachment, uri) = blocks.attach(&volume).await?;
    Disk::open(&uri).await?.write(0..MEBIBYTES, SEED).await?;
    let target = target_of(tour, &volume).await?;
    slow_down(tour, &target).await?;
    let asked = json!({"backup": {
        "volume_id": volume, "name": BACKUP, "force": true, "metadata": {MARK: "tour"}}});
    let backup = text(at(&blocks.post("/backups", asked).await?, "/backup/id"))?;
    let beside = extend_beside(&blocks, &path).await;
    // Whatever came of it, nobody else is to wait for it.
    let restored = as_before(tour).await;
    beside.and(restored)?;
    let backup = format!("/backups/{backup}");
    blocks.until("its backup", &backup, "backup", is_available).await?;
    blocks.detach(&attachment).await?;
    let asked = json!({"restore": {"name": BACK}});
    let restored = blocks.post(&format!("{backup}/restore"), asked).await?;
    let back = text(at(&restored, "/restore/volume_id"))?;
    let path = format!("/volumes/{back}");
    blocks.until("the restored volume", &path, "volume", is_available).await?;
    let (attachment, uri) = blocks.attach(&back).await?;
    let differs = Disk::open(&uri).await?.differs(0..MEBIBYTES, SEED).await?;
    blocks.detach(&attachment).await?;
    match differs {
        None => found(&format!("all {MEBIBYTES} MiB of {BACK} are as they were written")),
        Some(place) => anyhow::bail!("mebibyte {place} of {BACK} is not what was written"),
    }
}

/// Extends the volume, and sees that its backup runs before and after.
async fn extend_beside(blocks: &Blocks, path: &str) -> anyhow::Result<()> {
    let both = |seen: &Value| {
        let of = |name: &str| seen.get(name).and_then(Value::as_str).unwrap_or("none").to_owned();
        (of("status"), of("backup_status"))
    };
    let runs = |seen: &Value| {
        let (status, backup) = both(seen);
        (backup != "backing-up").then_some(status)
    };
    blocks.until("its backup", path, "volume", runs).await?;
    blocks.post(&format!("{path}/action"), json!({"os-extend": {"new_size": 2}})).await?;
    let is_larger = |seen: &Value| {
        let (status, _) = both(seen);
        (at(seen, "/size") != 2 || status != "in-use").then_some(status)
    };
    let seen = blocks.until("the extension", path, "volume", is_larger).await?;
    let (status, backup) = both(&seen);
    anyhow::ensure!(backup == "backing-up", "the backup was over before the volume was extended");
    found(&format!("it has 2 GiB now; status is {status}, backup_status is {backup}"))
}

/// The target that backups of a volume go to.
async fn target_of(tour: &Tour<'_>, volume: &str) -> anyhow::Result<String> {
    let volumes: Api<Volume> = Api::namespaced(tour.client.clone(), crate::NAMESPACE);
    let seen = volumes.get(&format!("volume-{volume}")).await;
    let seen = seen.map_err(|error| explained(error, "find the volume behind it"))?;
    let named = seen.spec.backup_target_name.filter(|it| !it.is_empty());
    Ok(named.unwrap_or_else(|| "default".to_owned()))
}

fn targets(tour: &Tour<'_>) -> Api<BackupTarget> {
    Api::namespaced(tour.client.clone(), crate::NAMESPACE)
}

/// Lowers the rate of a target, and writes down in it what it was: whoever cleans up knows.
async fn slow_down(tour: &Tour<'_>, name: &str) -> anyhow::Result<()> {
    let seen = targets(tour).get(name).await;
    let seen = seen.map_err(|error| explained(error, &format!("find target {name}")))?;
    let spec = serde_json::to_value(&seen.spec)?;
    let before =
        at(&spec, "/bytesPerSecond").as_str().map_or_else(|| "0".to_owned(), str::to_owned);
    let patch = json!({
        "metadata": {"annotations": {RATE_BEFORE: before}},
        "spec": {"bytesPerSecond": RATE.to_string()},
    });
    let patched = targets(tour).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.map(drop).map_err(|error| explained(error, &format!("slow target {name} down")))
}

/// Gives every target that a tour has slowed down its rate back.
async fn as_before(tour: &Tour<'_>) -> anyhow::Result<()> {
    let found = targets(tour).list(&kube::api::ListParams::default()).await;
    let found = found.map_err(|error| explained(error, "list targets"))?;
    for target in found.items {
        let annotations = target.metadata.annotations.unwrap_or_default();
        let (Some(before), Some(name)) = (annotations.get(RATE_BEFORE), target.metadata.name)
        else {
            continue;
        };
        let patch = json!({
            "metadata": {"annotations": {RATE_BEFORE: null}},
            "spec": {"bytesPerSecond": before},
        });
        let how = PatchParams::default();
        let patched = targets(tour).patch(&name, &how, &Patch::Merge(&patch)).await;
        patched.map_err(|error| explained(error, &format!("give target {name} its rate back")))?;
    }
    Ok(())
}

/// What there is under names of the tour. A service that does not answer has nothing to tell.
pub(super) async fn look(tour: &Tour<'_>, met: &mut Met) -> anyhow::Result<()> {
    let Some(blocks) = Blocks::of(tour)? else { return Ok(()) };
    for (of, kind) in [("volumes", "Block Storage volume"), ("backups", "Block Storage backup")] {
        for it in blocks.all(of).await?.iter().filter(|it| is_named(it, &[VOLUME, BACKUP, BACK])) {
            let told = format!("{kind} {}", at(it, "/name").as_str().unwrap_or_default());
            if is_marked(it) { met.left.push(told) } else { met.foreign.push(told) }
        }
    }
    Ok(())
}

/// Takes away what the tour made there, whatever stage it reached.
pub(super) async fn clean_up(tour: &Tour<'_>) -> anyhow::Result<()> {
    as_before(tour).await?;
    let Some(blocks) = Blocks::of(tour)? else { return Ok(()) };
    for backup in blocks.all("backups").await?.iter().filter(|it| is_marked(it)) {
        let path = format!("/backups/{}", text(at(backup, "/id"))?);
        // One that is being made is not removed by this protocol.
        let settled = |seen: &Value| {
            let status = at(seen, "/status").as_str().unwrap_or_default().to_owned();
            matches!(status.as_str(), "creating" | "restoring").then_some(status)
        };
        blocks.until("its backup", &path, "backup", settled).await?;
        blocks.ask(Method::DELETE, &path, None).await?;
        blocks.until_gone("the backup", &path).await?;
    }
    for volume in blocks.all("volumes").await?.iter().filter(|it| is_marked(it)) {
        let id = text(at(volume, "/id"))?;
        for attachment in blocks.all("attachments").await? {
            if at(&attachment, "/volume_id") == at(volume, "/id") {
                blocks.detach(&text(at(&attachment, "/id"))?).await?;
            }
        }
        let path = format!("/volumes/{id}");
        blocks.ask(Method::DELETE, &path, None).await?;
        blocks.until_gone("the volume", &path).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_being_restored_is_not_available_yet() {
        let seen = |status: &str, backup: Value| {
            is_available(&json!({"status": status, "backup_status": backup}))
        };
        assert_eq!(seen("available", Value::Null), None);
        assert_eq!(seen("creating", Value::Null).as_deref(), Some("creating"));
        assert_eq!(
            seen("available", json!("restoring-backup")).as_deref(),
            Some("restoring-backup")
        );
        // A backup has one field.
        assert_eq!(is_available(&json!({"status": "available"})), None);
    }
}
