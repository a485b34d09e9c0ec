//! Everything that can be typed: commands, and the groups of flags each of them has.

use super::flag::{Flag, Kind, Named};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Server,
    Snapshot,
    Restore,
    Initialize,
    Compact,
    Copy,
    Verify,
    Drill,
    Completion,
    Help,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    pub(crate) about: &'static str,
    /// What follows the flags, for the help.
    pub(crate) arguments: &'static str,
    pub(crate) groups: &'static [Group],
}

/// Flags that go together, with a word in front of each name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// Above them in the help; groups of one title are shown as one.
    pub(crate) title: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) flags: &'static [Flag],
}

impl Command {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.name == name)
    }

    /// All flags, by name.
    pub(crate) fn flags(&self) -> Vec<Named> {
        let mut flags: Vec<Named> = self.groups.iter().flat_map(Group::named).collect();
        flags.sort_by_key(Named::name);
        flags
    }

    /// The titles of the help, in the order of the table, each with its flags by name.
    pub(crate) fn sections(&self) -> Vec<(&'static str, Vec<Named>)> {
        let mut sections: Vec<(&'static str, Vec<Named>)> = Vec::new();
        for group in self.groups {
            match sections.iter_mut().find(|(title, _)| *title == group.title) {
                Some((_, flags)) => flags.extend(group.named()),
                None => sections.push((group.title, group.named().collect())),
            }
        }
        for (_, flags) in &mut sections {
            flags.sort_by_key(Named::name);
        }
        sections
    }
}

impl Group {
    fn named(&self) -> impl Iterator<Item = Named> + use<> {
        let prefix = self.prefix;
        self.flags.iter().map(move |flag| Named { prefix, flag })
    }
}

const fn group(title: &'static str, flags: &'static [Flag]) -> Group {
    Group { title, prefix: "", flags }
}

/// What has no title of its own.
const fn plain(flags: &'static [Flag]) -> Group {
    group("Flags", flags)
}

const fn store(title: &'static str, prefix: &'static str) -> Group {
    Group { title, prefix, flags: STORE }
}

use Kind::{Count, Duration, Integer, Port, Switch, Text, TextArray, Texts};

const ETCD: &[Flag] = &[
    Flag::new("endpoints", Texts, "http://127.0.0.1:2379", "where this member answers clients")
        .short('e'),
    Flag::new("service-endpoints", Texts, "", "where the cluster answers, for changes of members"),
    Flag::new("etcd-username", Text, "", "user to sign in as; with a password only"),
    Flag::new("etcd-password", Text, "", "password of that user"),
    Flag::new("etcd-connection-timeout", Duration, "30s", "timeout of one call"),
    Flag::new("etcd-snapshot-timeout", Duration, "15m", "timeout of a whole snapshot"),
    Flag::new("etcd-defrag-timeout", Duration, "8m", "timeout of one member's defragmentation"),
    Flag::new("insecure-transport", Switch, "true", "speak without TLS if no file asks for it"),
    Flag::new("insecure-skip-tls-verify", Switch, "true", "accept any certificate of the server"),
    Flag::new("cert", Text, "", "client certificate, a PEM file"),
    Flag::new("key", Text, "", "key of the client certificate, a PEM file"),
    Flag::new("cacert", Text, "", "authorities that sign server certificates, a PEM file"),
];

const HTTP: &[Flag] = &[
    Flag::new("server-port", Port, "8080", "port of the HTTP server").short('p'),
    Flag::new("enable-profiling", Switch, "false", "serve paths for looking into the process"),
    Flag::new("server-cert", Text, "", "certificate of the HTTP server, a PEM file"),
    Flag::new("server-key", Text, "", "key of that certificate, a PEM file"),
];

/// Not of the dialect.
const HTTP_BIND: &[Flag] =
    &[Flag::new("server-bind-address", Text, "", "IP address to listen on; empty is all of them")];

