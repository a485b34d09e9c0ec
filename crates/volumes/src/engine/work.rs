//! What is asked of engines, done.

use std::time::Duration;

use api::longhorn::{BackupTarget, InstanceState};
use api::scalar::{Stamp, Time};
use backupstore::Name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reconcile::{Key, Severity};
use rpc::ptypes::{
    ControllerReplica, ReplicaAddress, ReplicaMode, VolumeExpandRequest, VolumeFrontendStartRequest,
};
use serde_json::Value;
use tokio::time::Instant;

use super::client::{CallError, Reach};
use super::command::{self, CommandError};
use super::decide::Act;
use super::look::Look;
use super::monitor::{EXPAND_BACKOFF, Monitor, REBUILD_BACKOFF, RESTORE_BACKOFF, requests};
use crate::{NAMESPACE, target};

const RESTORE_TIMEOUT: Duration = Duration::from_mins(10);
const PURGE_TIMEOUT: Duration = Duration::from_mins(5);

/// Does one thing. What fails is seen again by the next look.
pub(super) async fn perform(monitor: &Monitor, found: &Look, act: Act) -> Result<(), CallError> {
    match act {
        Act::Remove { address } => remove(monitor, &address).await,
        Act::Verify { address } => verify(monitor, &address).await,
        Act::Fail { address } => fail(monitor, &address).await,
        Act::StartFrontend => start_frontend(monitor).await,
        Act::StopFrontend => stop_frontend(monitor).await,
        Act::Expand { size } => expand(monitor, found, size).await,
        Act::Add { name, address, restore } => {
            add(monitor, name, address, restore, found.size);
            Ok(())
        }
        Act::Restore { backup } => {
            restore(monitor, backup);
            Ok(())
        }
        Act::Clone { source } => {
            clone(monitor, source);
            Ok(())
        }
    }
}

fn named(address: &str) -> ReplicaAddress {
    ReplicaAddress { address: address.to_owned(), instance_name: String::new() }
}

async fn remove(monitor: &Monitor, address: &str) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    let done = controller.replica_delete(named(address)).await;
    done.map_err(|status| CallError::of(&format!("remove replica {address}"), &status))?;
    tracing::info!(engine = %monitor.key.name, address, "a replica that nobody plans with is removed");
    Ok(())
}

/// One that cannot be verified has failed.
async fn verify(monitor: &Monitor, address: &str) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    let done = controller.replica_verify_rebuild(named(address)).await;
    match done {
        Ok(_) => Ok(()),
        Err(status) => {
            let text =
                format!("Failed rebuilding replica with Address {address}: {}", status.message());
            monitor.say(Severity::Warning, "FailedRebuilding", &text);
            fail(monitor, address).await
        }
    }
}

async fn fail(monitor: &Monitor, address: &str) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    let mut request = ControllerReplica { address: Some(named(address)), mode: 0 };
    request.set_mode(ReplicaMode::Err);
    let done = controller.replica_update(request).await;
    done.map_err(|status| CallError::of(&format!("give up replica {address}"), &status))?;
    Ok(())
}

async fn start_frontend(monitor: &Monitor) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    // Whatever a volume asks to appear as, it is served as NBD.
    let request = VolumeFrontendStartRequest { frontend: "nbd".to_owned() };
    let done = controller.volume_frontend_start(request).await;
    done.map_err(|status| CallError::of("start the frontend", &status))?;
    Ok(())
}

async fn stop_frontend(monitor: &Monitor) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    let done = controller.volume_frontend_shutdown(()).await;
    done.map_err(|status| CallError::of("stop the frontend", &status))?;
    Ok(())
}

async fn expand(monitor: &Monitor, found: &Look, size: i64) -> Result<(), CallError> {
    let mut controller = monitor.reach.controller()?;
    let done = controller.volume_expand(VolumeExpandRequest { size }).await;
    let from = found.size;
    let volume = &monitor.reach.volume;
    let mut memory = monitor.memory();
    let failures = memory.expand_rest.0.saturating_add(1);
    let pause = EXPAND_BACKOFF.after(failures);
    memory.expand_rest = (failures, Some(Instant::now() + pause));
    match done {
        Ok(_) => {
            // Asked again only if it is still too small after a while.
            memory.expand_rest = (0, Some(Instant::now() + Duration::from_secs(5)));
            drop(memory);
            tracing::info!(volume, from, size, "the volume is to grow");
            Ok(())
        }
        Err(status) => {
            drop(memory);
            let text = format!(
                "Failed to expand volume {volume} from {from} to {size}: {}",
                status.message()
            );
            monitor.say(Severity::Warning, "FailedExpansion", &text);
            Err(CallError::of("expand the volume", &status))
        }
    }
}

