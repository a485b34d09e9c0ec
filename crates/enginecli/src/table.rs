//! Every command of the dialect in one table: the parser, the help, shell completion and the check
//! of the documentation read it, so none of them can forget one.

use super::backup_table::{BACKUPS, SYSTEM_BACKUPS, StoreVerb};
use super::flag::Flag;

/// What is run once the command line is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Serve(Server),
    /// Needs a controller only if asked for its version.
    Version,
    Ask(Ask),
    /// Needs a backup store only.
    Store(StoreVerb),
}

/// A process that serves until it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Controller,
    Replica,
    SyncAgent,
}

/// A call to servers that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Info,
    LsReplica,
    AddReplica,
    VerifyRebuildReplica,
    StartWithReplicas,
    RmReplica,
    UpdateReplica,
    RebuildStatus,
    Expand,
    FrontendStart,
    FrontendShutdown,
    UnmapMarkSnapChainRemoved,
    SyncAgentReset,
    Journal,
    ProfilerShow,
    ProfilerEnable,
    ProfilerDisable,
    SnapshotLs,
    SnapshotCreate,
    SnapshotRm,
    SnapshotRevert,
    SnapshotPurge,
    SnapshotPurgeStatus,
    SnapshotInfo,
    SnapshotClone,
    SnapshotCloneStatus,
    SnapshotHash,
    SnapshotHashCancel,
    SnapshotHashStatus,
    BackupCreate,
    BackupStatus,
    BackupRestore,
    BackupRestoreStatus,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// Positional arguments, as the help shows them.
    pub(crate) arguments: &'static str,
    pub(crate) about: &'static str,
    pub(crate) flags: &'static [Flag],
    /// Commands below this one. With `verb`, that is what it does without one of them.
    pub(crate) commands: &'static [Command],
    pub(crate) verb: Option<Verb>,
}

impl Command {
    pub(super) const fn verb(name: &'static str, verb: Verb, about: &'static str) -> Self {
        let (aliases, flags, commands): (&[&str], &[Flag], &[Self]) = (&[], &[], &[]);
        Self { name, aliases, arguments: "", about, flags, commands, verb: Some(verb) }
    }

    pub(super) const fn group(
        name: &'static str,
        about: &'static str,
        commands: &'static [Self],
    ) -> Self {
        let (aliases, flags): (&[&str], &[Flag]) = (&[], &[]);
        Self { name, aliases, arguments: "", about, flags, commands, verb: None }
    }

    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn takes(self, arguments: &'static str) -> Self {
        Self { arguments, ..self }
    }

    pub(super) const fn flags(self, flags: &'static [Flag]) -> Self {
        Self { flags, ..self }
    }

    pub(super) const fn alone(self, verb: Verb) -> Self {
        Self { verb: Some(verb), ..self }
    }

    pub(crate) fn answers_to(&self, word: &str) -> bool {
        self.name == word || self.aliases.contains(&word)
    }
}

/// Flags before the command.
pub(crate) mod global {
    use super::Flag;

    pub(crate) const URL: Flag =
        Flag::text("url", "http://localhost:9501", "ADDR", "address of the controller");
    pub(crate) const VOLUME_NAME: Flag = Flag::text(
        "volume-name",
        "",
        "NAME",
        "name of the volume; a server of another volume refuses the call",
    );
    pub(crate) const ENGINE_INSTANCE_NAME: Flag = Flag::text(
        "engine-instance-name",
        "",
        "NAME",
        "name of the controller; a controller of another name refuses the call",
    );
    pub(crate) const DEBUG: Flag = Flag::switch("debug", "log more");

    pub(crate) const CONNECT_WAIT: Flag = Flag::integer(
        "connect-wait",
        0,
        "seconds to wait until the controller listens, for a command right after its start",
    );

    pub(crate) const ALL: &[Flag] = &[URL, VOLUME_NAME, ENGINE_INSTANCE_NAME, CONNECT_WAIT, DEBUG];
}

/// Flags of the commands, by the name they are typed with.
pub(crate) mod flags {
    use super::Flag;

    /// Parts of the help.
    const REPLICAS: &str = "Replicas";
    const NBD: &str = "Frontend nbd";
    const SNAPSHOTS: &str = "Snapshots";
    const OTHER_VOLUME: &str = "The other volume";
    const IGNORED: &str = "Accepted and not used";

