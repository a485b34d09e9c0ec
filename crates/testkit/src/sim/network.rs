//! The network between named nodes: what becomes of one message. It holds no messages itself.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::rng::Rng;

/// What links do to messages. Differing delays are what reorders them.
#[derive(Debug, Clone)]
pub struct Link {
    pub delay: RangeInclusive<Duration>,
    pub loss_permille: u16,
    pub duplicate_permille: u16,
}

impl Link {
    /// A quick and faithful link.
    pub fn good() -> Self {
        let millisecond = Duration::from_millis(1);
        Self { delay: millisecond..=millisecond, loss_permille: 0, duplicate_permille: 0 }
    }

    /// A link that does everything a link may do.
    pub fn bad() -> Self {
        Self {
            delay: Duration::from_micros(100)..=Duration::from_millis(200),
            loss_permille: 100,
            duplicate_permille: 50,
        }
    }
}

#[derive(Debug)]
pub struct Network {
    link: Link,
    /// Messages from the first to the second are lost.
    cut: BTreeSet<(String, String)>,
    rng: Rng,
}

impl Network {
    pub(crate) fn new(link: Link, rng: Rng) -> Self {
        Self { link, cut: BTreeSet::new(), rng }
    }

    pub fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// Loses everything from `from` to `to`, and nothing the other way.
    pub fn cut_one_way(&mut self, from: &str, to: &str) {
        self.cut.insert((from.to_owned(), to.to_owned()));
    }

    pub fn cut(&mut self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Cuts every link between the two sides.
    pub fn part(&mut self, side: &[&str], other_side: &[&str]) {
        for one in side {
            for other in other_side {
                self.cut(one, other);
            }
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    pub fn is_cut(&self, from: &str, to: &str) -> bool {
        self.cut.contains(&(from.to_owned(), to.to_owned()))
    }

    /// The delays of the copies that arrive: none, one or two.
    pub(crate) fn route(&mut self, from: &str, to: &str) -> Vec<Duration> {
        if from == to {
            return vec![Duration::ZERO];
        }
        if self.is_cut(from, to) || self.rng.permille(self.link.loss_permille) {
            return vec![];
        }
        let copies = 1 + usize::from(self.rng.permille(self.link.duplicate_permille));
        (0..copies).map(|_| self.rng.duration(&self.link.delay)).collect()
    }
}
