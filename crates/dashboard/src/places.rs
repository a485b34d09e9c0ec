//! How many are served at a time. A newcomer always gets a place: probes come here as well, and what they
//! do not reach is taken for dead. Where all places are taken, whoever has the most of them loses the
//! oldest.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone)]
pub(crate) struct Places {
    taken: Arc<Mutex<Taken>>,
    max: usize,
}

/// By number, so that the oldest is the first.
#[derive(Debug, Default)]
struct Taken {
    places: BTreeMap<u64, (IpAddr, CancellationToken)>,
    next: u64,
}

/// Of one connection, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Place {
    /// Another has it now.
    pub(crate) leave: CancellationToken,
    number: u64,
    all: Places,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        Self { taken: Arc::default(), max }
    }

    pub(crate) fn take(&self, peer: IpAddr) -> Place {
        let mut taken = self.lock();
        if taken.places.len() >= self.max {
            taken.free_one();
        }
        let (number, leave) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.places.insert(number, (peer.to_canonical(), leave.clone()));
        Place { leave, number, all: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn free_one(&mut self) {
        let mut by_peer: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, (peer, _)) in &self.places {
            by_peer.entry(*peer).or_insert((0, *number)).0 += 1;
        }
        // Of two with as many, the one whose oldest is older.
        let most = by_peer.values().max_by_key(|(count, oldest)| (*count, u64::MAX - *oldest));
        if let Some((_, leave)) = most.and_then(|(_, oldest)| self.places.remove(oldest)) {
            leave.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_gets_a_place_of_whoever_has_the_most() {
        let places = Places::new(4);
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        let one = places.take(peer(1));
        let greedy: Vec<_> = (0..3).map(|_| places.take(peer(2))).collect();
        let probe = places.take(peer(3));
        assert!(greedy[0].leave.is_cancelled() && !greedy[1].leave.is_cancelled());
        assert!(!one.leave.is_cancelled() && !probe.leave.is_cancelled());
        // One peer alone loses its own oldest.
        let more: Vec<_> = (0..9).map(|_| places.take(peer(2))).collect();
        assert!(!one.leave.is_cancelled() && !probe.leave.is_cancelled());
        assert_eq!(more.iter().filter(|it| !it.leave.is_cancelled()).count(), 2);
        assert_eq!(places.lock().places.len(), 4);
        drop((one, greedy, probe, more));
        assert!(places.lock().places.is_empty());
    }
}
