//! Why a call to an etcd gave no answer. The texts of etcd's rejections are turned into reasons
//! here and nowhere else.

use std::time::Duration;

use tonic::{Code, Status};

#[derive(Debug, Clone, thiserror::Error)]
pub enum EtcdError {
    /// The etcd understood the request and said no.
    #[error("{message}")]
    Refused { reason: Rejection, message: String },
    /// Nobody there, or nobody who can answer now. Whether a request took effect is not known.
    #[error("etcd at {endpoint} cannot be used: {message}")]
    Unavailable { endpoint: String, message: String },
    #[error("etcd at {endpoint} gave no answer within {after:?}")]
    Timeout { endpoint: String, after: Duration },
    /// Our own settings are not usable.
    #[error("{0}")]
    Setup(String),
    /// An answer that no etcd should give.
    #[error("etcd at {endpoint} answered with nonsense: {message}")]
    Broken { endpoint: String, message: String },
}

/// What etcd's rejections mean to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The revision asked for is older than the history that is kept.
    Compacted,
    TooManyLearners,
    /// The learner has not caught up with the leader yet.
    LearnerNotReady,
    /// It is a voting member already.
    NotLearner,
    PeerUrlExists,
    MemberExists,
    MemberNotFound,
    /// The change would put the quorum at risk.
    QuorumAtRisk,
    /// The token is not valid any more.
    StaleToken,
    /// Wrong name, password or rights.
    Denied,
    /// The member asked is not the leader.
    NotLeader,
    Other,
}

const TEXTS: &[(&str, Rejection)] = &[
    ("required revision has been compacted", Rejection::Compacted),
    ("too many learner members in cluster", Rejection::TooManyLearners),
    ("can only promote a learner member which is in sync with leader", Rejection::LearnerNotReady),
    ("can only promote a learner member", Rejection::NotLearner),
    ("Peer URLs already exists", Rejection::PeerUrlExists),
    ("member ID already exist", Rejection::MemberExists),
    ("member not found", Rejection::MemberNotFound),
    ("not enough started members", Rejection::QuorumAtRisk),
    ("unhealthy cluster", Rejection::QuorumAtRisk),
    ("invalid auth token", Rejection::StaleToken),
    ("revision of auth store is old", Rejection::StaleToken),
    ("authentication failed", Rejection::Denied),
    ("permission denied", Rejection::Denied),
    ("user name is empty", Rejection::Denied),
    ("not leader", Rejection::NotLeader),
];

/// What etcd says that trying again, or elsewhere, may help against.
const PASSING: &[&str] = &["etcdserver: request timed out", "etcdserver: leader changed"];

impl EtcdError {
    pub(super) fn from_status(endpoint: &str, status: &Status) -> Self {
        let message = status.message().to_owned();
        if let Some(reason) = reason_of(&message) {
            return Self::Refused { reason, message };
        }
        let endpoint = endpoint.to_owned();
        let passing = PASSING.iter().any(|text| message.starts_with(text));
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => {
                Self::Unavailable { endpoint, message: whole(status) }
            }
            _ if passing => Self::Unavailable { endpoint, message },
            // The connection broke: tonic has no code of its own for that.
            Code::Unknown if std::error::Error::source(status).is_some() => {
                Self::Unavailable { endpoint, message: whole(status) }
            }
            _ => Self::Refused { reason: Rejection::Other, message },
        }
    }

    /// Why etcd said no, if that is what happened.
    pub fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Unavailable { .. }
            | Self::Timeout { .. }
            | Self::Setup(_)
            | Self::Broken { .. } => None,
        }
    }

    pub fn is_compacted(&self) -> bool {
        self.rejection() == Some(Rejection::Compacted)
    }
}

pub(super) fn reason_of(message: &str) -> Option<Rejection> {
    TEXTS.iter().find(|(text, _)| message.contains(text)).map(|(_, reason)| *reason)
}

/// The message with its causes: a transport error alone says only that there was one.
fn whole(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        // The name of the layer that hands a cause on tells nothing.
        if !text.contains(&more) && more != "transport error" {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    match advice(&text) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// What helps where one side does not believe the other's certificate. The layers between TLS and
/// us hand on texts only.
fn advice(text: &str) -> Option<&'static str> {
    if text.contains("invalid peer certificate") {
        return Some(
            "check the host of the endpoint, and that --cacert (caFile) names the authority that \
             signed the certificate of etcd",
        );
    }
    text.contains("received fatal alert").then_some(
        "give a client certificate that an authority of etcd signed, with --cert and --key \
         (certFile, keyFile)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_told_apart_by_their_texts() {
        for (code, text, wanted) in [
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Rejection::Compacted,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader",
                Rejection::LearnerNotReady,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member",
                Rejection::NotLearner,
            ),
            (Code::Unavailable, "etcdserver: unhealthy cluster", Rejection::QuorumAtRisk),
            (Code::InvalidArgument, "etcdserver: duplicate key given", Rejection::Other),
        ] {
            let error = EtcdError::from_status("e", &Status::new(code, text));
            assert_eq!(error.rejection(), Some(wanted), "{text}");
            assert_eq!(error.to_string(), text);
        }
        let error = EtcdError::from_status("e", &Status::unavailable("etcdserver: no leader"));
        assert!(matches!(error, EtcdError::Unavailable { .. }));
    }
}
