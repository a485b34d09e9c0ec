//! The command line of `holdfast etcd` and of the binary called `etcdbrctl`.
//!
//! Owns: what can be typed ([`table`]), how it is read ([`parse`]), log lines, exit codes. Never:
//! what a server or a restore does. One file a command.

mod compact;
mod completion;
mod copy;
mod drill;
mod error;
mod flag;
mod help;
mod initialize;
mod log;
mod parse;
mod restore;
mod scratch;
mod server;
mod settings;
mod signals;
mod snapshot;
mod table;
mod verify;
mod version;

use std::ffi::OsString;
use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use tasks::Tasks;

pub use self::completion::definition;
use self::error::CommandError;
pub(crate) use self::flag::boolean;
use self::parse::{Asked, Line};
use self::table::Verb;
use crate::store::Environment;

/// How the program was called, for its help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invocation {
    /// `holdfast etcd …`
    Holdfast,
    /// `etcdbrctl …`, by a link to the binary.
    Etcdbrctl,
}

impl Invocation {
    fn program(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast etcd",
            Self::Etcdbrctl => "etcdbrctl",
        }
    }
}

/// What every command is given.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) tasks: Tasks,
    pub(crate) environment: Environment,
    pub(crate) invocation: Invocation,
}

/// Runs one command line, without the name of the program, and says how the process is to end.
pub fn main(args: Vec<OsString>, invocation: Invocation) -> ExitCode {
    let program = invocation.program();
    match parse::parse(args) {
        Ok(Asked::Nothing) => ExitCode::SUCCESS,
        Ok(Asked::Help(command)) => print(&help::text(program, command)),
        Ok(Asked::Version) => {
            log::install(log::INFORMATION);
            version::tell();
            ExitCode::SUCCESS
        }
        Ok(Asked::Run(line)) => run(&line, invocation),
        Err(error) => {
            let help = || format!("see {program} --help");
            let hint = error.similar().map_or_else(help, |it| format!("did you mean {it}?"));
            match invocation {
                Invocation::Etcdbrctl => {
                    print(&format!("Error: {error}\nSee {program} --help\n"));
                }
                Invocation::Holdfast => tell(&error.to_string(), Some(&hint)),
            }
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> ExitCode {
    if print_text(text).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A result for people. A reader who has gone (`| head`) is no failure of ours.
fn print_text(text: &str) -> Result<(), CommandError> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CommandError::Output(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A result for programs: one line.
fn print_json<T: serde::Serialize>(value: &T) -> Result<(), CommandError> {
    let text = serde_json::to_string(value).map_err(|error| CommandError::Output(error.into()))?;
    print_text(&format!("{text}\n"))
}

fn run(line: &Line, invocation: Invocation) -> ExitCode {
    if line.command.verb == Verb::Completion {
        return completion::run(line, invocation.program());
    }
    // What is written is nobody else's business: keys and values of a cluster.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let typed = line.given.is_typed("log-level");
    log::install(if typed { line.given.integer("log-level") } else { log::INFORMATION });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&CommandError::Start(error), line, invocation),
    };
    let environment = Environment::of_process();
    let context = Context { tasks: Tasks::new(), environment, invocation };
    let done = runtime.block_on(async {
        signals::listen(&context.tasks)?;
        perform(line, &context).await
    });
    // What still blocks a thread must not hold the end.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, line, invocation),
    }
}

fn fail(error: &CommandError, line: &Line, invocation: Invocation) -> ExitCode {
    // Somebody at a terminal reads sentences; programs, and a peer's scripts, read the log.
    if invocation == Invocation::Holdfast && std::io::stderr().is_terminal() {
        tell(&error.sentence(&line.given), error.hint());
        return ExitCode::FAILURE;
    }
    let text = telemetry::Chain(error).to_string();
    let text = telemetry::logfmt::line("fatal", &text, &[]);
    // There is nobody to tell that the log cannot be written.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
    ExitCode::FAILURE
}

fn tell(error: &str, hint: Option<&str>) {
    let mut err = std::io::stderr().lock();
    // There is nobody to tell that nobody can be told.
    let _ = writeln!(err, "error: {error}");
    if let Some(hint) = hint {
        let _ = writeln!(err, "hint: {hint}");
    }
}

async fn perform(line: &Line, context: &Context) -> Result<(), CommandError> {
    match line.command.verb {
        // These go on until they are stopped, and being stopped is their good end.
        Verb::Server => Box::pin(server::run(line, context)).await,
        Verb::Snapshot => Box::pin(snapshot::run(line, context)).await,
        Verb::Drill => unless_stopped(context, Box::pin(drill::run(line, context))).await,
        Verb::Restore => unless_stopped(context, Box::pin(restore::run(line, context))).await,
        Verb::Initialize => unless_stopped(context, Box::pin(initialize::run(line, context))).await,
        Verb::Compact => unless_stopped(context, Box::pin(compact::run(line, context))).await,
        Verb::Copy => unless_stopped(context, Box::pin(copy::run(line, context))).await,
        Verb::Verify => unless_stopped(context, Box::pin(verify::run(line, context))).await,
        Verb::Completion | Verb::Help => Ok(()),
    }
}

/// Work with an end of its own; stopped before it, it has failed.
async fn unless_stopped(
    context: &Context,
    work: impl Future<Output = Result<(), CommandError>>,
) -> Result<(), CommandError> {
    let stop = context.tasks.stop_signal();
    stop.or_stop(work).await.unwrap_or(Err(CommandError::Interrupted))
}
