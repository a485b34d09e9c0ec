//! Where everything lies in an object store: the files of a backup and of a restore, and the members
//! of a tarball. Pure.

use api::velero::DownloadKind;
use blobs::{Key, KeyError, Prefix};

/// The only folders a location may have at its top.
pub(crate) const TOP_FOLDERS: [&str; 6] =
    ["backups", "restores", "restic", "kopia", "metadata", "plugins"];

/// The files of a backup beside its object and its tarball.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackupFile {
    Object,
    Contents,
    Log,
    Results,
    ResourceList,
    VolumeSnapshots,
    PodVolumeBackups,
    ItemOperations,
    VolumeInfo,
    CsiVolumeSnapshots,
    CsiVolumeSnapshotContents,
}

impl BackupFile {
    pub(crate) fn key(self, backup: &str) -> Result<Key, KeyError> {
        let suffix = match self {
            Self::Object => return Key::parse(&format!("backups/{backup}/velero-backup.json")),
            Self::Contents => ".tar.gz",
            Self::Log => "-logs.gz",
            Self::Results => "-results.gz",
            Self::ResourceList => "-resource-list.json.gz",
            Self::VolumeSnapshots => "-volumesnapshots.json.gz",
            Self::PodVolumeBackups => "-podvolumebackups.json.gz",
            Self::ItemOperations => "-itemoperations.json.gz",
            Self::VolumeInfo => "-volumeinfo.json.gz",
            Self::CsiVolumeSnapshots => "-csi-volumesnapshots.json.gz",
            Self::CsiVolumeSnapshotContents => "-csi-volumesnapshotcontents.json.gz",
        };
        Key::parse(&format!("backups/{backup}/{backup}{suffix}"))
    }
}

/// The files of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestoreFile {
    Log,
    Results,
    ResourceList,
    ItemOperations,
    VolumeInfo,
}

impl RestoreFile {
    pub(crate) fn key(self, restore: &str) -> Result<Key, KeyError> {
        let name = match self {
            Self::Log => format!("restore-{restore}-logs.gz"),
            Self::Results => format!("restore-{restore}-results.gz"),
            Self::ResourceList => format!("restore-{restore}-resource-list.json.gz"),
            Self::ItemOperations => format!("restore-{restore}-itemoperations.json.gz"),
            Self::VolumeInfo => format!("{restore}-volumeinfo.json.gz"),
        };
        Key::parse(&format!("restores/{restore}/{name}"))
    }
}

pub(crate) fn backup_folder(backup: &str) -> Result<Prefix, KeyError> {
    Key::parse(&format!("backups/{backup}")).map(Prefix::from)
}

pub(crate) fn restore_folder(restore: &str) -> Result<Prefix, KeyError> {
    Key::parse(&format!("restores/{restore}")).map(Prefix::from)
}

/// What a request to download means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Download {
    Backup(BackupFile),
    Restore(RestoreFile),
}

/// `None` for a kind that is not known.
pub(crate) fn download(kind: &DownloadKind) -> Option<Download> {
    use DownloadKind as K;
    Some(match kind {
        K::BackupLog => Download::Backup(BackupFile::Log),
        K::BackupContents => Download::Backup(BackupFile::Contents),
        K::BackupVolumeSnapshots => Download::Backup(BackupFile::VolumeSnapshots),
        K::BackupItemOperations => Download::Backup(BackupFile::ItemOperations),
        K::BackupResourceList => Download::Backup(BackupFile::ResourceList),
        K::BackupResults => Download::Backup(BackupFile::Results),
        K::BackupVolumeInfos => Download::Backup(BackupFile::VolumeInfo),
        K::CsiBackupVolumeSnapshots => Download::Backup(BackupFile::CsiVolumeSnapshots),
        K::CsiBackupVolumeSnapshotContents => {
            Download::Backup(BackupFile::CsiVolumeSnapshotContents)
        }
        K::RestoreLog => Download::Restore(RestoreFile::Log),
        K::RestoreResults => Download::Restore(RestoreFile::Results),
        K::RestoreResourceList => Download::Restore(RestoreFile::ResourceList),
        K::RestoreItemOperations => Download::Restore(RestoreFile::ItemOperations),
        K::RestoreVolumeInfo => Download::Restore(RestoreFile::VolumeInfo),
        K::Other(_) => return None,
    })
}

/// The first member of every tarball.
pub(crate) const VERSION_MEMBER: &str = "metadata/version";

/// What a member of a tarball is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Member<'p> {
    /// One object.
    Item(Item<'p>),
    /// The same object once more, under its version; or something else that does not matter.
    Beside,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item<'p> {
    /// `resource.group`, or `resource` of the core.
    pub(crate) resource: &'p str,
    pub(crate) namespace: Option<&'p str>,
    pub(crate) name: &'p str,
}

pub(crate) fn member(path: &str) -> Member<'_> {
    let parts: Vec<&str> = path.split('/').collect();
    let item = match parts.as_slice() {
        ["resources", resource, "namespaces", namespace, file] => file
            .strip_suffix(".json")
            .map(|name| Item { resource, namespace: Some(namespace), name }),
        ["resources", resource, "cluster", file] => {
            file.strip_suffix(".json").map(|name| Item { resource, namespace: None, name })
        }
        _ => None,
    };
    item.map_or(Member::Beside, Member::Item)
}

/// The two members of an object: the plain one, and the one under its version.
pub(crate) fn members(item: &Item<'_>, version: &str) -> [String; 2] {
    let Item { resource, namespace, name } = item;
    let place = match namespace {
        Some(namespace) => format!("namespaces/{namespace}/{name}.json"),
        None => format!("cluster/{name}.json"),
    };
    [
        format!("resources/{resource}/{place}"),
        format!("resources/{resource}/{version}-preferredversion/{place}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_other_tools_look_for_them() {
        let key = |file: BackupFile| file.key("b1").unwrap().to_string();
        assert_eq!(key(BackupFile::Object), "backups/b1/velero-backup.json");
        assert_eq!(key(BackupFile::Contents), "backups/b1/b1.tar.gz");
        assert_eq!(key(BackupFile::ResourceList), "backups/b1/b1-resource-list.json.gz");
        let key = |file: RestoreFile| file.key("r1").unwrap().to_string();
        assert_eq!(key(RestoreFile::Log), "restores/r1/restore-r1-logs.gz");
        assert_eq!(key(RestoreFile::VolumeInfo), "restores/r1/r1-volumeinfo.json.gz");
    }

    #[test]
    fn names_cannot_climb() {
        for name in ["..", "a/../b", "", "a//b"] {
            assert!(BackupFile::Contents.key(name).is_err(), "{name:?}");
            assert!(backup_folder(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn members_are_told_from_their_twins() {
        let item = Item { resource: "deployments.apps", namespace: Some("a"), name: "b" };
        let [plain, twin] = members(&item, "v1");
        assert_eq!(plain, "resources/deployments.apps/namespaces/a/b.json");
        assert_eq!(twin, "resources/deployments.apps/v1-preferredversion/namespaces/a/b.json");
        assert_eq!(member(&plain), Member::Item(item));
        assert_eq!(member(&twin), Member::Beside);
        assert_eq!(member("metadata/version"), Member::Beside);
        let cluster = Item { resource: "namespaces", namespace: None, name: "a" };
        assert_eq!(member(&members(&cluster, "v1")[0]), Member::Item(cluster));
    }
}
