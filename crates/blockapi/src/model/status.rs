//! The values of the two fields.

/// What a backup or a restore is doing to a volume. No value: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BackupStatus {
    BackingUp,
    ErrorBackingUp,
    RestoringBackup,
    ErrorRestoring,
}

impl BackupStatus {
    pub(crate) const ALL: [Self; 4] =
        [Self::BackingUp, Self::ErrorBackingUp, Self::RestoringBackup, Self::ErrorRestoring];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BackingUp => "backing-up",
            Self::ErrorBackingUp => "error_backing-up",
            Self::RestoringBackup => "restoring-backup",
            Self::ErrorRestoring => "error_restoring",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// Values of `status` since backups have a field of their own, in the order messages list them.
pub(crate) const STATUSES: [&str; 18] = [
    "creating",
    "available",
    "deleting",
    "error",
    "error_deleting",
    "error_managing",
    "managing",
    "attaching",
    "in-use",
    "detaching",
    "maintenance",
    "reserved",
    "awaiting-transfer",
    "error_extending",
    "downloading",
    "uploading",
    "retyping",
    "extending",
];

/// Values of `status` as clients of older versions know them.
pub(crate) const LEGACY_STATUSES: [&str; 22] = [
    "creating",
    "available",
    "deleting",
    "error",
    "error_deleting",
    "error_managing",
    "managing",
    "attaching",
    "in-use",
    "detaching",
    "maintenance",
    "restoring-backup",
    "error_restoring",
    "reserved",
    "awaiting-transfer",
    "backing-up",
    "error_backing-up",
    "error_extending",
    "downloading",
    "uploading",
    "retyping",
    "extending",
];

pub(crate) const ATTACH_STATUSES: [&str; 2] = ["attached", "detached"];
pub(crate) const MIGRATION_STATUSES: [&str; 6] =
    ["migrating", "error", "success", "completing", "none", "starting"];

/// What the SQL ([`crate::store::guard::BY_ATTACHMENTS`]) must come to, for tests: the status a
/// volume has by its live attachments alone, the first of their states by alphabet,
/// failed ones left out.
#[cfg(test)]
pub(crate) fn from_attachments<'a>(states: impl IntoIterator<Item = &'a str>) -> &'static str {
    let first = states.into_iter().filter(|it| !it.starts_with("error_")).min();
    match first {
        Some("attached") => "in-use",
        Some("attaching") => "attaching",
        Some("detaching") => "detaching",
        Some("reserved") => "reserved",
        Some(_) | None => "available",
    }
}

/// As shown: volumes being taken over look like volumes being made.
pub(crate) fn shown(status: &str) -> &str {
    match status {
        "managing" => "creating",
        "error_managing" => "error",
        "error_managing_deleting" => "deleting",
        other => other,
    }
}
