//! The stores backups go to.

use api::longhorn::BackupTarget;

pub fn has_url(target: &BackupTarget) -> bool {
    target.spec.backup_target_url.as_deref().is_some_and(|it| !it.is_empty())
}

pub fn is_available(target: &BackupTarget) -> bool {
    target.status.as_ref().is_some_and(|it| it.available == Some(true))
}

/// Whether it can be reached, in a word.
pub fn reachable(target: &BackupTarget) -> &'static str {
    match (has_url(target), is_available(target)) {
        (false, _) => "not set",
        (true, true) => "yes",
        (true, false) => "no",
    }
}

/// The newest request to look at it that was answered.
pub fn answered(target: &BackupTarget) -> Option<jiff::Timestamp> {
    let status = target.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let probed = conditions.iter().find(|it| it.kind == "Unavailable");
    let probed = probed.and_then(|it| it.last_probe_time.as_ref()?.get());
    probed.max(status.last_synced_at.map(api::scalar::Time::timestamp))
}

/// Why it cannot be reached.
pub fn why(target: &BackupTarget) -> String {
    let status = target.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let bad = conditions.iter().find(|it| it.kind == "Unavailable" && it.status.as_str() == "True");
    bad.and_then(|it| it.message.clone()).unwrap_or_default()
}
