//! The life of a tenant's download request, which ends when its address does.

use std::time::Duration;

use api::condition::{self, Condition, Verdict};
use api::mirror::Mirror;
use api::nonadmin::condition::PROCESSED;
use api::nonadmin::{NonAdminDownloadRequestStatus as Status, Phase, VeleroDownloadRequest};
use api::scalar::Time;
use api::velero::{DownloadPhase, DownloadRequestStatus};

const RECHECK: Duration = Duration::from_secs(10);
/// How long the executor may take; the address it makes lives as long.
const TIMEOUT: Duration = Duration::from_mins(10);

const NO_RESTORE: (&str, &str) = ("NonAdminRestoreNotAvailable", "cannot get nonadminrestore");
const NO_BACKUP: (&str, &str) = ("NonAdminBackupNotAvailable", "cannot get nonadminbackup");
const NO_LOCATION: (&str, &str) = (
    "NonAdminBackupStorageLocationNotUsed",
    "backup does not use nonadminbackupstoragelocation, recreate nadr to process",
);
const NOT_PROCESSED: &str =
    "Velero did not process the request before it expired, recreate nadr to try again";

/// What the request names, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    NoRestore,
    NoBackup,
    /// Addresses in the administrators' bucket are not handed out.
    NoLocation,
    /// Name of the Velero backup or restore.
    Found(String),
}

/// Everything a decision may depend on, gathered anew for every step.
#[derive(Debug, Clone)]
pub struct Observed {
    pub now: Time,
    pub generation: Option<i64>,
    pub status: Status,
    pub target: Target,
    /// The Velero request made for this one, and when.
    pub request: Option<(Mirror<DownloadRequestStatus>, Time)>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write the status, go on.
    Report(Box<Status>),
    CreateVeleroRequest(String),
    /// Its address has expired: both requests go.
    DeleteBoth,
    End,
    Terminal(String),
    Requeue(Duration),
}

pub fn decide(seen: &Observed) -> Step {
    let shown = seen.status.velero.as_ref().and_then(|velero| velero.status.as_ref()?.view().ok());
    if let Some(expiration) = shown.and_then(|shown| shown.expiration) {
        return match left(expiration, seen.now) {
            Some(left) => Step::Requeue(left),
            None => Step::DeleteBoth,
        };
    }
    if seen.status.phase.is_none() {
        let fresh = Status { phase: Some(Phase::New), ..seen.status.clone() };
        return Step::Report(Box::new(fresh));
    }
    let Some((status, created)) = &seen.request else { return ask(seen) };
    let view = status.view().unwrap_or_default();
    let processed = view.phase == Some(DownloadPhase::Processed);
    if processed && view.download_url.is_some() {
        return seen.say(
            Phase::Created,
            (PROCESSED, true),
            ("Success", ""),
            Some(status),
            Step::End,
        );
    }
    let until = created.timestamp().saturating_add(TIMEOUT).unwrap_or(jiff::Timestamp::MAX);
    if let Some(left) = left(until.into(), seen.now) {
        return Step::Requeue(left);
    }
    let after = Step::Terminal(NOT_PROCESSED.into());
    seen.say(Phase::BackingOff, (PROCESSED, false), ("Error", NOT_PROCESSED), None, after)
}

fn ask(seen: &Observed) -> Step {
    let ((kind, message), after) = match &seen.target {
        Target::Found(name) => return Step::CreateVeleroRequest(name.clone()),
        Target::NoRestore => (NO_RESTORE, Step::Requeue(RECHECK)),
        Target::NoBackup => (NO_BACKUP, Step::Requeue(RECHECK)),
        Target::NoLocation => (NO_LOCATION, Step::Terminal(NO_LOCATION.1.into())),
    };
    seen.say(Phase::BackingOff, (kind, true), ("Error", message), None, after)
}

/// What is left until then; nothing if it is past.
fn left(until: Time, now: Time) -> Option<Duration> {
    let left = until.timestamp().duration_since(now.timestamp());
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

impl Observed {
    /// The list of conditions always has one entry, the last word.
    fn say(
        &self,
        phase: Phase,
        (kind, holds): (&str, bool),
        (reason, message): (&str, &str),
        velero: Option<&Mirror<DownloadRequestStatus>>,
        after: Step,
    ) -> Step {
        let mut next = self.status.clone();
        next.phase = next.phase.max(Some(phase));
        let mut list: Vec<Condition> = next.conditions.take().unwrap_or_default();
        list.retain(|entry| entry.kind == kind);
        let verdict = Verdict::new(kind, holds, reason, message).at_generation(self.generation);
        condition::set(&mut list, &verdict, self.now);
        next.conditions = Some(list);
        if let Some(status) = velero {
            next.velero = Some(VeleroDownloadRequest { status: Some(status.clone()) });
        }
        if next == self.status { after } else { Step::Report(Box::new(next)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Time {
        jiff::Timestamp::from_second(second).unwrap().into()
    }

    fn seen(target: Target) -> Observed {
        let status = Status { phase: Some(Phase::New), ..Status::default() };
        Observed { now: at(100), generation: Some(1), status, target, request: None }
    }

    fn velero(status: Value) -> Mirror<DownloadRequestStatus> {
        match status {
            Value::Object(map) => map.into(),
            other => panic!("{other}"),
        }
    }

    fn report(seen: &mut Observed) -> Status {
        match decide(seen) {
            Step::Report(status) => {
                seen.status = (*status).clone();
                *status
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_made_answered_and_gone_with_its_address() {
        let mut it = seen(Target::Found("a-nab-1".into()));
        it.status = Status::default();
        assert_eq!(report(&mut it).phase, Some(Phase::New));
        assert_eq!(decide(&it), Step::CreateVeleroRequest("a-nab-1".into()));
        it.request = Some((velero(json!({})), at(100)));
        assert_eq!(decide(&it), Step::Requeue(Duration::from_mins(10)));
        let done = json!({"phase": "Processed", "downloadURL": "http://x", "expiration": "1970-01-01T00:05:00Z"});
        it.request = Some((velero(done), at(100)));
        let status = report(&mut it);
        assert_eq!(status.phase, Some(Phase::Created));
        let list = status.conditions.unwrap();
        assert_eq!(
            (list[0].kind.as_str(), list[0].reason.as_str(), list.len()),
            ("Processed", "Success", 1)
        );
        assert_eq!(decide(&it), Step::Requeue(Duration::from_secs(200)));
        it.now = at(300);
        assert_eq!(decide(&it), Step::DeleteBoth);
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        for (target, kind, after) in [
            (Target::NoBackup, "NonAdminBackupNotAvailable", Step::Requeue(RECHECK)),
            (Target::NoRestore, "NonAdminRestoreNotAvailable", Step::Requeue(RECHECK)),
            (
                Target::NoLocation,
                "NonAdminBackupStorageLocationNotUsed",
                Step::Terminal(NO_LOCATION.1.into()),
            ),
        ] {
            let mut it = seen(target);
            let status = report(&mut it);
            assert_eq!(status.phase, Some(Phase::BackingOff));
            assert_eq!(status.conditions.unwrap()[0].kind, kind);
            assert_eq!(decide(&it), after);
        }
    }

    #[test]
    fn one_that_velero_never_answers_fails_visibly() {
        let mut it = seen(Target::Found("x".into()));
        it.request = Some((velero(json!({"phase": "New"})), at(100)));
        it.now = at(700);
        assert_eq!(report(&mut it).phase, Some(Phase::BackingOff));
        assert_eq!(decide(&it), Step::Terminal(NOT_PROCESSED.into()));
    }
}
