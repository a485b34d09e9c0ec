//! `cargo xtask test`: all that must hold, fastest first.

use std::hash::{BuildHasher, RandomState};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::postgres::{self, Postgres};
use crate::steps::{Demand, Outcome, Report};
use crate::{codegen, crds, stores, suites, tidy, tools, workspace};

pub(crate) fn run(demand: Demand) -> ExitCode {
    let mut report = Report::new(demand);
    report.step("format", |_| cargo(&["fmt", "--all", "--check"]));
    report.step("tidy", |_| tidy::run().map(|()| Outcome::Passed));
    report.step("generated code", |_| codegen::run(true).map(|()| Outcome::Passed));
    report.step("resource definitions", |_| crds::run(true).map(|()| Outcome::Passed));
    report.step("clippy", |_| {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    });
    // What people build has not the features that other packages and tests ask for.
    report.step("as people build it", |_| cargo(&["check", "--quiet", "--package", "holdfast"]));
    report.step("unit and property tests", |report| unit(report, Cases::default()));
    suites::steps(&mut report, &suites::Chosen::default());
    report.finish()
}

/// `cargo xtask properties`: cases that no run before has had.
pub(crate) fn properties(cases: u32, seed: Option<u64>) -> ExitCode {
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(cases));
    println!("property tests: {cases} cases each, seed {seed}; again with --seed {seed}");
    let mut report = Report::new(Demand::WhatIsThere);
    let cases = Cases { seed, each: Some(cases) };
    report.step("unit and property tests", |report| unit(report, cases));
    report.finish()
}

/// Which cases property tests make up.
///
/// A run that judges a change makes up the same ones each time, so that what it says is about the
/// change; new ones are looked for by a command of its own.
#[derive(Debug, Clone, Copy)]
struct Cases {
    seed: u64,
    /// As many as the test says where this is not given.
    each: Option<u32>,
}

impl Default for Cases {
    fn default() -> Self {
        Self { seed: 1, each: None }
    }
}

/// Some of these use programs of others too, and say so where one is missing.
fn unit(report: &mut Report, cases: Cases) -> Result<Outcome> {
    let arguments = [
        "test",
        "--workspace",
        "--exclude",
        "e2e",
        "--no-fail-fast",
        "--quiet",
        // The suite of object stores, over the S3 service of these tests.
        "--features",
        "blobs/conformance",
        "--",
        "--show-output",
    ];
    let mut command = workspace::cargo(arguments);
    command.env("PROPTEST_RNG_SEED", cases.seed.to_string());
    if let Some(each) = cases.each {
        command.env("PROPTEST_CASES", each.to_string());
    }
    report.excuse(tools::block());
    match tools::etcd() {
        Ok(directory) => drop(command.env("HOLDFAST_ETCD_DIR", directory)),
        Err(why) => {
            println!("no etcd: {why:#}");
            let programs = tools::is_not_offered(&why).then_some(["etcd", "etcdctl", "etcdutl"]);
            report.excuse(programs.into_iter().flatten());
        }
    }
    match tools::s3_server() {
        Ok(program) => drop(command.env("MOTO_SERVER", program)),
        Err(why) => {
            println!("no S3 server: {why:#}");
            report.excuse(tools::is_not_offered(&why).then_some("moto_server"));
        }
    }
    let server = stores::Started::s3();
    match &server {
        Ok(server) => drop(command.env(stores::ADDRESS_VARIABLE, server.address().to_string())),
        Err(why) => println!("no S3 server: {why:#}"),
    }
    let database = Postgres::start();
    match &database {
        Ok(database) => drop(command.env(postgres::ADDRESS_VARIABLE, database.address())),
        Err(why) => {
            println!("no PostgreSQL: {why:#}");
            report.excuse(tools::is_not_offered(why).then_some(postgres::ADDRESS_VARIABLE));
        }
    }
    if let Err(why) = tools::rclone() {
        println!("no rclone: {why:#}");
    }
    command.env("PATH", tools::path()?);
    // What passing tests print is not worth reading, but why some of them were skipped is.
    let mut relay = Relay::default();
    follow(report, &mut command, |line| relay.shows(line))
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    workspace::succeed(&mut workspace::cargo(arguments)).map(|()| Outcome::Passed)
}

