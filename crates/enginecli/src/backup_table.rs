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
    RestoreToFile,
    CleanupAllMounts,
    LsBackingImage,
    InspectBackingImage,
    RmBackingImage,
    CreateBackingImage,
    RestoreBackingImage,
    Verify,
    Scrub,
    Gc,
    TargetInspect,
    TargetSet,
    SystemUpload,
    SystemDownload,
    SystemList,
    SystemGetConfig,
    SystemDelete,
}

pub(crate) mod flags {
    use super::Flag;

    const STORED: &str = "What is stored";
    const RATE: &str = "Rate";
    const WAITING: &str = "Waiting";

    pub(crate) const WAIT: Flag =
        Flag::switch("wait", "wait for the end, show how far it is, and fail if it fails")
            .in_group(WAITING);
    pub(crate) const WAIT_TIMEOUT: Flag = Flag::text(
        "wait-timeout",
        "24h",
        "TIME",
        "how long to wait; what was begun goes on without the one who waits",
    )
    .in_group(WAITING);
    pub(crate) const OUTPUT: Flag = Flag::text(
        "output",
        "",
        "FORMAT",
        "json, yaml, table, wide or name; a table on a terminal and JSON elsewhere without it",
    )
    .short("o");
    pub(crate) const DEST: Flag =
        Flag::text("dest", "", "URL", "target of the backup, as in s3://bucket@region/path")
            .required();
    pub(crate) const BACKING_IMAGE_NAME: Flag =
        Flag::text("backing-image-name", "", "NAME", "backing image of the volume")
            .in_group(STORED);
    pub(crate) const BACKING_IMAGE_CHECKSUM: Flag =
        Flag::text("backing-image-checksum", "", "SUM", "checksum of that image").in_group(STORED);
    pub(crate) const BACKUP_NAME: Flag =
        Flag::text("backup-name", "", "NAME", "name of the backup; drawn without it");
    pub(crate) const COMPRESSION_METHOD: Flag = Flag::text(
        "compression-method",
        "lz4",
        "NAME",
        "lz4, gzip or none, for the first backup of a volume",
    )
    .in_group(STORED);
    pub(crate) const CONCURRENT_LIMIT: Flag =
        Flag::integer("concurrent-limit", 1, "blocks exchanged with the target at a time")
            .in_group(RATE);
    pub(crate) const RESTORE_CONCURRENT_LIMIT: Flag =
        Flag::integer("concurrent-limit", 5, "blocks exchanged with the target at a time");
    pub(crate) const OUTPUT_FILE: Flag =
        Flag::text("output-file", "", "PATH", "where the image goes; volume.FORMAT without it");
    pub(crate) const OUTPUT_FORMAT: Flag =
        Flag::text("output-format", "qcow2", "FORMAT", "of the image: qcow2 or raw");
    pub(crate) const CONDITIONAL_WRITES: Flag = Flag::text(
        "conditional-writes",
        "found",
        "WORD",
        "whether writes can be conditional: yes, no, or as found",
    );
    pub(crate) const LISTINGS_AT_ONCE: Flag = Flag::text(
        "listings-at-once",
        "found",
        "WORD",
        "whether listings show at once what was written: yes, no, or as found",
    );
    pub(crate) const ONE_CLOCK: Flag = Flag::text(
        "one-clock",
        "found",
        "WORD",
        "whether one clock stamps all objects: yes, no, or as found",
    );
    pub(crate) const LOCK_TIMEOUT: Flag = Flag::integer(
        "lock-timeout",
        30,
        "seconds to wait for a lock that another holds; 0: fail at once",
    );
    pub(crate) const CREDENTIAL_FILE: Flag = Flag::text(
        "credential-file",
        "",
        "PATH",
        "Secret with the credentials: its manifest, or the directory it is mounted at; the \
         environment without it",
    );
    pub(crate) const CHECKSUM: Flag =
        Flag::text("checksum", "", "SUM", "SHA-512 that the image must have, in hex digits");
    pub(crate) const EVERY: Flag =
        Flag::text("every", "24h", "TIME", "how often each volume is looked at");
    pub(crate) const DEEP_EVERY: Flag =
        Flag::text("deep-every", "7d", "TIME", "how often each block is fetched and checked");
    pub(crate) const REPORT: Flag = Flag::text(
        "report",
        "",
        "PATH",
        "file of the report, or a directory for it; a later run goes on from it",
    );
    pub(crate) const ONCE: Flag =
        Flag::switch("once", "check what is due, print the report, and end");
    pub(crate) const STORAGE_CLASS_NAME: Flag =
        Flag::integer("storage-class-name", 0, "kept with the volume").in_group(STORED);
    pub(crate) const BACKUP_BLOCK_SIZE: Flag =
        Flag::integer("backup-block-size", 2, "size of blocks in MiB").in_group(STORED);
    pub(crate) const BACKUP_MODE: Flag = Flag::text(
        "backup-mode",
        "",
        "MODE",
        "full: store every block anew, also those that are there; incremental without it",
    );
    pub(crate) const REPLICA: Flag =
        Flag::text("replica", "", "ADDR", "the replica that makes the backup");
    pub(crate) const ENCRYPTED_SIZE: Flag = Flag::switch(
        "need-correct-encrypted-volume-size",
        "the volume is 16 MiB larger than the one in the backup",
    );
    pub(crate) const BANDWIDTH_LIMIT: Flag =
        Flag::size("bandwidth-limit", None, "bytes a second to or from the target, in all")
            .in_group(RATE);
    pub(crate) const CONTINUE_ON_ERROR: Flag = Flag::switch(
        "continue-on-error",
        "leave out blocks that cannot be had, and restore the rest",
    );
    pub(crate) const VOLUME: Flag = Flag::text("volume", "", "NAME", "only this volume");
    pub(crate) const BACKING_IMAGES: Flag =
        Flag::switch("backing-images", "the backing images of the target, not a volume");
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
            b::BACKUP_MODE,
            b::BANDWIDTH_LIMIT,
            b::WAIT,
            b::WAIT_TIMEOUT,
            b::CREDENTIAL_FILE,
        ]),
    Command::verb("status", Verb::Ask(Ask::BackupStatus), "show how far a backup is")
        .takes("BACKUP")
        .flags(&[b::REPLICA, f::REPLICA_INSTANCE_NAME]),
    Command::verb("restore", Verb::Ask(Ask::BackupRestore), "begin to restore a backup")
        .takes("URL")
        .flags(&[
            b::CONCURRENT_LIMIT,
            b::ENCRYPTED_SIZE,
            b::BANDWIDTH_LIMIT,
            b::CONTINUE_ON_ERROR,
            b::WAIT,
            b::WAIT_TIMEOUT,
            b::CREDENTIAL_FILE,
        ]),
    Command::verb("restore-status", Verb::Ask(Ask::BackupRestoreStatus), "show how far it is"),
    store("ls", StoreVerb::Ls, "list the volumes of a target and their backups")
        .aliases(&["list"])
        .takes("URL")
        .flags(&[b::VOLUME, b::VOLUME_ONLY, b::OUTPUT, b::CREDENTIAL_FILE]),
    store("inspect", StoreVerb::Inspect, "show a backup").takes("URL").flags(&[b::CREDENTIAL_FILE]),
    store("inspect-volume", StoreVerb::InspectVolume, "show a volume of a target")
        .takes("URL")
        .flags(&[b::CREDENTIAL_FILE]),
    store("head", StoreVerb::Head, "show when a backup or a volume was written")
        .takes("URL")
        .flags(&[b::CREDENTIAL_FILE]),
    store("rm", StoreVerb::Rm, "remove a backup, or a volume with all its backups")
        .aliases(&["remove", "delete"])
        .takes("URL")
        .flags(&[b::VOLUME, b::LOCK_TIMEOUT, b::CREDENTIAL_FILE]),
    store("restore-to-file", StoreVerb::RestoreToFile, "make an image of a backup")
        .takes("URL")
        .flags(&[
            f::BACKING_FILE,
            b::OUTPUT_FILE,
            b::OUTPUT_FORMAT,
            b::RESTORE_CONCURRENT_LIMIT,
            b::CONTINUE_ON_ERROR,
            b::BANDWIDTH_LIMIT,
            b::LOCK_TIMEOUT,
            b::CREDENTIAL_FILE,
        ]),
    store("cleanup-all-mounts", StoreVerb::CleanupAllMounts, "unmount the shares of targets"),
    store("ls-backing-image", StoreVerb::LsBackingImage, "list the backing images of a target")
        .takes("URL")
        .flags(&[b::CREDENTIAL_FILE]),
    store("inspect-backing-image", StoreVerb::InspectBackingImage, "show a backing image")
        .takes("URL")
        .flags(&[b::CREDENTIAL_FILE]),
    store("rm-backing-image", StoreVerb::RmBackingImage, "remove a backing image")
        .takes("URL")
        .flags(&[b::LOCK_TIMEOUT, b::CREDENTIAL_FILE]),
    store("create-backing-image", StoreVerb::CreateBackingImage, "store a backing image")
        .takes("FILE URL")
        .flags(&[
            f::LABEL,
            b::COMPRESSION_METHOD,
            b::CHECKSUM,
            b::RESTORE_CONCURRENT_LIMIT,
            b::LOCK_TIMEOUT,
            b::CREDENTIAL_FILE,
        ]),
    store("restore-backing-image", StoreVerb::RestoreBackingImage, "give a backing image back")
        .takes("URL FILE")
        .flags(&[
            b::RESTORE_CONCURRENT_LIMIT,
            b::BANDWIDTH_LIMIT,
            b::LOCK_TIMEOUT,
            b::CREDENTIAL_FILE,
        ]),
    store(
        "verify",
        StoreVerb::Verify,
        "check that the backups of a volume, or all backing images, can be restored",
    )
    .takes("URL")
    .flags(&[b::VOLUME, b::BACKING_IMAGES, b::DEEP, b::CREDENTIAL_FILE]),
    store("scrub", StoreVerb::Scrub, "check all that is in a target again and again")
        .takes("URL")
        .flags(&[
            b::VOLUME,
            b::BACKING_IMAGES,
            b::EVERY,
            b::DEEP_EVERY,
            b::REPORT,
            b::ONCE,
            b::RESTORE_CONCURRENT_LIMIT,
            b::BANDWIDTH_LIMIT,
            b::CREDENTIAL_FILE,
        ]),
    store("gc", StoreVerb::Gc, "remove the blocks that no backup, or no backing image, needs")
        .takes("URL")
        .flags(&[b::VOLUME, b::BACKING_IMAGES, b::DRY_RUN, b::LOCK_TIMEOUT, b::CREDENTIAL_FILE]),
    Command::group(
        "target",
        "what a target can do as a store, which locks and deletions go by",
        &[
            store("inspect", StoreVerb::TargetInspect, "try what a target can do, and show it")
                .takes("URL")
                .flags(&[b::CREDENTIAL_FILE]),
            store("set", StoreVerb::TargetSet, "say what a target can do, for all who use it")
                .takes("URL")
                .flags(&[
                    b::CONDITIONAL_WRITES,
                    b::LISTINGS_AT_ONCE,
                    b::ONE_CLOCK,
                    b::CREDENTIAL_FILE,
                ]),
        ],
    ),
];

pub(crate) const SYSTEM_BACKUPS: Command =
    Command::group(
        "system-backup",
        "archives of whole systems in a target: URL/backupstore/system-backups/VERSION/NAME",
        &[
            store("upload", StoreVerb::SystemUpload, "store an archive")
                .takes("FILE URL")
                .flags(&[b::GIT_COMMIT, b::MANAGER_IMAGE, b::ENGINE_IMAGE, b::CREDENTIAL_FILE]),
            store("download", StoreVerb::SystemDownload, "fetch an archive")
                .takes("URL FILE")
                .flags(&[b::CREDENTIAL_FILE]),
            store("list", StoreVerb::SystemList, "list the archives of a target")
                .takes("URL")
                .flags(&[b::CREDENTIAL_FILE]),
            store("get-config", StoreVerb::SystemGetConfig, "show what is known of one")
                .takes("URL")
                .flags(&[b::CREDENTIAL_FILE]),
            store("delete", StoreVerb::SystemDelete, "remove one")
                .takes("URL")
                .flags(&[b::CREDENTIAL_FILE]),
        ],
    );
