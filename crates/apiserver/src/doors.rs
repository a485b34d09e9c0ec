//! Connections: how many there may be, and whose.
//!
//! Whoever comes is a stranger until a request of theirs was authenticated. Strangers have a share
//! of the connections; when it is used up, one of them gives way to the newcomer, who may be the
//! administrator: the one that has been idle and there longest, or else has not taken its answers,
//! or else has been there longest. So crowds of strangers lock nobody out, whatever they ask for.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::flow::{Caller, Level};

/// Bounds of what connections may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections in total.
    pub connections: usize,
    /// Of those without credentials.
    pub strangers: usize,
    /// Of one caller.
    pub one_caller: usize,
    /// Kept for administrators and, of one half, for nodes and controllers.
    pub kept: usize,
    /// A client that takes nothing of any answer for so long is cut off.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            strangers: 1024,
            one_caller: 1024,
            kept: 512,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// Descriptors for everything but connections.
const OTHER_FILES: u64 = 128;

impl Limits {
    /// The same in proportion, where the process may not have as many files open.
    pub(crate) fn within(self, open_files: u64) -> Self {
        let room = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        if room >= self.connections {
            return self;
        }
        let part = |limit: usize| (limit.saturating_mul(room) / self.connections.max(1)).max(1);
        Self {
            connections: room.max(4),
            strangers: part(self.strangers),
            one_caller: part(self.one_caller),
            kept: part(self.kept),
            ..self
        }
    }
}

#[derive(Debug)]
pub(crate) struct Doors {
    limits: Limits,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    strangers: BTreeMap<u64, Arc<Guest>>,
    known: HashMap<Arc<str>, usize>,
    known_total: usize,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Guest {
    number: u64,
    name: OnceLock<Arc<str>>,
    /// Requests under way, answers not yet taken included.
    busy: AtomicUsize,
    answers: Mutex<Vec<Weak<Visit>>>,
    came: Instant,
    /// Asked to leave.
    pub leave: CancellationToken,
}

/// A place inside; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    doors: Arc<Doors>,
    pub guest: Arc<Guest>,
}

/// One request of a connection, until its answer was taken.
#[derive(Debug)]
pub(crate) struct Visit {
    doors: Arc<Doors>,
    guest: Arc<Guest>,
    /// Milliseconds from the arrival of the connection, and one more, to when the client was last
    /// given a piece of the answer; 0 while it is us who are waited for.
    given_at: AtomicU64,
}

impl Doors {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, inside: Mutex::default() })
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in, in place of another stranger's where there is no room.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let mut inside = self.inside();
        if inside.strangers.len() >= self.limits.strangers {
            // They come by age, and of equals the first is taken.
            let first = inside.strangers.values().min_by_key(|guest| guest.claim());
            let number = first.map(|guest| guest.number).unwrap_or_default();
            if let Some(guest) = inside.strangers.remove(&number) {
                guest.leave.cancel();
            }
        }
        inside.next += 1;
        let guest = Arc::new(Guest {
            number: inside.next,
            name: OnceLock::new(),
            busy: AtomicUsize::new(0),
            answers: Mutex::default(),
            came: Instant::now(),
            leave: CancellationToken::new(),
        });
        inside.strangers.insert(guest.number, Arc::clone(&guest));
        Place { doors: Arc::clone(self), guest }
    }

    /// A request of this connection was authenticated.
    fn introduce(&self, guest: &Guest, caller: &Caller) -> Result<(), Failure> {
        if caller.level == Level::Stranger || guest.name.get().is_some() {
            return Ok(());
        }
        let mut inside = self.inside();
        let known = self.limits.connections.saturating_sub(self.limits.strangers);
        let own = inside.known.get(&caller.name).copied().unwrap_or_default();
        let fits = match caller.level {
            Level::System => inside.known_total < known,
            Level::Service => {
                inside.known_total < known.saturating_sub(self.limits.kept / 2)
                    && own < self.limits.one_caller
            }
            Level::Known | Level::Stranger => {
                inside.known_total < known.saturating_sub(self.limits.kept)
                    && own < self.limits.one_caller
            }
        };
        if !fits {
            let text = "too many connections at once, please try again later";
            return Err(Failure::too_many_requests(text, 1));
        }
        // Under the lock: requests of one connection may come side by side.
        if guest.name.set(Arc::clone(&caller.name)).is_ok() {
            inside.strangers.remove(&guest.number);
            inside.known_total += 1;
            *inside.known.entry(Arc::clone(&caller.name)).or_default() += 1;
        }
        Ok(())
    }
}

impl Place {
    pub(crate) fn visit(&self) -> Arc<Visit> {
        let (doors, guest) = (Arc::clone(&self.doors), Arc::clone(&self.guest));
        guest.busy.fetch_add(1, Ordering::AcqRel);
        let visit = Arc::new(Visit { doors, guest, given_at: AtomicU64::new(0) });
        let mut answers = self.guest.answers();
        if answers.len() >= 16 && answers.len().is_power_of_two() {
            answers.retain(|one| one.strong_count() > 0);
        }
        answers.push(Arc::downgrade(&visit));
        visit
    }

    pub(crate) fn write_timeout(&self) -> Duration {
        self.doors.limits.write_timeout
    }

