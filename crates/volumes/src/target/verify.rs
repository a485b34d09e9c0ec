//! Looks at the data of all backups of a target, by its schedule: whether every block is there
//! (`quick`), whether every block is what it should be (`deep`), or whether the newest backup of each
//! volume can be restored to its last byte (`drill`).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::longhorn::{
    Backup, BackupTarget, BackupVerification, BackupVolumeStatus, TargetVerified, VerificationDepth,
};
use api::scalar::Time;
use backupstore::restore::{RestoreRequest, Sink};
use backupstore::verify::{Depth, VerifyOptions};
use backupstore::{BackupStore, Control, Name, Shown, VolumeInfo};
use kube::ResourceExt as _;
use reconcile::{Failure, Key, Next, Severity};

use super::door;
use crate::backup::{Names, World, now};
use crate::cron::Schedule;
use crate::job::ran_at;
use crate::work::Stand;
use crate::{NAMESPACE, label};

/// What was found of each backup: nothing, or what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct End {
    backups: BTreeMap<String, Option<String>>,
    /// Volumes, or all, that could not be looked at.
    silent: Vec<String>,
}

/// When the next look is, if there is to be one.
enum When {
    Never,
    Wrong(String),
    Now,
    At(jiff::Timestamp),
}

fn when(target: &BackupTarget) -> When {
    let cron = target.spec.verification.as_ref().and_then(|it| it.cron.clone());
    let Some(cron) = cron.filter(|it| !it.trim().is_empty()) else { return When::Never };
    let schedule = match Schedule::parse(&cron) {
        Ok(schedule) => schedule,
        Err(why) => return When::Wrong(why),
    };
    let last = target.status.as_ref().and_then(|it| it.verification.as_ref()?.started_at);
    let created = target.metadata.creation_timestamp.as_ref().map(Time::from);
    let since = ran_at(last.or(created).map_or_else(now, Time::timestamp), now());
    match schedule.next(since) {
        Some(at) if at <= now() => When::Now,
        Some(at) => When::At(at),
        None => When::Never,
    }
}

/// One pass: starts what is due, and writes down what was found.
pub(super) async fn pass(world: &Arc<World>, target: &Arc<BackupTarget>) -> Result<Next, Failure> {
    let uid = target.uid().unwrap_or_default();
    match world.verifications.look(&uid).map(|it| it.stand) {
        Some(Stand::Running) => return Ok(Next::WAIT),
        Some(Stand::Ended(end)) => {
            take(world, target, &end).await?;
            world.verifications.forget(&uid);
            return Ok(Next::after(Duration::from_secs(1)));
        }
        Some(Stand::Broken) => world.verifications.forget(&uid),
        None => {}
    }
    match when(target) {
        When::Never => Ok(Next::WAIT),
        When::Wrong(why) => {
            let message = Some(why);
            show(
                world,
                target,
                TargetVerified { result: Some("Unknown".to_owned()), message, ..old(target) },
            )
            .await?;
            Ok(Next::WAIT)
        }
        When::At(at) => {
            show(world, target, TargetVerified { next_at: Some(Time::new(at)), ..old(target) })
                .await?;
            // Clocks may be set meanwhile.
            let left = now().duration_until(at).unsigned_abs().min(Duration::from_secs(30));
            Ok(Next::after(left.max(Duration::from_millis(200))))
        }
        When::Now => {
            let begun =
                TargetVerified { started_at: Some(Time::new(now())), next_at: None, ..old(target) };
            let target = show(world, target, begun).await?;
            start(world, &target);
            Ok(Next::WAIT)
        }
    }
}

fn old(target: &BackupTarget) -> TargetVerified {
    target.status.as_ref().and_then(|it| it.verification.clone()).unwrap_or_default()
}

async fn show(
    world: &World,
    target: &Arc<BackupTarget>,
    verified: TargetVerified,
) -> Result<Arc<BackupTarget>, Failure> {
    let mut new = target.as_ref().clone();
    new.status.get_or_insert_default().verification = Some(verified);
    world.targets.update(target, &new).await
}

fn depth(target: &BackupTarget) -> VerificationDepth {
    let set = target.spec.verification.as_ref().and_then(|it| it.depth.clone());
    set.unwrap_or(VerificationDepth::Quick)
}

fn start(world: &Arc<World>, target: &Arc<BackupTarget>) {
    let tell = (Arc::clone(&world.queues.targets), Key::of(target.as_ref()));
    let (own, name, depth) = (Arc::clone(world), target.name_any(), depth(target));
    let uid = target.uid().unwrap_or_default();
    world.verifications.start(&uid, (), tell, async move {
        match look(&own, &name, &depth).await {
            Ok(end) => end,
            Err(why) => End { silent: vec![why], ..End::default() },
        }
    });
}

