//! What no object of this dialect may say, as CEL rules of its schema: the same on every API server,
//! and told to whoever writes it. Here are rules; which field has which is said at the field.

use schemars::Schema;
use serde_json::json;

use crate::schema::{immutable, rule};

/// Whether a field of text is set, as CEL.
macro_rules! is_set {
    ($field:literal) => {
        concat!("(has(self.", $field, ") && self.", $field, " != '')")
    };
}

/// A volume as a whole. What it is made from gives it a size, if nobody else does.
pub(super) fn volume(schema: &mut Schema) {
    rule(
        schema,
        concat!(
            is_set!("fromBackup"),
            " || ",
            is_set!("dataSource"),
            " || (has(self.size) && int(self.size) > 0)"
        ),
        "size must be positive, unless the volume is made from a backup or from another volume",
    );
    rule(
        schema,
        concat!("!has(self.Standby) || !self.Standby || ", is_set!("fromBackup")),
        "a standby volume needs the URL of a backup in fromBackup",
    );
    rule(
        schema,
        concat!("!", is_set!("fromBackup"), " || !", is_set!("dataSource")),
        "a volume is made from a backup (fromBackup) or from another volume (dataSource), not from both",
    );
    rule(
        schema,
        "!has(self.dataLocality) || self.dataLocality != 'strict-local' || \
         !has(self.numberOfReplicas) || self.numberOfReplicas in [0, 1]",
        "with data locality strict-local numberOfReplicas must be 1",
    );
    rule(
        schema,
        "!has(self.snapshotMaxSize) || int(self.snapshotMaxSize) == 0 || !has(self.size) || \
         int(self.snapshotMaxSize) >= 2 * int(self.size)",
        "snapshotMaxSize must be 0 or at least twice the size",
    );
}

/// Of the whole object: what was asked for and has not happened may be taken back, and what a volume
/// is made from has the last word while it is made, and while it restores.
pub(super) const NEVER_SHRINKS: (&str, &str) = (
    "!has(oldSelf.spec.size) || (has(self.spec.size) && int(self.spec.size) >= int(oldSelf.spec.size)) || \
     !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state in ['', 'creating'] || \
     (has(oldSelf.status.expansionRequired) && oldSelf.status.expansionRequired) || \
     (has(oldSelf.status.restoreRequired) && oldSelf.status.restoreRequired)",
    "shrinking a volume is not supported",
);

/// What follows backups is written to by nobody else. One that was stored before that was refused is served
/// without a frontend, and can still be changed.
pub(super) const NO_FRONTEND: (&str, &str) = (
    "!has(self.spec.Standby) || !self.spec.Standby || !has(self.spec.frontend) || \
     self.spec.frontend == '' || has(self.status)",
    "a standby volume has no frontend (frontend: \"\") until it is activated",
);

/// Nothing is restored over data.
pub(super) const STAYS_ACTIVE: (&str, &str) = (
    "!has(self.spec.Standby) || !self.spec.Standby || \
     (has(oldSelf.spec.Standby) && oldSelf.spec.Standby) || \
     !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state in ['', 'creating'] || \
     (has(oldSelf.status.isStandby) && oldSelf.status.isStandby)",
    "a volume that is active cannot follow backups: make a new standby volume from the backup",
);

/// Names become values of labels, and no engine serves a volume whose name has one letter. What was
/// stored before that was refused can still be changed, and removed.
pub(super) const NAME: (&str, &str) = (
    "(self.metadata.name.size() >= 2 || has(self.status)) && self.metadata.name.size() <= 63",
    "the name of a volume has 2 to 63 characters: letters, digits, '-' and '.'",
);

/// Whose only engine is the one of processes.
pub(super) fn data_engine(schema: &mut Schema) {
    immutable(schema);
    rule(schema, "self == 'v1'", "only data engine v1 is served here");
}

/// A layer below the volume that nobody would put there.
pub(super) fn no_backing_image(schema: &mut Schema) {
    rule(schema, "self == ''", "volumes on backing images are not served here");
}

pub(super) fn data_source(schema: &mut Schema) {
    crate::schema::settled(schema);
    rule(
        schema,
        "self == '' || self.matches('^(vol://[^/]+|snap://[^/]+/[^/]+)$')",
        "a data source is vol://VOLUME or snap://VOLUME/SNAPSHOT",
    );
}

pub(super) fn snapshot_count(schema: &mut Schema) {
    rule(
        schema,
        "self == 0 || (self >= 2 && self <= 250)",
        "snapshotMaxCount must be 0 (as the setting says) or between 2 and 250",
    );
}