    /// Ends when the client has taken nothing of any answer for too long.
    pub(crate) async fn stalls(&self) {
        let timeout = self.doors.limits.write_timeout;
        let mut look = tokio::time::interval(timeout / 4);
        loop {
            look.tick().await;
            if self.guest.has_stalled(timeout) {
                return;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.doors.inside();
        let Some(name) = self.guest.name.get() else {
            inside.strangers.remove(&self.guest.number);
            return;
        };
        inside.known_total = inside.known_total.saturating_sub(1);
        if let Some(own) = inside.known.get_mut(name) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                inside.known.remove(name);
            }
        }
    }
}

/// What a stranger does with its place, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    Idle,
    TakesNothing,
    IsServed,
}

impl Guest {
    fn claim(&self) -> Claim {
        if self.busy.load(Ordering::Acquire) == 0 {
            Claim::Idle
        } else if self.has_stalled(Duration::ZERO) {
            Claim::TakesNothing
        } else {
            Claim::IsServed
        }
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Visit>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All answers under way wait for the client, and have for `timeout`. One that is read keeps
    /// the others: they may share a connection with a reader that is just slow.
    fn has_stalled(&self, timeout: Duration) -> bool {
        let mut answers = self.answers();
        answers.retain(|one| one.strong_count() > 0);
        let open: Vec<Arc<Visit>> = answers.iter().filter_map(Weak::upgrade).collect();
        drop(answers);
        !open.is_empty() && open.iter().all(|visit| visit.waits_for_client() >= Some(timeout))
    }
}

impl Visit {
    pub(crate) fn introduce(&self, caller: &Caller) -> Result<(), Failure> {
        self.doors.introduce(&self.guest, caller)
    }

    /// The client was given a piece and has not asked for the next.
    pub(crate) fn gave(&self) {
        let now = u64::try_from(self.guest.came.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.given_at.store(now.saturating_add(1), Ordering::Relaxed);
    }

    /// The client has taken a piece that it was given, and may have others still.
    pub(crate) fn took(&self) {
        if self.given_at.load(Ordering::Relaxed) > 0 {
            self.gave();
        }
    }

    /// The client asks for more.
    pub(crate) fn asked(&self) {
        self.given_at.store(0, Ordering::Relaxed);
    }

    fn waits_for_client(&self) -> Option<Duration> {
        let at = self.given_at.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.guest.came.elapsed().saturating_sub(Duration::from_millis(at)))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.guest.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors() -> Arc<Doors> {
        Doors::new(Limits {
            connections: 8,
            strangers: 3,
            one_caller: 2,
            kept: 1,
            ..Limits::default()
        })
    }

    fn caller(name: &str, level: Level) -> Caller {
        Caller { name: name.into(), level }
    }

    #[test]
    fn the_stranger_with_the_least_claim_gives_way() {
        let doors = doors();
        let mut places: Vec<Place> = (0..3).map(|_| doors.enter()).collect();
        let left = |places: &[Place]| -> Vec<bool> {
            places.iter().map(|one| one.guest.leave.is_cancelled()).collect()
        };
        let _served = places[0].visit();
        places.push(doors.enter());
        assert_eq!(left(&places), [false, true, false, false], "the one that is idle longest");
        let (_served, untaken) = (places[2].visit(), places[3].visit());
        untaken.gave();
        places.push(doors.enter());
        assert_eq!(left(&places), [false, true, false, true, false], "who takes no answer");
        let _served = places[4].visit();
        places.push(doors.enter());
        assert_eq!(left(&places), [true, true, false, true, false, false], "the oldest");
        // Who shows credentials is a stranger no more.
        places[2].visit().introduce(&caller("ada", Level::Known)).unwrap();
        places.push(doors.enter());
        assert_eq!(left(&places), [true, true, false, true, false, false, false]);
        assert_eq!(doors.inside().strangers.len(), 3);
    }

    #[test]
    fn nobody_takes_all_connections() {
        let doors = doors();
        let known = |name: &str, level| {
            let place = doors.enter();
            place.visit().introduce(&caller(name, level)).map(|()| place)
        };
        let mut all: Vec<Place> = (0..2).map(|_| known("ada", Level::Known).unwrap()).collect();
        assert_eq!(known("ada", Level::Known).unwrap_err().code(), 429);
        all.extend((0..2).map(|_| known("bob", Level::Known).unwrap()));
        assert_eq!(known("eve", Level::Known).unwrap_err().code(), 429, "the rest is kept");
        all.push(known("root", Level::System).unwrap());
        assert_eq!(known("root", Level::System).unwrap_err().code(), 429);
        all.clear();
        assert_eq!(doors.inside().known_total, 0);
        assert!(doors.inside().known.is_empty() && doors.inside().strangers.is_empty());
    }

    #[test]
    fn a_client_is_stalled_when_it_takes_nothing_of_anything() {
        let place = doors().enter();
        let none = Duration::ZERO;
        assert!(!place.guest.has_stalled(none), "nothing to take");
        let (one, two) = (place.visit(), place.visit());
        one.gave();
        assert!(!place.guest.has_stalled(none), "the other waits for us");
        two.gave();
        assert!(place.guest.has_stalled(none));
        assert!(!place.guest.has_stalled(Duration::from_hours(1)));
        two.asked();
        assert!(!place.guest.has_stalled(none));
    }

    #[test]
    fn few_open_files_mean_few_connections() {
        let limits = Limits::default().within(1024);
        assert_eq!((limits.connections, limits.strangers), (896, 224));
        assert_eq!(Limits::default().within(1 << 20), Limits::default());
    }
}
