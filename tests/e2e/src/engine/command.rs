//! The command line of the engine, as scripts call it.

use std::process::Command;

use serde_json::Value;

use super::{Program, TIMEOUT};

/// Calls one engine.
#[derive(Debug, Clone)]
pub struct Cli {
    pub program: Program,
    pub port: u16,
    /// Names the caller expects; empty: not sent.
    pub volume: String,
    pub instance: String,
    /// Variables beside those of the test.
    pub environment: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Cli {
    pub fn new(port: u16, volume: &str) -> Self {
        let (volume, instance) = (volume.to_owned(), String::new());
        Self { program: Program::Ours, port, volume, instance, environment: Vec::new() }
    }

    /// With these variables as well.
    #[must_use]
    pub fn with(mut self, environment: &[(String, String)]) -> Self {
        self.environment.extend_from_slice(environment);
        self
    }

    /// Runs a command, whatever comes of it. One that never ends is ended, with code 124.
    pub fn call(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg((2 * TIMEOUT).as_secs().to_string());
        command.arg(self.program.by_name());
        self.complete(&mut command, arguments);
        let output = command.output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A command to be started by the caller, who may end it at any moment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program.by_name());
        self.complete(&mut command, arguments);
        command
    }

    fn complete(&self, command: &mut Command, arguments: &[&str]) {
        command.args(["--url", &format!("http://127.0.0.1:{}", self.port)]);
        for (flag, value) in
            [("--volume-name", &self.volume), ("--engine-instance-name", &self.instance)]
        {
            if !value.is_empty() {
                command.args([flag, value]);
            }
        }
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
    }

    /// Runs a command that must succeed; its standard output.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        let ran = self.call(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs a command that must fail with code 1 and say `text`.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], text: &str) {
        let ran = self.call(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(text), "{arguments:?}: {text:?} is not in {}", ran.stderr);
    }

    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Address and mode of each replica, as `ls-replica` tells them.
    #[track_caller]
    pub fn modes(&self) -> Vec<(String, String)> {
        let table = self.run(&["ls-replica"]);
        let mut lines = table.lines();
        let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(head, ["ADDRESS", "MODE", "CHAIN"], "{table}");
        let row = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some((words.next()?, words.next()?))
        };
        lines.filter_map(row).collect()
    }

    /// Names of the snapshots, newest first.
    #[track_caller]
    pub fn snapshots(&self) -> Vec<String> {
        let table = self.run(&["snapshot", "ls"]);
        let mut lines = table.lines().map(|line| line.trim().to_owned());
        assert_eq!(lines.next().as_deref(), Some("ID"), "{table}");
        lines.collect()
    }
}
