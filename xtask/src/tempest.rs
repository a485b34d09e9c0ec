//! What others wrote to test such services: Tempest, the dialect's own tests, against our Block Storage
//! API and a real Keystone; Schemathesis against its document. All of it comes from Python's registry,
//! into environments of their own.

use std::path::Path;
use std::process::ExitCode;

use crate::steps::{Outcome, Report};
use crate::{suites, tools, workspace};

/// What the tests are run against, and which; the rest is in `tests/e2e/tempest`.
pub(crate) fn run(only: Option<&str>, keep: Option<&Path>) -> ExitCode {
    let mut report = Report::default();
    report.step("tempest", |_| {
        let python = match tools::tempest() {
            Ok(python) => python,
            Err(why) => return Ok(Outcome::lacking(&why)),
        };
        tools::kubectl()?;
        let folder = match keep {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::temp_dir().join(format!("holdfast-tempest-{}", std::process::id())),
        };
        let mut command = workspace::command(python);
        command.args(["-W", "ignore", "tests/e2e/tempest/run.py"]);
        command.arg(suites::binary()?).arg(&folder).args(only);
        let done = workspace::succeed(&mut command);
        if keep.is_none() && done.is_ok() {
            std::fs::remove_dir_all(&folder)?;
        } else {
            println!("what was written lies in {}", folder.display());
        }
        done.map(|()| Outcome::Passed)
    });
    report.finish()
}

/// Requests made up by the document of the API, more of them than the suite of the API makes.
pub(crate) fn make_up(examples: u32) -> ExitCode {
    let mut report = Report::default();
    report.step("schemathesis", |report| match tools::schemathesis() {
        Ok(program) => suites::made_up(report, &program, examples),
        Err(why) => Ok(Outcome::lacking(&why)),
    });
    report.finish()
}
