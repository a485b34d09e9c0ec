//! What may be done to a volume in which state: the whole table, by operation.
//!
//! A row is evaluated as one conditional update ([`crate::store::guard`]), never as a read followed
//! by a write, and alike at every microversion: versions differ in what they show only.

use super::status::BackupStatus;

/// Something that wants to change a volume or needs it to stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Delete,
    ForceDelete,
    Extend,
    /// Below 3.42 only a volume that is not in use.
    ExtendDetached,
    Reserve,
    ReserveShared,
    AttachmentCreate,
    AttachmentCreateShared,
    /// A second attachment for the server that has one: a live migration.
    AttachmentSameServer,
    Attach,
    InitializeConnection,
    AttachmentUpdate,
    BeginDetaching,
    Detach,
    Migrate,
    Retype,
    Revert,
    Reimage,
    /// Also one that is kept for a server.
    ReimageReserved,
    Upload,
    UploadForced,
    Readonly,
    Snapshot,
    SnapshotForced,
    Clone,
    Backup,
    BackupForced,
    BackupOfSnapshot,
    RestoreInto,
    Transfer,
    Update,
    WriteMetadata,
}

/// Which values of `backup_status` an operation bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bears {
    /// Nothing running; a failed backup does not matter.
    Idle,
    /// As idle, and a failed restore: the volume goes away anyhow.
    IdleOrBad,
    /// As idle, and a running backup.
    Backup,
    /// All but a running restore.
    NotRestoring,
    Any,
}

impl Bears {
    /// The values, `None` among them for no value.
    pub(crate) const fn values(self) -> &'static [Option<BackupStatus>] {
        use BackupStatus::{BackingUp, ErrorBackingUp, ErrorRestoring, RestoringBackup};
        match self {
            Self::Idle => &[None, Some(ErrorBackingUp)],
            Self::IdleOrBad => &[None, Some(ErrorBackingUp), Some(ErrorRestoring)],
            Self::Backup => &[None, Some(ErrorBackingUp), Some(BackingUp)],
            Self::NotRestoring => {
                &[None, Some(ErrorBackingUp), Some(BackingUp), Some(ErrorRestoring)]
            }
            Self::Any => &[
                None,
                Some(ErrorBackingUp),
                Some(BackingUp),
                Some(ErrorRestoring),
                Some(RestoringBackup),
            ],
        }
    }

    /// The same for services of a release that knows one field: while such run, nothing happens
    /// beside a backup, as they would not see it.
    pub(crate) const fn pinned(self) -> Self {
        match self {
            Self::Backup => Self::Idle,
            Self::NotRestoring => Self::IdleOrBad,
            other => other,
        }
    }
}

/// What an operation asks of `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    OneOf(&'static [&'static str]),
    NoneOf(&'static [&'static str]),
    Any,
}

/// All that is asked of a volume before an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Precondition {
    pub(crate) status: Wants,
    pub(crate) backup: Bears,
    /// Not in the middle of a migration.
    pub(crate) not_migrating: bool,
    pub(crate) not_attached: bool,
    pub(crate) no_group: bool,
    /// What else it must not, in words: conditions that are the handler's own.
    pub(crate) also: &'static [&'static str],
}

const SNAPSHOTS: &str = "have snapshots (with cascade: busy ones, or another project's)";
const UNTAKEN: &str = "have snapshots that are not taken yet";
const SOURCE: &str = "be what a volume is being made from";

const RESTING: Wants = Wants::OneOf(&["available", "in-use"]);
const AVAILABLE: Wants = Wants::OneOf(&["available"]);
const DELETABLE: Wants = Wants::OneOf(&["available", "error", "error_extending", "error_managing"]);
const NOT_MAINTAINED: Wants = Wants::NoneOf(&["maintenance"]);

const fn when(status: Wants, backup: Bears) -> Precondition {
    Precondition {
        status,
        backup,
        not_migrating: false,
        not_attached: false,
        no_group: false,
        also: &[],
    }
}

