//! Which specs of schedules are accepted. Pure: a template is judged as a backup with its spec would be.

use reconcile::Cron;
use serde_json::{Map, Value, json};

use crate::backup::validate::{self, Others, Storage};
use crate::settings::Settings;
use crate::spec::{self, Verdict};

/// Longest name of an object, less what is appended for the time of a backup.
const NAME_MAX: usize = 253 - 15;

/// Judges `spec` of a tenant's schedule, as it stands in the object.
///
/// Whether a storage location can be used is asked when a backup is made: it may come and go.
pub fn judge(
    namespace: &str,
    name: &str,
    spec: &Value,
    settings: &Settings,
) -> Result<Cron, Verdict> {
    let invalid = |message: String| Err(Verdict::Invalid(message));
    let Some(schedule) = spec.get("scheduleSpec").and_then(Value::as_object) else {
        return invalid("NonAdminSchedule spec.scheduleSpec is not set".to_owned());
    };
    if name.len() > NAME_MAX {
        return invalid(format!(
            "the name of the NonAdminSchedule is too long, its backups could not be named after it: at \
             most {NAME_MAX} characters"
        ));
    }
    if schedule.get("useOwnerReferencesInBackup") == Some(&Value::Bool(true)) {
        return invalid(
            "NonAdminSchedule spec.scheduleSpec.useOwnerReferencesInBackup is restricted, backups stay \
             until they expire or are deleted with spec.deleteBackup"
                .to_owned(),
        );
    }
    let text = schedule.get("schedule").and_then(Value::as_str).unwrap_or_default();
    if text.trim().is_empty() {
        return invalid("Schedule must be a non-empty valid Cron expression".to_owned());
    }
    let cron: Cron = match text.parse() {
        Ok(cron) => cron,
        Err(error) => return invalid(format!("invalid schedule: {error}")),
    };
    let backup = json!({"backupSpec": template(schedule)});
    match validate::judge(namespace, &backup, &Storage::Default, Others::default(), settings) {
        Verdict::Valid => Ok(cron),
        Verdict::Invalid(message) => invalid(message.replace(
            "NonAdminBackup spec.backupSpec",
            "NonAdminSchedule spec.scheduleSpec.template",
        )),
        wait @ Verdict::NotYet(_) => Err(wait),
    }
}

/// The spec of the backups.
pub fn template(schedule: &Map<String, Value>) -> Map<String, Value> {
    spec::object(&Value::Object(schedule.clone()), "/template")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "fixtures are written in place")]
    fn judged(schedule: Value) -> Result<Cron, Verdict> {
        judge("a", "nightly", &json!({"scheduleSpec": schedule}), &Settings::default())
    }

    #[test]
    fn a_template_is_judged_as_a_backup_would_be() {
        assert!(judged(json!({"schedule": "@daily", "template": {"ttl": "24h"}})).is_ok());
        for (schedule, part) in [
            (json!({"template": {}}), "non-empty valid Cron"),
            (json!({"schedule": "every day", "template": {}}), "invalid schedule: "),
            (
                json!({"schedule": "@daily", "template": {"includedNamespaces": ["b"]}}),
                "NonAdminSchedule spec.scheduleSpec.template.includedNamespaces is restricted",
            ),
            (json!({"schedule": "@daily", "template": {"ttl": "30d"}}), "is not a duration"),
            (
                json!({"schedule": "@daily", "template": {}, "useOwnerReferencesInBackup": true}),
                "useOwnerReferencesInBackup is restricted",
            ),
        ] {
            let found = judged(schedule.clone());
            let is_said =
                |it: &Verdict| matches!(it, Verdict::Invalid(text) if text.contains(part));
            assert!(found.as_ref().is_err_and(is_said), "{schedule}: {found:?}");
        }
        let long = "n".repeat(NAME_MAX + 1);
        let spec = json!({"scheduleSpec": {"schedule": "@daily", "template": {}}});
        assert!(judge("a", &long, &spec, &Settings::default()).is_err());
        assert!(judge("a", "n", &json!({}), &Settings::default()).is_err());
    }
}
