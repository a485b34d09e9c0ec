//! What is to be done with a data directory. Pure.
//!
//! ```text
//!            ┌──────────┐ valid                                   ┌──────┐
//!   start ──▶│ Validate │────────────────────────────────────────▶│ Done │
//!            └────┬─────┘                                         └──────┘
//!                 │ not valid                                         ▲
//!                 ▼                                                   │
//!            ┌──────────┐ restore    ┌─────────┐   ┌────────┐   ┌──────┐
//!            │  Decide  │───────────▶│ Prepare │──▶│ Verify │──▶│ Swap │
//!            └────┬─────┘            └─────────┘   └────────┘   └──────┘
//!                 ├─ replace member: remove it, set the directory aside, add it as a learner
//!                 ├─ bootstrap: set the directory aside; etcd starts with nothing
//!                 └─ fail: touch nothing, tell why
//! ```

/// What the check of the directory came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Valid,
    /// There is no directory.
    Missing,
    /// Directories inside are missing.
    Incomplete,
    /// Something in it cannot be read, or contradicts itself.
    Corrupt(String),
    /// It is whole and older than the newest backup.
    Behind {
        data: i64,
        backup: i64,
    },
    /// The volume belongs to somebody else.
    WrongVolume(String),
    /// Somebody holds the database.
    Locked,
}

/// The cluster this member is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cluster {
    Single,
    Multi(Membership),
}

/// What a cluster of several says about this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It is listed, or its lease tells that it was.
    Member,
    /// The cluster answers, and does not list it.
    Unlisted,
    /// The cluster does not answer, and no lease tells of a membership.
    Unheard,
}

/// What there is to restore from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backup {
    NoStore,
    Empty,
    Present,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// It can be started from.
    Keep,
    /// The cluster grows by this member: it begins with nothing and learns all.
    Join,
    /// It leaves and comes again, with nothing.
    Replace,
    Restore,
    /// The same where the backup goes on from what is there, which is whole; else nothing is touched.
    BringForward,
    /// There is nothing to lose and nothing to restore.
    Bootstrap,
    /// Nothing is touched.
    Fail(String),
}

const HELD: &str = "the database is held by another process; is etcd running?";

/// Whether what is in the directory need not be looked at at all. `is_held` says of a newcomer whether an
/// etcd is at work on it: one that has just joined is listed without its name at first, and its directory
/// is not taken from under it.
pub(crate) fn before_validation(cluster: Cluster, is_held: bool) -> Option<Action> {
    match cluster {
        Cluster::Multi(Membership::Unlisted) if is_held => Some(Action::Fail(HELD.to_owned())),
        Cluster::Multi(Membership::Unlisted) => Some(Action::Join),
        Cluster::Single | Cluster::Multi(Membership::Member | Membership::Unheard) => None,
    }
}

pub(crate) fn decide(cluster: Cluster, verdict: &Verdict, backup: Backup) -> Action {
    match verdict {
        Verdict::Valid => Action::Keep,
        Verdict::WrongVolume(why) => Action::Fail(why.clone()),
        Verdict::Locked => Action::Fail(HELD.to_owned()),
        Verdict::Missing | Verdict::Incomplete | Verdict::Corrupt(_) | Verdict::Behind { .. } => {
            bring_back(cluster, verdict, backup)
        }
    }
}

fn bring_back(cluster: Cluster, verdict: &Verdict, backup: Backup) -> Action {
    let is_corrupt = matches!(verdict, Verdict::Corrupt(_));
    match (cluster, backup) {
        (Cluster::Single, Backup::Present) if matches!(verdict, Verdict::Behind { .. }) => {
            Action::BringForward
        }
        (Cluster::Single, Backup::Present) => Action::Restore,
        (Cluster::Single, Backup::Empty | Backup::NoStore) => Action::Bootstrap,
        (Cluster::Multi(Membership::Unlisted), _) => Action::Join,
        // What others have written is in the cluster; a backup would bring back the past.
        (Cluster::Multi(Membership::Member), _) | (Cluster::Multi(_), Backup::Present) => {
            Action::Replace
        }
        (Cluster::Multi(Membership::Unheard), Backup::Empty | Backup::NoStore) if is_corrupt => {
            Action::Replace
        }
        (Cluster::Multi(Membership::Unheard), Backup::Empty | Backup::NoStore) => Action::Bootstrap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKUPS: [Backup; 3] = [Backup::NoStore, Backup::Empty, Backup::Present];
    const CLUSTERS: [Cluster; 4] = [
        Cluster::Single,
        Cluster::Multi(Membership::Member),
        Cluster::Multi(Membership::Unlisted),
        Cluster::Multi(Membership::Unheard),
    ];

    fn broken() -> [Verdict; 4] {
        [
            Verdict::Missing,
            Verdict::Incomplete,
            Verdict::Corrupt("page 3".to_owned()),
            Verdict::Behind { data: 1, backup: 2 },
        ]
    }

    #[test]
    fn a_valid_directory_is_kept_and_a_foreign_or_held_one_is_never_touched() {
        for cluster in CLUSTERS {
            for backup in BACKUPS {
                assert_eq!(decide(cluster, &Verdict::Valid, backup), Action::Keep);
                for verdict in [Verdict::Locked, Verdict::WrongVolume("ns2".to_owned())] {
                    assert!(matches!(decide(cluster, &verdict, backup), Action::Fail(_)));
                }
            }
        }
    }

    #[test]
    fn alone_it_is_restored_or_starts_afresh() {
        for verdict in broken() {
            for (backup, wanted) in [
                (Backup::NoStore, Action::Bootstrap),
                (Backup::Empty, Action::Bootstrap),
                (Backup::Present, Action::Restore),
            ] {
                let is_whole = matches!(verdict, Verdict::Behind { .. });
                let goes_on = wanted == Action::Restore && is_whole;
                let wanted = if goes_on { Action::BringForward } else { wanted };
                assert_eq!(decide(Cluster::Single, &verdict, backup), wanted, "{verdict:?}");
            }
        }
    }

    #[test]
    fn among_others_it_is_never_restored_from_a_backup() {
        for cluster in CLUSTERS.into_iter().filter(|cluster| *cluster != Cluster::Single) {
            for verdict in broken() {
                for backup in BACKUPS {
                    assert_ne!(decide(cluster, &verdict, backup), Action::Restore);
                }
            }
        }
    }

    #[test]
    fn a_member_is_replaced_and_a_newcomer_joins() {
        for verdict in broken() {
            for backup in BACKUPS {
                let decide = |membership| decide(Cluster::Multi(membership), &verdict, backup);
                assert_eq!(decide(Membership::Member), Action::Replace);
                assert_eq!(decide(Membership::Unlisted), Action::Join);
            }
        }
        let unheard = Cluster::Multi(Membership::Unheard);
        assert_eq!(decide(unheard, &Verdict::Missing, Backup::Empty), Action::Bootstrap);
        assert_eq!(decide(unheard, &Verdict::Missing, Backup::Present), Action::Replace);
        let unlisted = Cluster::Multi(Membership::Unlisted);
        assert_eq!(before_validation(unlisted, false), Some(Action::Join));
        assert!(matches!(before_validation(unlisted, true), Some(Action::Fail(_))));
        assert_eq!(before_validation(unheard, false), None);
    }
}