    pub(crate) const CONTROLLER_LISTEN: Flag =
        Flag::text("listen", "localhost:9501", "ADDR", "address of the control server");
    pub(crate) const REPLICA_LISTEN: Flag = Flag::text(
        "listen",
        "localhost:9502",
        "ADDR",
        "address of the control server; data is served at the next port, files at the one after",
    );
    pub(crate) const AGENT_LISTEN: Flag =
        Flag::text("listen", "localhost:9504", "ADDR", "address of the agent");
    pub(crate) const SIZE: Flag = Flag::size("size", None, "size of the volume");
    pub(crate) const CURRENT_SIZE: Flag =
        Flag::size("current-size", None, "size the volume has now, before an expansion");
    pub(crate) const FRONTEND: Flag = Flag::text(
        "frontend",
        "",
        "NAME",
        "socket, nbd, tgt-blockdev, tgt-iscsi or rest; none without it",
    );
    pub(crate) const ENABLE_BACKEND: Flag =
        Flag::list("enable-backend", &["tcp"], "KIND", "kinds of replicas to accept: tcp, file")
            .in_group(REPLICAS);
    pub(crate) const CONTROLLER_REPLICA: Flag = Flag::list(
        "replica",
        &[],
        "ADDR",
        "replica to start the volume with, before the control server listens",
    )
    .in_group(REPLICAS);
    pub(crate) const REPLICA_WAIT: Flag = Flag::text(
        "replica-wait",
        "",
        "SECONDS",
        "how long to wait for replicas that do not listen yet; the volume then starts with those \
         that do (10 without it; 0 for a program called longhorn)",
    )
    .in_group(REPLICAS);
    pub(crate) const UPGRADE: Flag =
        Flag::switch("upgrade", "take the volume over from a running controller");
    pub(crate) const DISABLE_REV_COUNTER: Flag =
        Flag::switch("disableRevCounter", "do not count writes");
    pub(crate) const SALVAGE_REQUESTED: Flag = Flag::switch(
        "salvageRequested",
        "start with the replica that was written last (without a write count)",
    )
    .in_group(REPLICAS);
    pub(crate) const ENGINE_REPLICA_TIMEOUT: Flag = Flag::integer(
        "engine-replica-timeout",
        8,
        "seconds a replica may take to answer, from 8 to 30",
    )
    .in_group(REPLICAS);
    pub(crate) const DATA_SERVER_PROTOCOL: Flag =
        Flag::text("data-server-protocol", "tcp", "KIND", "what data runs over: tcp, unix")
            .in_group(REPLICAS);
    pub(crate) const UNMAP_MARK_SNAP_CHAIN_REMOVED: Flag = Flag::switch(
        "unmap-mark-snap-chain-removed",
        "let unmap mark the snapshots below the head as removed",
    )
    .in_group(SNAPSHOTS);
    pub(crate) const UNMAP_MARK_DISK_CHAIN_REMOVED: Flag = Flag::switch(
        "unmap-mark-disk-chain-removed",
        "let unmap mark the snapshots below the head as removed",
    )
    .in_group(SNAPSHOTS);
    pub(crate) const FILE_SYNC_TIMEOUT: Flag = Flag::integer(
        "file-sync-http-client-timeout",
        5,
        "seconds one request of a file transfer may take",
    )
    .in_group(REPLICAS);
    pub(crate) const SNAPSHOT_MAX_COUNT: Flag =
        Flag::integer("snapshot-max-count", 250, "how many snapshots there may be")
            .in_group(SNAPSHOTS);
    pub(crate) const SNAPSHOT_MAX_SIZE: Flag = Flag::size(
        "snapshot-max-size",
        Some(0),
        "how much all snapshots together may hold; 0: no limit",
    )
    .in_group(SNAPSHOTS);
    pub(crate) const REBUILD_SYNC_CONCURRENT_LIMIT: Flag = Flag::integer(
        "rebuild-sync-concurrent-limit",
        1,
        "how many replicas a rebuild reads from at once",
    )
    .in_group(REPLICAS);
    pub(crate) const NBD_LISTEN: Flag =
        Flag::text("nbd-listen", "", "ADDR", "address of frontend nbd").in_group(NBD);
    pub(crate) const NBD_UNIX: Flag =
        Flag::text("nbd-unix", "", "PATH", "unix socket of frontend nbd").in_group(NBD);
    pub(crate) const NBD_TLS_CERT: Flag =
        Flag::text("nbd-tls-cert", "", "FILE", "certificate of frontend nbd (PEM)").in_group(NBD);
    pub(crate) const NBD_TLS_KEY: Flag =
        Flag::text("nbd-tls-key", "", "FILE", "key of that certificate (PEM)").in_group(NBD);
    pub(crate) const NBD_TLS_CLIENT_CA: Flag = Flag::text(
        "nbd-tls-client-ca",
        "",
        "FILE",
        "who signs the certificates clients must have (PEM)",
    )
    .in_group(NBD);

