//! What passes over backups look at: caches, work under way, open stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::longhorn::{
    AttacherType, Backup, BackupDeletion, BackupTarget, BackupVolume, Engine, Node, Setting,
    Snapshot, Volume, VolumeAttachment, VolumeState,
};
use api::scalar::Time;
use aws_lc_rs::digest;
use backupstore::{BackupUrl, Name};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use reconcile::{Context, Events, Key, Queue, Store};

use super::deletion::Removals;
use super::upload::Uploads;
use super::{BackupState, catalog, numbers, reading, state_of};
use crate::work::Work;
use crate::{NAMESPACE, attachment, label, setting, target};

/// Whom to tell of the end of work.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) backups: Arc<Queue>,
    pub(crate) volumes: Arc<Queue>,
    pub(crate) targets: Arc<Queue>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) backups: Store<Backup>,
    pub(crate) backup_volumes: Store<BackupVolume>,
    pub(crate) targets: Store<BackupTarget>,
    pub(crate) volumes: Store<Volume>,
    pub(crate) engines: Store<Engine>,
    pub(crate) snapshots: Store<Snapshot>,
    pub(crate) attachments: Store<VolumeAttachment>,
    pub(crate) nodes: Store<Node>,
    pub(crate) settings: Store<Setting>,
    pub(crate) secrets: Store<Secret>,
    pub(crate) queues: Queues,
    pub(crate) events: Events,
    pub(crate) doors: target::Doors,
    pub(crate) removals: Removals,
    pub(crate) uploads: Uploads,
    /// Held by whoever looks whether it may upload, under a limit of the rate.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Of single backups, from the store.
    pub(crate) readings: Work<(), reading::Found>,
    /// Of what a store has of one volume.
    pub(crate) listings: Work<(), catalog::Found>,
    /// Of whole stores.
    pub(crate) syncs: Work<target::Mark, target::Found>,
    /// Of the data of whole stores.
    pub(crate) verifications: Work<(), target::Verified>,
    pub(crate) numbers: numbers::Numbers,
    pub(crate) answered: Answered,
    /// The target that is always there, while it is not.
    pub(crate) kept: target::Kept,
    /// Whose name stands in `ownerID`.
    pub(crate) me: String,
}

/// Which requests to look at a store were answered, by the uid of who asked. After a restart the last
/// one may be answered twice.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<HashMap<String, Time>>);

impl Answered {
    pub(crate) fn is_answered(&self, uid: &str, asked: Time) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(uid) == Some(&asked)
    }

    pub(crate) fn answer(&self, uid: &str, asked: Time) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), asked);
    }
}

/// What a backup belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names {
    pub(crate) target: String,
    /// The source volume.
    pub(crate) volume: String,
}

impl World {
    pub(crate) fn start(context: &Context, queues: Queues) -> Self {
        let open = |backup: &Backup| is_open(backup);
        Self {
            backups: Store::within(NAMESPACE)
                .index("of", |it: &Backup| {
                    place(&label_of(it, label::BACKUP_TARGET), &label_of(it, label::BACKUP_VOLUME))
                })
                .index("open", move |it: &Backup| {
                    if open(it) { some(label_of(it, label::BACKUP_VOLUME)) } else { Vec::new() }
                })
                .index("open-at", move |it: &Backup| {
                    if is_open(it) { some(label_of(it, label::BACKUP_TARGET)) } else { Vec::new() }
                })
                .start(context),
            backup_volumes: Store::within(NAMESPACE)
                .index("of", |it: &BackupVolume| {
                    let spec = it.spec.clone();
                    place(
                        &spec.backup_target_name.unwrap_or_default(),
                        &spec.volume_name.unwrap_or_default(),
                    )
                })
                .index("volume", |it: &BackupVolume| {
                    it.spec.volume_name.clone().into_iter().collect()
                })
                .index("target", |it: &BackupVolume| {
                    it.spec.backup_target_name.clone().into_iter().collect()
                })
                .start(context),
            targets: Store::within(NAMESPACE)
                .index("secret", |it: &BackupTarget| {
                    it.spec.credential_secret.clone().into_iter().collect()
                })
                .start(context),
            volumes: Store::within(NAMESPACE)
                .index("restores", |it: &Volume| restores(it).into_iter().collect())
                .start(context),
            engines: Store::within(NAMESPACE)
                .index("volume", |it: &Engine| {
                    it.spec.instance.volume_name.clone().into_iter().collect()
                })
                .start(context),
            snapshots: Store::within(NAMESPACE).start(context),
            attachments: Store::within(NAMESPACE).index(HELD_FOR, held_for).start(context),
            nodes: Store::within(NAMESPACE).start(context),
            settings: Store::within(NAMESPACE).start(context),
            secrets: Store::within(NAMESPACE).start(context),
            queues,
            events: context.events.clone(),
            doors: target::Doors::default(),
            removals: Removals::new("deletions", &context.tasks),
            uploads: Uploads::new("uploads", &context.tasks),
            turn: tokio::sync::Mutex::default(),
            readings: Work::new("readings", &context.tasks),
            listings: Work::new("listings", &context.tasks),
            syncs: Work::new("syncs", &context.tasks),
            verifications: Work::new("verifications", &context.tasks),
            answered: Answered::default(),
            kept: target::Kept::default(),
            numbers: numbers::Numbers(context.metrics.clone()),
            me: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }
    }

