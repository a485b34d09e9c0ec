//! Who is signed in: kept in memory only, so that a restart signs everybody out and no token is
//! ever written anywhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rand::RngCore as _;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;

/// Without a page turned for so long, a session ends.
const IDLE: SignedDuration = SignedDuration::from_hours(1);
/// However busy it is, it ends after so long.
pub(crate) const LIFETIME: SignedDuration = SignedDuration::from_hours(12);
/// Of all together; whoever has the most makes place for another.
const MAX_SESSIONS: usize = 1000;
/// Pages of one session that are kept up to date at the same time.
const MAX_STREAMS: usize = 8;
/// Sessions of one user; the oldest makes place for another, so that nobody keeps the others out.
const MAX_SESSIONS_OF_USER: usize = 16;
const SECRET_BYTES: usize = 32;

/// What a session sees of requests of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// As the API knows the caller.
    pub(crate) user: String,
    /// Namespaces to look into where the caller may not look into all.
    pub(crate) namespaces: Vec<String>,
    /// Whether volumes and what belongs to them can be seen at all.
    pub(crate) sees_volumes: bool,
}

/// One who is signed in.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) token: SecretString,
    pub(crate) standing: Standing,
    /// Whose program began it: it is of no use to others.
    caller: Caller,
    /// Proves that a form came from one of our pages.
    csrf: String,
    began: Timestamp,
    state: Mutex<State>,
    /// Ends what lives as long as the session does.
    pub(crate) ended: CancellationToken,
    pub(crate) streams: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    seen: Timestamp,
    note: Option<Note>,
}

/// What came of the last thing that was done; shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Session {
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(crate) fn is_from_our_page(&self, sent: &str) -> bool {
        bool::from(sent.as_bytes().ct_eq(self.csrf.as_bytes()))
    }

    pub(crate) fn leave_note(&self, note: Note) {
        self.state().note = Some(note);
    }

    pub(crate) fn take_note(&self) -> Option<Note> {
        self.state().note.take()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        let idle = now.duration_since(self.state().seen);
        idle > IDLE || now.duration_since(self.began) > LIFETIME
    }
}

/// All sessions, by the digest of what the browser holds: a copy of this memory signs nobody in.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<All>);

impl Sessions {
    /// Begins a session; what comes back goes into the browser's cookie.
    pub(crate) fn begin(
        &self,
        token: SecretString,
        standing: Standing,
        caller: Caller,
        now: Timestamp,
    ) -> String {
        let mut all = self.all();
        end_old(&mut all, now);
        make_place(&mut all, account(&standing.user));
        let id = secret();
        let session = Session {
            token,
            standing,
            caller,
            csrf: secret(),
            began: now,
            state: Mutex::new(State { seen: now, note: None }),
            ended: CancellationToken::new(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        };
        all.insert(digest(&id), Arc::new(session));
        id
    }

    /// The session of a cookie. Only what a person does keeps it from ending.
    pub(crate) fn find(
        &self,
        id: &str,
        caller: Caller,
        by_hand: bool,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let mut all = self.all();
        end_old(&mut all, now);
        let found = all.get(&digest(id)).filter(|it| it.caller == caller)?.clone();
        if by_hand {
            found.state().seen = now;
        }
        Some(found)
    }

    pub(crate) fn end(&self, id: &str) {
        if let Some(session) = self.all().remove(&digest(id)) {
            session.ended.cancel();
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type All = HashMap<[u8; 32], Arc<Session>>;

/// Whom a session counts for: whoever may make service accounts in a namespace is all of them.
fn account(user: &str) -> &str {
    let service = user.strip_prefix("system:serviceaccount:").and_then(|it| it.find(':'));
    service.map_or(user, |end| &user[.."system:serviceaccount:".len() + end])
}

/// Ends a session of an account that has as many as one may have, or, where there are too many of all, of
/// the one that has the most.
fn make_place(all: &mut All, newcomer: &str) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for session in all.values() {
        *counts.entry(account(&session.standing.user)).or_default() += 1;
    }
    let own = counts.get(newcomer).copied().unwrap_or_default();
    let loser = if own >= MAX_SESSIONS_OF_USER {
        Some(newcomer.to_owned())
    } else if all.len() >= MAX_SESSIONS {
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(loser, _)| loser.to_owned())
    } else {
        None
    };
    let Some(loser) = loser else { return };
    let of_loser = all.iter().filter(|(_, it)| account(&it.standing.user) == loser);
    let idle = of_loser.min_by_key(|(_, it)| it.state().seen).map(|(id, _)| *id);
    if let Some(session) = idle.and_then(|id| all.remove(&id)) {
        session.ended.cancel();
    }
}

fn end_old(all: &mut All, now: Timestamp) {
    all.retain(|_, session| {
        let is_over = session.is_over(now);
        if is_over {
            session.ended.cancel();
        }
        !is_over
    });
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id.as_bytes()).into()
}

fn secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Caller = Caller::Local(1000);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn standing() -> Standing {
        Standing { user: "alice".to_owned(), namespaces: Vec::new(), sees_volumes: false }
    }

