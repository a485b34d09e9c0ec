//! Ports: runs of free ones in a range, none given twice while it is in use.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;

#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    /// First port of each run that is given away, and the last.
    given: BTreeMap<u16, u16>,
    /// Where the search goes on: a port that was let go of rests before it comes again, as whoever
    /// still speaks to its last user must not meet another there.
    next: u16,
}

impl Ports {
    /// `seed` spreads those who share a machine over the range.
    pub(super) fn new(range: RangeInclusive<u16>, seed: u64) -> Self {
        let length = u64::from(range.end() - range.start()) + 1;
        let offset = u16::try_from(seed % length).unwrap_or(0);
        let next = range.start() + offset;
        Self { range, given: BTreeMap::new(), next }
    }

    /// A run that somebody uses already, as a process that was found again does.
    pub(super) fn hold(&mut self, run: (u16, u16)) {
        self.given.insert(run.0, run.1);
    }

    /// `count` ports in a row that nobody has and `is_free` approves of.
    pub(super) fn take(
        &mut self,
        count: u16,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<(u16, u16)> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let length = u32::from(last - first) + 1;
        if count == 0 || u32::from(count) > length {
            return None;
        }
        let mut at = self.next;
        let mut looked: u32 = 0;
        // One round, and what the last run may reach over its end.
        while looked < length + u32::from(count) {
            let end = at.checked_add(count - 1).filter(|end| *end <= last);
            let busy = end.and_then(|end| {
                let taken = self.taken(at, end);
                taken.or_else(|| (at..=end).rev().find(|port| !is_free(*port)))
            });
            if let (Some(end), None) = (end, busy) {
                self.given.insert(at, end);
                self.next = end.checked_add(1).filter(|it| *it <= last).unwrap_or(first);
                return Some((at, end));
            }
            // Behind what is in the way, or from the beginning.
            let behind = busy.and_then(|busy| busy.checked_add(1));
            let to = behind.filter(|to| *to > at && *to <= last).unwrap_or(first);
            looked += if to > at { u32::from(to - at) } else { u32::from(last - at) + 1 };
            at = to;
        }
        None
    }

    /// The last port of the last run that overlaps, if one does.
    fn taken(&self, from: u16, to: u16) -> Option<u16> {
        let (_, end) = self.given.range(..=to).next_back()?;
        (*end >= from).then_some(*end)
    }

    pub(super) fn release(&mut self, run: (u16, u16)) {
        self.given.remove(&run.0);
    }
}

/// Whether nobody on this machine listens there, on any address: nodes that share a machine take the
/// same ports on addresses of their own, but replicas receive files on all.
pub(super) fn is_free(port: u16) -> bool {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => false,
        // A machine without IPv6.
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_given_in_turn_and_come_round() {
        let mut ports = Ports::new(100..=109, 0);
        assert_eq!(ports.take(4, |_| true), Some((100, 103)));
        assert_eq!(ports.take(4, |_| true), Some((104, 107)));
        assert_eq!(ports.take(4, |_| true), None);
        ports.release((100, 103));
        assert_eq!(ports.take(4, |_| true), Some((100, 103)));
        assert_eq!(ports.take(2, |_| true), Some((108, 109)));
        assert_eq!(ports.take(1, |_| true), None);
    }

    #[test]
    fn ports_that_others_listen_at_are_passed_over() {
        let mut ports = Ports::new(100..=109, 3);
        assert_eq!(ports.take(3, |port| port != 104), Some((105, 107)));
        assert_eq!(ports.take(3, |port| port != 104), Some((100, 102)));
        assert_eq!(ports.take(3, |port| port != 104), None);
    }

    #[test]
    fn a_listener_on_one_address_is_noticed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }

    proptest! {
        /// Whatever is taken and released, runs never overlap, stay in the range, and a run is found
        /// whenever there is one.
        #[test]
        fn runs_never_overlap(seed: u64, steps in prop::collection::vec((1u16..6, any::<bool>()), 1..60)) {
            let mut ports = Ports::new(1000..=1039, seed);
            let mut held: Vec<(u16, u16)> = Vec::new();
            for (count, release) in steps {
                if release && !held.is_empty() {
                    ports.release(held.remove(0));
                    continue;
                }
                let used: Vec<bool> = (1000..=1039)
                    .map(|port| held.iter().any(|(from, to)| (*from..=*to).contains(&port)))
                    .collect();
                let possible = used.windows(usize::from(count)).any(|run| !run.contains(&true));
                match ports.take(count, |_| true) {
                    Some((from, to)) => {
                        prop_assert_eq!(to - from + 1, count);
                        prop_assert!(from >= 1000 && to <= 1039);
                        prop_assert!(held.iter().all(|(a, b)| to < *a || from > *b));
                        held.push((from, to));
                    }
                    None => prop_assert!(!possible),
                }
            }
        }
    }
}
