//! Two fields as one, and one as two, for clients and rows that know only `status`.

#[cfg(test)]
use super::status::{BackupStatus, from_attachments};

/// The one status an older client sees. A backup shows only through a resting status: what is being
/// created, extended, attached or deleted looks as it always did.
pub(crate) fn to_legacy<'a>(status: &'a str, backup: Option<&'a str>) -> &'a str {
    match backup {
        Some(backup) if is_resting(status) => backup,
        _ => status,
    }
}

/// The statuses behind which a backup can be seen.
pub(crate) fn is_resting(status: &str) -> bool {
    matches!(status, "available" | "in-use")
}

/// What the SQL of a migration must come to, for tests: both fields of a row that has only one, from its live attachments: they are right even where the
/// remembered status before the backup has become stale.
#[cfg(test)]
pub(crate) fn split<'a>(
    status: &'a str,
    attachments: impl IntoIterator<Item = &'a str>,
) -> (&'a str, Option<BackupStatus>) {
    match BackupStatus::parse(status) {
        Some(backup) => (from_attachments(attachments), Some(backup)),
        None => (status, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::status::{LEGACY_STATUSES, STATUSES};

    #[test]
    fn a_backup_shows_through_resting_statuses_only() {
        for backup in BackupStatus::ALL {
            for status in STATUSES {
                let seen = to_legacy(status, Some(backup.as_str()));
                let expected = if ["available", "in-use"].contains(&status) {
                    backup.as_str()
                } else {
                    status
                };
                assert_eq!(seen, expected, "({status}, {backup:?})");
                assert!(LEGACY_STATUSES.contains(&seen));
            }
        }
        assert!(STATUSES.iter().all(|status| to_legacy(status, None) == *status));
    }

    /// The table of planted rows: attachments win over what was remembered.
    #[test]
    fn one_field_splits_by_attachments() {
        use BackupStatus as B;
        let table: &[(&str, &[&str], &str, Option<B>)] = &[
            ("backing-up", &[], "available", Some(B::BackingUp)),
            ("backing-up", &["attached"], "in-use", Some(B::BackingUp)),
            ("backing-up", &["attaching", "attached"], "in-use", Some(B::BackingUp)),
            ("backing-up", &["error_attaching"], "available", Some(B::BackingUp)),
            ("error_backing-up", &["reserved"], "reserved", Some(B::ErrorBackingUp)),
            ("restoring-backup", &[], "available", Some(B::RestoringBackup)),
            ("error_restoring", &["detaching"], "detaching", Some(B::ErrorRestoring)),
            ("extending", &["attached"], "extending", None),
            ("available", &[], "available", None),
        ];
        for (status, attachments, left, right) in table {
            assert_eq!(split(status, attachments.iter().copied()), (*left, *right), "{status}");
        }
    }

    #[test]
    fn what_was_split_reads_as_before() {
        for status in LEGACY_STATUSES {
            for attachments in [&[][..], &["attached"]] {
                let (left, right) = split(status, attachments.iter().copied());
                assert_eq!(to_legacy(left, right.map(BackupStatus::as_str)), status);
            }
        }
    }
}