    fn begin(sessions: &Sessions, now: Timestamp) -> String {
        sessions.begin(SecretString::from("token"), standing(), OWN, now)
    }

    #[test]
    fn a_session_is_found_by_its_cookie_alone() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        assert_eq!(sessions.find(&id, OWN, true, at(1)).unwrap().standing, standing());
        assert!(sessions.find("", OWN, true, at(1)).is_none());
        assert!(sessions.find(&id.to_uppercase(), OWN, true, at(1)).is_none());
        assert!(
            !format!("{sessions:?}").contains(&id) && !format!("{sessions:?}").contains("token\"")
        );
    }

    #[test]
    fn a_cookie_is_of_no_use_to_another_user_of_the_machine() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        for stranger in [Caller::Local(1001), Caller::Unseen, Caller::Elsewhere] {
            assert!(sessions.find(&id, stranger, true, at(1)).is_none(), "{stranger:?}");
        }
        assert!(sessions.find(&id, OWN, true, at(1)).is_some(), "a stranger ended it");
    }

    #[test]
    fn one_user_keeps_nobody_out() {
        let sessions = Sessions::default();
        let first = begin(&sessions, at(0));
        let ended = sessions.find(&first, OWN, false, at(0)).unwrap().ended.clone();
        for number in 1..=MAX_SESSIONS {
            begin(&sessions, at(i64::try_from(number).unwrap()));
        }
        assert!(sessions.find(&first, OWN, false, at(1)).is_none() && ended.is_cancelled());
        let bob = Standing { user: "bob".to_owned(), ..standing() };
        sessions.begin(SecretString::from("other"), bob, OWN, at(1));
        assert_eq!(sessions.all().len(), MAX_SESSIONS_OF_USER + 1);
    }

    #[test]
    fn a_session_ends_when_nobody_turns_a_page() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        let session = sessions.find(&id, OWN, true, at(3000)).unwrap();
        assert!(sessions.find(&id, OWN, false, at(6000)).is_some(), "a page was turned at 3000");
        assert!(!session.ended.is_cancelled());
        assert!(
            sessions.find(&id, OWN, false, at(6700)).is_none(),
            "what pages do by themselves counts"
        );
        assert!(session.ended.is_cancelled(), "its streams go on");
    }

    #[test]
    fn a_session_ends_however_busy_it_is() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        let last = LIFETIME.as_secs();
        for hour in 0..=12 {
            assert!(sessions.find(&id, OWN, true, at(hour * 3600)).is_some(), "{hour}");
        }
        assert!(sessions.find(&id, OWN, true, at(last + 1)).is_none());
    }

    #[test]
    fn signing_out_ends_all_that_hangs_on_a_session() {
        let sessions = Sessions::default();
        let (one, other) = (begin(&sessions, at(0)), begin(&sessions, at(0)));
        let session = sessions.find(&one, OWN, true, at(0)).unwrap();
        sessions.end(&one);
        assert!(session.ended.is_cancelled() && sessions.find(&one, OWN, true, at(0)).is_none());
        assert!(sessions.find(&other, OWN, true, at(0)).is_some());
    }

    #[test]
    fn whoever_has_the_most_makes_place_for_a_newcomer() {
        let sessions = Sessions::default();
        let alice = begin(&sessions, at(0));
        let of = |user: String| Standing { user, ..standing() };
        for number in 1..MAX_SESSIONS {
            // Names are cheap for who may make service accounts.
            let (namespace, name) = (number / 10, number % 10);
            let user = format!("system:serviceaccount:team-{namespace}:account-{name}");
            sessions.begin(SecretString::from("t"), of(user), OWN, at(1));
        }
        let bob = sessions.begin(SecretString::from("t"), of("bob".to_owned()), OWN, at(2));
        assert_eq!(sessions.all().len(), MAX_SESSIONS);
        assert!([&alice, &bob].iter().all(|id| sessions.find(id, OWN, true, at(3)).is_some()));
        for number in 0..100 {
            let user = format!("system:serviceaccount:greedy:account-{number}");
            sessions.begin(SecretString::from("t"), of(user), OWN, at(4));
        }
        let greedy = |it: &&Arc<Session>| it.standing.user.contains(":greedy:");
        assert!(sessions.all().values().filter(greedy).count() <= MAX_SESSIONS_OF_USER);
        assert!([&alice, &bob].iter().all(|id| sessions.find(id, OWN, true, at(5)).is_some()));
    }

    #[test]
    fn only_our_own_pages_know_the_proof_of_a_form() {
        let sessions = Sessions::default();
        let (one, other) = (begin(&sessions, at(0)), begin(&sessions, at(0)));
        let (one, other) = (
            sessions.find(&one, OWN, true, at(0)).unwrap(),
            sessions.find(&other, OWN, true, at(0)).unwrap(),
        );
        assert!(one.is_from_our_page(one.csrf()));
        assert!(!one.is_from_our_page(other.csrf()) && !one.is_from_our_page(""));
    }
}
