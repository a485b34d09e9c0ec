//! `holdfast target`.

use std::process::ExitCode;
use std::time::Duration;

use api::longhorn::{BackupTarget, BackupTargetStatus};
use api::scalar::Time;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use people::or_dash;
use people::redact::without_password;
use people::target::{answered, is_available, reachable, why};
use people::units::parse_bytes;
use serde_json::{Map, Value, json};

use crate::connection::{Connection, explained};
use crate::listing::{Ls, Rm, Row};
use crate::output::{self, Hint};
use crate::waiting::{Stand, Wait};

/// The target of volumes that name none; the controllers make it again if it is removed.
const DEFAULT: &str = "default";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List backup targets, and whether they can be reached.
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Set the URL and options of a backup target; creates it if it does not exist.
    Set(Set),
    /// Check a backup target now instead of at the next poll.
    Sync {
        #[arg(default_value = "default")]
        name: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        at: Connection,
    },
    /// Remove a backup target; its data is kept. The target `default` only loses its URL.
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub struct Set {
    /// `vfs:///srv/backups`, `s3://bucket@region/path`, `nfs://host:/path`, `cifs://…`, `azblob://…` or
    /// `gs://…`.
    #[arg(value_parser = parse_url)]
    url: String,
    #[arg(long, default_value = "default")]
    name: String,
    /// The Secret with the credentials, in namespace longhorn-system.
    #[arg(long)]
    secret: Option<String>,
    /// Poll interval, for example 5m; 0s: only on request.
    #[arg(long, value_name = "DURATION")]
    poll: Option<String>,
    /// Bandwidth limit of all backups together, in bytes per second, for example 50MiB; 0: no limit.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    rate: Option<u64>,
    /// A label that says for what it was made.
    #[arg(skip)]
    mark: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    at: Connection,
}

impl Set {
    /// What the tour asks for.
    pub(crate) fn demo(url: &str, name: &str, mark: &str, at: &Connection, wait: Wait) -> Self {
        let (url, name, mark) = (url.to_owned(), name.to_owned(), Some(mark.to_owned()));
        Self { url, name, secret: None, poll: None, rate: None, mark, wait, at: at.clone() }
    }
}

/// What the stores of backups are reached by.
const SCHEMES: [&str; 6] = ["vfs", "nfs", "cifs", "s3", "azblob", "gs"];

/// Refuses at once what no node can ever use; whether a store is there is found out by looking.
fn parse_url(text: &str) -> Result<String, String> {
    let known = || format!("use one of {}", SCHEMES.map(|it| format!("{it}://")).join(", "));
    let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("not a URL; {}", known()))?;
    if !SCHEMES.contains(&scheme) {
        return Err(format!("there is no driver for {scheme}://; {}", known()));
    }
    if scheme == "vfs" && !rest.starts_with('/') {
        return Err(
            "a directory is written with three slashes, as in vfs:///srv/backups".to_owned()
        );
    }
    Ok(text.to_owned())
}

impl Row for BackupTarget {
    const HEAD: &'static [&'static str] =
        &["TARGET", "URL", "REACHABLE", "CHECKED", "VERIFIED", "WHY"];
    const WIDE: &'static [&'static str] = &["SECRET", "POLL"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let none = BackupTargetStatus::default();
        let status = self.status.as_ref().unwrap_or(&none);
        let looked =
            status.last_synced_at.map(|it| people::units::age(it.timestamp(), now) + " ago");
        let verified = status.verification.as_ref().and_then(|it| it.result.clone());
        vec![
            self.name_any(),
            or_dash(&without_password(self.spec.backup_target_url.as_deref().unwrap_or_default())),
            reachable(self).to_owned(),
            looked.unwrap_or_else(|| "never".to_owned()),
            verified.map_or_else(|| "never".to_owned(), |it| it.to_lowercase()),
            or_dash(&why(self)),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        vec![
            or_dash(self.spec.credential_secret.as_deref().unwrap_or_default()),
            self.spec.poll_interval.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        ]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(ls) => ls.run::<BackupTarget>().await?,
        Command::Set(args) => set(&args).await?,
        Command::Sync { name, wait, at } => {
            sync(&at, &name, &wait).await?;
            let end = if wait.wait { "has been checked" } else { "is being checked" };
            output::say(&format!("target {name} {end}"))?;
        }
        Command::Rm(rm) => remove(&rm).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn set(args: &Set) -> anyhow::Result<()> {
    let api = args.at.volumes::<BackupTarget>().await?;
    let mut spec = Map::from_iter([("backupTargetURL".to_owned(), json!(args.url))]);
    let mut field = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec.insert(name.to_owned(), value);
        }
    };
    field("credentialSecret", args.secret.as_ref().map(|it| json!(it)));
    field("pollInterval", args.poll.as_ref().map(|it| json!(it)));
    field("bytesPerSecond", args.rate.map(|it| json!(it.to_string())));
    let labels: Map<String, Value> =
        args.mark.iter().map(|mark| (mark.clone(), json!("tour"))).collect();
    let patch = json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "BackupTarget",
        "metadata": { "name": args.name, "labels": labels },
        "spec": spec,
    });
    let how = PatchParams::apply("holdfast-cli").force();
    api.patch(&args.name, &how, &Patch::Apply(&patch))
        .await
        .map_err(|error| explained(error, &format!("set target {}", args.name)))?;
    sync(&args.at, &args.name, &args.wait).await?;
    Ok(output::say(&format!("target {} is {}", args.name, without_password(&args.url)))?)
}

