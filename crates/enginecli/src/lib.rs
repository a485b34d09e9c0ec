//! The command line of the engine dialect: `holdfast engine …`, and the binary called as
//! `longhorn`.
//!
//! Owns: what can be typed (`table`), how it is read (`parse`), what is printed, exit codes.
//! Never: what a server does; every command but the servers is a client of a running one. One file
//! a command or family of commands.

mod add_replica;
mod backing_image;
mod backup;
mod backup_list;
mod backup_restore;
mod backup_store;
mod backup_table;
mod clone;
mod completion;
mod console;
mod error;
mod flag;
mod hash;
mod help;
mod log;
mod operation;
mod output;
mod parse;
mod profiler;
mod progress;
mod purge;
mod qemu;
mod reach;
mod replicas;
mod restore_to_file;
mod scratch;
mod scrub;
mod serve;
mod server;
mod session;
mod snapshot;
mod system_backup;
mod table;
mod tell;
mod value;
mod version;
mod volume;
mod waiting;

use std::ffi::OsString;
use std::process::ExitCode;

pub use self::completion::definition;
pub use self::console::{Console, Manner};
use self::error::Error;
use self::parse::{Asked, Line, ParseError};
use self::session::Session;
use self::table::{Ask, Server, Verb};

/// How the program was called, for its help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invocation {
    /// `holdfast engine …`
    Holdfast,
    /// `longhorn …`, by a link to the binary.
    Longhorn,
}

impl Invocation {
    fn program(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast engine",
            Self::Longhorn => "longhorn",
        }
    }
}

/// Runs one command line, without the name of the program, on the streams of this process.
pub fn main(args: Vec<OsString>, style: Invocation) -> ExitCode {
    ExitCode::from(Console::standard(style, |console| run(args, style, console)))
}

/// Runs one command line and says with which code the process is to end.
pub fn run(args: Vec<OsString>, style: Invocation, console: &mut Console<'_>) -> u8 {
    let (failed, outcome) = match parse::parse(args, style) {
        Ok(Asked::Help(path)) => {
            (tell::Failed::of("help"), console.print(&help::text(style.program(), &path)))
        }
        Ok(Asked::Version) => {
            let text = format!("{} version {}", style.program(), env!("CARGO_PKG_VERSION"));
            (tell::Failed::of("version"), console.say(&text))
        }
        Ok(Asked::Run(line)) => (tell::Failed::by(&line), perform(&line, console)),
        Err(error) => (tell::Failed::of(""), Err(Error::Usage(error))),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) if error.is_closed_pipe() => 0,
        Err(error) => {
            match console.manner {
                Manner::Log => fail(&failed.name, &error, style, console),
                Manner::Sentences => {
                    let told = tell::sentences(&error, &failed, style.program());
                    console.tell(&told.error, told.hint.as_deref());
                }
            }
            error.exit_code()
        }
    }
}

/// The last line on standard error says what went wrong; some say it on standard output too.
fn fail(name: &str, error: &Error, style: Invocation, console: &mut Console<'_>) {
    let text = error.to_string();
    if let Error::Usage(usage) = error {
        // The exit code tells of the failure if nobody reads this.
        let _ = explain(usage, style, console);
    }
    let message = match error {
        Error::Usage(_) => "Error reading the command line".to_owned(),
        Error::Refused(_)
        | Error::Address(_)
        | Error::Endpoint { .. }
        | Error::Call { .. }
        | Error::Server { .. }
        | Error::Interrupted { .. }
        | Error::NotFound { .. }
        | Error::Output(_)
        | Error::Start(_) => format!("Error running {name} command"),
    };
    let place = concat!(file!(), ":", line!()).rsplit('/').next().unwrap_or_default();
    console.log(
        "fatal",
        &message,
        &[("func", &log::func(module_path!())), ("file", place), ("error", &text)],
    );
}

fn explain(error: &ParseError, style: Invocation, console: &mut Console<'_>) -> Result<(), Error> {
    let hint = match error {
        ParseError::UnknownCommand { similar, .. } => {
            console.say(&error.to_string())?;
            similar.map(|similar| format!("did you mean {similar}?"))
        }
        ParseError::UnknownFlag { similar, .. } => similar.clone(),
        ParseError::NoValue(_)
        | ParseError::BadSyntax(_)
        | ParseError::BadValue(_)
        | ParseError::NotText(_) => None,
    };
    let help = format!("see {} --help", style.program());
    console.log("info", &hint.unwrap_or(help), &[]);
    Ok(())
}

fn perform(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    match line.verb {
        Verb::Serve(Server::Controller) => server::controller(line),
        Verb::Serve(Server::Replica) => server::replica(line),
        Verb::Serve(Server::SyncAgent) => server::sync_agent(line),
        Verb::Version => on_runtime(version::run(line, console)),
        Verb::Ask(ask) => on_runtime(asked(ask, line, console)),
        Verb::Store(verb) => on_runtime(backup_store::run(verb, line, console)),
    }
}

fn on_runtime(work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Start)?;
    let done = runtime.block_on(work);
    // Does not wait for a name to be looked up.
    runtime.shutdown_background();
    done
}

/// The commands that are clients.
async fn asked(ask: Ask, line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let session = &Session::new(line)?;
    reach::controller(session, line, console).await?;
    match ask {
        Ask::Info => volume::info(session, console).await,
        Ask::Expand => volume::expand(session, line).await,
        Ask::FrontendStart => volume::frontend_start(session, line).await,
        Ask::FrontendShutdown => volume::frontend_shutdown(session).await,
        Ask::UnmapMarkSnapChainRemoved => volume::unmap_mark(session, line).await,
        Ask::Journal => volume::journal(session, line).await,
        Ask::LsReplica => replicas::ls(session, console).await,
        Ask::AddReplica => add_replica::run(session, line, console).await,
        Ask::VerifyRebuildReplica => replicas::verify(session, line).await,
        Ask::StartWithReplicas => replicas::start(session, line).await,
        Ask::RmReplica => replicas::rm(session, line).await,
        Ask::UpdateReplica => replicas::update(session, line).await,
        Ask::RebuildStatus => replicas::rebuild_status(session, console).await,
        Ask::SyncAgentReset => replicas::reset_agents(session).await,
        Ask::ProfilerShow => profiler::show(session, console).await,
        Ask::ProfilerEnable => profiler::enable(session, line, console).await,
        Ask::ProfilerDisable => profiler::disable(session, console).await,
        Ask::SnapshotLs => snapshot::ls(session, console).await,
        Ask::SnapshotCreate => snapshot::create(session, line, console).await,
        Ask::SnapshotRm => snapshot::rm(session, line, console).await,
        Ask::SnapshotRevert => snapshot::revert(session, line).await,
        Ask::SnapshotInfo => snapshot::info(session, console).await,
        Ask::SnapshotPurge => purge::run(session, line).await,
        Ask::SnapshotPurgeStatus => purge::status(session, console).await,
        Ask::SnapshotClone => clone::run(session, line).await,
        Ask::SnapshotCloneStatus => clone::status(session, console).await,
        Ask::SnapshotHash => hash::start(session, line).await,
        Ask::SnapshotHashCancel => hash::cancel(session, line).await,
        Ask::SnapshotHashStatus => hash::status(session, line, console).await,
        Ask::BackupCreate => backup::create(session, line, console).await,
        Ask::BackupStatus => backup::status(session, line, console).await,
        Ask::BackupRestore => backup_restore::run(session, line, console).await,
        Ask::BackupRestoreStatus => backup_restore::status(session, line, console).await,
    }
}
