//! Leader election on a Lease: one of many processes does the work, and another takes over when it
//! falls silent.
//!
//! [`decide`] is the whole protocol as a pure function. Time is measured on this machine only: a
//! lease is dead when nothing about it has changed for its duration *while we watched*, so clocks
//! of different machines need not agree.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

/// How a candidate behaves.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) name: String,
    pub(crate) identity: String,
    /// A leader silent for this long has lost.
    pub(crate) lease: Duration,
    /// The leader says "still here" this often.
    pub(crate) renew: Duration,
}

impl Terms {
    /// Others take over after `lease`. Before that the leader has to have noticed that it leads no
    /// more, and to have stopped its work ([`Terms::drain`]).
    fn timeout(&self) -> Duration {
        self.lease.saturating_sub(self.drain()).saturating_sub(self.renew)
    }

    /// How long the work of a leader that leads no more may take to stop.
    pub(crate) fn drain(&self) -> Duration {
        self.renew
    }
}

/// What a candidate knows of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Missing,
    /// Held by nobody: released.
    Free,
    Mine,
    Theirs {
        silent_for: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Take,
    Renew,
    Wait,
}

fn decide(seen: Seen, lease: Duration) -> Step {
    match seen {
        Seen::Missing => Step::Create,
        Seen::Free => Step::Take,
        Seen::Mine => Step::Renew,
        Seen::Theirs { silent_for } if silent_for >= lease => Step::Take,
        Seen::Theirs { .. } => Step::Wait,
    }
}

/// A candidate and what it has watched so far.
#[derive(Debug)]
pub(crate) struct Candidate {
    api: Api<Lease>,
    terms: Terms,
    /// The last state of somebody else's lease, and since when it has been that.
    watched: Option<(String, Instant)>,
    /// When the lease that is held was asked for.
    since: Instant,
}

impl Candidate {
    pub(crate) fn new(api: Api<Lease>, terms: Terms) -> Self {
        Self { api, terms, watched: None, since: Instant::now() }
    }

    /// Returns when this process leads.
    ///
    /// # Cancel safety
    /// May be dropped at any await; a lease taken meanwhile runs out by itself.
    pub(crate) async fn lead(&mut self) {
        let mut pause = tokio::time::interval(self.terms.renew);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let timeout = self.terms.timeout();
        loop {
            pause.tick().await;
            let asked = Instant::now();
            // A connection that died without a word never answers; the next try takes another.
            match tokio::time::timeout(timeout, self.try_once()).await {
                Ok(Ok(true)) => {
                    self.since = asked;
                    return;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(
                    lease = self.terms.name,
                    error = %telemetry::Chain(&error),
                    "cannot ask for the lease, will try again"
                ),
                Err(_) => tracing::warn!(
                    lease = self.terms.name,
                    waited_seconds = timeout.as_secs(),
                    "the API server does not answer who has the lease, will ask again"
                ),
            }
        }
    }

    /// Returns when this process no longer leads: the lease was lost, or could not be renewed in
    /// time for others to be sure that it is still held.
    pub(crate) async fn keep(&mut self) {
        let mut renewed = self.since;
        let mut pause = tokio::time::interval(self.terms.renew);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let timeout = self.terms.timeout();
        loop {
            pause.tick().await;
            // It may have been renewed on the server when the call began, however late the answer is.
            let asked = Instant::now();
            let left = timeout.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.try_once()).await {
                Ok(Ok(true)) => renewed = asked,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(
                    lease = self.terms.name,
                    error = %telemetry::Chain(&error),
                    "cannot renew the lease"
                ),
                Err(_) => return,
            }
        }
    }