/// Asks for a look, and stays for the answer to this very request.
async fn sync(at: &Connection, name: &str, wait: &Wait) -> anyhow::Result<()> {
    let api = at.volumes::<BackupTarget>().await?;
    let found = api.get(name).await;
    let found = found.map_err(|error| explained(error, &format!("find target {name}")))?;
    let now = Timestamp::now();
    let asked = request(&found, now);
    tokio::time::sleep(too_soon(asked, now)).await;
    let patch = json!({ "spec": { "syncRequestedAt": asked } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("look into target {name}")))?;
    wait.until(&api, name, |it| stand(it, asked)).await
}

/// How far ahead of the clock a request may be for the controllers to heed it at once.
const AHEAD: Duration = Duration::from_secs(2);

/// A time for a request that no earlier answer can be taken for: times are whole seconds, and several
/// requests may come within one.
fn request(target: &BackupTarget, now: Timestamp) -> Time {
    let earlier = [answered(target), target.spec.sync_requested_at.map(Time::timestamp)];
    let next = |it: Timestamp| it.checked_add(Duration::from_secs(1)).ok();
    // A clock that was ahead is not followed.
    let is_near = |it: &Timestamp| now.checked_add(2 * AHEAD).is_ok_and(|latest| *it <= latest);
    let earliest = earlier.into_iter().flatten().max().and_then(next).filter(is_near);
    Time::new(earliest.map_or(now, |it| it.max(now)))
}

/// How long to wait before such a request is made.
fn too_soon(asked: Time, now: Timestamp) -> Duration {
    let ahead = Duration::try_from(now.duration_until(asked.timestamp())).unwrap_or_default();
    ahead.saturating_sub(AHEAD)
}

fn stand(target: Option<&BackupTarget>, asked: Time) -> Stand {
    let Some(it) = target else { return Stand::Failed("it was removed".to_owned()) };
    let is_answered = answered(it).is_some_and(|it| it >= asked.timestamp());
    match (is_answered, is_available(it)) {
        (true, true) => Stand::Done,
        (true, false) => Stand::Failed(or_dash(&why(it))),
        (false, _) => Stand::Going("being checked".to_owned()),
    }
}

/// The one that is always there loses its address; others are forgotten.
async fn remove(rm: &Rm) -> anyhow::Result<()> {
    if !rm.names.iter().any(|it| it == DEFAULT) {
        return rm.run::<BackupTarget>().await;
    }
    if rm.names.len() > 1 {
        return Err(anyhow::anyhow!("target {DEFAULT} cannot be removed, only emptied"))
            .hint(format!("empty it by itself with `holdfast target rm {DEFAULT}`"));
    }
    let api = rm.at.volumes::<BackupTarget>().await?;
    let patch = json!({ "spec": { "backupTargetURL": "", "credentialSecret": "" } });
    api.patch(DEFAULT, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| explained(error, &format!("empty target {DEFAULT}")))?;
    rm.wait
        .until(&api, DEFAULT, |it| match it.map(is_available) {
            Some(true) => Stand::Going("being emptied".to_owned()),
            Some(false) | None => Stand::Done,
        })
        .await?;
    Ok(output::say(&format!("target {DEFAULT} is always there; it has no URL now"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(status: &Value) -> BackupTarget {
        serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "BackupTarget",
            "metadata": {"name": "t"}, "spec": {"backupTargetURL": "vfs:///x"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_no_node_can_use_is_refused_before_it_is_written() {
        for good in ["vfs:///srv/backups", "s3://bucket@region/path", "nfs://host:/path", "gs://b"]
        {
            assert_eq!(parse_url(good).as_deref(), Ok(good));
        }
        for (bad, why) in [
            ("ftp://host/x", "no driver for ftp://"),
            ("/srv/backups", "not a URL"),
            ("vfs://srv/backups", "three slashes"),
        ] {
            let told = parse_url(bad).unwrap_err();
            assert!(told.contains(why), "{bad}: {told}");
        }
    }

    #[test]
    fn what_was_found_before_the_request_is_no_answer_to_it() {
        let asked = Time::new("2026-11-16T10:00:00Z".parse().unwrap());
        let old = |probed: &str| {
            target(&json!({"available": false, "conditions": [{
                "type": "Unavailable", "status": "True", "message": "backup target URL is empty",
                "lastProbeTime": probed}]}))
        };
        assert!(matches!(stand(Some(&old("")), asked), Stand::Going(_)));
        assert!(matches!(stand(Some(&old("2026-11-16T09:59:59Z")), asked), Stand::Going(_)));
        assert!(matches!(stand(Some(&old("2026-11-16T10:00:00Z")), asked), Stand::Failed(_)));
        let seen = target(&json!({"available": true, "lastSyncedAt": "2026-11-16T10:00:01Z"}));
        assert!(matches!(stand(Some(&seen), asked), Stand::Done));
        assert!(
            request(&seen, asked.timestamp()) > Time::new("2026-11-16T10:00:01Z".parse().unwrap())
        );
    }

    /// However many come within one second: each has a time of its own, and none is too far ahead.
    #[test]
    fn a_crowd_of_requests_is_answered_one_by_one() {
        let begin: Timestamp = "2026-11-16T10:00:00.3Z".parse().unwrap();
        let mut now = begin;
        let mut last = None;
        for _ in 0..20 {
            let seen = target(&json!({"available": false, "conditions": [{
                "type": "Unavailable", "status": "True", "lastProbeTime": last}]}));
            let asked = request(&seen, now);
            assert!(Some(asked) > last, "{asked:?} after {last:?}");
            now += too_soon(asked, now);
            assert!(now + AHEAD >= asked.timestamp(), "{asked:?} at {now}");
            last = Some(asked);
        }
        assert!(begin.duration_until(now) < jiff::SignedDuration::from_secs(20));
        let ahead = target(&json!({"available": true, "lastSyncedAt": "2026-11-16T11:00:00Z"}));
        assert_eq!(request(&ahead, begin), Time::new(begin));
    }
}