/// Fills a copy, beside the monitor.
fn add(monitor: &Monitor, name: String, address: String, restore: bool, size: i64) {
    monitor.memory().adding = Some(address.clone());
    let own = monitor.clone();
    monitor.tasks.spawn("rebuild", async move {
        let done = fill(&own, &address, &name, restore, size).await;
        let ended = match done {
            Ok(()) => {
                own.memory().rests.remove(&name);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = ended {
            let text = format!("Failed rebuilding replica with Address {address}: {why}");
            own.say(Severity::Warning, "FailedRebuilding", &text);
            {
                let mut memory = own.memory();
                let failures = memory.rests.get(&name).map_or(0, |it| it.0).saturating_add(1);
                let until = Instant::now() + REBUILD_BACKOFF.after(failures);
                memory.rests.insert(name.clone(), (failures, until));
            }
            // It may be in the engine, half filled.
            if let Err(error) = remove(&own, &address).await {
                tracing::debug!(engine = %own.key.name, "{error}");
            }
            give_up(&own, &name).await;
        }
        own.memory().adding = None;
        own.nudge.notify_one();
    });
}

async fn fill(
    monitor: &Monitor,
    address: &str,
    name: &str,
    restore: bool,
    size: i64,
) -> Result<(), CommandError> {
    let settings = monitor.world.settings();
    let mut arguments: Vec<String> = ["add-replica", address].map(str::to_owned).to_vec();
    for (flag, value) in [("--size", size), ("--current-size", size)] {
        arguments.extend([flag.to_owned(), value.to_string()]);
    }
    arguments.extend(["--replica-instance-name".to_owned(), name.to_owned()]);
    if restore {
        arguments.push("--restore".to_owned());
    } else if settings.fast_rebuild {
        arguments.push("--fast-sync".to_owned());
    }
    command::run(&monitor.reach, &arguments, &[], settings.long_call).await?;
    if !restore && settings.purge_after_rebuild {
        let purge = command::PURGE.map(str::to_owned);
        // The snapshot that rebuilding took stays if this fails; the next purge takes it.
        if let Err(error) = command::run(&monitor.reach, &purge, &[], PURGE_TIMEOUT).await {
            monitor.say(Severity::Warning, "FailedStartingSnapshotPurge", &error.to_string());
        }
    }
    Ok(())
}

/// A copy that could not be filled has failed; what to do about it is decided with the others.
async fn give_up(monitor: &Monitor, name: &str) {
    let replicas = &monitor.world.replicas;
    for _ in 0..5 {
        let Some(replica) = replicas.get(&Key::new(NAMESPACE, name)) else { return };
        let mut failed = replica.as_ref().clone();
        let now = Stamp::from(Time::new(Timestamp::now()));
        failed.spec.failed_at = Some(now.clone());
        failed.spec.last_failed_at = Some(now);
        failed.spec.instance.desire_state = Some(InstanceState::Stopped);
        match replicas.update(&replica, &failed).await {
            Ok(_) => return,
            Err(reconcile::Failure::Conflict { .. }) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => {
                tracing::warn!(replica = name, error = %telemetry::Chain(&error), "cannot mark it failed");
                return;
            }
        }
    }
}

/// Asks all copies to restore a backup, beside the monitor.
fn restore(monitor: &Monitor, backup: String) {
    monitor.memory().asking_restore = true;
    let own = monitor.clone();
    monitor.tasks.spawn("restore", async move {
        let outcome = ask_restore(&own, &backup).await;
        {
            let mut memory = own.memory();
            memory.asking_restore = false;
            match &outcome {
                Asked::Begun => memory.restore_rest = (0, None),
                Asked::Later(_) => {
                    let failures = memory.restore_rest.0.saturating_add(1);
                    let until = Instant::now() + RESTORE_BACKOFF.after(failures);
                    memory.restore_rest = (failures, Some(until));
                }
                Asked::Refused(rejections) => {
                    let still = own.engine().is_some_and(|engine| requests(&engine, &backup));
                    for (address, text) in rejections.iter().filter(|_| still) {
                        memory.rejections.insert(address.clone(), text.clone());
                    }
                }
            }
        }
        if let Asked::Later(Some(why)) = outcome {
            tell_volume(&own, &format!("the restore of {backup} is not begun yet: {why}"));
        }
        own.nudge.notify_one();
    });
}

/// Copies a snapshot of another volume to all copies of this, beside the monitor.
fn clone(monitor: &Monitor, source: String) {
    monitor.memory().asking_clone = true;
    let own = monitor.clone();
    monitor.tasks.spawn("clone", async move {
        let done = ask_clone(&own, &source).await;
        {
            let mut memory = own.memory();
            memory.asking_clone = false;
            // What each replica came to is in its own status; this is for those that were not asked.
            memory.clone_failure = done.err();
        }
        own.nudge.notify_one();
    });
}

async fn ask_clone(monitor: &Monitor, source: &str) -> Result<(), String> {
    let named = source.strip_prefix("snap://").and_then(|it| it.split_once('/'));
    let (volume, snapshot) = named.ok_or_else(|| format!("{source:?} names no snapshot"))?;
    let engine = super::active(&monitor.world.engines, volume);
    let from = engine.as_deref().and_then(Reach::of);
    let from = from.ok_or_else(|| format!("the engine of volume {volume} does not run"))?;
    let arguments = [
        "snapshot",
        "clone",
        "--snapshot-name",
        snapshot,
        "--from-controller-address",
        &from.address,
        "--from-volume-name",
        &from.volume,
        "--from-controller-instance-name",
        &from.engine,
    ]
    .map(str::to_owned);
    let limit = monitor.world.settings().long_call;
    let done = command::run(&monitor.reach, &arguments, &[], limit).await;
    done.map(drop).map_err(|error| error.to_string())
}

fn tell_volume(monitor: &Monitor, text: &str) {
    if let Some(volume) = monitor.volume() {
        monitor.world.context.events.say(volume.as_ref(), Severity::Warning, "FailedRestore", text);
    }
}

/// What came of asking for a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Begun,
    /// Nobody has failed: it is tried again. With the reason, if people should know.
    Later(Option<String>),
    /// These copies cannot restore: address and reason.
    Refused(Vec<(String, String)>),
}

async fn ask_restore(monitor: &Monitor, backup: &str) -> Asked {
    let (url, environment) = match place(monitor, backup).await {
        Ok(place) => place,
        Err(why) => return Asked::Later(Some(why)),
    };
    let limit = monitor.world.settings().restore_concurrency.to_string();
    let arguments = ["backup", "restore", &url, "--concurrent-limit", &limit].map(str::to_owned);
    match command::run(&monitor.reach, &arguments, &environment, RESTORE_TIMEOUT).await {
        Ok(_) => Asked::Begun,
        Err(CommandError::Refused { text, output }) => judge(&text, &output),
        Err(error @ (CommandError::Start(..) | CommandError::TooLong(..))) => {
            Asked::Later(Some(error.to_string()))
        }
    }
}

/// Replies that mean "not now" or "already", and say nothing against the copy.
const HARMLESS: &[&str] = &[
    "already in progress",
    "already restored backup",
    "purging snapshots",
    "hence started to purge snapshots",
    "need to expand the DR volume",
    "failed lock",
    "failed to acquire lock",
    "in mode ERR",
    "failed to get the current restoring backup info",
];

fn is_harmless(text: &str) -> bool {
    HARMLESS.iter().any(|part| text.contains(part))
}

fn judge(text: &str, output: &str) -> Asked {
    let errors = serde_json::from_str::<Value>(output).ok();
    let errors = errors.as_ref().and_then(|it| it.get("ReplicaErrors")?.as_array());
    let Some(errors) = errors else {
        // It did not come so far as to ask a copy.
        return Asked::Later((!is_harmless(text)).then(|| text.to_owned()));
    };
    let field = |error: &Value, name: &str| {
        error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let all: Vec<(String, String)> =
        errors.iter().map(|error| (field(error, "Address"), field(error, "Message"))).collect();
    let refused: Vec<(String, String)> =
        all.iter().filter(|(_, text)| !is_harmless(text)).cloned().collect();
    if !refused.is_empty() {
        return Asked::Refused(refused);
    }
    let store = all.iter().find(|(_, text)| text.contains("restoring backup info"));
    match store {
        Some((_, text)) => Asked::Later(Some(text.clone())),
        None => Asked::Begun,
    }
}

/// The URL of a backup and the variables of a process that reads it: of the target that the store's
/// own object names. Where a volume says that its backup lies is never gone to.
async fn place(monitor: &Monitor, backup: &str) -> Result<(String, Vec<(String, String)>), String> {
    let world = &monitor.world;
    let stored = monitor.engine().and_then(|it| it.spec.backup_volume.clone()).unwrap_or_default();
    let stored = world
        .backup_volumes
        .get(&Key::new(NAMESPACE, &stored))
        .ok_or_else(|| format!("no BackupVolume {stored:?} says where backup {backup} is"))?;
    let name = stored.spec.backup_target_name.as_deref().unwrap_or(target::DEFAULT);
    let target = world
        .targets
        .get(&Key::new(NAMESPACE, name))
        .ok_or_else(|| format!("backup target {name} does not exist"))?;
    let secret = match target.spec.credential_secret.as_deref().filter(|name| !name.is_empty()) {
        None => None,
        Some(name) => {
            let api: Api<Secret> = Api::namespaced(world.context.client.clone(), NAMESPACE);
            let found = api.get_opt(name).await;
            found.map_err(|error| format!("the secret {name} cannot be read: {error}"))?
        }
    };
    asked_of(&target, secret.as_ref(), stored.spec.volume_name.as_deref(), backup)
}

/// What a process is told that restores a backup of a target. Of the Secret only what credentials are
/// called goes into its environment.
fn asked_of(
    target: &BackupTarget,
    secret: Option<&Secret>,
    volume: Option<&str>,
    backup: &str,
) -> Result<(String, Vec<(String, String)>), String> {
    let url = target::url(target)?;
    let named = |name: &str| Name::parse(name).map_err(|error| target::text(&error));
    let (volume, backup) = (named(volume.unwrap_or_default())?, named(backup)?);
    let environment = target::environment(target, secret, &url)?;
    Ok((url.backup_url(&volume, &backup), environment.to_pairs().into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_restore_goes_to_its_target_with_the_keys_of_that_and_nothing_else() {
        let mut target = BackupTarget::default();
        target.spec.backup_target_url = Some("nfs://files:/share?nfsOptions=soft".to_owned());
        target.spec.credential_secret = Some("keys".to_owned());
        let value = |text: &str| ByteString(text.as_bytes().to_vec());
        let secret = Secret {
            data: Some(BTreeMap::from([
                ("AWS_ACCESS_KEY_ID".to_owned(), value("id")),
                ("LD_PRELOAD".to_owned(), value("/tmp/evil.so")),
                ("PATH".to_owned(), value("/tmp")),
            ])),
            ..Secret::default()
        };
        let (url, environment) = asked_of(&target, Some(&secret), Some("v-1"), "b-2").unwrap();
        assert_eq!(url, "nfs://files:/share?backup=b-2&nfsOptions=soft&volume=v-1");
        assert_eq!(environment, [("AWS_ACCESS_KEY_ID".to_owned(), "id".to_owned())]);
        assert!(asked_of(&target, Some(&secret), Some("v-1"), "../b").is_err());
        assert!(asked_of(&target, None, Some("v-1"), "b-2").is_err());
    }

    #[test]
    fn what_means_not_now_or_already_is_no_failure() {
        let reply = |messages: &[&str]| {
            let errors: Vec<Value> = messages
                .iter()
                .map(|it| serde_json::json!({"Address": "tcp://h:1", "Message": it}))
                .collect();
            serde_json::json!({ "ReplicaErrors": errors }).to_string()
        };
        let already = reply(&["already restored backup b", "one already in progress"]);
        assert_eq!(judge("x", &already), Asked::Begun);
        let bad = reply(&["already restored backup b", "no space left on device"]);
        let refused = Asked::Refused(vec![("tcp://h:1".into(), "no space left on device".into())]);
        assert_eq!(judge("x", &bad), refused);
        let purge = "found more than 1 snapshot in the replicas, hence started to purge snapshots";
        assert_eq!(judge(purge, ""), Asked::Later(None));
        let expand = "need to expand the DR volume d to size 2 before incremental restoration";
        assert_eq!(judge(expand, ""), Asked::Later(None));
        assert_eq!(judge("no engine there", ""), Asked::Later(Some("no engine there".into())));
        let gone = reply(&["failed to get the current restoring backup info: cannot find b"]);
        assert!(matches!(judge("x", &gone), Asked::Later(Some(_))));
    }
}
