//! Backup targets: whether a store can be reached, and what is in it.
//!
//! A target is looked at by its interval, when somebody asks for it, and when its URL or the Secret
//! with its credentials changes. A look asks for the names of the volumes and the age of their
//! records; only of those that changed the backups are listed.

mod decide;
mod door;
mod look;
mod verify;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::condition::Verdict as Conclusion;
use api::longhorn::{Backup, BackupTarget, BackupTargetSpec};
use api::scalar::Time;
use kube::ResourceExt as _;
use reconcile::{Controller, Failure, Key, Next, Reconciler, Severity};

use self::decide::{Act, Seen, decide};
pub(crate) use self::door::{Door, Doors, environment, open, open_with, place, text, url};
pub(crate) use self::look::{Found, Mark};
pub(crate) use self::verify::End as Verified;
use crate::backup::{World, deletion, now};
use crate::work::Stand;
use crate::{FINALIZER, NAMESPACE, label};

pub(crate) const CONTROLLERS: &[Controller] = &[];

/// The target that is always there.
pub(crate) const DEFAULT: &str = "default";

/// One pass over one target.
#[derive(Debug)]
pub(crate) struct Targets(pub(crate) Arc<World>);

impl Reconciler for Targets {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(target) = world.targets.get(key) else {
            world.doors.close(&key.name);
            return Ok(Next::WAIT);
        };
        if target.metadata.deletion_timestamp.is_some() {
            return go(world, &target).await;
        }
        let target = world.targets.add_finalizer(&target, FINALIZER).await?;
        let seen = seen(world, &target);
        let verdict = decide(&seen);
        match verdict.act {
            Act::Look => look::start(world, &target),
            Act::Take => take(world, &target).await?,
            Act::Empty => empty(world, &target).await?,
            Act::Nothing => {}
        }
        let next = verdict.look_after.map_or(Next::WAIT, Next::after);
        // What was just written is looked at by the pass that follows it.
        if verdict.act == Act::Take || target.spec.verification.is_none() {
            return Ok(next);
        }
        Ok(next.or(verify::pass(world, &target).await?))
    }
}

fn seen(world: &World, target: &BackupTarget) -> Seen {
    let (spec, status) = (target.spec.clone(), target.status.clone().unwrap_or_default());
    let entry = world.syncs.look(&target.uid().unwrap_or_default());
    let fingerprint = door::fingerprint(world, target);
    let is_same = entry.as_ref().is_none_or(|it| it.mark.fingerprint == fingerprint);
    Seen {
        now: now(),
        has_url: spec.backup_target_url.as_deref().is_some_and(|it| !it.trim().is_empty()),
        interval: spec.poll_interval.and_then(|it| it.get().ok()).unwrap_or(Duration::from_mins(5)),
        asked: spec
            .sync_requested_at
            .filter(|it| !world.answered.is_answered(&target.uid().unwrap_or_default(), *it))
            .map(Time::timestamp),
        failed: world.doors.failed_at(&target.name_any(), &fingerprint),
        synced: status.last_synced_at.map(Time::timestamp),
        is_known_unavailable: status.available != Some(true),
        was_emptied: status.available == Some(false)
            && world.backup_volumes.by("target", &target.name_any()).is_empty()
            && status.conditions.is_some()
            && status.last_synced_at.is_none(),
        is_changed: !world.doors.is_seen(&target.name_any(), &fingerprint),
        work: match entry.map(|it| it.stand) {
            None | Some(Stand::Broken) => decide::Work::None,
            Some(Stand::Running) => decide::Work::Running,
            Some(Stand::Ended(_)) if is_same => decide::Work::Ended,
            // It was a look at another store.
            Some(Stand::Ended(_)) => decide::Work::None,
        },
    }
}

