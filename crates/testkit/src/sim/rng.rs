//! The one source of chance of a world.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, RngCore, SeedableRng};

#[derive(Debug)]
pub struct Rng(StdRng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// An own stream, so that what one part draws does not change what another gets.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.number())
    }

    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 to `limit` - 1; 0 where the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { self.0.random_range(0..limit) }
    }

    /// True that many times in a thousand.
    pub fn permille(&mut self, permille: u16) -> bool {
        self.0.random_range(0..1000) < permille
    }

    pub fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        if range.is_empty() { *range.start() } else { self.0.random_range(range.clone()) }
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len());
        from.get(index)
    }
}