/// Runs test programs, relays what they print, and counts. What fails has failed.
pub(crate) fn cargo_test(report: &mut Report, command: &mut Command) -> Result<Outcome> {
    match judged(report, command, |_| true)? {
        Judged::Passed => Ok(Outcome::Passed),
        Judged::Failed(_) => bail!("tests failed"),
    }
}

/// The same, and a few tests that failed are asked a second time, by themselves; the report names
/// them either way.
pub(crate) fn cargo_test_twice(report: &mut Report, command: &mut Command) -> Result<Outcome> {
    follow(report, command, |_| true)
}

/// More than these are not the machine's fault.
const ASKED_AGAIN: usize = 3;

fn follow(
    report: &mut Report,
    command: &mut Command,
    mut shows: impl FnMut(&str) -> bool,
) -> Result<Outcome> {
    let failed = match judged(report, command, &mut shows)? {
        Judged::Passed => return Ok(Outcome::Passed),
        Judged::Failed(tests) => tests,
    };
    if failed.is_empty() || failed.len() > ASKED_AGAIN {
        bail!("tests failed");
    }
    report.say(&format!("==> asked again: {}", failed.join(", ")));
    command.arg("--exact").args(&failed);
    match judged(report, command, shows)? {
        Judged::Passed => report.passed_at_last(failed),
        Judged::Failed(_) => bail!("tests failed, and failed again"),
    }
    Ok(Outcome::Passed)
}

#[derive(Debug)]
enum Judged {
    Passed,
    /// The names that were told; none where a test program did not come to its end.
    Failed(Vec<String>),
}

fn judged(
    report: &mut Report,
    command: &mut Command,
    mut shows: impl FnMut(&str) -> bool,
) -> Result<Judged> {
    let mut failures = Failures::default();
    let succeeded = workspace::follow(command, |line| {
        if shows(line) {
            report.say(line);
        }
        report.note(line);
        failures.note(line);
    })?;
    Ok(if succeeded { Judged::Passed } else { Judged::Failed(failures.tests) })
}

/// Reads the names at the end of what a test program prints.
#[derive(Debug, Default)]
struct Failures {
    in_list: bool,
    tests: Vec<String>,
}

impl Failures {
    fn note(&mut self, line: &str) {
        match line {
            "failures:" => self.in_list = true,
            "" => {}
            other => match other.strip_prefix("    ").filter(|it| self.in_list && is_name(it)) {
                Some(name) => self.tests.push(name.to_owned()),
                None => self.in_list = false,
            },
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || "_:".contains(it))
}

/// Leaves out what tests printed that passed.
#[derive(Debug, Default)]
struct Relay {
    in_successes: bool,
}

impl Relay {
    fn shows(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            other if other.starts_with("test result: ") => self.in_successes = false,
            _ => {}
        }
        !self.in_successes || line.starts_with("skipped: ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_failed_tests_are_read() {
        let mut failures = Failures::default();
        let printed = "running 3 tests\n.F.\nfailures:\n\n---- room::b stdout ----\nassertion `left\n    \
                       indented\n\n\nfailures:\n    room::b\n    c\n\ntest result: FAILED. 1 passed\n    d";
        printed.lines().for_each(|line| failures.note(line));
        assert_eq!(failures.tests, ["room::b", "c"]);
    }

    #[test]
    fn what_passing_tests_print_is_left_out_but_for_why_they_were_skipped() {
        let mut relay = Relay::default();
        let printed = "..\nsuccesses:\n\n---- a stdout ----\nchatter\nskipped: no etcd\n\n\
                       successes:\n    a\nfailures:\n---- b stdout ----\nwhy\ntest result: x";
        let shown: Vec<&str> = printed.lines().filter(|line| relay.shows(line)).collect();
        let wanted =
            ["..", "skipped: no etcd", "failures:", "---- b stdout ----", "why", "test result: x"];
        assert_eq!(shown, wanted);
    }
}
