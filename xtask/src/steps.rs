//! A run of named steps: each with its time and result, all counted at the end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// It cannot be had here, and why.
    Skipped(String),
}

/// What the steps came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    results: Vec<(String, Duration, Verdict)>,
    /// Single tests inside the steps.
    tests_passed: u64,
    tests_failed: u64,
    /// Tests that said why they could not run here.
    tests_skipped: Vec<String>,
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Report {
    /// Runs a step, whatever became of those before: one run shows all that is wrong.
    pub(crate) fn step(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Result<Outcome>) {
        println!("==> {name}");
        let start = Instant::now();
        let verdict = match run(self) {
            Ok(Outcome::Passed) => Verdict::Passed,
            Ok(Outcome::Skipped(why)) => Verdict::Skipped(why),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        let time = start.elapsed();
        println!("<== {}", line(name, time, &verdict));
        self.results.push((name.to_owned(), time, verdict));
    }

    /// Takes note of what a test program printed.
    pub(crate) fn note(&mut self, line: &str) {
        let line = line.trim_start();
        if let Some(why) = line.strip_prefix("skipped: ") {
            self.tests_skipped.push(why.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.tests_passed += count(result, "passed");
            self.tests_failed += count(result, "failed");
        }
    }

    /// Prints the end of the story.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n==> all steps");
        for (name, time, verdict) in &self.results {
            println!("{}", line(name, *time, verdict));
        }
        for why in &self.tests_skipped {
            println!("skipped: {why}");
        }
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (_, _, verdict) in &self.results {
            match verdict {
                Verdict::Passed => passed += 1,
                Verdict::Failed(_) => failed += 1,
                Verdict::Skipped(_) => skipped += 1,
            }
        }
        println!(
            "single tests in these steps: {} passed, {} failed, {} skipped",
            self.tests_passed,
            self.tests_failed,
            self.tests_skipped.len()
        );
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn line(name: &str, time: Duration, verdict: &Verdict) -> String {
    let seconds = time.as_secs_f64();
    match verdict {
        Verdict::Passed => format!("{name}: passed in {seconds:.1} s"),
        Verdict::Failed(why) => format!("{name}: FAILED after {seconds:.1} s: {why}"),
        Verdict::Skipped(why) => format!("{name}: skipped: {why}"),
    }
}

/// The number before a word, as in `ok. 12 passed; 0 failed; …`.
fn count(result: &str, word: &str) -> u64 {
    let part = result.split([';', '.']).map(str::trim).find(|part| part.ends_with(word));
    part.and_then(|part| part.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_test_program_are_read() {
        let mut report = Report::default();
        report.note("test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out");
        report.note("  skipped: no tmpfs without root");
        report.note("anything else");
        assert_eq!((report.tests_passed, report.tests_failed), (12, 3));
        assert_eq!(report.tests_skipped, ["no tmpfs without root"]);
    }

    #[test]
    fn a_failed_step_does_not_hide_the_next() {
        let mut report = Report::default();
        report.step("one", |_| anyhow::bail!("no luck"));
        report.step("two", |_| Ok(Outcome::Passed));
        report.step("three", |_| Ok(Outcome::Skipped("not here".to_owned())));
        assert_eq!(report.results.len(), 3);
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }
}
