//! Running a test for many seeds, and naming the one that fails.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Plays one seed instead of all.
const ONE: &str = "SIM_SEED";
/// Plays this many seeds instead of what the test says, for long runs.
const COUNT: &str = "SIM_SEEDS";

/// Runs `test` for the seeds 0 to `count` - 1. A panic in it is passed on, after the seed is
/// printed with how to play it again.
///
/// # Panics
///
/// As `test` does, and if `SIM_SEED` or `SIM_SEEDS` is not a number.
pub fn for_seeds(count: u64, test: impl FnMut(u64)) {
    let (one, many) = (number(ONE), number(COUNT));
    if let Some(seed) = one {
        eprintln!("{ONE}={seed}: playing this seed alone");
    }
    run(one, many.unwrap_or(count), test);
}

fn run(one: Option<u64>, count: u64, mut test: impl FnMut(u64)) {
    let seeds = one.map_or(0..count, |seed| seed..seed.saturating_add(1));
    for seed in seeds {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("");
            eprintln!("seed {seed} failed; again with: {ONE}={seed} cargo test {name}");
            resume_unwind(payload);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable} is {text:?}, not a number: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(one: Option<u64>, count: u64) -> Vec<u64> {
        let mut seeds = vec![];
        run(one, count, |seed| seeds.push(seed));
        seeds
    }

    #[test]
    fn all_seeds_are_played_or_the_one_asked_for() {
        assert_eq!(played(None, 3), [0, 1, 2]);
        assert_eq!(played(Some(7), 3), [7]);
    }

    #[test]
    fn a_failing_seed_is_the_last_one_played() {
        let mut last = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(None, 9, |seed| {
                last = seed;
                assert!(seed < 4, "on purpose");
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(last, 4);
    }
}