/// What a look found becomes objects and a status.
async fn take(world: &Arc<World>, target: &Arc<BackupTarget>) -> Result<(), Failure> {
    let uid = target.uid().unwrap_or_default();
    let Some(entry) = world.syncs.look(&uid) else { return Ok(()) };
    let Stand::Ended(found) = entry.stand else { return Ok(()) };
    match &found {
        Found::Volumes(volumes) => {
            look::take(world, target, volumes, &entry.mark).await?;
            show(world, target, Ok(entry.mark.at), entry.mark.asked).await?;
            if let Some(asked) = entry.mark.asked {
                world.answered.answer(&uid, asked);
            }
            world.doors.saw(&target.name_any(), &entry.mark.fingerprint);
        }
        Found::Silent(why) => {
            world.doors.failed(&target.name_any(), &entry.mark.fingerprint, now());
            show(world, target, Err(why), entry.mark.asked).await?;
        }
    }
    world.syncs.forget(&uid);
    Ok(())
}

async fn show(
    world: &World,
    target: &Arc<BackupTarget>,
    found: Result<jiff::Timestamp, &str>,
    asked: Option<Time>,
) -> Result<(), Failure> {
    let mut new = target.as_ref().clone();
    let was = target.status.as_ref().and_then(|it| it.available);
    let status = new.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    let at = Time::new(now());
    // Not a time that has not come.
    let asked = asked.filter(|it| decide::is_credible(it.timestamp(), now()));
    let conclusion = match found {
        Ok(looked) => {
            status.available = Some(true);
            // Not before what was asked for.
            status.last_synced_at = Some(Time::new(looked)).max(asked);
            Conclusion::new("Unavailable", false, "", "")
        }
        Err(why) => {
            status.available = Some(false);
            Conclusion::new("Unavailable", true, "Unavailable", why)
        }
    };
    api::condition::set(conditions, &conclusion, at);
    // Whoever asked finds here that this is the answer, also if it is the one of the time before.
    let entry = conditions.iter_mut().find(|it| it.kind == "Unavailable");
    if let (Some(entry), Some(asked)) = (entry, asked) {
        entry.last_probe_time = Some(asked.into());
    }
    status.owner_id = Some(world.me.clone());
    let is_news = status.available != was;
    let new = world.targets.update(target, &new).await?;
    if is_news {
        match found {
            Ok(_) => world.events.say(
                new.as_ref(),
                Severity::Normal,
                "Available",
                "The backup target can be reached",
            ),
            Err(why) => world.events.say(new.as_ref(), Severity::Warning, "Unavailable", why),
        }
    }
    Ok(())
}

/// A target without a URL has no objects; what lies in the store it had stays there.
async fn empty(world: &Arc<World>, target: &Arc<BackupTarget>) -> Result<(), Failure> {
    drop_objects(world, &target.name_any(), Leaving::Stay).await?;
    world.doors.close(&target.name_any());
    let mut new = target.as_ref().clone();
    let status = new.status.get_or_insert_default();
    status.available = Some(false);
    status.last_synced_at = None;
    status.owner_id = Some(world.me.clone());
    let conclusion =
        Conclusion::new("Unavailable", true, "Unavailable", "backup target URL is empty");
    api::condition::set(status.conditions.get_or_insert_default(), &conclusion, Time::new(now()));
    world.targets.update(target, &new).await?;
    Ok(())
}

/// What becomes of objects that somebody has deleted together with their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// They say why it is not done, and it is done when the target has a URL again.
    Stay,
    Go,
}

impl Leaving {
    fn spares(self, object: &impl kube::ResourceExt) -> bool {
        self == Self::Stay && object.meta().deletion_timestamp.is_some()
    }

    /// Whether the object of a backup goes with its target.
    fn takes(self, backup: &Backup, target: &str) -> bool {
        let is_of_it = backup.labels().get(label::BACKUP_TARGET).is_some_and(|it| it == target);
        is_of_it && crate::backup::is_complete(backup) && !self.spares(backup)
    }
}

/// Says whether some are left.
async fn drop_objects(world: &World, target: &str, leaving: Leaving) -> Result<bool, Failure> {
    let mut volumes = world.backup_volumes.by("target", target);
    volumes.retain(|it| !leaving.spares(it.as_ref()));
    for volume in &volumes {
        look::drop_object(world, volume).await?;
    }
    let backups = world.backups.list();
    let stored = backups.iter().filter(|it| leaving.takes(it, target));
    let mut is_left = !volumes.is_empty();
    for backup in stored {
        is_left = true;
        deletion::drop_object(world, backup).await?;
    }
    Ok(is_left)
}