const SNAPSHOTTER: &[Flag] = &[
    Flag::new("schedule", Text, "0 */1 * * *", "when to take full snapshots, as cron writes it")
        .short('s'),
    Flag::new("delta-snapshot-period", Duration, "20s", "time between deltas; below 1s, none"),
    Flag::new("delta-snapshot-memory-limit", Count, "10485760", "bytes that end a delta early"),
    Flag::new("delta-snapshot-retention-period", Duration, "0s", "age of old deltas still kept"),
    Flag::new("garbage-collection-period", Duration, "1m", "time between collections; 1s is never"),
    Flag::new("garbage-collection-policy", Text, "Exponential", "Exponential or LimitBased"),
    Flag::new("max-backups", Count, "7", "full snapshots that LimitBased keeps").short('m'),
];

const STORE: &[Flag] = &[
    Flag::new(
        "storage-provider",
        Text,
        "",
        "Local if not given, S3, ABS, GCS, Swift, OSS, ECS or OCS",
    ),
    Flag::new("store-container", Text, "", "bucket, container or directory")
        .required_unless_local("STORAGE_CONTAINER"),
    Flag::new("store-prefix", Text, "", "path before all names in the container"),
    Flag::new("store-endpoint-override", Text, "", "address of the store, a whole URL"),
    Flag::new("max-parallel-chunk-uploads", Count, "5", "parts of one object sent at once"),
    Flag::new("min-chunk-size", Count, "5242880", "least bytes of a part"),
    Flag::new("snapstore-temp-directory", Text, "/tmp", "directory for what is on its way"),
];

const RESTORATION: &[Flag] = &[
    Flag::new("data-dir", Text, "default.etcd", "data directory of the member").short('d'),
    Flag::new(
        "restoration-temp-snapshots-dir",
        Text,
        "default.restoration.tmp",
        "directory for fetched snapshots",
    ),
    Flag::new("name", Text, "default", "name of the member"),
    Flag::new("initial-cluster", Text, "default=http://localhost:2380", "members and their URLs"),
    Flag::new("initial-cluster-token", Text, "etcd-cluster", "token that tells clusters apart"),
    Flag::new(
        "initial-advertise-peer-urls",
        TextArray,
        "http://localhost:2380",
        "peer URLs of the member",
    ),
    Flag::new("skip-hash-check", Switch, "false", "take a full snapshot that has no hash"),
    Flag::new("max-fetchers", Count, "6", "snapshots fetched at once"),
    Flag::new("max-call-send-message-size", Count, "10485760", "accepted; nothing is sent"),
    Flag::new("max-request-bytes", Count, "10485760", "accepted; restoring has no such limit"),
    Flag::new("max-txn-ops", Count, "10240", "accepted; restoring has no such limit"),
    Flag::new("embedded-etcd-quota-bytes", Integer, "8589934592", "accepted; no etcd runs"),
    Flag::new("auto-compaction-mode", Text, "periodic", "periodic or revision; no etcd runs"),
    Flag::new("auto-compaction-retention", Text, "30m", "accepted; no etcd runs"),
];

const COMPRESSION: &[Flag] = &[
    Flag::new("compress-snapshots", Switch, "true", "compress new snapshots"),
    Flag::new("compression-policy", Text, "gzip", "gzip, zlib or lzw"),
];

const HEALTH: &[Flag] = &[
    Flag::new("enable-member-lease-renewal", Switch, "false", "renew the lease of this member"),
    Flag::new("enable-snapshot-lease-renewal", Switch, "false", "renew the leases of snapshots"),
    Flag::new("k8s-heartbeat-duration", Duration, "30s", "time between renewals"),
    Flag::new(
        "full-snapshot-lease-name",
        Text,
        "full-snapshot-revisions",
        "lease of full snapshots",
    ),
    Flag::new("delta-snapshot-lease-name", Text, "delta-snapshot-revisions", "lease of deltas"),
];

const ELECTION: &[Flag] = &[
    Flag::new("reelection-period", Duration, "5s", "time between looks at who leads"),
    Flag::new("etcd-connection-timeout-leader-election", Duration, "5s", "timeout of that look"),
];

const BACKOFF: &[Flag] = &[
    Flag::new("backoff-multiplier", Count, "2", "factor between waits after failures"),
    Flag::new("backoff-attempt-limit", Count, "6", "waits that grow"),
    Flag::new("backoff-threshold-time", Duration, "2m8s", "longest wait"),
];

