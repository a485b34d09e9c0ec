//! `cargo xtask test`: all that must hold, fastest first.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::steps::{Outcome, Report};
use crate::{codegen, crds, stores, suites, tidy, tools, workspace};

pub(crate) fn run() -> ExitCode {
    let mut report = Report::default();
    report.step("format", |_| cargo(&["fmt", "--all", "--check"]));
    report.step("tidy", |_| tidy::run().map(|()| Outcome::Passed));
    report.step("generated code", |_| codegen::run(true).map(|()| Outcome::Passed));
    report.step("resource definitions", |_| crds::run(true).map(|()| Outcome::Passed));
    report.step("clippy", |_| {
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    });
    report.step("unit and property tests", |report| {
        let arguments = ["test", "--workspace", "--exclude", "e2e", "--quiet"];
        let mut command = workspace::cargo(arguments);
        match tools::etcd() {
            Ok(directory) => drop(command.env("HOLDFAST_ETCD_DIR", directory)),
            Err(why) => println!("no etcd: {why:#}"),
        }
        cargo_test(report, &mut command)
    });
    report.step("object stores: the suite over S3", stores::over_s3);
    suites::steps(&mut report, None);
    report.finish()
}

fn cargo(arguments: &[&str]) -> Result<Outcome> {
    workspace::succeed(&mut workspace::cargo(arguments)).map(|()| Outcome::Passed)
}

/// Runs test programs, relays what they print, and counts.
pub(crate) fn cargo_test(
    report: &mut Report,
    command: &mut std::process::Command,
) -> Result<Outcome> {
    let succeeded = workspace::follow(command, |line| {
        println!("{line}");
        report.note(line);
    })?;
    if !succeeded {
        bail!("tests failed");
    }
    Ok(Outcome::Passed)
}
