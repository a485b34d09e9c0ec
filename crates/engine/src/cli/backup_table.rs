//! The commands of backups and their flags, a part of the table.

use super::flag::Flag;
use super::table::{Ask, Command, Verb, flags as f};

/// A command that asks a backup store, and no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreVerb {
    Ls,
    Inspect,
    InspectVolume,
    Head,
    Rm,
    CleanupAllMounts,
    LsBackingImage,
    InspectBackingImage,
    RmBackingImage,
    Verify,
    Gc,
    SystemUpload,
    SystemDownload,
    SystemList,
    SystemGetConfig,
    SystemDelete,
}

pub(crate) mod flags {
    use super::Flag;

    pub(crate) const DEST: Flag =
        Flag::text("dest", "", "URL", "target of the backup, as in s3://bucket@region/path");
    pub(crate) const BACKING_IMAGE_NAME: Flag =
        Flag::text("backing-image-name", "", "NAME", "backing image of the volume");
    pub(crate) const BACKING_IMAGE_CHECKSUM: Flag =
        Flag::text("backing-image-checksum", "", "SUM", "checksum of that image");
    pub(crate) const BACKUP_NAME: Flag =
        Flag::text("backup-name", "", "NAME", "name of the backup; drawn without it");
    pub(crate) const COMPRESSION_METHOD: Flag = Flag::text(
        "compression-method",
        "lz4",
        "NAME",
        "lz4, gzip or none, for the first backup of a volume",
    );
    pub(crate) const CONCURRENT_LIMIT: Flag =
        Flag::integer("concurrent-limit", 1, "blocks exchanged with the target at a time");
    pub(crate) const STORAGE_CLASS_NAME: Flag =
        Flag::integer("storage-class-name", 0, "kept with the volume");
    pub(crate) const BACKUP_BLOCK_SIZE: Flag =
        Flag::integer("backup-block-size", 2, "size of blocks in MiB");
    pub(crate) const REPLICA: Flag =
        Flag::text("replica", "", "ADDR", "the replica that makes the backup");
    pub(crate) const ENCRYPTED_SIZE: Flag = Flag::switch(
        "need-correct-encrypted-volume-size",
        "the volume is 16 MiB larger than the one in the backup",
    );
    pub(crate) const BANDWIDTH_LIMIT: Flag =
        Flag::size("bandwidth-limit", None, "bytes a second to or from the target, in all");
    pub(crate) const CONTINUE_ON_ERROR: Flag = Flag::switch(
        "continue-on-error",
        "leave out blocks that cannot be had, and restore the rest",
    );
    pub(crate) const VOLUME: Flag = Flag::text("volume", "", "NAME", "only this volume");
    pub(crate) const VOLUME_ONLY: Flag = Flag::switch("volume-only", "leave out their backups");
    pub(crate) const DEEP: Flag = Flag::switch("deep", "fetch and check every block");
    pub(crate) const DRY_RUN: Flag = Flag::switch("dry-run", "change nothing");
    pub(crate) const GIT_COMMIT: Flag =
        Flag::text("git-commit", "", "COMMIT", "kept with the archive");
    pub(crate) const MANAGER_IMAGE: Flag =
        Flag::text("manager-image", "", "IMAGE", "kept with the archive");
    pub(crate) const ENGINE_IMAGE: Flag =
        Flag::text("engine-image", "", "IMAGE", "kept with the archive");
}

use flags as b;

const fn store(name: &'static str, verb: StoreVerb, about: &'static str) -> Command {
    Command::verb(name, Verb::Store(verb), about)
}

pub(crate) const BACKUPS: Command =
    Command::group("backups", "make, look at, restore and remove backups", COMMANDS)
        .aliases(&["backup"]);

const COMMANDS: &[Command] = &[
    Command::verb("create", Verb::Ask(Ask::BackupCreate), "begin to back a snapshot up")
        .takes("SNAPSHOT")
        .flags(&[
            b::DEST,
            b::BACKING_IMAGE_NAME,
            b::BACKING_IMAGE_CHECKSUM,
            f::LABEL,
            b::BACKUP_NAME,
            b::COMPRESSION_METHOD,
            b::CONCURRENT_LIMIT,
            b::STORAGE_CLASS_NAME,
            b::BACKUP_BLOCK_SIZE,
            b::BANDWIDTH_LIMIT,
        ]),
    Command::verb("status", Verb::Ask(Ask::BackupStatus), "show how far a backup is")
        .takes("BACKUP")
        .flags(&[b::REPLICA, f::REPLICA_INSTANCE_NAME]),
    Command::verb("restore", Verb::Ask(Ask::BackupRestore), "begin to restore a backup")
        .takes("URL")
        .flags(&[b::CONCURRENT_LIMIT, b::ENCRYPTED_SIZE, b::BANDWIDTH_LIMIT, b::CONTINUE_ON_ERROR]),
    Command::verb("restore-status", Verb::Ask(Ask::BackupRestoreStatus), "show how far it is"),
    store("ls", StoreVerb::Ls, "list the volumes of a target and their backups")
        .aliases(&["list"])
        .takes("URL")
        .flags(&[b::VOLUME, b::VOLUME_ONLY]),
    store("inspect", StoreVerb::Inspect, "show a backup").takes("URL"),
    store("inspect-volume", StoreVerb::InspectVolume, "show a volume of a target").takes("URL"),
    store("head", StoreVerb::Head, "show when a backup or a volume was written").takes("URL"),
    store("rm", StoreVerb::Rm, "remove a backup, or a volume with all its backups")
        .aliases(&["remove", "delete"])
        .takes("URL")
        .flags(&[b::VOLUME]),
    store("cleanup-all-mounts", StoreVerb::CleanupAllMounts, "unmount the shares of targets"),
    store("ls-backing-image", StoreVerb::LsBackingImage, "list the backing images of a target")
        .takes("URL"),
    store("inspect-backing-image", StoreVerb::InspectBackingImage, "show a backing image")
        .takes("URL"),
    store("rm-backing-image", StoreVerb::RmBackingImage, "remove a backing image").takes("URL"),
    store("verify", StoreVerb::Verify, "check that the backups of a volume can be restored")
        .takes("URL")
        .flags(&[b::VOLUME, b::DEEP]),
    store("gc", StoreVerb::Gc, "remove the blocks of a volume that no backup needs")
        .takes("URL")
        .flags(&[b::VOLUME, b::DRY_RUN]),
];

pub(crate) const SYSTEM_BACKUPS: Command = Command::group(
    "system-backup",
    "archives of whole systems in a target: URL/backupstore/system-backups/VERSION/NAME",
    &[
        store("upload", StoreVerb::SystemUpload, "store an archive").takes("FILE URL").flags(&[
            b::GIT_COMMIT,
            b::MANAGER_IMAGE,
            b::ENGINE_IMAGE,
        ]),
        store("download", StoreVerb::SystemDownload, "fetch an archive").takes("URL FILE"),
        store("list", StoreVerb::SystemList, "list the archives of a target").takes("URL"),
        store("get-config", StoreVerb::SystemGetConfig, "show what is known of one").takes("URL"),
        store("delete", StoreVerb::SystemDelete, "remove one").takes("URL"),
    ],
);
