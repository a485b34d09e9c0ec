//! What an administrator's reset of a volume means, at versions that know one field or two.

#![expect(
    clippy::option_option,
    reason = "a key that is not given, given as null, or given a value"
)]

use super::status::{ATTACH_STATUSES, BackupStatus, LEGACY_STATUSES, MIGRATION_STATUSES, STATUSES};

/// What was asked: `None` where a key was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) status: Option<String>,
    /// `Some(None)` clears the field.
    pub(crate) backup_status: Option<Option<String>>,
    pub(crate) attach_status: Option<String>,
    pub(crate) migration_status: Option<String>,
}

/// What becomes of `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewStatus {
    Keep,
    /// Kept if it is a resting one, else told from the attachments.
    Rest,
    To(&'static str),
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) status: NewStatus,
    /// `Some(None)` clears the field.
    pub(crate) backup: Option<Option<BackupStatus>>,
    /// `detached` also forgets all attachments.
    pub(crate) attach_status: Option<&'static str>,
    /// `Some(None)` for `none`.
    pub(crate) migration_status: Option<Option<&'static str>>,
}

/// What is to be written, or the message of the rejection.
pub(crate) fn decide(asked: &Asked, two_fields: bool) -> Result<Reset, String> {
    let mut reset = Reset {
        status: NewStatus::Keep,
        backup: None,
        attach_status: None,
        migration_status: None,
    };
    if let Some(status) = &asked.status {
        let status = status.to_lowercase();
        let known: &[&'static str] = if two_fields { &STATUSES } else { &LEGACY_STATUSES };
        let Some(value) = known.iter().find(|it| **it == status) else {
            return Err(invalid("Volume status", &status, known));
        };
        if ["deleting", "error_deleting", "detaching"].contains(value) {
            return Err(format!("Cannot reset-state to {value}"));
        }
        if let Some(backup) = BackupStatus::parse(value) {
            reset.status = NewStatus::Rest;
            reset.backup = Some(Some(backup));
        } else {
            reset.status = NewStatus::To(value);
            // With one field, any other status said that no backup runs.
            reset.backup = (!two_fields).then_some(None);
        }
    }
    if let Some(backup) = &asked.backup_status {
        reset.backup = Some(backup.as_deref().map(parse_backup).transpose()?);
    }
    if let Some(attach) = &asked.attach_status {
        let attach = attach.to_lowercase();
        let value = ATTACH_STATUSES.iter().find(|it| **it == attach);
        reset.attach_status =
            Some(value.ok_or_else(|| invalid("Attach status", &attach, &ATTACH_STATUSES))?);
    }
    if let Some(migration) = &asked.migration_status {
        let migration = migration.to_lowercase();
        let value = MIGRATION_STATUSES.iter().find(|it| **it == migration);
        let value =
            value.ok_or_else(|| invalid("Migration status", &migration, &MIGRATION_STATUSES))?;
        reset.migration_status = Some((*value != "none").then_some(*value));
    }
    Ok(reset)
}

fn parse_backup(text: &str) -> Result<BackupStatus, String> {
    let text = text.to_lowercase();
    let all = BackupStatus::ALL.map(BackupStatus::as_str);
    BackupStatus::parse(&text).ok_or_else(|| invalid("Volume backup status", &text, &all))
}

fn invalid(what: &str, value: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|it| format!("'{it}'")).collect();
    format!("{what}: {value} is invalid, valid statuses are: ({}).", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: &str) -> Asked {
        Asked { status: Some(status.to_owned()), ..Asked::default() }
    }

    #[test]
    fn with_two_fields_each_is_its_own() {
        let reset = decide(&status("error"), true).unwrap();
        assert_eq!((reset.status, reset.backup), (NewStatus::To("error"), None));
        let unset = Asked { backup_status: Some(None), ..Asked::default() };
        let reset = decide(&unset, true).unwrap();
        assert_eq!((reset.status, reset.backup), (NewStatus::Keep, Some(None)));
        for backup in BackupStatus::ALL {
            let refused = decide(&status(backup.as_str()), true).unwrap_err();
            assert!(refused.contains("valid statuses are: ('creating'"), "{refused}");
        }
    }

    #[test]
    fn with_one_field_a_backup_value_goes_to_its_own_and_any_other_clears_it() {
        let reset = decide(&status("Backing-Up"), false).unwrap();
        assert_eq!(reset.status, NewStatus::Rest);
        assert_eq!(reset.backup, Some(Some(BackupStatus::BackingUp)));
        let reset = decide(&status("available"), false).unwrap();
        assert_eq!((reset.status, reset.backup), (NewStatus::To("available"), Some(None)));
    }

    #[test]
    fn what_a_reset_must_not_pretend() {
        for value in ["deleting", "error_deleting", "detaching", "reverting", "bogus"] {
            assert!(decide(&status(value), false).is_err(), "{value}");
        }
        let bad = Asked { backup_status: Some(Some("available".to_owned())), ..Asked::default() };
        let refused = decide(&bad, true).unwrap_err();
        assert!(refused.starts_with("Volume backup status: available is invalid"), "{refused}");
    }
}
