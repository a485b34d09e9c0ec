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

/// Without a page turned for so long, a session ends.
const IDLE: SignedDuration = SignedDuration::from_hours(1);
/// However busy it is, it ends after so long.
pub(crate) const LIFETIME: SignedDuration = SignedDuration::from_hours(12);
/// More people than that are turned away.
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
pub(crate) struct Sessions(Mutex<HashMap<[u8; 32], Arc<Session>>>);

/// There is no room for another session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Sessions {
    /// Begins a session; what comes back goes into the browser's cookie.
    pub(crate) fn begin(
        &self,
        token: SecretString,
        standing: Standing,
        now: Timestamp,
    ) -> Result<String, Full> {
        let mut all = self.all();
        end_old(&mut all, now);
        make_place(&mut all, &standing.user);
        if all.len() >= MAX_SESSIONS {
            return Err(Full);
        }
        let id = secret();
        let session = Session {
            token,
            standing,
            csrf: secret(),
            began: now,
            state: Mutex::new(State { seen: now, note: None }),
            ended: CancellationToken::new(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        };
        all.insert(digest(&id), Arc::new(session));
        Ok(id)
    }

    /// The session of a cookie. Only what a person does keeps it from ending.
    pub(crate) fn find(&self, id: &str, by_hand: bool, now: Timestamp) -> Option<Arc<Session>> {
        let mut all = self.all();
        end_old(&mut all, now);
        let found = all.get(&digest(id))?.clone();
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

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the oldest session of a user who has as many as one may have.
fn make_place(all: &mut HashMap<[u8; 32], Arc<Session>>, user: &str) {
    let of_user = || all.iter().filter(|(_, it)| it.standing.user == user);
    if of_user().count() < MAX_SESSIONS_OF_USER {
        return;
    }
    let oldest = of_user().min_by_key(|(_, it)| it.state().seen).map(|(id, _)| *id);
    if let Some(session) = oldest.and_then(|id| all.remove(&id)) {
        session.ended.cancel();
    }
}

fn end_old(all: &mut HashMap<[u8; 32], Arc<Session>>, now: Timestamp) {
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

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn standing() -> Standing {
        Standing { user: "alice".to_owned(), namespaces: Vec::new(), sees_volumes: false }
    }

    fn begin(sessions: &Sessions, now: Timestamp) -> String {
        sessions.begin(SecretString::from("token"), standing(), now).unwrap()
    }

    #[test]
    fn a_session_is_found_by_its_cookie_alone() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        assert_eq!(sessions.find(&id, true, at(1)).unwrap().standing, standing());
        assert!(sessions.find("", true, at(1)).is_none());
        assert!(sessions.find(&id.to_uppercase(), true, at(1)).is_none());
        assert!(
            !format!("{sessions:?}").contains(&id) && !format!("{sessions:?}").contains("token\"")
        );
    }

    #[test]
    fn one_user_keeps_nobody_out() {
        let sessions = Sessions::default();
        let first = begin(&sessions, at(0));
        let ended = sessions.find(&first, false, at(0)).unwrap().ended.clone();
        for number in 1..=MAX_SESSIONS {
            begin(&sessions, at(i64::try_from(number).unwrap()));
        }
        assert!(sessions.find(&first, false, at(1)).is_none() && ended.is_cancelled());
        let bob = Standing { user: "bob".to_owned(), ..standing() };
        sessions.begin(SecretString::from("other"), bob, at(1)).unwrap();
        assert_eq!(sessions.all().len(), MAX_SESSIONS_OF_USER + 1);
    }

    #[test]
    fn a_session_ends_when_nobody_turns_a_page() {
        let sessions = Sessions::default();
        let id = begin(&sessions, at(0));
        let session = sessions.find(&id, true, at(3000)).unwrap();
        assert!(sessions.find(&id, false, at(6000)).is_some(), "a page was turned at 3000");
        assert!(!session.ended.is_cancelled());
        assert!(
            sessions.find(&id, false, at(6700)).is_none(),
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
            assert!(sessions.find(&id, true, at(hour * 3600)).is_some(), "{hour}");
        }
        assert!(sessions.find(&id, true, at(last + 1)).is_none());
    }

    #[test]
    fn signing_out_ends_all_that_hangs_on_a_session() {
        let sessions = Sessions::default();
        let (one, other) = (begin(&sessions, at(0)), begin(&sessions, at(0)));
        let session = sessions.find(&one, true, at(0)).unwrap();
        sessions.end(&one);
        assert!(session.ended.is_cancelled() && sessions.find(&one, true, at(0)).is_none());
        assert!(sessions.find(&other, true, at(0)).is_some());
    }

    #[test]
    fn one_too_many_is_turned_away_until_others_are_over() {
        let sessions = Sessions::default();
        for number in 0..MAX_SESSIONS {
            let one = Standing { user: format!("user-{number}"), ..standing() };
            sessions.begin(SecretString::from("t"), one, at(0)).unwrap();
        }
        assert_eq!(sessions.begin(SecretString::from("t"), standing(), at(1)), Err(Full));
        begin(&sessions, at(3700));
    }

    #[test]
    fn only_our_own_pages_know_the_proof_of_a_form() {
        let sessions = Sessions::default();
        let (one, other) = (begin(&sessions, at(0)), begin(&sessions, at(0)));
        let (one, other) = (
            sessions.find(&one, true, at(0)).unwrap(),
            sessions.find(&other, true, at(0)).unwrap(),
        );
        assert!(one.is_from_our_page(one.csrf()));
        assert!(!one.is_from_our_page(other.csrf()) && !one.is_from_our_page(""));
    }
}
