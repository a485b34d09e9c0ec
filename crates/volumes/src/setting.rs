//! Settings, which are there from the start: their defaults, and how the others read them.

use std::sync::Arc;
use std::time::Duration;

use api::condition::{self, Verdict};
use api::longhorn::{CHOICES, Compression, DataLocality, RANGES, SWITCHES, Setting, allowed};
use api::scalar::Time;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use reconcile::{Events, Failure, Grant, Key, Severity, Store};
use serde_json::{Value, json};

use crate::NAMESPACE;

/// Bytes that all backups together may send in a second; 0: no limit.
pub const BACKUP_RATE: &str = "backup-bytes-per-second";

/// The condition of a setting whose value makes no sense.
const APPLIED: &str = "Applied";
const INVALID: &str = "InvalidValue";
const IDLE_REASON: &str = "NotServed";

/// Name and default of every setting that is there from the start.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("allow-empty-disk-selector-volume", "true"),
    ("allow-empty-node-selector-volume", "true"),
    ("allow-recurring-job-while-volume-detached", "false"),
    ("allow-volume-creation-with-degraded-availability", "true"),
    ("auto-cleanup-recurring-job-backup-snapshot", "true"),
    ("auto-cleanup-snapshot-after-on-demand-backup-completed", "false"),
    ("auto-cleanup-system-generated-snapshot", "true"),
    ("auto-cleanup-when-delete-backup", "false"),
    ("auto-salvage", "true"),
    (BACKUP_RATE, "0"),
    ("backup-compression-method", "lz4"),
    ("backup-concurrent-limit", "2"),
    ("backup-execution-timeout", "1"),
    ("concurrent-replica-rebuild-per-node-limit", "5"),
    ("concurrent-volume-backup-restore-per-node-limit", "5"),
    ("default-backup-block-size", "2"),
    ("default-data-locality", "disabled"),
    ("default-replica-count", "3"),
    ("disable-snapshot-purge", "false"),
    ("engine-replica-timeout", "8"),
    ("failed-backup-ttl", "1440"),
    ("fast-replica-rebuild-enabled", "true"),
    ("long-grpc-timeout", "86400"),
    ("offline-replica-rebuilding", "false"),
    ("recurring-job-max-retention", "100"),
    ("replica-disk-soft-anti-affinity", "true"),
    ("replica-file-sync-http-client-timeout", "30"),
    ("replica-rebuild-concurrent-sync-limit", "1"),
    ("replica-replenishment-wait-interval", "600"),
    ("replica-soft-anti-affinity", "false"),
    ("replica-zone-soft-anti-affinity", "true"),
    ("restore-concurrent-limit", "2"),
    ("restore-volume-recurring-jobs", "false"),
    ("snapshot-heavy-task-concurrent-limit", "5"),
    ("snapshot-max-count", "250"),
    ("storage-minimal-available-percentage", "25"),
    ("storage-over-provisioning-percentage", "100"),
    ("storage-reserved-percentage-for-default-disk", "30"),
];

/// Settings that are there for those who look for them, and on which nothing acts: they are never `applied`.
pub const IDLE: &[&str] = &[
    "offline-replica-rebuilding",
    "recurring-job-max-retention",
    "restore-volume-recurring-jobs",
    "snapshot-heavy-task-concurrent-limit",
];

/// What is better where everything runs on one machine: its disk is the one people work on, not one that
/// was bought for volumes, so little room is kept free and space is promised more than once; and copies of
/// a volume have no other node to be on.
pub const ON_ONE_MACHINE: &[(&str, &str)] = &[
    ("replica-soft-anti-affinity", "true"),
    ("storage-minimal-available-percentage", "5"),
    ("storage-over-provisioning-percentage", "500"),
    ("storage-reserved-percentage-for-default-disk", "0"),
];