    /// Target and source volume of a backup: as its labels say, else as its snapshot does.
    pub(crate) fn names(&self, backup: &Backup) -> Names {
        let mut names = Names {
            target: label_of(backup, label::BACKUP_TARGET),
            volume: label_of(backup, label::BACKUP_VOLUME),
        };
        if names.volume.is_empty() {
            let snapshot = backup.spec.snapshot_name.as_deref().unwrap_or_default();
            let snapshot = self.snapshots.get(&Key::new(NAMESPACE, snapshot));
            names.volume = snapshot.and_then(|it| it.spec.volume.clone()).unwrap_or_default();
        }
        if names.target.is_empty() {
            let volume = self.volumes.get(&Key::new(NAMESPACE, &names.volume));
            let target = volume.and_then(|it| it.spec.backup_target_name.clone());
            names.target =
                target.filter(|it| !it.is_empty()).unwrap_or_else(|| target::DEFAULT.to_owned());
        }
        names
    }

    pub(crate) fn backups_of(&self, target: &str, volume: &str) -> Vec<Arc<Backup>> {
        place(target, volume).iter().flat_map(|place| self.backups.by("of", place)).collect()
    }

    pub(crate) fn backup_volume(&self, names: &Names) -> Option<Arc<BackupVolume>> {
        self.backup_volumes.get(&Key::new(NAMESPACE, &backup_volume_name(names)))
    }

    pub(crate) fn target(&self, name: &str) -> Option<Arc<BackupTarget>> {
        self.targets.get(&Key::new(NAMESPACE, name))
    }

    /// The engine that serves a volume.
    pub(crate) fn engine(&self, volume: &str) -> Option<Arc<Engine>> {
        let all = self.engines.by("volume", volume);
        let active = all.iter().find(|it| it.spec.active == Some(true));
        active.or_else(|| all.first()).cloned()
    }

    /// Where the backup lies, if its target can be named.
    pub(crate) fn url_of(&self, backup: &Backup) -> Option<String> {
        let names = self.names(backup);
        let target = target::url(self.target(&names.target)?.as_ref()).ok()?;
        let (volume, backup) =
            (Name::parse(&names.volume).ok()?, Name::parse(&backup.name_any()).ok()?);
        Some(target.backup_url(&volume, &backup))
    }

    /// Says so, if the backup lies elsewhere than its target would be asked for it now.
    pub(crate) fn moved(&self, backup: &Backup, target: &str) -> Option<String> {
        let lies = backup.status.as_ref()?.url.clone().filter(|it| !it.is_empty())?;
        let asked = self.url_of(backup)?;
        is_elsewhere(&lies, &asked).then(|| {
            format!(
                "it lies at {lies}, and target {target} would be asked for {asked}: set that back, or label the object {}=true to remove it and keep the data",
                label::OBJECT_ONLY
            )
        })
    }