    pub(crate) const BACKING_FILE: Flag = Flag::text(
        "backing-file",
        "",
        "PATH",
        "image below the oldest snapshot, or a directory with just that file",
    );
    pub(crate) const SYNC_AGENT: Flag =
        Flag::switch_on("sync-agent", "start the agent that copies files");
    pub(crate) const SYNC_AGENT_PORT_COUNT: Flag =
        Flag::integer("sync-agent-port-count", 10, "ports for files the agent receives");
    pub(crate) const REPLICA_INSTANCE_NAME: Flag = Flag::text(
        "replica-instance-name",
        "",
        "NAME",
        "name of the replica; a replica of another name refuses the call",
    );
    pub(crate) const ENCRYPTED: Flag =
        Flag::switch("encrypted", "the volume holds an encrypted filesystem");
    pub(crate) const RESTORE_FROM: Flag =
        Flag::text("restore-from", "", "URL", "accepted and not used").in_group(IGNORED);
    pub(crate) const RESTORE_NAME: Flag =
        Flag::text("restore-name", "", "NAME", "accepted and not used").in_group(IGNORED);
    pub(crate) const LISTEN_PORT_RANGE: Flag = Flag::text(
        "listen-port-range",
        "9700-9800",
        "FROM-TO",
        "ports for files the agent receives",
    );
    pub(crate) const AGENT_REPLICA: Flag =
        Flag::text("replica", "", "ADDR", "control address of the replica the agent works for")
            .required();

    pub(crate) const RESTORE: Flag =
        Flag::switch("restore", "add it to be filled from a backup: no snapshot, no file copy");
    pub(crate) const FAST_SYNC: Flag =
        Flag::switch("fast-sync", "skip files whose recorded checksums are equal");
    pub(crate) const SYNC_LOCAL: Flag =
        Flag::switch("sync-local", "accepted and not used").in_group(IGNORED);
    pub(crate) const GRPC_TIMEOUT: Flag =
        Flag::integer("grpc-timeout-seconds", 0, "seconds the copying may take; 0: a day");
    pub(crate) const MODE: Flag = Flag::text("mode", "", "MODE", "RW or ERR").required();
    pub(crate) const EXPAND_SIZE: Flag = Flag::integer("size", 0, "new size in bytes").required();
    pub(crate) const ENABLE: Flag = Flag::switch("enable", "switch it on");
    pub(crate) const DISABLE: Flag = Flag::switch("disable", "switch it off");
    pub(crate) const LIMIT: Flag = Flag::integer("limit", 0, "how many operations; 0: all kept");
    pub(crate) const PORT: Flag =
        Flag::integer("port", 0, "port of the profiler, from 30000; 0: the server's port + 20001");
    pub(crate) const CLIENT_ONLY: Flag =
        Flag::switch("client-only", "do not ask a controller for its version");

    pub(crate) const LABEL: Flag = Flag::list("label", &[], "KEY=VALUE", "label of the snapshot");
    pub(crate) const FREEZE_FS: Flag =
        Flag::switch("freeze-fs", "freeze the filesystem on the volume meanwhile");
    pub(crate) const SKIP_IF_IN_PROGRESS: Flag =
        Flag::switch("skip-if-in-progress", "succeed if a purge is running already");
    pub(crate) const FOLD_HEAD_PARENT: Flag = Flag::switch(
        "fold-head-parent",
        "merge the removed parent of the head into it, too; without, it stays",
    );
    pub(crate) const SNAPSHOT_NAME: Flag =
        Flag::text("snapshot-name", "", "NAME", "snapshot of the other volume")
            .in_group(OTHER_VOLUME)
            .required();
    pub(crate) const FROM_CONTROLLER_ADDRESS: Flag =
        Flag::text("from-controller-address", "", "ADDR", "controller of the other volume")
            .in_group(OTHER_VOLUME)
            .required();
    pub(crate) const FROM_VOLUME_NAME: Flag =
        Flag::text("from-volume-name", "", "NAME", "name of the other volume")
            .in_group(OTHER_VOLUME)
            .required();
    pub(crate) const FROM_CONTROLLER_INSTANCE_NAME: Flag = Flag::text(
        "from-controller-instance-name",
        "",
        "NAME",
        "name of the other volume's controller",
    )
    .in_group(OTHER_VOLUME);
    pub(crate) const EXPORT_BACKING_IMAGE: Flag =
        Flag::switch("export-backing-image-if-exist", "copy the other's backing file too");
    pub(crate) const REHASH: Flag =
        Flag::switch("rehash", "compute it again even if there is a checksum");
}

