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
            r"))?)(/[0-9]{1,2})?)(,(\\*|(",
            $value,
            ")(-(",
            $value,
            r"))?)(/[0-9]{1,2})?)*"
        )
    };
}

/// Five fields, or a name for some.
pub(super) fn cron(schema: &mut Schema) {
    schema.insert("maxLength".into(), json!(256));
    rule(
        schema,
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
        ),
        "invalid cron: minute (0-59), hour (0-23), day of the month (1-31), month (1-12), day of the week (0-7), or a name as @daily",
    );
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

/// What settings hold, by their names. A value that is an object has one for each kind of engine.
pub const OF_SETTINGS: [(&str, &str); 2] = [
    (
        "!(self.metadata.name in ['allow-empty-disk-selector-volume', 'allow-empty-node-selector-volume', \
         'allow-recurring-job-while-volume-detached', 'allow-volume-creation-with-degraded-availability', \
         'auto-cleanup-recurring-job-backup-snapshot', 'auto-cleanup-snapshot-after-on-demand-backup-completed', \
         'auto-cleanup-system-generated-snapshot', 'auto-cleanup-when-delete-backup', 'auto-salvage', \
         'disable-snapshot-purge', 'fast-replica-rebuild-enabled', 'offline-replica-rebuilding', \
         'replica-disk-soft-anti-affinity', 'replica-soft-anti-affinity', 'replica-zone-soft-anti-affinity', \
         'restore-volume-recurring-jobs']) || self.value in ['true', 'false'] || self.value.startsWith('{')",
        "the value of this setting must be true or false",
    ),
    (
        "!(self.metadata.name in ['backup-bytes-per-second', 'backup-concurrent-limit', 'backup-execution-timeout', \
         'concurrent-replica-rebuild-per-node-limit', 'concurrent-volume-backup-restore-per-node-limit', \
         'default-backup-block-size', 'default-replica-count', 'engine-replica-timeout', 'failed-backup-ttl', \
         'long-grpc-timeout', 'recurring-job-max-retention', 'replica-file-sync-http-client-timeout', \
         'replica-rebuild-concurrent-sync-limit', 'replica-replenishment-wait-interval', 'restore-concurrent-limit', \
         'snapshot-heavy-task-concurrent-limit', 'snapshot-max-count', 'storage-minimal-available-percentage', \
         'storage-over-provisioning-percentage', 'storage-reserved-percentage-for-default-disk']) || \
         self.value.matches('^[0-9]{1,18}$') || self.value.startsWith('{')",
        "the value of this setting must be a whole number",
    ),
];

pub(super) fn not_negative(schema: &mut Schema) {
    rule(schema, "int(self) >= 0", "must not be negative");
}
