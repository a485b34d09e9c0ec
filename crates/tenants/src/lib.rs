//! Self-service backups and restores of tenants: the controllers of `oadp.openshift.io`.
//!
//! A tenant asks in its own namespace; the controllers check, and ask the executor of `velero.io`
//! resources in the administrators' namespace. The tenant never gets a right outside its namespace,
//! and the executor never hears what was not checked here.
//!
//! Each kind is a module: `decide` is its life as a pure function, `validate` what its spec may say,
//! `run` observes and carries out. Start with [`backup::decide`].
#![forbid(unsafe_code)]

pub mod backup;
pub mod chosen;
mod config;
mod counts;
pub mod download;
pub mod endpoint;
pub mod enforce;
pub mod location;
pub mod loose;
pub mod names;
mod periodic;
pub mod queue;
pub mod restore;
mod run;
pub mod schedule;
pub mod settings;
pub mod spec;
mod tell;
mod tombstones;
mod world;

use reconcile::{Controller, EVENT_RIGHTS, Grant};
pub use run::run;

use restore::identity::Askers;

/// Who carries out what the controllers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// Ours: it confines restores of tenants itself, and acts as whoever asks.
    Holdfast,
    /// A Velero: it does what it is asked for, with all rights.
    Velero,
}

/// Where the controllers run.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub askers: Askers,
    pub executor: Executor,
    /// The API answers on this machine only: tenants are on it, and reach what it reaches.
    pub is_local: bool,
}

impl Place {
    /// Beside a server that is not ours.
    pub const ELSEWHERE: Self =
        Self { askers: Askers::Unknown, executor: Executor::Velero, is_local: false };
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// The controllers of this crate: one, because its kinds share caches and one queue.
pub fn controllers() -> Vec<Controller> {
    vec![CONTROLLER]
}

/// What it may do in the administrators' namespace only: there the executor is asked, and there lie the
/// settings, the copies of tenants' credentials, and what is remembered.
pub const ADMIN_GRANTS: &[Grant] = &[
    Grant {
        groups: &["oadp.openshift.io"],
        resources: &[
            "nonadminbackupstoragelocationrequests",
            "nonadminbackupstoragelocationrequests/status",
        ],
        verbs: WRITE,
    },
    Grant {
        groups: &["velero.io"],
        resources: &[
            "backups",
            "restores",
            "backupstoragelocations",
            "deletebackuprequests",
            "downloadrequests",
        ],
        verbs: WRITE,
    },
    Grant {
        groups: &["velero.io"],
        resources: &["datauploads", "datadownloads", "podvolumebackups", "podvolumerestores"],
        verbs: READ,
    },
    Grant {
        groups: &[""],
        resources: &["configmaps"],
        verbs: &["get", "list", "watch", "create", "patch"],
    },
    Grant {
        groups: &[""],
        resources: &["secrets"],
        verbs: &["get", "list", "create", "update", "delete"],
    },
];

/// As it is without other settings.
pub const CONTROLLER: Controller = Controller {
    name: "tenants",
    grants: &[
        Grant {
            groups: &["oadp.openshift.io"],
            resources: &[
                "nonadminbackups",
                "nonadminbackups/status",
                "nonadminrestores",
                "nonadminrestores/status",
                "nonadminbackupstoragelocations",
                "nonadminbackupstoragelocations/status",
                "nonadmindownloadrequests",
                "nonadmindownloadrequests/status",
                "nonadminschedules",
                "nonadminschedules/status",
            ],
            verbs: WRITE,
        },
        Grant { groups: &[""], resources: &["namespaces"], verbs: &["get", "create"] },
        // Of a tenant's Secrets the one that a storage location names; nobody's are listed.
        Grant { groups: &[""], resources: &["secrets"], verbs: &["get"] },
        EVENT_RIGHTS,
    ],
    acts_on: &[
        "nonadminbackups.oadp.openshift.io",
        "nonadminrestores.oadp.openshift.io",
        "nonadminbackupstoragelocations.oadp.openshift.io",
        "nonadminbackupstoragelocationrequests.oadp.openshift.io",
        "nonadmindownloadrequests.oadp.openshift.io",
        "nonadminschedules.oadp.openshift.io",
    ],
    run: |context| run::run(context, names::ADMIN_NAMESPACE.to_owned(), Place::ELSEWHERE),
};