async fn look(world: &World, target: &str, depth: &VerificationDepth) -> Result<End, String> {
    let door = door::open(world, target).await?;
    let volumes = door.store.list(Shown::VolumesOnly).await.map_err(|error| door::text(&error))?;
    let rate = Some(door.bytes_per_second).filter(|it| *it > 0);
    let mut end = End::default();
    for volume in volumes.keys() {
        let Ok(name) = Name::parse(volume) else { continue };
        let looked = match depth {
            VerificationDepth::Drill => {
                let of = Names { target: target.to_owned(), volume: volume.clone() };
                let shown = world.backup_volume(&of).and_then(|it| it.status.clone());
                drill(&door.store, &name, shown.as_ref(), rate, &mut end).await
            }
            VerificationDepth::Deep => {
                verify(&door.store, &name, Depth::Deep, rate, &mut end).await
            }
            VerificationDepth::Quick | VerificationDepth::Other(_) => {
                verify(&door.store, &name, Depth::Quick, rate, &mut end).await
            }
        };
        if let Err(error) = looked {
            end.silent.push(format!("volume {volume}: {}", door::text(&error)));
        }
    }
    Ok(end)
}

async fn verify(
    store: &BackupStore,
    volume: &Name,
    depth: Depth,
    rate: Option<u64>,
    end: &mut End,
) -> Result<(), backupstore::Error> {
    let mut options = VerifyOptions::new(depth);
    options.fetch.bytes_per_second = rate;
    let report = store.verify(volume, &options, &Control::default()).await?;
    end.backups.extend(report.healthy.into_iter().map(|name| (name, None)));
    for damaged in report.damaged {
        let first = damaged.places.first();
        let first = first.map(|it| format!(", the first at {}: {}", it.offset, it.damage));
        let text =
            format!("{} places are damaged{}", damaged.damaged_places, first.unwrap_or_default());
        end.backups.insert(damaged.name, Some(text));
    }
    for unreadable in report.unreadable {
        end.backups.insert(
            unreadable.name,
            Some(format!("its record cannot be read: {}", unreadable.why)),
        );
    }
    Ok(())
}

/// Takes what a restore writes, and keeps nothing of it.
#[derive(Debug, Default)]
struct Discard {
    bytes: AtomicU64,
}

impl Sink for Discard {
    fn write_at(&self, _offset: u64, bytes: &[u8]) -> io::Result<()> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn zero(&self, _offset: u64, _len_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Restores the newest backup of a volume, under the lock of a restore and with every check of one.
async fn drill(
    store: &BackupStore,
    volume: &Name,
    shown: Option<&BackupVolumeStatus>,
    rate: Option<u64>,
    end: &mut End,
) -> Result<(), backupstore::Error> {
    let told = store.inspect_volume(volume).await?;
    let later = shown.and_then(|it| later(&told, it)).and_then(|it| Name::parse(it).ok());
    let backup = match later {
        // It may have been deleted since.
        Some(later) if store.inspect_backup(volume, &later).await.is_ok() => later,
        Some(_) | None => match Name::parse(&told.last_backup_name) {
            Ok(last) => last,
            Err(_) => return Ok(()),
        },
    };
    let mut request = RestoreRequest::new(volume.clone(), backup.clone());
    request.fetch.bytes_per_second = rate;
    let control = Control::default();
    let restored = match store.begin_restore(request, &control).await {
        Ok(begun) => begun.run(Arc::new(Discard::default()), &control).await,
        Err(error) => Err(error),
    };
    let found = match restored {
        Ok(_) => None,
        Err(error @ (backupstore::Error::Locked(_) | backupstore::Error::Store(_))) => {
            return Err(error);
        }
        Err(error) => Some(door::text(&error)),
    };
    end.backups.insert(backup.to_string(), found);
    Ok(())
}

/// The record of a volume may not name its newest backup yet; what is shown of it does.
fn later<'s>(told: &VolumeInfo, shown: &'s BackupVolumeStatus) -> Option<&'s str> {
    let told: jiff::Timestamp = told.last_backup_at.parse().ok()?;
    let at = shown.last_backup_at.as_ref()?.get()?;
    shown.last_backup_name.as_deref().filter(|_| at > told)
}