impl Precondition {
    const fn not_migrating(mut self) -> Self {
        self.not_migrating = true;
        self
    }

    const fn not_attached(mut self) -> Self {
        self.not_attached = true;
        self
    }

    const fn no_group(mut self) -> Self {
        self.no_group = true;
        self
    }

    const fn nor(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }
}

impl Operation {
    /// Whether it ends with somebody using the data.
    pub(crate) const fn connects(self) -> bool {
        matches!(
            self,
            Self::AttachmentCreate
                | Self::AttachmentCreateShared
                | Self::AttachmentSameServer
                | Self::Attach
                | Self::InitializeConnection
                | Self::AttachmentUpdate
        )
    }

    pub(crate) const fn precondition(self) -> Precondition {
        use Bears as B;
        match self {
            Self::Delete => when(DELETABLE, B::IdleOrBad)
                .not_migrating()
                .not_attached()
                .no_group()
                .nor(&[SNAPSHOTS, SOURCE]),
            Self::ForceDelete => when(Wants::Any, B::IdleOrBad)
                .not_migrating()
                .not_attached()
                .no_group()
                .nor(&[SNAPSHOTS, SOURCE]),
            Self::Extend => when(RESTING, B::Backup).not_migrating(),
            Self::ExtendDetached => when(AVAILABLE, B::Backup).not_migrating(),
            Self::Reserve => when(AVAILABLE, B::Backup),
            Self::ReserveShared => when(RESTING, B::Backup),
            Self::AttachmentCreate => when(Wants::OneOf(&["available", "downloading"]), B::Backup),
            Self::AttachmentCreateShared => {
                when(Wants::OneOf(&["available", "in-use", "downloading"]), B::Backup)
            }
            Self::AttachmentSameServer => when(Wants::OneOf(&["in-use", "reserved"]), B::Backup),
            Self::Attach => when(
                Wants::NoneOf(&[
                    "maintenance",
                    "creating",
                    "deleting",
                    "error_deleting",
                    "reverting",
                    "awaiting-transfer",
                ]),
                B::Backup,
            )
            .nor(&["be already attached, unless several may"]),
            Self::InitializeConnection => {
                when(Wants::NoneOf(&["maintenance", "reverting", "awaiting-transfer"]), B::Backup)
            }
            Self::AttachmentUpdate => {
                when(Wants::NoneOf(&["error", "error_extending", "error_deleting"]), B::Backup)
            }
            Self::BeginDetaching => when(Wants::OneOf(&["in-use"]), B::Any).not_migrating(),
            Self::Detach => when(NOT_MAINTAINED, B::Any),
            Self::Migrate => when(RESTING, B::Idle).not_migrating().no_group().nor(&[
                "have snapshots",
                "be replicated",
                "be on that host already",
            ]),
            Self::Retype => when(RESTING, B::Idle).not_migrating().no_group(),
            Self::Revert => when(AVAILABLE, B::Idle).not_migrating(),
            Self::Reimage => when(Wants::OneOf(&["available", "error"]), B::Idle)
                .not_migrating()
                .nor(&[SOURCE, UNTAKEN]),
            Self::ReimageReserved => {
                when(Wants::OneOf(&["available", "error", "reserved"]), B::Idle)
                    .not_migrating()
                    .nor(&[SOURCE, UNTAKEN])
            }
            Self::Upload => when(AVAILABLE, B::Backup).not_migrating(),
            Self::UploadForced => when(RESTING, B::Backup).not_migrating(),
            Self::Readonly => when(AVAILABLE, B::Backup),
            Self::Snapshot => when(AVAILABLE, B::Backup).not_migrating(),
            Self::SnapshotForced => when(RESTING, B::Backup).not_migrating(),
            Self::Clone => when(RESTING, B::Backup),
            Self::Backup => when(AVAILABLE, B::Idle).not_migrating(),
            Self::BackupForced => when(RESTING, B::Idle).not_migrating(),
            Self::BackupOfSnapshot => when(Wants::Any, B::NotRestoring),
            Self::RestoreInto => {
                when(AVAILABLE, B::Idle).not_migrating().not_attached().nor(&[SOURCE])
            }
            Self::Transfer => when(AVAILABLE, B::Idle).not_migrating().nor(&[SOURCE, UNTAKEN]),
            Self::Update => when(NOT_MAINTAINED, B::Any),
            Self::WriteMetadata => when(Wants::NoneOf(&["maintenance", "uploading"]), B::Any),
        }
    }
}