/// Tags that disks or nodes can have.
pub(super) fn tags(schema: &mut Schema) {
    schema.insert("maxItems".into(), json!(64));
    if let Some(items) = schema.get_mut("items").and_then(|it| it.as_object_mut()) {
        items.insert("maxLength".into(), json!(63));
    }
    rule(
        schema,
        "self.all(tag, tag.matches('^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$'))",
        "a tag consists of letters, digits, '-', '_' and '.', and begins and ends with a letter or digit",
    );
}

/// One field of a schedule: values of a sort, ranges of them, steps, and lists of all that.
macro_rules! cron_field {
    ($value:literal) => {
        concat!(
            r"((\\*|\\?|(",
            $value,
            ")(-(",
            $value,
            r"))?)(/([1-9][0-9]?|0[1-9]))?)(,(\\*|(",
            $value,
            ")(-(",
            $value,
            r"))?)(/([1-9][0-9]?|0[1-9]))?)*"
        )
    };
}

/// Five fields, or a name for some.
macro_rules! is_cron {
    () => {
        concat!(
            r"self.matches('^\\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|",
            cron_field!("[0-5]?[0-9]"),
            r"\\s+",
            cron_field!("[01]?[0-9]|2[0-3]"),
            r"\\s+",
            cron_field!("0?[1-9]|[12][0-9]|3[01]|LW?|[0-9]{1,2}W"),
            r"\\s+",
            cron_field!("0?[1-9]|1[0-2]|[A-Za-z]{3}"),
            r"\\s+",
            cron_field!("[0-7](#[1-5]|L)?|[A-Za-z]{3}(#[1-5]|L)?"),
            r")\\s*$')"
        )
    };
}

const CRON: &str = "invalid cron: minute (0-59), hour (0-23), day of the month (1-31), month (1-12), day of the week (0-7), steps from 1, or a name as @daily";

pub(super) fn cron(schema: &mut Schema) {
    schema.insert("maxLength".into(), json!(256));
    rule(schema, is_cron!(), CRON);
}

pub(super) fn cron_or_never(schema: &mut Schema) {
    schema.insert("maxLength".into(), json!(256));
    rule(schema, concat!("self == '' || ", is_cron!()), CRON);
}

/// A time as Go writes it, and not none.
pub(super) fn duration(schema: &mut Schema) {
    schema.insert("maxLength".into(), json!(64));
    rule(
        schema,
        r"self == '' || (self.matches('^([0-9]+(\\.[0-9]+)?(h|m|s|ms))+$') && self.matches('[1-9]'))",
        "a duration consists of numbers with units, as 720h or 1h30m, and is positive",
    );
}

pub(super) fn job(schema: &mut Schema) {
    rule(schema, is_set!("cron"), "a job needs a schedule in cron");
    rule(
        schema,
        concat!(
            "!has(self.retentionPolicy) || self.retentionPolicy != 'age-based' || ",
            is_set!("retainAge")
        ),
        "retainAge must be set when retentionPolicy is age-based",
    );
}

pub(super) fn parameters(schema: &mut Schema) {
    schema.insert("maxProperties".into(), json!(16));
    rule(
        schema,
        "self.all(name, name in ['full-backup-interval', 'volume-backup-policy', 'deadline'])",
        "the parameters of a job are full-backup-interval, volume-backup-policy and deadline",
    );
    if let Some(values) = schema.get_mut("additionalProperties").and_then(|it| it.as_object_mut()) {
        values.insert("maxLength".into(), json!(64));
    }
    rule(
        schema,
        r"!('deadline' in self) || (self['deadline'].matches('^([0-9]+(\\.[0-9]+)?(h|m|s))+$') && self['deadline'].matches('[1-9]'))",
        "deadline is a positive duration, as 2h or 30m",
    );
    rule(
        schema,
        "!('full-backup-interval' in self) || self['full-backup-interval'].matches('^[0-9]{1,9}$')",
        "full-backup-interval is a whole number",
    );
}

/// Settings that are switched on or off.
pub const SWITCHES: &[&str] = &[
    "allow-empty-disk-selector-volume",
    "allow-empty-node-selector-volume",
    "allow-recurring-job-while-volume-detached",
    "allow-volume-creation-with-degraded-availability",
    "auto-cleanup-recurring-job-backup-snapshot",
    "auto-cleanup-snapshot-after-on-demand-backup-completed",
    "auto-cleanup-system-generated-snapshot",
    "auto-cleanup-when-delete-backup",
    "auto-salvage",
    "disable-snapshot-purge",
    "fast-replica-rebuild-enabled",
    "offline-replica-rebuilding",
    "replica-disk-soft-anti-affinity",
    "replica-soft-anti-affinity",
    "replica-zone-soft-anti-affinity",
    "restore-volume-recurring-jobs",
];

