//! Why a command failed.

use std::io;
use std::path::PathBuf;

use super::flag::Given;
use super::verify::Trouble;
use crate::control::SnapshotError;
use crate::etcd::EtcdError;
use crate::restore::RestoreError;
use crate::server::ServeError;
use crate::server::config::ConfigError;
use crate::server::controllers::KubeError;
use crate::server::initialize::InitializeError;
use crate::server::member::MemberError;
use crate::store::StoreError;

/// Who, or what, was in the way.
enum Blame<'a> {
    Asking,
    Etcd(&'a EtcdError),
    Store,
    Other,
}

impl CommandError {
    fn blame(&self) -> Blame<'_> {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Serve(ServeError::Config(_)) => Blame::Asking,
            Self::Etcd(error)
            | Self::Serve(ServeError::Etcd(error))
            | Self::Snapshot(SnapshotError::Etcd(error))
            | Self::Initialize(InitializeError::Membership(error)) => Blame::Etcd(error),
            Self::Store(_)
            | Self::Serve(ServeError::Store(_))
            | Self::Snapshot(SnapshotError::Store(_))
            | Self::Initialize(InitializeError::Store(_))
            | Self::Restore(RestoreError::Store(_) | RestoreError::Fetch { .. })
            | Self::Nothing(_) => Blame::Store,
            Self::Start(_)
            | Self::Interrupted
            | Self::Serve(_)
            | Self::Snapshot(_)
            | Self::Copy { .. }
            | Self::Initialize(_)
            | Self::Member(_)
            | Self::Kube(_)
            | Self::Restore(_)
            | Self::NotWell { .. }
            | Self::Drill
            | Self::Output(_) => Blame::Other,
        }
    }

    /// For somebody at a terminal: what happened, and where it was tried.
    pub(crate) fn sentence(&self, given: &Given) -> String {
        let text = telemetry::Chain(self).to_string();
        match self.blame() {
            // The others name the one that was asked.
            Blame::Etcd(EtcdError::Refused { .. }) => {
                format!("{text} (etcd was asked at {})", given.texts("endpoints").join(", "))
            }
            Blame::Store => format!("{text} (the store is {})", place(given)),
            Blame::Etcd(_) | Blame::Asking | Blame::Other => text,
        }
    }

    /// What to do about it, where that is known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match (self, self.blame()) {
            (Self::NotWell { trouble, .. }, _) => trouble.hint(),
            (Self::Nothing(_), _) => {
                Some("is it the right one? Look at --store-container and --store-prefix")
            }
            (_, Blame::Asking) => Some("--help behind the command shows what it takes"),
            (_, Blame::Etcd(EtcdError::Refused { .. })) => {
                Some("look at --endpoints, --etcd-username and the certificates")
            }
            (_, Blame::Etcd(_)) => Some("is the etcd up? Name it with --endpoints"),
            (_, Blame::Store) => {
                Some("look at --storage-provider, --store-container and the credentials")
            }
            (_, Blame::Other) => None,
        }
    }
}

/// The store as it was named: of what was not given, the variable may have said it.
fn place(given: &Given) -> String {
    let or = |name: &str, other: &str| {
        let text = given.text(name);
        if text.is_empty() { other.to_owned() } else { text }
    };
    let container = or("store-container", "that of STORAGE_CONTAINER");
    let place = format!("{} {container}", or("storage-provider", "Local"));
    [("store-prefix", "below"), ("store-endpoint-override", "at")].iter().fold(
        place,
        |place, (flag, word)| match given.text(flag).as_str() {
            "" => place,
            text => format!("{place} {word} {text}"),
        },
    )
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("cannot start")]
    Start(#[source] io::Error),
    #[error("told to end before it was done")]
    Interrupted,
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{failed} snapshots were not copied")]
    Copy { failed: usize },
    #[error(transparent)]
    Initialize(#[from] InitializeError),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Kube(#[from] KubeError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("{} {}", path.display(), trouble.words())]
    NotWell { path: PathBuf, trouble: Trouble },
    /// A peer calls this a success.
    #[error("there is no backup: nothing was {0}")]
    Nothing(&'static str),
    #[error("the drill failed")]
    Drill,
    #[error("cannot print the result")]
    Output(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::super::table::Command;
    use super::*;
    use crate::etcd::Rejection;

    fn given(typed: &[(&str, &str)]) -> Given {
        let flags = Command::find("snapshot").unwrap().flags();
        let mut given = Given::defaults(flags.iter().copied());
        for (name, value) in typed {
            given.add(flags.iter().find(|flag| flag.name() == *name).unwrap(), value).unwrap();
        }
        given
    }

    #[test]
    fn an_error_of_an_etcd_names_the_address_that_was_tried() {
        let gone = EtcdError::Unavailable {
            endpoint: "http://127.0.0.1:2379".to_owned(),
            message: "connection refused".to_owned(),
        };
        let error = CommandError::Snapshot(SnapshotError::Etcd(gone));
        let told = error.sentence(&given(&[]));
        assert_eq!(told.matches("http://127.0.0.1:2379").count(), 1, "{told}");
        assert_eq!(error.hint(), Some("is the etcd up? Name it with --endpoints"));

        let (reason, message) = (Rejection::Denied, "permission denied".to_owned());
        let error = CommandError::Etcd(EtcdError::Refused { reason, message });
        let told = error.sentence(&given(&[("endpoints", "http://a:1,http://b:2")]));
        assert_eq!(told, "permission denied (etcd was asked at http://a:1, http://b:2)");
        assert!(error.hint().unwrap().contains("--etcd-username"));
    }

    #[test]
    fn an_error_of_a_store_names_the_store() {
        let error = CommandError::Nothing("restored");
        let typed =
            [("storage-provider", "S3"), ("store-container", "bucket"), ("store-prefix", "v2")];
        let told = error.sentence(&given(&typed));
        let wanted = "there is no backup: nothing was restored (the store is S3 bucket below v2)";
        assert_eq!(told, wanted);
        assert!(error.hint().unwrap().contains("--store-prefix"));
    }
}
