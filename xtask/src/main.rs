//! Chores of the workspace that need logic: `cargo xtask <chore>`.
//!
//! Owns: how Holdfast is tested, kept tidy, measured, and what is generated from what. Never: linked
//! into anything that ships.

#![expect(clippy::print_stdout, reason = "a chore talks to the person who runs it")]

mod bench;
mod codegen;
mod crds;
mod peers;
mod postgres;
mod steps;
mod stores;
mod suites;
mod tempest;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::steps::Demand;

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Chores of the Holdfast workspace")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Everything that must hold before a change is merged; installs what is missing.
    Test {
        /// Fail instead of skipping where a tool is missing that can be installed.
        #[arg(long)]
        strict: bool,
    },
    /// Layers, purity, sizes, words, links, and what of others' is used.
    Tidy,
    /// Write the files that are made from other crates' facts.
    Codegen {
        /// Compare instead of writing; fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Write the definitions of our kinds to `deploy/crds`.
    Crds {
        /// Compare instead of writing; fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Measure; without a name, list what can be measured.
    Bench(bench::Arguments),
    /// Drive the real binary with real clients.
    E2e {
        /// Only this suite.
        suite: Option<String>,
        /// Only tests of it whose name contains this.
        test: Option<String>,
    },
    /// Build the real programs of others, and run suites against them.
    #[command(subcommand)]
    Peers(peers::Arguments),
    /// Let property tests make up new cases, and more of them.
    Properties {
        /// Of each property.
        #[arg(long, default_value_t = 1000)]
        cases: u32,
        /// Replay the cases of an earlier run.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run Tempest's tests of Block Storage with a real Keystone.
    Tempest {
        /// Only tests that this regular expression finds; those of `tempest.api.volume` without it.
        only: Option<String>,
        /// Run in this folder, which must not exist, and leave it: logs, databases, results.
        #[arg(long)]
        keep: Option<std::path::PathBuf>,
    },
    /// Make up requests by the document of the Block Storage API; none may break anything.
    Schemathesis {
        /// Of each operation.
        #[arg(long, default_value_t = 100)]
        examples: u32,
    },
    /// Kill what is being written to, again and again, and look for what it lost.
    Crash {
        #[arg(value_enum, default_value_t)]
        of: suites::Crash,
        /// How often: 100 times the API server, 1000 times the engine, 200 times backups, 200
        /// times the etcd guard.
        #[arg(long)]
        rounds: Option<u32>,
        /// Replay the random choices of an earlier run.
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().chore {
        Chore::Test { strict } => {
            Ok(test::run(if strict { Demand::All } else { Demand::WhatIsThere }))
        }
        Chore::Tidy => tidy::run().map(|()| ExitCode::SUCCESS),
        Chore::Codegen { check } => codegen::run(check).map(|()| ExitCode::SUCCESS),
        Chore::Crds { check } => crds::run(check).map(|()| ExitCode::SUCCESS),
        Chore::Bench(arguments) => bench::run(&arguments).map(|()| ExitCode::SUCCESS),
        Chore::E2e { suite, test } => suites::run(suite.as_deref(), test),
        Chore::Peers(arguments) => peers::run(&arguments),
        Chore::Properties { cases, seed } => Ok(test::properties(cases, seed)),
        Chore::Tempest { only, keep } => Ok(tempest::run(only.as_deref(), keep.as_deref())),
        Chore::Schemathesis { examples } => Ok(tempest::make_up(examples)),
        Chore::Crash { of, rounds, seed } => suites::crash(of, rounds, seed),
    }
}
