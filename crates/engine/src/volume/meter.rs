//! Figures of the last second, and the last requests in short.

use std::collections::VecDeque;

use super::Traffic;
use super::pending::{Asked, Verb};
use crate::core::Now;

/// Requests the journal remembers.
const JOURNAL: usize = 1024;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) asked: Asked,
    pub(crate) since: Now,
    pub(crate) took: Now,
    pub(crate) well: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Meter {
    current: Sums,
    journal: VecDeque<Entry>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    read: Sum,
    write: Sum,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    bytes: u64,
    count: u64,
    time: Now,
}

impl Sum {
    fn add(&mut self, bytes: u32, took: Now) {
        self.bytes = self.bytes.saturating_add(u64::from(bytes));
        self.count = self.count.saturating_add(1);
        self.time = self.time.saturating_add(took);
    }

    fn mean_ns(&self) -> u64 {
        let total = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        total.checked_div(self.count).unwrap_or(0)
    }
}

impl Meter {
    pub(crate) fn record(&mut self, entry: Entry) {
        let Entry { asked, took, well, .. } = entry;
        match asked.verb {
            Verb::Read if well => self.current.read.add(asked.len, took),
            Verb::Write | Verb::Zero if well => self.current.write.add(asked.len, took),
            Verb::Read | Verb::Write | Verb::Zero => {}
            Verb::Unmap | Verb::Mend | Verb::Flush | Verb::Status => {}
        }
        if self.journal.len() >= JOURNAL {
            self.journal.pop_front();
        }
        self.journal.push_back(entry);
    }

    /// Ends the current second.
    pub(crate) fn roll(&mut self) -> Traffic {
        let Sums { read, write } = std::mem::take(&mut self.current);
        Traffic {
            read_bytes: read.bytes,
            write_bytes: write.bytes,
            read_count: read.count,
            write_count: write.count,
            read_latency_ns: read.mean_ns(),
            write_latency_ns: write.mean_ns(),
        }
    }

    /// The last `limit` requests, the oldest first; 0: all that are remembered.
    pub(crate) fn journal(&self, limit: u64) -> impl Iterator<Item = &Entry> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let skip = if limit == 0 { 0 } else { self.journal.len().saturating_sub(limit) };
        self.journal.iter().skip(skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u64, verb: Verb, took_ms: u64, well: bool) -> Entry {
        let asked = Asked { tag, verb, offset: 0, len: 4096 };
        Entry { asked, since: Now::ZERO, took: Now::from_millis(took_ms), well }
    }

    #[test]
    fn a_second_is_summed_and_forgotten() {
        let mut meter = Meter::default();
        meter.record(entry(1, Verb::Read, 2, true));
        meter.record(entry(2, Verb::Read, 4, true));
        meter.record(entry(3, Verb::Write, 1, true));
        meter.record(entry(4, Verb::Write, 1, false));
        meter.record(entry(5, Verb::Flush, 1, true));
        let expected = Traffic {
            read_bytes: 8192,
            write_bytes: 4096,
            read_count: 2,
            write_count: 1,
            read_latency_ns: 3_000_000,
            write_latency_ns: 1_000_000,
        };
        assert_eq!(meter.roll(), expected);
        assert_eq!(meter.roll(), Traffic::default());
    }

    #[test]
    fn the_journal_keeps_the_last_ones() {
        let mut meter = Meter::default();
        for tag in 0..2000 {
            meter.record(entry(tag, Verb::Read, 1, true));
        }
        let tags = |limit| meter.journal(limit).map(|entry| entry.asked.tag).collect::<Vec<_>>();
        assert_eq!(tags(2), [1998, 1999]);
        assert_eq!(tags(0).len(), JOURNAL);
        assert_eq!(tags(0).first(), Some(&976));
    }
}