/// Settings that are one of a few words.
pub const CHOICES: &[(&str, &[&str])] = &[
    ("backup-compression-method", &["lz4", "gzip", "none"]),
    ("default-backup-block-size", &["2", "16"]),
    ("default-data-locality", &["disabled", "best-effort", "strict-local"]),
];

/// Settings that are whole numbers: the least and the most that each of them may be.
pub const RANGES: &[(&str, i64, i64)] = &[
    ("backup-bytes-per-second", 0, 999_999_999_999_999_999),
    ("backup-concurrent-limit", 1, 64),
    ("backup-deletion-retry-interval", 1, 86_400),
    ("backup-deletion-retry-max-interval", 1, 86_400),
    ("backup-execution-timeout", 1, 1_440),
    ("concurrent-replica-rebuild-per-node-limit", 0, 1_000),
    ("concurrent-volume-backup-restore-per-node-limit", 0, 1_000),
    ("default-replica-count", 1, 20),
    ("engine-replica-timeout", 8, 30),
    ("failed-backup-ttl", 0, 10_000_000),
    ("long-grpc-timeout", 1, 2_592_000),
    ("recurring-job-max-retention", 1, 250),
    ("replica-file-sync-http-client-timeout", 1, 3_600),
    ("replica-rebuild-concurrent-sync-limit", 1, 5),
    ("replica-replenishment-wait-interval", 0, 31_536_000),
    ("restore-concurrent-limit", 1, 64),
    ("snapshot-heavy-task-concurrent-limit", 1, 1_000),
    ("snapshot-max-count", 2, 250),
    ("storage-minimal-available-percentage", 0, 100),
    ("storage-over-provisioning-percentage", 0, 100_000),
    ("storage-reserved-percentage-for-default-disk", 0, 100),
];

/// What a setting may be, in words; nothing of one that nobody here knows.
pub fn allowed(setting: &str) -> Option<String> {
    if SWITCHES.contains(&setting) {
        return Some("true or false".to_owned());
    }
    if let Some((_, words)) = CHOICES.iter().find(|(name, _)| *name == setting) {
        return Some(format!("one of {}", words.join(", ")));
    }
    let (_, least, most) = RANGES.iter().find(|(name, _, _)| *name == setting)?;
    Some(range_text(*least, *most))
}

fn range_text(least: i64, most: i64) -> String {
    format!("a whole number from {least} to {most}")
}

/// What settings hold, by their names. A value that is an object has one for each kind of engine: those are
/// looked at by whoever reads them.
pub(super) fn settings() -> Vec<(String, String)> {
    let must = |text: &str| format!("the value of this setting must be {text}");
    let of = |names: &[&str], holds: &str| {
        let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let names = names.join(", ");
        format!("!(self.metadata.name in [{names}]) || self.value.startsWith('{{') || {holds}")
    };
    let mut all = vec![(of(SWITCHES, "self.value in ['true', 'false']"), must("true or false"))];
    for (name, words) in CHOICES {
        let listed: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let holds = format!("self.value in [{}]", listed.join(", "));
        all.push((of(&[name], &holds), must(&format!("one of {}", words.join(", ")))));
    }
    let mut ranges: Vec<(i64, i64)> =
        RANGES.iter().map(|(_, least, most)| (*least, *most)).collect();
    ranges.sort_unstable();
    ranges.dedup();
    for (least, most) in ranges {
        let same = RANGES.iter().filter(|it| (it.1, it.2) == (least, most));
        let names: Vec<&str> = same.map(|it| it.0).collect();
        let holds = format!(
            "(self.value.matches('^[0-9]{{1,18}}$') && int(self.value) >= {least} && int(self.value) <= {most})"
        );
        all.push((of(&names, &holds), must(&range_text(least, most))));
    }
    all
}

/// A copy is one volume's, and what it holds lies in one directory: another's would be served as its own.
pub(super) fn replica(schema: &mut Schema) {
    one_volume(schema);
    stays(schema, "dataDirectoryName");
    for field in ["nodeID", "diskID"] {
        rule(
            schema,
            &format!(
                "!has(oldSelf.{field}) || oldSelf.{field} == '' || (has(self.{field}) && self.{field} != '')"
            ),
            &format!("{field} says where the data of the copy is, and cannot be emptied"),
        );
    }
}

pub(super) fn one_volume(schema: &mut Schema) {
    stays(schema, "volumeName");
}

/// Also where the field is left out: a rule of the field itself does not run then.
fn stays(schema: &mut Schema, field: &str) {
    rule(
        schema,
        &format!(
            "!has(oldSelf.{field}) || oldSelf.{field} == '' || (has(self.{field}) && self.{field} == oldSelf.{field})"
        ),
        &format!("{field} is immutable once it has a value"),
    );
}

pub(super) fn not_negative(schema: &mut Schema) {
    rule(schema, "int(self) >= 0", "must not be negative");
}