async fn go(world: &Arc<World>, target: &Arc<BackupTarget>) -> Result<Next, Failure> {
    if !target.finalizers().iter().any(|it| it == FINALIZER) {
        return Ok(Next::WAIT);
    }
    if drop_objects(world, &target.name_any(), Leaving::Go).await? {
        return Ok(Next::after(Duration::from_millis(300)));
    }
    if target.name_any() == DEFAULT {
        world.kept.keep(&target.spec);
        let text = "The default backup target cannot be deleted: it is made again as it was. To use none, empty its URL";
        world.events.say(target.as_ref(), Severity::Warning, "DeletionRefused", text);
    }
    world.doors.close(&target.name_any());
    world.syncs.forget(&target.uid().unwrap_or_default());
    world.targets.remove_finalizer(target, FINALIZER).await?;
    Ok(Next::WAIT)
}

/// What the default target said before somebody deleted it.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<BackupTargetSpec>>);

impl Kept {
    fn keep(&self, spec: &BackupTargetSpec) {
        // What was asked for then was asked of what was there then.
        let spec = BackupTargetSpec { sync_requested_at: None, ..spec.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(spec);
    }

    fn target(&self) -> BackupTarget {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut made = BackupTarget {
            spec: known.unwrap_or_else(|| BackupTargetSpec {
                poll_interval: Some(Duration::from_mins(5).into()),
                ..BackupTargetSpec::default()
            }),
            ..BackupTarget::default()
        };
        made.metadata.name = Some(DEFAULT.to_owned());
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        made.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        made
    }
}

/// The default target is there, also after somebody has deleted it.
pub(crate) async fn keep_default(world: Arc<World>) {
    world.targets.ready().await;
    loop {
        let key = Key::new(NAMESPACE, DEFAULT);
        if world.targets.get(&key).is_none()
            && !world.targets.is_broken(&key)
            && let Err(failure) = world.targets.create(&world.kept.target()).await
        {
            tracing::debug!(error = %telemetry::Chain(&failure), "the default backup target is not made yet");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use api::longhorn::{BackupState, BackupVolume};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    #[test]
    fn the_default_target_comes_back_as_it_was() {
        let kept = Kept::default();
        let made = kept.target();
        assert_eq!((made.name_any(), made.spec.backup_target_url), (DEFAULT.to_owned(), None));
        let said = BackupTargetSpec {
            backup_target_url: Some("s3://b@r/".to_owned()),
            credential_secret: Some("keys".to_owned()),
            sync_requested_at: Some(Time::new(now())),
            ..BackupTargetSpec::default()
        };
        kept.keep(&said);
        let back = kept.target().spec;
        assert_eq!(back, BackupTargetSpec { sync_requested_at: None, ..said });
    }

    /// It would be gone while its data stays, though somebody wanted both to go.
    #[test]
    fn a_deletion_does_not_end_because_its_target_has_no_url_for_a_while() {
        let mut volume = BackupVolume::default();
        assert!(!Leaving::Stay.spares(&volume));
        volume.metadata.deletion_timestamp = Some(meta::Time(now()));
        assert!(Leaving::Stay.spares(&volume));
        assert!(!Leaving::Go.spares(&volume));
        let mut backup = Backup::default();
        backup.labels_mut().insert(label::BACKUP_TARGET.to_owned(), "t".to_owned());
        backup.status.get_or_insert_default().state = Some(BackupState::Completed);
        assert!(Leaving::Stay.takes(&backup, "t") && !Leaving::Stay.takes(&backup, "other"));
        backup.metadata.deletion_timestamp = Some(meta::Time(now()));
        assert!(!Leaving::Stay.takes(&backup, "t"), "its deletion waits, as for a restore");
        assert!(Leaving::Go.takes(&backup, "t"));
    }
}