const SECONDARY: &[Flag] = &[
    Flag::new("secondary-backup-sync-enabled", Switch, "false", "copy to a second store"),
    Flag::new("secondary-backup-sync-period", Duration, "1h", "time between copies"),
];

const DEFRAGMENTATION: &[Flag] = &[Flag::new(
    "defragmentation-schedule",
    Text,
    "0 0 */3 * *",
    "when to defragment, as cron writes it",
)];

const SERVER: &[Flag] = &[
    Flag::new("use-etcd-wrapper", Switch, "false", "etcd runs under a wrapper that can be asked"),
    Flag::new("config-file", Text, "", "settings in a file; flags then mean nothing"),
    Flag::new("log-level", Integer, "4", "2 errors, 3 warnings, 4 information, 5 debug, 6 all"),
];

const VALIDATION: &[Flag] =
    &[Flag::new("validation-mode", Text, "full", "how thoroughly to look: full or sanity")];

const COMPACTOR: &[Flag] = &[
    Flag::new("defragment", Switch, "true", "leave no free pages in the result"),
    Flag::new("etcd-snapshot-timeout", Duration, "30m", "timeout of the upload"),
    Flag::new("etcd-defrag-timeout", Duration, "8m", "accepted; no etcd runs"),
    Flag::new(
        "full-snapshot-lease-name",
        Text,
        "full-snapshot-revisions",
        "lease of full snapshots",
    ),
    Flag::new("delta-snapshot-lease-name", Text, "delta-snapshot-revisions", "lease of deltas"),
    Flag::new("enable-snapshot-lease-renewal", Switch, "false", "renew the lease when done"),
    Flag::new("metrics-scrape-wait-duration", Duration, "0s", "time to stay when done"),
];

const COPY: &[Flag] = &[
    Flag::new("max-backups-to-copy", Integer, "-1", "newest backups copied; -1 copies all"),
    Flag::new("max-backup-age", Integer, "-1", "days; older ones are not copied; -1 copies all"),
    Flag::new("max-parallel-copy-operations", Count, "10", "objects copied at once"),
    Flag::new("wait-for-final-snapshot", Switch, "false", "wait for a final snapshot first"),
    Flag::new("wait-for-final-snapshot-timeout", Duration, "0s", "timeout of it; 0 is endless"),
];

/// Beyond those of the dialect.
const COPY_CHECK: &[Flag] = &[Flag::new(
    "verify",
    Switch,
    "false",
    "do not copy what is no snapshot although it is called one, and fail",
)];

const TARGET: &[Flag] = &[
    Flag::new("to-revision", Integer, "0", "restore up to this revision; 0 is the newest"),
    Flag::new(
        "to-time",
        Text,
        "",
        "restore what was written until then, as in 2026-01-31T12:00:00Z",
    ),
    Flag::new(
        "dry-run",
        Switch,
        "false",
        "say what would be restored, as JSON, and change nothing",
    ),
];

const VERIFY: &[Flag] = &[
    Flag::new("validation-mode", Text, "full", "how thoroughly to look: full or sanity"),
    Flag::new("output", Text, "text", "text or json").short('o'),
];