    /// As [`Self::moved`], for one of the backups of a volume: one that lies in its store under another name is not
    /// of this volume, whatever its label says, and keeps nobody from anything.
    pub(crate) fn moved_with_store(&self, backup: &Backup, target: &str) -> Option<String> {
        let lies = backup.status.as_ref()?.url.clone()?;
        let is_of_it = is_in_other_store(&lies, &self.url_of(backup)?);
        self.moved(backup, target).filter(|_| is_of_it)
    }

    /// The volume that restores from a backup, or from any of a volume, and must not lose it.
    pub(crate) fn restoring_from(
        &self,
        source: &str,
        backup: Option<&str>,
        holds: Holds,
    ) -> Option<String> {
        let needs = |volume: &Arc<Volume>| {
            if !holds.counts(volume) {
                return false;
            }
            let status = volume.status.clone().unwrap_or_default();
            let is_standby = status.is_standby == Some(true) || volume.spec.standby == Some(true);
            let is_faulted = status.robustness == Some(api::longhorn::Robustness::Faulted);
            let wanted = from_backup(volume).and_then(|url| url.backup);
            let is_wanted =
                backup.is_none_or(|it| wanted.as_ref().is_some_and(|wanted| wanted.as_str() == it));
            if !is_standby && !is_faulted && is_wanted {
                return true;
            }
            let engine = self.engine(&volume.name_any()).and_then(|it| it.status.clone());
            let runs = engine.and_then(|it| it.restore_status).unwrap_or_default();
            runs.values().any(|run| {
                let current = run.current_restoring_backup.as_deref();
                run.is_restoring == Some(true) && backup.is_none_or(|it| current == Some(it))
            })
        };
        self.volumes.by("restores", source).iter().find(|it| needs(it)).map(|it| it.name_any())
    }

    pub(crate) fn number(&self, name: &str, default: u64) -> u64 {
        let found = self.settings.get(&Key::new(NAMESPACE, name));
        found.and_then(|it| u64::try_from(setting::number(&it)?).ok()).unwrap_or(default)
    }

    pub(crate) fn word(&self, name: &str, default: &str) -> String {
        let found = self.settings.get(&Key::new(NAMESPACE, name));
        let found = found.map(|it| it.value.trim().to_owned());
        let fits = |it: &String| !it.is_empty() && setting::problem(name, it).is_none();
        found.filter(fits).unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn is_on(&self, setting: &str) -> bool {
        self.word(setting, "false") == "true"
    }

    pub(crate) fn seconds(&self, setting: &str, default: u64) -> Duration {
        Duration::from_secs(self.number(setting, default))
    }
}

/// Which volumes keep a backup from being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Those that are about to begin as well.
    All,
    /// Those that restore already. The deletion was begun once, and no other begins with what that left.
    Begun,
}

impl Holds {
    pub(crate) fn of(deletion: Option<&BackupDeletion>) -> Self {
        let is_touched = deletion.is_some_and(|it| it.attempt.is_some());
        if is_touched { Self::Begun } else { Self::All }
    }

    fn counts(self, volume: &Volume) -> bool {
        let has_begun = volume.status.as_ref().is_some_and(|it| it.restore_initiated == Some(true));
        match self {
            Self::All => true,
            Self::Begun => has_begun,
        }
    }
}

/// `<volume>-<8 hex digits of both names>`: the same wherever it is made.
pub(crate) fn backup_volume_name(names: &Names) -> String {
    let Names { target, volume } = names;
    let hash = digest::digest(&digest::SHA256, format!("{volume}-{target}").as_bytes());
    let first = hash.as_ref().iter().take(4).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
    format!("{volume}-{first:08x}")
}

/// Attachments by the backups for which they hold their volume.
pub(super) const HELD_FOR: &str = "held for";

pub(super) fn held_for(attachment: &VolumeAttachment) -> Vec<String> {
    attachment::holders(attachment, &AttacherType::BackupController)
}

/// Both names as one value of an index.
fn place(target: &str, volume: &str) -> Vec<String> {
    if target.is_empty() || volume.is_empty() {
        Vec::new()
    } else {
        vec![format!("{target}/{volume}")]
    }
}

fn label_of(object: &impl kube::ResourceExt, name: &str) -> String {
    object.labels().get(name).cloned().unwrap_or_default()
}

fn some(text: String) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { vec![text] }
}