    /// Lets go, so that another candidate need not wait.
    pub(crate) async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.terms.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.terms.identity) {
            spec.holder_identity = Some(String::new());
            let params = PostParams::default();
            if let Err(error) = self.api.replace(&self.terms.name, &params, &lease).await {
                tracing::debug!(%error, "the lease was not released; it will run out");
            }
        }
    }

    /// One round; `true` when the lease is held now.
    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let found = self.api.get_opt(&self.terms.name).await?;
        let seen = self.look(found.as_ref());
        match decide(seen, self.terms.lease) {
            Step::Wait => Ok(false),
            Step::Create => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.terms.name.clone());
                lease.spec = Some(self.spec(None, true));
                let made = self.api.create(&PostParams::default(), &lease).await;
                won(made.map(drop))
            }
            step @ (Step::Take | Step::Renew) => {
                let mut lease = found.unwrap_or_default();
                lease.spec = Some(self.spec(lease.spec.as_ref(), step == Step::Take));
                // The resourceVersion of what was read makes this a compare-and-set.
                let params = PostParams::default();
                won(self.api.replace(&self.terms.name, &params, &lease).await.map(drop))
            }
        }
    }

    fn look(&mut self, lease: Option<&Lease>) -> Seen {
        let Some(lease) = lease else { return Seen::Missing };
        let spec = lease.spec.as_ref();
        match spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default() {
            "" => Seen::Free,
            holder if holder == self.terms.identity => Seen::Mine,
            _ => {
                let version = lease.metadata.resource_version.clone().unwrap_or_default();
                let now = Instant::now();
                let since = match &self.watched {
                    Some((watched, since)) if *watched == version => *since,
                    _ => now,
                };
                self.watched = Some((version, since));
                Seen::Theirs { silent_for: now.duration_since(since) }
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>, taken: bool) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let acquired = before.and_then(|spec| spec.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.terms.identity.clone()),
            lease_duration_seconds: i32::try_from(self.terms.lease.as_secs()).ok(),
            acquire_time: if taken { Some(now.clone()) } else { acquired.or(Some(now.clone())) },
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(taken && before.is_some())),
            ..LeaseSpec::default()
        }
    }
}

/// Losing the race is an answer, not an error.
fn won(result: Result<(), kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    #[test]
    fn a_lease_is_taken_only_when_its_holder_fell_silent() {
        let theirs = |seconds| Seen::Theirs { silent_for: Duration::from_secs(seconds) };
        assert_eq!(decide(Seen::Missing, LEASE), Step::Create);
        assert_eq!(decide(Seen::Free, LEASE), Step::Take);
        assert_eq!(decide(Seen::Mine, LEASE), Step::Renew);
        assert_eq!(decide(theirs(14), LEASE), Step::Wait);
        assert_eq!(decide(theirs(15), LEASE), Step::Take);
    }

    fn terms() -> Terms {
        let renew = LEASE / 5;
        Terms { name: "l".to_owned(), identity: "me".to_owned(), lease: LEASE, renew }
    }

    /// A server on which the lease is ours. It stores each renewal at once; the first is answered
    /// late, and nothing after that.
    fn slow_server(answer_after: Duration) -> (kube::Client, Arc<Mutex<Vec<Instant>>>) {
        let stored: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let seen = Arc::clone(&stored);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let seen = Arc::clone(&seen);
            async move {
                if request.method() == http::Method::PUT {
                    let count = {
                        let mut stored = seen.lock().unwrap();
                        stored.push(Instant::now());
                        stored.len()
                    };
                    match count {
                        1 => tokio::time::sleep(answer_after).await,
                        _ => std::future::pending().await,
                    }
                }
                let lease = serde_json::json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"},
                    "spec": {"holderIdentity": "me"},
                });
                let body = kube::client::Body::from(lease.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        (kube::Client::new(service, "n"), stored)
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_has_stopped_before_others_may_begin_however_late_it_is_answered() {
        for seconds in [0, 4, 8, 11] {
            let (client, stored) = slow_server(Duration::from_secs(seconds));
            let mut candidate = Candidate::new(Api::namespaced(client, "n"), terms());
            candidate.keep().await;
            let ended = Instant::now() + terms().drain();
            let last = stored.lock().unwrap().first().copied().unwrap();
            assert!(ended.duration_since(last) <= LEASE, "an answer after {seconds} s");
        }
    }

    /// A server that the first connections to never answer, as behind a balancer that failed over.
    fn silent_at_first(silent: usize) -> kube::Client {
        let asked = Arc::new(Mutex::new(0));
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let count = {
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                *asked
            };
            async move {
                if count <= silent {
                    std::future::pending::<()>().await;
                }
                let lease = serde_json::json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"},
                    "spec": {"holderIdentity": ""},
                });
                let body = kube::client::Body::from(lease.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        kube::Client::new(service, "n")
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_does_not_wait_for_an_answer_that_never_comes() {
        let api = Api::namespaced(silent_at_first(9), "n");
        let mut candidate = Candidate::new(api, terms());
        let led = tokio::time::timeout(Duration::from_hours(1), candidate.lead()).await;
        assert!(led.is_ok(), "a free lease is not taken");
    }
}