use flags as f;

/// Everything that can be run, servers first.
pub(crate) const COMMANDS: &[Command] = &[
    Command::verb("controller", Verb::Serve(Server::Controller), "serve a volume")
        .takes("VOLUME")
        .flags(&[
            f::CONTROLLER_LISTEN,
            f::SIZE.required(),
            f::CURRENT_SIZE.required(),
            f::FRONTEND,
            f::ENABLE_BACKEND,
            f::CONTROLLER_REPLICA,
            f::REPLICA_WAIT,
            f::UPGRADE,
            f::DISABLE_REV_COUNTER,
            f::SALVAGE_REQUESTED,
            f::ENGINE_REPLICA_TIMEOUT,
            f::DATA_SERVER_PROTOCOL,
            f::UNMAP_MARK_SNAP_CHAIN_REMOVED,
            f::FILE_SYNC_TIMEOUT,
            f::SNAPSHOT_MAX_COUNT,
            f::SNAPSHOT_MAX_SIZE,
            f::REBUILD_SYNC_CONCURRENT_LIMIT,
            f::NBD_LISTEN,
            f::NBD_UNIX,
            f::NBD_TLS_CERT,
            f::NBD_TLS_KEY,
            f::NBD_TLS_CLIENT_CA,
        ]),
    Command::verb("replica", Verb::Serve(Server::Replica), "serve one copy of a volume")
        .takes("DIR")
        .flags(&[
            f::REPLICA_LISTEN,
            f::BACKING_FILE,
            f::SIZE,
            f::SYNC_AGENT,
            f::SYNC_AGENT_PORT_COUNT,
            f::DISABLE_REV_COUNTER,
            f::DATA_SERVER_PROTOCOL,
            f::UNMAP_MARK_DISK_CHAIN_REMOVED,
            f::REPLICA_INSTANCE_NAME,
            f::SNAPSHOT_MAX_COUNT,
            f::SNAPSHOT_MAX_SIZE,
            f::ENCRYPTED,
            f::RESTORE_FROM,
            f::RESTORE_NAME,
        ]),
    Command::verb(
        "sync-agent",
        Verb::Serve(Server::SyncAgent),
        "copy files for a replica (started by it)",
    )
    .flags(&[
        f::AGENT_LISTEN,
        f::LISTEN_PORT_RANGE,
        f::AGENT_REPLICA,
        f::REPLICA_INSTANCE_NAME,
    ]),
    Command::verb("info", Verb::Ask(Ask::Info), "show the volume"),
    Command::verb("ls-replica", Verb::Ask(Ask::LsReplica), "list the replicas").aliases(&["ls"]),
    Command::verb(
        "add-replica",
        Verb::Ask(Ask::AddReplica),
        "add a replica and wait until it is rebuilt",
    )
    .aliases(&["add"])
    .takes("ADDR")
    .flags(&[
        f::SIZE.required(),
        f::CURRENT_SIZE.required(),
        f::RESTORE,
        f::FAST_SYNC,
        f::SYNC_LOCAL,
        f::FILE_SYNC_TIMEOUT,
        f::GRPC_TIMEOUT,
        f::REPLICA_WAIT,
        f::REPLICA_INSTANCE_NAME,
    ]),
    Command::verb(
        "verify-rebuild-replica",
        Verb::Ask(Ask::VerifyRebuildReplica),
        "compare a rebuilt replica with the others and let it serve reads",
    )
    .aliases(&["verify-rebuild"])
    .takes("ADDR")
    .flags(&[f::REPLICA_INSTANCE_NAME]),
    Command::verb("start-with-replicas", Verb::Ask(Ask::StartWithReplicas), "start the volume")
        .aliases(&["start"])
        .takes("ADDR...")
        .flags(&[f::SIZE, f::CURRENT_SIZE]),
    Command::verb("rm-replica", Verb::Ask(Ask::RmReplica), "remove a replica")
        .aliases(&["rm"])
        .takes("ADDR"),
    Command::verb("update-replica", Verb::Ask(Ask::UpdateReplica), "change the mode of a replica")
        .aliases(&["update"])
        .takes("ADDR")
        .flags(&[f::MODE]),
    Command::verb(
        "replica-rebuild-status",
        Verb::Ask(Ask::RebuildStatus),
        "show how far the rebuild of replicas is",
    )
    .aliases(&["rebuild-status"]),
    Command::verb("expand", Verb::Ask(Ask::Expand), "begin to make the volume larger")
        .flags(&[f::EXPAND_SIZE]),
    Command::group("frontend", "start and stop the frontend", FRONTEND),
    Command::verb(
        "unmap-mark-snap-chain-removed",
        Verb::Ask(Ask::UnmapMarkSnapChainRemoved),
        "choose whether unmap may mark the snapshots below the head as removed",
    )
    .aliases(&["unmap-mark-snap"])
    .flags(&[f::ENABLE, f::DISABLE]),
    Command::verb(
        "sync-agent-server-reset",
        Verb::Ask(Ask::SyncAgentReset),
        "let all sync agents forget what they did",
    ),
    Command::verb(
        "journal",
        Verb::Ask(Ask::Journal),
        "write recent operations to the server's log",
    )
    .flags(&[f::LIMIT]),
    Command::group("profiler", "the controller's profiler", PROFILER),
    Command::verb("version", Verb::Version, "show the versions of client and controller")
        .flags(&[f::CLIENT_ONLY]),
    Command::group("snapshots", "work with snapshots; without more, list them", SNAPSHOTS)
        .aliases(&["snapshot"])
        .alone(Verb::Ask(Ask::SnapshotLs)),
    HASH,
    HASH_CANCEL,
    HASH_STATUS,
    BACKUPS,
    SYSTEM_BACKUPS,
];