/// What [`prepare_one_machine`] needs to do.
pub const PREPARE_GRANTS: &[Grant] = &[
    Grant { groups: &[""], resources: &["namespaces"], verbs: &["create"] },
    Grant { groups: &["longhorn.io"], resources: &["settings"], verbs: &["create", "patch"] },
];

/// Sets how many bytes a second backups may send, whatever was set before.
///
/// # Errors
/// If the server does not take it.
pub fn set_backup_rate(client: &Client, bytes: u64) -> BoxFuture<'_, Result<(), kube::Error>> {
    Box::pin(set_rate(client, bytes))
}

async fn set_rate(client: &Client, bytes: u64) -> Result<(), kube::Error> {
    let settings: Api<Setting> = Api::namespaced(client.clone(), NAMESPACE);
    let value = bytes.to_string();
    unless_there(
        settings.create(&PostParams::default(), &Setting::new(BACKUP_RATE, &value)).await,
    )?;
    let patch = Patch::Merge(json!({ "value": value }));
    settings.patch(BACKUP_RATE, &PatchParams::default(), &patch).await.map(drop)
}

/// Makes the settings that differ where everything runs on one machine, before the others are made. A
/// value that is there stays.
///
/// # Errors
/// If the server does not take them.
pub fn prepare_one_machine(client: &Client) -> BoxFuture<'_, Result<(), kube::Error>> {
    Box::pin(prepare(client))
}

async fn prepare(client: &Client) -> Result<(), kube::Error> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    unless_there(namespaces.create(&PostParams::default(), &namespace).await)?;
    let settings: Api<Setting> = Api::namespaced(client.clone(), NAMESPACE);
    for (name, value) in ON_ONE_MACHINE {
        unless_there(settings.create(&PostParams::default(), &Setting::new(name, value)).await)?;
    }
    Ok(())
}

fn unless_there<T>(made: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match made {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    }
}

/// The value of a setting: as it is set, or as it is without being set. A value that is an object has
/// one for each kind of engine, of which the first counts here.
pub fn value(settings: &Store<Setting>, name: &str) -> String {
    let set = settings.get(&Key::new(NAMESPACE, name)).map(|it| plain(&it.value));
    set.unwrap_or_else(|| default(name).to_owned())
}

fn default(name: &str) -> &'static str {
    DEFAULTS.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| *value)
}

/// The number a setting holds, plain or one for each kind of engine. Nothing where that is none, or one that it
/// may not be: whoever reads it goes on as if nothing was set.
pub(crate) fn number(setting: &Setting) -> Option<i64> {
    let name = setting.metadata.name.as_deref().unwrap_or_default();
    read_number(name, &plain(&setting.value))
}

fn read_number(name: &str, text: &str) -> Option<i64> {
    if problem(name, text).is_some() {
        return None;
    }
    text.trim().parse().ok()
}

fn is_in_range(name: &str, text: &str) -> bool {
    let range = RANGES.iter().find(|(known, _, _)| *known == name);
    let number: Result<i64, _> = text.parse();
    number.is_ok_and(|it| range.is_none_or(|(_, least, most)| (*least..=*most).contains(&it)))
}

/// What is wrong with a value, and what counts in its place. Most are refused when they are written; not those
/// that were stored before, nor those that have one for each kind of engine.
pub(crate) fn problem(name: &str, value: &str) -> Option<String> {
    let allowed = allowed(name)?;
    let text = plain(value);
    let text = text.trim();
    let fits = if SWITCHES.contains(&name) {
        matches!(text, "true" | "false")
    } else if let Some((_, words)) = CHOICES.iter().find(|(known, _)| *known == name) {
        words.contains(&text)
    } else {
        is_in_range(name, text)
    };
    let counts = match default(name) {
        "" => "counts as not set".to_owned(),
        usual => format!("counts as {usual}"),
    };
    (!fits).then(|| format!("{name} must be {allowed}: {value:?} {counts}"))
}