impl Precondition {
    /// In words, for clients that know both fields.
    pub(crate) fn describe(&self, id: &str, status: &str, backup: Option<&str>) -> String {
        let wanted = match self.status {
            Wants::OneOf(values) => format!("status must be {}", values.join(" or ")),
            Wants::NoneOf(values) => format!("status must not be {}", values.join(" or ")),
            Wants::Any => "may have any status".to_owned(),
        };
        let bears: Vec<&str> =
            self.backup.values().iter().map(|it| it.map_or("none", BackupStatus::as_str)).collect();
        let bears = match self.backup {
            Bears::Any => String::new(),
            _ => format!(" and backup_status must be {}", bears.join(" or ")),
        };
        let mut also = Vec::new();
        if self.not_migrating {
            also.push("be migrating");
        }
        if self.not_attached {
            also.push("be attached");
        }
        if self.no_group {
            also.push("belong to a group");
        }
        also.extend(self.also);
        let also = match also.len() {
            0 => String::new(),
            _ => format!(" and it must not {}", also.join(", ")),
        };
        let backup = backup.unwrap_or("none");
        format!(
            "Volume {id} {wanted}{bears}{also}, but the current values are {status} and {backup}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_name_both_fields() {
        let said =
            Operation::BackupForced.precondition().describe("X", "in-use", Some("backing-up"));
        assert_eq!(
            said,
            "Volume X status must be available or in-use and backup_status must be none or \
             error_backing-up and it must not be migrating, but the current values are in-use and \
             backing-up."
        );
    }

    /// The three restrictions that must be kept, and the use cases that must be possible.
    #[test]
    fn backups_block_deletion_backups_and_migration_and_nothing_of_the_use_cases() {
        use Operation as O;
        let allowed = |it: Operation| {
            it.precondition().backup.values().contains(&Some(BackupStatus::BackingUp))
        };
        for refused in [
            O::Delete,
            O::ForceDelete,
            O::Backup,
            O::BackupForced,
            O::Migrate,
            O::Retype,
            O::Revert,
            O::Reimage,
            O::RestoreInto,
            O::Transfer,
        ] {
            assert!(!allowed(refused), "{refused:?}");
        }
        for possible in [
            O::Extend,
            O::Reserve,
            O::AttachmentCreate,
            O::AttachmentSameServer,
            O::Attach,
            O::AttachmentUpdate,
            O::BeginDetaching,
            O::Detach,
            O::Snapshot,
            O::Clone,
            O::Upload,
            O::Update,
            O::WriteMetadata,
        ] {
            assert!(allowed(possible), "{possible:?}");
        }
    }

    #[test]
    fn detaching_is_always_possible() {
        for operation in [Operation::Detach, Operation::BeginDetaching] {
            assert_eq!(operation.precondition().backup, Bears::Any);
        }
    }

    #[test]
    fn beside_services_of_the_release_before_nothing_happens_beside_a_backup() {
        for bears in [Bears::Backup, Bears::NotRestoring] {
            assert!(!bears.pinned().values().contains(&Some(BackupStatus::BackingUp)));
        }
        assert_eq!(Bears::Any.pinned(), Bears::Any);
    }
}