const FRONTEND: &[Command] = &[
    Command::verb("start", Verb::Ask(Ask::FrontendStart), "start a frontend").takes("NAME"),
    Command::verb("shutdown", Verb::Ask(Ask::FrontendShutdown), "stop the frontend"),
];

const PROFILER: &[Command] = &[
    Command::verb("show", Verb::Ask(Ask::ProfilerShow), "say where the profiler listens"),
    Command::verb("enable", Verb::Ask(Ask::ProfilerEnable), "let the profiler listen")
        .flags(&[f::PORT]),
    Command::verb("disable", Verb::Ask(Ask::ProfilerDisable), "stop the profiler"),
];

const SNAPSHOTS: &[Command] = &[
    Command::verb(
        "ls",
        Verb::Ask(Ask::SnapshotLs),
        "list the snapshots all replicas have, newest first",
    ),
    Command::verb("create", Verb::Ask(Ask::SnapshotCreate), "take a snapshot and print its name")
        .takes("[NAME]")
        .flags(&[f::LABEL, f::FREEZE_FS]),
    Command::verb("rm", Verb::Ask(Ask::SnapshotRm), "mark snapshots as removed").takes("NAME..."),
    Command::verb("revert", Verb::Ask(Ask::SnapshotRevert), "go back to a snapshot").takes("NAME"),
    Command::verb("purge", Verb::Ask(Ask::SnapshotPurge), "begin to merge removed snapshots away")
        .flags(&[f::SKIP_IF_IN_PROGRESS, f::FOLD_HEAD_PARENT]),
    Command::verb("purge-status", Verb::Ask(Ask::SnapshotPurgeStatus), "show how far the purge is"),
    Command::verb("info", Verb::Ask(Ask::SnapshotInfo), "show all snapshots and how they depend"),
    Command::verb(
        "clone",
        Verb::Ask(Ask::SnapshotClone),
        "copy a snapshot of another volume into this one",
    )
    .flags(&[
        f::SNAPSHOT_NAME,
        f::FROM_CONTROLLER_ADDRESS,
        f::FROM_VOLUME_NAME,
        f::FROM_CONTROLLER_INSTANCE_NAME,
        f::EXPORT_BACKING_IMAGE,
        f::FILE_SYNC_TIMEOUT,
        f::GRPC_TIMEOUT,
    ]),
    Command::verb(
        "clone-status",
        Verb::Ask(Ask::SnapshotCloneStatus),
        "show how far the copying is",
    ),
    HASH,
    HASH_CANCEL,
    HASH_STATUS,
];

const HASH: Command =
    Command::verb("hash", Verb::Ask(Ask::SnapshotHash), "begin to compute a snapshot's checksum")
        .takes("NAME")
        .flags(&[f::REHASH]);
const HASH_CANCEL: Command =
    Command::verb("hash-cancel", Verb::Ask(Ask::SnapshotHashCancel), "stop computing it")
        .takes("NAME");
const HASH_STATUS: Command =
    Command::verb("hash-status", Verb::Ask(Ask::SnapshotHashStatus), "show a snapshot's checksums")
        .takes("NAME");