const DRILL: &[Flag] = &[
    Flag::new("etcd", Text, "", "program to boot on the result; looked for in PATH if not given"),
    Flag::new("scratch-dir", Text, "", "directory to work in; a temporary one if not given"),
    Flag::new(
        "drill-schedule",
        Text,
        "",
        "when to drill again, as cron writes it; once if not given",
    ),
    Flag::new("report-file", Text, "", "file the newest report is written to as well"),
];

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "compact",
        verb: Verb::Compact,
        about: "Fold the newest backup into one full snapshot without history",
        arguments: "",
        groups: &[group("Restoring", RESTORATION), store("Store", ""), plain(COMPACTOR)],
    },
    Command {
        name: "completion",
        verb: Verb::Completion,
        about: "Print a completion script for bash, fish, powershell or zsh",
        arguments: "SHELL",
        groups: &[],
    },
    Command {
        name: "copy",
        verb: Verb::Copy,
        about: "Copy backups from one store to another",
        arguments: "",
        groups: &[
            plain(COPY),
            plain(COPY_CHECK),
            store("Store", ""),
            store("Store to copy from", "source-"),
        ],
    },
    Command {
        name: "drill",
        verb: Verb::Drill,
        about: "Restore the newest backup aside, boot an etcd on it, compare, report",
        arguments: "",
        groups: &[plain(DRILL), group("Restoring", RESTORATION), store("Store", "")],
    },
    Command {
        name: "help",
        verb: Verb::Help,
        about: "Explain a command",
        arguments: "[COMMAND]",
        groups: &[],
    },
    Command {
        name: "initialize",
        verb: Verb::Initialize,
        about: "Check the data directory, and restore it if etcd could not start from it",
        arguments: "",
        groups: &[
            plain(VALIDATION),
            group("Restoring", RESTORATION),
            store("Store", ""),
            group("The etcd", ETCD),
        ],
    },
    Command {
        name: "restore",
        verb: Verb::Restore,
        about: "Make a data directory from a backup",
        arguments: "",
        groups: &[
            group("Restoring", RESTORATION),
            store("Store", ""),
            group("What to restore", TARGET),
        ],
    },
    Command {
        name: "server",
        verb: Verb::Server,
        about: "Guard a member: snapshots, checks, restores, leases, over HTTP",
        arguments: "",
        groups: &[
            plain(SERVER),
            group("The etcd", ETCD),
            group("HTTP server", HTTP),
            group("HTTP server", HTTP_BIND),
            group("Snapshots", SNAPSHOTTER),
            store("Store", ""),
            group("Restoring", RESTORATION),
            group("Compression", COMPRESSION),
            group("Leases of Kubernetes", HEALTH),
            group("Leadership", ELECTION),
            group("After failures", BACKOFF),
            group("Second store", SECONDARY),
            store("Second store", "secondary-"),
            group("Defragmentation", DEFRAGMENTATION),
        ],
    },
    Command {
        name: "snapshot",
        verb: Verb::Snapshot,
        about: "Take snapshots of an etcd until stopped",
        arguments: "",
        groups: &[
            group("The etcd", ETCD),
            group("Snapshots", SNAPSHOTTER),
            store("Store", ""),
            group("Compression", COMPRESSION),
            group("After failures", BACKOFF),
            group("Defragmentation", DEFRAGMENTATION),
        ],
    },
    Command {
        name: "verify",
        verb: Verb::Verify,
        about: "Check a data directory or a snapshot, and change nothing",
        arguments: "DIR|SNAPSHOT",
        groups: &[plain(VERIFY), store("Store", "")],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Every flag of every command with its default as the help shows it, of the program this one
    /// stands in for.
    const EXPECTED: &str = include_str!("../../tests/golden/flags.json");

    #[test]
    fn flags_and_defaults_are_those_of_the_dialect() {
        let expected: BTreeMap<String, BTreeMap<String, String>> =
            serde_json::from_str(EXPECTED).unwrap();
        let mut pairs = 0;
        for (name, wanted) in expected {
            let command = Command::find(&name).unwrap();
            let flags: BTreeMap<String, String> = command
                .flags()
                .iter()
                .map(|flag| {
                    let shown = flag.shown_default().unwrap_or_default();
                    (flag.name(), shown.trim_matches('"').to_owned())
                })
                .collect();
            pairs += wanted.len();
            for (flag, default) in &wanted {
                assert_eq!(flags.get(flag), Some(default), "{name} --{flag}");
            }
            // Beyond those there are only ours.
            let ours = flags.len() - wanted.len();
            let wanted = match name.as_str() {
                "restore" => TARGET.len(),
                "copy" => COPY_CHECK.len(),
                "server" => HTTP_BIND.len(),
                _ => 0,
            };
            assert_eq!(ours, wanted, "{name}");
        }
        assert_eq!(pairs, 203);
    }

    #[test]
    fn no_command_has_a_name_or_letter_twice() {
        for command in COMMANDS {
            let flags = command.flags();
            let mut names: Vec<String> = flags.iter().map(Named::name).collect();
            names.dedup();
            assert_eq!(names.len(), flags.len(), "{}", command.name);
            let mut letters: Vec<char> = flags.iter().filter_map(Named::short).collect();
            letters.sort_unstable();
            let all = letters.len();
            letters.dedup();
            assert_eq!(letters.len(), all, "{}", command.name);
        }
    }
}