/// Whether something is still to be done about it.
fn is_open(backup: &Backup) -> bool {
    backup.metadata.deletion_timestamp.is_some()
        || matches!(
            state_of(backup),
            BackupState::New | BackupState::Pending | BackupState::InProgress
        )
}

/// Whether two URLs of backups are of different ones. How to get there does not matter.
fn is_elsewhere(one: &str, other: &str) -> bool {
    parts(one) != parts(other)
}

/// Whether two URLs are of one backup in two stores.
fn is_in_other_store(one: &str, other: &str) -> bool {
    match (parts(one), parts(other)) {
        (Some(one), Some(other)) => one.0 != other.0 && one.1 == other.1,
        (None, _) | (_, None) => false,
    }
}

/// The store, and what it is called there.
fn parts(url: &str) -> Option<(String, (String, String))> {
    let parsed = BackupUrl::parse(url).ok()?;
    let place = target::place(&parsed.target);
    Some((place, (parsed.volume?.to_string(), parsed.backup?.to_string())))
}

fn from_backup(volume: &Volume) -> Option<BackupUrl> {
    BackupUrl::parse(volume.spec.from_backup.as_deref().filter(|it| !it.is_empty())?).ok()
}

/// The source volume, while it is restored from.
pub(super) fn restores(volume: &Volume) -> Option<String> {
    let status = volume.status.clone().unwrap_or_default();
    let required = status.restore_required == Some(true);
    // Not yet looked at by its controller counts as well; one that is there already never begins.
    let begins = status.restore_initiated != Some(true)
        && crate::volume::is_new(status.state.as_ref().unwrap_or(&VolumeState::Unset));
    if !required && !begins {
        return None;
    }
    Some(from_backup(volume)?.volume?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backup_volumes_are_those_of_the_dialect() {
        let names = Names { target: "default".into(), volume: "vol-1".into() };
        // sha256("vol-1-default")
        assert_eq!(backup_volume_name(&names).len(), "vol-1-".len() + 8);
        let other = Names { target: "second".into(), ..names.clone() };
        assert_ne!(backup_volume_name(&names), backup_volume_name(&other));
    }

    #[test]
    fn a_backup_is_elsewhere_when_its_place_or_its_names_are_others() {
        let here = "nfs://a:/share?backup=b-1&volume=v-1";
        for (url, wanted) in [
            ("nfs://a:/share/?backup=b-1&nfsOptions=soft&volume=v-1", false),
            ("nfs://b:/share?backup=b-1&volume=v-1", true),
            ("nfs://a:/share?backup=b-1&volume=w-1", true),
            ("nfs://a:/other?backup=b-1&volume=v-1", true),
        ] {
            assert_eq!(is_elsewhere(here, url), wanted, "{url}");
        }
        for (url, wanted) in [
            ("nfs://b:/share?backup=b-1&volume=v-1", true),
            ("nfs://a:/share?backup=b-1&volume=v-1", false),
            ("nfs://b:/share?backup=b-1&volume=w-1", false),
            ("nfs://b:/share?backup=b-2&volume=v-1", false),
            ("no url at all", false),
        ] {
            assert_eq!(is_in_other_store(here, url), wanted, "{url}");
        }
    }

    #[test]
    fn a_deletion_that_was_begun_waits_for_no_volume_that_was_not() {
        let tried = BackupDeletion { attempt: Some("1".into()), ..BackupDeletion::default() };
        let mut volume = Volume::default();
        assert!(Holds::of(None).counts(&volume));
        assert!(Holds::of(Some(&BackupDeletion::default())).counts(&volume));
        assert!(!Holds::of(Some(&tried)).counts(&volume));
        volume.status.get_or_insert_default().restore_initiated = Some(true);
        assert!(Holds::of(Some(&tried)).counts(&volume));
    }

    #[test]
    fn a_volume_that_was_made_otherwise_holds_no_backup() {
        let mut volume = Volume::default();
        volume.spec.from_backup = Some("vfs:///d?backup=b-1&volume=src".to_owned());
        assert_eq!(restores(&volume).as_deref(), Some("src"));
        volume.status.get_or_insert_default().state = Some(VolumeState::Attached);
        assert_eq!(restores(&volume), None);
        volume.status.get_or_insert_default().restore_required = Some(true);
        assert_eq!(restores(&volume).as_deref(), Some("src"));
    }
}