fn plain(value: &str) -> String {
    match serde_json::from_str::<Value>(value) {
        Ok(Value::Object(by_engine)) => {
            let one = by_engine.get("v1").map(|it| match it {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            one.unwrap_or_default()
        }
        Ok(_) | Err(_) => value.to_owned(),
    }
}

/// The settings that decide about volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Settings {
    pub replica_count: i32,
    pub node_soft: bool,
    pub zone_soft: bool,
    pub disk_soft: bool,
    pub over_provisioning_percent: i64,
    pub minimal_available_percent: i64,
    pub empty_node_selector_matches_all: bool,
    pub empty_disk_selector_matches_all: bool,
    /// How long a failed copy is waited for before another is made.
    pub replenish_wait: Duration,
    pub rebuilds_per_node: i64,
    pub restores_per_node: i64,
    pub degraded_is_enough: bool,
    pub auto_salvage: bool,
    pub purge_after_rebuild: bool,
    /// Whether a copy that is filled again keeps what is the same.
    pub fast_rebuild: bool,
    /// How long filling a copy, or copying a volume, may take.
    pub long_call: Duration,
    /// Nothing: as engines have it by themselves.
    pub snapshot_max_count: Option<i32>,
    pub rebuild_sync_limit: Option<i32>,
    /// New volumes are backed up in blocks of 16 MiB.
    pub large_blocks: bool,
    /// How backups of new volumes are compressed.
    pub compression: Compression,
    pub restore_concurrency: i64,
    pub data_locality: DataLocality,
}

impl Default for Settings {
    fn default() -> Self {
        Self::read(|name| default(name).to_owned())
    }
}

impl Settings {
    pub fn of(store: &Store<Setting>) -> Self {
        Self::read(|name| value(store, name))
    }

    /// A value that makes no sense counts as its default.
    fn read(value: impl Fn(&str) -> String) -> Self {
        let number = |name: &str| {
            let set = read_number(name, &value(name));
            set.or_else(|| default(name).parse().ok()).unwrap_or_default()
        };
        let on = |name: &str| match value(name).trim() {
            "true" => true,
            "false" => false,
            _ => default(name) == "true",
        };
        let small = |name: &str| i32::try_from(number(name)).unwrap_or_default();
        // Engines of other builds may not know the flag: they are told only what differs.
        let unusual = |name: &str| {
            let usual = default(name).parse().ok();
            Some(small(name)).filter(|it| Some(*it) != usual)
        };
        Self {
            replica_count: small("default-replica-count"),
            node_soft: on("replica-soft-anti-affinity"),
            zone_soft: on("replica-zone-soft-anti-affinity"),
            disk_soft: on("replica-disk-soft-anti-affinity"),
            over_provisioning_percent: number("storage-over-provisioning-percentage"),
            minimal_available_percent: number("storage-minimal-available-percentage"),
            empty_node_selector_matches_all: on("allow-empty-node-selector-volume"),
            empty_disk_selector_matches_all: on("allow-empty-disk-selector-volume"),
            replenish_wait: Duration::from_secs(
                u64::try_from(number("replica-replenishment-wait-interval")).unwrap_or_default(),
            ),
            rebuilds_per_node: number("concurrent-replica-rebuild-per-node-limit"),
            restores_per_node: number("concurrent-volume-backup-restore-per-node-limit"),
            degraded_is_enough: on("allow-volume-creation-with-degraded-availability"),
            auto_salvage: on("auto-salvage"),
            purge_after_rebuild: on("auto-cleanup-system-generated-snapshot"),
            fast_rebuild: on("fast-replica-rebuild-enabled"),
            long_call: Duration::from_secs(
                u64::try_from(number("long-grpc-timeout")).unwrap_or_default(),
            ),
            snapshot_max_count: unusual("snapshot-max-count"),
            rebuild_sync_limit: unusual("replica-rebuild-concurrent-sync-limit"),
            large_blocks: number("default-backup-block-size") == 16,
            compression: match Compression::from(value("backup-compression-method").trim()) {
                Compression::Other(_) => Compression::Lz4,
                known => known,
            },
            restore_concurrency: number("restore-concurrent-limit"),
            data_locality: match DataLocality::from(value("default-data-locality").trim()) {
                DataLocality::Other(_) => DataLocality::Disabled,
                known => known,
            },
        }
    }
}

/// Makes those that are not there. A value that somebody chose stays.
pub(crate) async fn create_missing(
    settings: &Store<Setting>,
    events: &Events,
) -> Result<(), Failure> {
    for (name, value) in DEFAULTS {
        let key = Key::new(NAMESPACE, name);
        if settings.get(&key).is_some() || settings.is_broken(&key) {
            continue;
        }
        let mut made = Setting::new(name, value);
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        match settings.create(&made).await {
            // Somebody was faster.
            Ok(_) | Err(Failure::Conflict { .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
    for setting in settings.list() {
        mark_applied(settings, &setting, events).await?;
    }
    Ok(())
}

/// Every value is read anew by each pass, so it is in effect as soon as it is stored, unless it makes no sense.
async fn mark_applied(
    settings: &Store<Setting>,
    setting: &Arc<Setting>,
    events: &Events,
) -> Result<(), Failure> {
    let marked = marked(setting, Time::new(Timestamp::now()));
    let wrong = problem(&setting.name_any(), &setting.value);
    match settings.update(setting, &marked).await {
        Ok(_) => {}
        // One that was stored before there were ranges is refused for its value, whatever is written beside it.
        Err(failure) if wrong.is_some() && failure.rejection().is_some() => {
            let (name, value) = (setting.name_any(), &setting.value);
            tracing::debug!(name, value, why = wrong, "a setting counts as not set");
            return Ok(());
        }
        Err(failure) => return Err(failure),
    }
    if let Some(why) = wrong.filter(|_| marked.status != setting.status) {
        events.say(setting.as_ref(), Severity::Warning, INVALID, &why);
    }
    Ok(())
}

fn marked(setting: &Setting, now: Time) -> Setting {
    let mut marked = setting.clone();
    let status = marked.status.get_or_insert_default();
    let name = setting.name_any();
    let idle = IDLE.contains(&name.as_str());
    let idle = idle.then(|| (IDLE_REASON, format!("nothing acts on {name} here")));
    let wrong = problem(&name, &setting.value).map(|why| (INVALID, why)).or(idle);
    status.applied = Some(wrong.is_none());
    match wrong {
        Some((reason, why)) => {
            let verdict = Verdict::new(APPLIED, false, reason, why);
            condition::set(status.conditions.get_or_insert_default(), &verdict, now);
        }
        None => {
            if let Some(known) = &mut status.conditions {
                known.retain(|it| it.kind != APPLIED);
            }
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_says_what_it_may_be_and_is_that_by_default() {
        for (name, value) in DEFAULTS.iter().chain(ON_ONE_MACHINE) {
            assert!(allowed(name).is_some(), "{name} can be anything");
            assert_eq!(problem(name, value), None);
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_told_and_counts_as_not_set() {
        for (name, value) in [
            ("default-replica-count", "0"),
            ("default-replica-count", "many"),
            ("storage-minimal-available-percentage", "101"),
            ("storage-over-provisioning-percentage", "-1"),
            ("engine-replica-timeout", r#"{"v1":"0","v2":"9"}"#),
            ("backup-execution-timeout", "99999999999999999999"),
            ("backup-compression-method", "zip"),
            ("default-backup-block-size", "3"),
            ("auto-salvage", "maybe"),
        ] {
            let mut setting = Setting::new(name, value);
            let now = Time::new(Timestamp::UNIX_EPOCH);
            setting = marked(&setting, now);
            let status = setting.status.clone().unwrap();
            assert_eq!(status.applied, Some(false), "{name} {value}");
            let told = status.conditions.unwrap().remove(0);
            assert_eq!(told.reason.as_deref(), Some(INVALID));
            let text = told.message.unwrap();
            assert!(text.contains(&allowed(name).unwrap()), "{text}");
            assert!(text.ends_with(&format!("counts as {}", default(name))), "{text}");
            assert_eq!(number(&setting), None, "{name} {value}");
            default(name).clone_into(&mut setting.value);
            let again = marked(&setting, now).status.unwrap();
            assert_eq!((again.applied, again.conditions.unwrap().len()), (Some(true), 0));
        }
        assert_eq!(problem("of-somebody-else", "what they like"), None);
    }

    #[test]
    fn defaults_are_read_and_nonsense_counts_as_a_default() {
        let usual = Settings::default();
        assert_eq!(usual.replica_count, 3);
        assert!(!usual.node_soft && usual.zone_soft && usual.degraded_is_enough);
        assert_eq!(usual.replenish_wait, Duration::from_mins(10));
        let odd = Settings::read(|name| match name {
            "default-replica-count" => "many".to_owned(),
            "storage-minimal-available-percentage" => "101".to_owned(),
            "replica-soft-anti-affinity" => "true".to_owned(),
            other => default(other).to_owned(),
        });
        let wanted = Settings { node_soft: true, ..usual };
        assert_eq!(odd, wanted);
    }

    #[test]
    fn a_setting_on_which_nothing_acts_says_so() {
        for name in IDLE {
            let setting = Setting::new(name, default(name));
            let status = marked(&setting, Time::new(Timestamp::UNIX_EPOCH)).status.unwrap();
            assert_eq!(status.applied, Some(false), "{name}");
            let told = status.conditions.unwrap().remove(0);
            assert_eq!(told.reason.as_deref(), Some(IDLE_REASON));
        }
    }

    /// Every other is asked for somewhere, or people set it in vain.
    #[test]
    fn every_setting_is_read_or_says_that_it_is_not() {
        fn sources(dir: &std::path::Path, all: &mut String) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, all);
                } else {
                    all.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let mut all = String::new();
        sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut all);
        for (name, _) in DEFAULTS.iter().filter(|(name, _)| !IDLE.contains(name)) {
            // Once where it is declared; what is read has a constant, or is named once more.
            let named = all.matches(&format!("\"{name}\"")).count();
            assert!(named > 1 || *name == BACKUP_RATE, "nothing reads {name}");
        }
    }

    #[test]
    fn engines_are_told_only_what_is_unusual() {
        let usual = Settings::default();
        assert_eq!((usual.snapshot_max_count, usual.rebuild_sync_limit), (None, None));
        let set = Settings::read(|name| match name {
            "snapshot-max-count" => "9".to_owned(),
            "replica-rebuild-concurrent-sync-limit" => "3".to_owned(),
            "default-backup-block-size" => "16".to_owned(),
            other => default(other).to_owned(),
        });
        assert_eq!((set.snapshot_max_count, set.rebuild_sync_limit), (Some(9), Some(3)));
        assert!(set.large_blocks && !usual.large_blocks);
    }

    #[test]
    fn numbers_are_read_plain_or_by_kind_of_engine() {
        for (text, value) in [
            ("8", Some(8)),
            (" 8 ", Some(8)),
            ("{\"v1\":\"30\",\"v2\":\"8\"}", Some(30)),
            ("", None),
            ("many", None),
        ] {
            assert_eq!(number(&Setting::new("s", text)), value, "{text:?}");
        }
    }

    #[test]
    fn a_value_for_each_engine_counts_by_its_first() {
        assert_eq!(plain(r#"{"v1":"5","v2":"6"}"#), "5");
        assert_eq!(plain(r#"{"v1":5}"#), "5");
        assert_eq!(plain("5"), "5");
        assert_eq!(plain("lz4"), "lz4");
    }

    #[test]
    fn names_are_in_order_and_once() {
        assert!(DEFAULTS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, _) in ON_ONE_MACHINE {
            assert!(DEFAULTS.iter().any(|(known, _)| known == name), "{name}");
        }
    }
}