/// Two targets may have a backup of one name, as where one is a copy of the other; the object is of one of them.
fn is_in(backup: &Backup, target: &BackupTarget) -> bool {
    backup.labels().get(label::BACKUP_TARGET).is_some_and(|it| *it == target.name_any())
}

async fn take(world: &World, target: &Arc<BackupTarget>, end: &End) -> Result<(), Failure> {
    let depth = depth(target);
    let at = Time::new(now());
    let mut damaged = Vec::new();
    for (name, found) in &end.backups {
        let verified = BackupVerification {
            result: Some(if found.is_some() { "Damaged" } else { "Healthy" }.to_owned()),
            depth: Some(depth.as_str().to_owned()),
            verified_at: Some(at),
            message: found.clone(),
        };
        if let Some(why) = found {
            damaged.push(format!("{name}: {why}"));
        }
        let backup = world.backups.get(&Key::new(NAMESPACE, name));
        let Some(backup) = backup.filter(|it| is_in(it, target)) else { continue };
        let mut new = backup.as_ref().clone();
        new.status.get_or_insert_default().verification = Some(verified);
        match world.backups.merge(&backup, &new).await {
            Ok(_) | Err(Failure::Conflict { .. }) => {}
            Err(failure) => {
                tracing::debug!(error = %telemetry::Chain(&failure), "a result was not kept");
            }
        }
        if let Some(why) = found {
            world.events.say(backup.as_ref(), Severity::Warning, "Damaged", why);
        }
    }
    let result = match (damaged.is_empty(), end.silent.is_empty()) {
        (false, _) => "Damaged",
        (true, false) => "Unknown",
        (true, true) => "Healthy",
    };
    let mut text =
        format!("{} backups looked at ({depth})", end.backups.len(), depth = depth.as_str());
    for more in damaged.iter().chain(&end.silent).take(5) {
        text = format!("{text}; {more}");
    }
    let severity = if result == "Healthy" { Severity::Normal } else { Severity::Warning };
    world.events.say(target.as_ref(), severity, "Verified", &text);
    let verified = TargetVerified {
        result: Some(result.to_owned()),
        message: Some(text),
        finished_at: Some(at),
        ..old(target)
    };
    show(world, target, verified).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::longhorn::TargetVerification;

    use super::*;

    fn target(started: jiff::Timestamp) -> BackupTarget {
        let mut target = BackupTarget::default();
        target.metadata.name = Some("t".to_owned());
        target.spec.verification =
            Some(TargetVerification { cron: Some("* * * * *".to_owned()), ..Default::default() });
        let verified =
            TargetVerified { started_at: Some(Time::new(started)), ..Default::default() };
        target.status.get_or_insert_default().verification = Some(verified);
        target
    }

    #[test]
    fn the_backup_that_is_restored_for_a_look_is_the_newest_there_is() {
        let at = |minute: i64| now() + jiff::SignedDuration::from_mins(minute);
        let told = VolumeInfo {
            last_backup_name: "b-1".to_owned(),
            last_backup_at: Time::new(at(0)).to_string(),
            ..VolumeInfo::default()
        };
        let shown = |minute: i64, name: &str| BackupVolumeStatus {
            last_backup_name: Some(name.to_owned()),
            last_backup_at: Some(api::scalar::Stamp::from(Time::new(at(minute)))),
            ..BackupVolumeStatus::default()
        };
        assert_eq!(later(&told, &shown(1, "b-2")), Some("b-2"));
        assert_eq!(later(&told, &shown(-1, "b-0")), None);
        assert_eq!(later(&VolumeInfo::default(), &shown(1, "b-2")), None);
    }

    /// Nothing would be verified until that day, and nobody would say so.
    #[test]
    fn a_verification_by_a_clock_that_was_ahead_is_followed_by_others() {
        let ahead = now() + Duration::from_hours(24 * 365);
        let When::At(next) = when(&target(ahead)) else { panic!("it has a schedule") };
        assert!(next < now() + Duration::from_mins(2), "{next}");
        let long_ago = now() - Duration::from_hours(1);
        assert!(matches!(when(&target(long_ago)), When::Now));
    }

    /// Else the one that is damaged would be called healthy for its copy.
    #[test]
    fn what_was_found_in_a_store_is_said_of_its_own_backups() {
        let mut backup = Backup::default();
        backup.labels_mut().insert(label::BACKUP_TARGET.to_owned(), "t".to_owned());
        assert!(is_in(&backup, &target(now())));
        backup.labels_mut().insert(label::BACKUP_TARGET.to_owned(), "u".to_owned());
        assert!(!is_in(&backup, &target(now())));
    }
}
