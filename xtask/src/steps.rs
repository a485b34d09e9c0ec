//! A run of named steps: each with its time and result, all counted at the end.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// It cannot be had here, and why.
    Skipped(String),
    /// It could be installed and is not there, and why: a strict run fails.
    Missing(String),
}

impl Outcome {
    /// Of a step whose tool is not there.
    pub(crate) fn lacking(why: &anyhow::Error) -> Self {
        let text = format!("{why:#}");
        if crate::tools::is_not_offered(why) { Self::Skipped(text) } else { Self::Missing(text) }
    }
}

/// What becomes of a step, or a test, that lacks a tool which can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Demand {
    /// It is skipped, and said so: a person may not have everything.
    #[default]
    WhatIsThere,
    /// It fails: continuous integration must have tested what it says it tested.
    All,
}

/// A step that may run beside others.
pub(crate) type Step<'a> = (String, Box<dyn FnOnce(&mut Report) -> Result<Outcome> + Send + 'a>);

/// What the steps came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    demand: Demand,
    /// What there is to read of a step that runs beside others: it is printed when that has ended.
    held: Option<Vec<String>>,
    results: Vec<(String, Duration, Verdict)>,
    /// Single tests inside the steps.
    tests_passed: u64,
    tests_failed: u64,
    /// Tests that said why they could not run here.
    tests_skipped: Vec<String>,
    /// Tests that failed, and passed when they were asked again.
    tests_unsteady: Vec<String>,
    /// Programs that this machine cannot have.
    excused: Vec<&'static str>,
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Report {
    pub(crate) fn new(demand: Demand) -> Self {
        Self { demand, ..Self::default() }
    }

    /// Runs a step, whatever became of those before: one run shows all that is wrong.
    pub(crate) fn step(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Result<Outcome>) {
        println!("==> {name}");
        let start = Instant::now();
        let verdict = match run(self) {
            Ok(Outcome::Passed) => Verdict::Passed,
            Ok(Outcome::Skipped(why)) => Verdict::Skipped(why),
            Ok(Outcome::Missing(why)) => match self.demand {
                Demand::WhatIsThere => Verdict::Skipped(why),
                Demand::All => Verdict::Failed(format!("--strict: {why}")),
            },
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        let time = start.elapsed();
        self.say(&format!("<== {}", line(name, time, &verdict)));
        self.results.push((name.to_owned(), time, verdict));
    }

    /// Runs steps of which each mostly waits, up to so many at a time, begun in their order.
    pub(crate) fn steps_beside_each_other(&mut self, at_once: usize, steps: Vec<Step<'_>>) {
        if at_once < 2 || steps.len() < 2 {
            for (name, run) in steps {
                self.step(&name, run);
            }
            return;
        }
        let demand = self.demand;
        let waiting = Mutex::new(VecDeque::from(steps));
        let ended = Mutex::new(self);
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some((name, run)) = next() {
                        let mut own = Self { held: Some(Vec::new()), ..Self::new(demand) };
                        own.step(&name, run);
                        ended.lock().unwrap_or_else(PoisonError::into_inner).take_over(own);
                    }
                });
            }
        });
    }

    /// Prints what another held back, and adds up.
    fn take_over(&mut self, other: Self) {
        let Self {
            demand: _,
            held,
            results,
            tests_passed,
            tests_failed,
            tests_skipped,
            tests_unsteady,
            excused,
        } = other;
        for line in held.into_iter().flatten() {
            println!("{line}");
        }
        self.results.extend(results);
        self.tests_passed += tests_passed;
        self.tests_failed += tests_failed;
        self.tests_skipped.extend(tests_skipped);
        self.tests_unsteady.extend(tests_unsteady);
        self.excused.extend(excused);
    }

    /// Prints a line, at once or with the others of a step that runs beside others.
    pub(crate) fn say(&mut self, line: &str) {
        match &mut self.held {
            Some(held) => held.push(line.to_owned()),
            None => println!("{line}"),
        }
    }

    /// How many single tests ran to their end so far.
    pub(crate) fn tests_run(&self) -> u64 {
        self.tests_passed + self.tests_failed
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

    /// Takes back that these failed, and names them at the end.
    pub(crate) fn passed_at_last(&mut self, tests: Vec<String>) {
        self.tests_failed = self.tests_failed.saturating_sub(tests.len() as u64);
        self.tests_unsteady.extend(tests);
    }

    /// Lets tests be skipped for want of these.
    pub(crate) fn excuse(&mut self, programs: impl IntoIterator<Item = &'static str>) {
        self.excused.extend(programs);
    }

    /// Tests that were skipped for want of a program which can be installed.
    fn demanded(&self) -> Vec<&String> {
        let demanded = |tool: &&str| !self.excused.contains(tool);
        let names =
            |why: &&String| crate::tools::installable().filter(demanded).any(|it| says(why, it));
        match self.demand {
            Demand::WhatIsThere => Vec::new(),
            Demand::All => self.tests_skipped.iter().filter(names).collect(),
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
        for test in &self.tests_unsteady {
            println!("UNSTEADY: {test} failed, and passed when it was asked again");
        }
        let demanded = self.demanded();
        for why in &demanded {
            println!("FAILED: --strict: a test was skipped that must run here: {why}");
        }
        println!("\n==> where the time went");
        for (name, time) in self.slowest_first() {
            println!("{:>8.1} s  {name}", time.as_secs_f64());
        }
        println!("{:>8.1} s  in all", self.time().as_secs_f64());
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
        self.code()
    }

    /// What it comes to.
    fn code(&self) -> ExitCode {
        let is_failed =
            |(_, _, verdict): &(String, Duration, Verdict)| matches!(verdict, Verdict::Failed(_));
        let has_failed = self.results.iter().any(is_failed) || !self.demanded().is_empty();
        if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn slowest_first(&self) -> Vec<(&str, Duration)> {
        let mut times: Vec<_> =
            self.results.iter().map(|(name, time, _)| (name.as_str(), *time)).collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        times
    }

    fn time(&self) -> Duration {
        self.results.iter().map(|(_, time, _)| *time).sum()
    }
}

fn line(name: &str, time: Duration, verdict: &Verdict) -> String {
    let seconds = time.as_secs_f64();
    match verdict {
        Verdict::Passed => format!("{name}: passed in {seconds:.1} s"),
        Verdict::Failed(why) => format!("{name}: FAILED after {seconds:.1} s: {why}"),
        Verdict::Skipped(why) => format!("{name}: skipped after {seconds:.1} s: {why}"),
    }
}

/// Whether a text has a word, with nothing of a longer one around it.
fn says(text: &str, word: &str) -> bool {
    text.split(|it: char| !(it.is_alphanumeric() || "-_.".contains(it))).any(|part| part == word)
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
    fn a_test_that_passed_at_last_is_no_failure_and_is_named() {
        let mut report = Report::default();
        report.note("test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured");
        report.note("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured");
        report.passed_at_last(vec!["a::b".to_owned()]);
        assert_eq!((report.tests_passed, report.tests_failed), (13, 1));
        assert_eq!(report.tests_unsteady, ["a::b"]);
    }

    #[test]
    fn a_failed_step_does_not_hide_the_next() {
        let mut report = Report::default();
        report.step("one", |_| anyhow::bail!("no luck"));
        report.step("two", |_| Ok(Outcome::Passed));
        report.step("three", |_| Ok(Outcome::Skipped("not here".to_owned())));
        assert_eq!(report.results.len(), 3);
        assert_eq!(report.code(), ExitCode::FAILURE);
    }

    #[test]
    fn a_strict_run_fails_for_want_of_what_can_be_installed_and_of_nothing_else() {
        let ends = |demand: Demand, outcome: fn() -> Outcome, noted: &str| {
            let mut report = Report::new(demand);
            report.note(noted);
            report.step("step", |_| Ok(outcome()));
            // Not `finish`: what that prints would be taken for tests that were skipped.
            report.code()
        };
        let missing = || Outcome::Missing("no kubectl".to_owned());
        let skipped = || Outcome::Skipped("not beside this checkout".to_owned());
        let passed = || Outcome::Passed;
        for (demand, outcome, noted, wanted) in [
            (Demand::All, missing as fn() -> Outcome, "", ExitCode::FAILURE),
            (Demand::WhatIsThere, missing, "", ExitCode::SUCCESS),
            (Demand::All, skipped, "", ExitCode::SUCCESS),
            (Demand::All, passed, "skipped: qemu-img: not found", ExitCode::FAILURE),
            (Demand::All, passed, "skipped: there is no etcd on the path", ExitCode::FAILURE),
            (Demand::WhatIsThere, passed, "skipped: qemu-img: not found", ExitCode::SUCCESS),
            (
                Demand::All,
                passed,
                "skipped: a tmpfs can be mounted by root only",
                ExitCode::SUCCESS,
            ),
            (Demand::All, passed, "skipped: fio was built without nbd", ExitCode::SUCCESS),
        ] {
            assert_eq!(ends(demand, outcome, noted), wanted, "{demand:?} {noted}");
        }
    }

    #[test]
    fn a_strict_run_forgives_what_this_machine_cannot_have() {
        let mut report = Report::new(Demand::All);
        report.excuse(["nbdcopy"]);
        report.note("skipped: nbdcopy: not found");
        assert_eq!(report.demanded(), Vec::<&String>::new());
        report.note("skipped: qemu-io: not found");
        assert_eq!(report.demanded(), ["qemu-io: not found"]);
    }

    #[test]
    fn steps_beside_each_other_are_all_counted() {
        let mut report = Report::new(Demand::All);
        let step = |number: u64| -> Step<'static> {
            let run = move |report: &mut Report| {
                report.note(&format!("test result: ok. {number} passed; 0 failed"));
                report.say("a line");
                anyhow::ensure!(number != 3, "no luck");
                Ok(Outcome::Passed)
            };
            (format!("step {number}"), Box::new(run))
        };
        report.steps_beside_each_other(2, (0..9).map(step).collect());
        assert_eq!((report.results.len(), report.tests_passed), (9, 36));
        assert_eq!(report.code(), ExitCode::FAILURE);
        let failed =
            report.results.iter().filter(|(_, _, verdict)| matches!(verdict, Verdict::Failed(_)));
        assert_eq!(failed.map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["step 3"]);
    }

    #[test]
    fn the_slowest_step_is_named_first() {
        let mut report = Report::default();
        let seconds = Duration::from_secs;
        for (name, time) in [("quick", 1), ("slow", 9), ("middling", 4)] {
            report.results.push((name.to_owned(), seconds(time), Verdict::Passed));
        }
        let names: Vec<&str> = report.slowest_first().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["slow", "middling", "quick"]);
        assert_eq!(report.time(), seconds(14));
    }
}
