//! The life of one process, from its record to its end. One task a process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use tasks::CancellationToken;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use super::process::Inner;
use super::record::{self, Ended, ProcessId, Record};
use super::{Launch, Role, State, command, find, ports};

/// Between two looks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A replica of a large volume reads its files first; an engine waits for its replicas.
const START_TIMEOUT: Duration = Duration::from_mins(5);
/// Starts tried when ports turn out to be in use.
const TRIES: u32 = 5;
/// A log longer than this is put aside when its process starts again.
const LOG_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes at the end of a log in which the reason of an end is looked for.
const TAIL_BYTES: u64 = 4096;
const REASON_MAX_CHARS: usize = 600;

/// A process that another manager started.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) handle: AsyncFd<OwnedFd>,
    pub(super) answers: bool,
}

/// A process that lives. Its number cannot become another's while this is held.
enum Living {
    Child(Child),
    Found(AsyncFd<OwnedFd>),
}

impl Living {
    async fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Child(child) => child.wait().await.ok(),
            Self::Found(handle) => {
                // Readable once it has ended. Its code is its parent's to know.
                let _ = handle.readable().await;
                None
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Its end is waited for, whatever comes of this.
        let _ = match self {
            Self::Child(child) => {
                let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                pid.map_or(Ok(()), |pid| kill_process(pid, signal))
            }
            Self::Found(handle) => pidfd_send_signal(handle.get_ref(), signal),
        };
    }
}

/// How the wait for a process went.
enum Outcome {
    Stopped,
    Ended(Option<ExitStatus>),
    Silent,
}

/// Starts a process and stays with it.
pub(super) async fn launched(
    host: Arc<Inner>,
    launch: Launch,
    mut record: Record,
    stop: CancellationToken,
) {
    let key = record.key.clone();
    for attempt in 1..=TRIES {
        let begun = begin(&host, &launch, record.clone()).await;
        let mut living = match begun {
            Ok((child, written)) => {
                record = written;
                host.recorded(&record);
                Living::Child(child)
            }
            Err(text) => {
                tracing::error!(instance = %key, "{key} cannot be started: {text}");
                fail(&host, &record, Ended { code: None, text }).await;
                return;
            }
        };
        let outcome = watch(&host, &record, &mut living, false, &stop).await;
        match outcome {
            Outcome::Ended(_) if attempt < TRIES && lost_ports(&record) => {
                let count = command::port_count(&launch.role);
                let Some(other) = host.other_ports(&key, count) else {
                    conclude(&host, &record, &mut living, outcome).await;
                    return;
                };
                tracing::warn!(instance = %key, "another program took a port of {key}: trying others");
                let turn = record.turn;
                let new = Record::new(key.clone(), record.volume, record.image, other);
                record = Record { turn, ..new };
            }
            outcome => {
                conclude(&host, &record, &mut living, outcome).await;
                return;
            }
        }
    }
}

/// Stays with a process that was found.
pub(super) async fn adopted(
    host: Arc<Inner>,
    record: Record,
    adopted: Adopted,
    stop: CancellationToken,
) {
    let mut living = Living::Found(adopted.handle);
    let outcome = watch(&host, &record, &mut living, adopted.answers, &stop).await;
    conclude(&host, &record, &mut living, outcome).await;
}

/// Until it ends, or is to end.
async fn watch(
    host: &Arc<Inner>,
    record: &Record,
    living: &mut Living,
    answers: bool,
    stop: &CancellationToken,
) -> Outcome {
    let at = SocketAddr::from((host.options.address, record.ports.0));
    if !answers {
        let answered = async {
            while !self::answers(at).await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return Outcome::Stopped,
            status = living.ended() => return Outcome::Ended(status),
            () = answered => host.turned(&record.key, State::Running),
            () = tokio::time::sleep(START_TIMEOUT) => return Outcome::Silent,
        }
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => Outcome::Stopped,
        status = living.ended() => Outcome::Ended(status),
    }
}

/// Sees to the end of a process, and says how it ended.
async fn conclude(host: &Arc<Inner>, record: &Record, living: &mut Living, outcome: Outcome) {
    let key = &record.key;
    match outcome {
        Outcome::Stopped => {
            end(host, record, living).await;
            // The record first: a manager killed here must not take it for one that was lost.
            remove_record(host, record).await;
            host.over(key, State::Stopped, None);
        }
        Outcome::Ended(status) => {
            let ended = Ended {
                code: status.and_then(|status| status.code()),
                text: why(host, record, status),
            };
            tracing::warn!(instance = %key, "{key} ended by itself: {}", ended.text);
            fail(host, record, ended).await;
        }
        Outcome::Silent => {
            end(host, record, living).await;
            let text = format!("it did not answer within {} s", START_TIMEOUT.as_secs());
            tracing::error!(instance = %key, "{key} was ended: {text}");
            fail(host, record, Ended { code: None, text }).await;
        }
    }
}

/// Asks it to end, then makes it.
async fn end(host: &Arc<Inner>, record: &Record, living: &mut Living) {
    // One that was taken over from has nothing left to put in order: its clients and copies are
    // another's by now.
    let is_replaced = host.is_replaced(&record.key);
    living.signal(if is_replaced { Signal::HUP } else { Signal::TERM });
    if tokio::time::timeout(host.options.timeout, living.ended()).await.is_ok() {
        return;
    }
    tracing::warn!(instance = %record.key, "{} did not end in time and is killed", record.key);
    living.signal(Signal::KILL);
    living.ended().await;
}

/// Keeps on disk that it failed: the next manager must not take it for one that was merely lost.
async fn fail(host: &Arc<Inner>, record: &Record, ended: Ended) {
    let key = record.key.clone();
    let failed = Record { ended: Some(ended.clone()), ..record.clone() };
    let root = host.options.root.clone();
    let written = host.tasks.blocking("record", move || record::write(&root, &failed)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(error = %telemetry::Chain(&error), "cannot write down that {key} failed");
    }
    host.over(&key, State::Failed, Some(ended));
}

async fn remove_record(host: &Arc<Inner>, record: &Record) {
    let (root, key) = (host.options.root.clone(), record.key.clone());
    let removed = host.tasks.blocking("record", move || record::remove(&root, &key)).await;
    if let Ok(Err(error)) = removed {
        let key = &record.key;
        tracing::warn!(error = %telemetry::Chain(&error), "cannot remove the record of {key}");
    }
}

/// Whether something answers there.
pub(super) async fn answers(at: SocketAddr) -> bool {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, rpc::dial(at)).await;
    matches!(connected, Ok(Ok(_)))
}

/// Whether the process has ended and somebody else listens where it was to.
fn lost_ports(record: &Record) -> bool {
    (record.ports.0..=record.ports.1).any(|port| !ports::is_free(port))
}

/// Record, log, process, record: in this order, so that no process is ever unknown.
async fn begin(
    host: &Arc<Inner>,
    launch: &Launch,
    mut record: Record,
) -> Result<(Child, Record), String> {
    let is_own = launch.program.is_none();
    let program = launch.program.as_ref().unwrap_or(&host.options.program);
    let mut arguments = command::arguments(launch, host.options.address, record.ports.0, is_own);
    if matches!(launch.role, Role::Engine(_)) {
        arguments.extend(host.options.engine_arguments.iter().cloned());
    }
    record.salvage = matches!(&launch.role, Role::Engine(engine) if engine.salvage);
    record.arguments.clone_from(&arguments);
    let root = host.options.root.clone();
    let told = record.clone();
    let prepared = host.tasks.blocking("record", move || {
        record::write(&root, &told).map_err(|error| telemetry::Chain(&error).to_string())?;
        let path = record::log_file(&root, &told.key);
        open_log(&path).map_err(|error| format!("cannot open its log {}: {error}", path.display()))
    });
    let log = prepared.await.map_err(|error| error.to_string())??;
    let failed = |error: io::Error| format!("cannot run {}: {error}", program.display());
    let mut command = Command::new(program);
    command
        .args(&arguments)
        .envs(host.options.environment.iter().cloned())
        .env(find::RUN_VARIABLE, &record.run)
        .env(find::HOST_VARIABLE, &host.options.root)
        .env("LONGHORN_CONTROL_PATH", &host.options.root)
        .current_dir(record::folder(&host.options.root, &record.key))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        // A signal that a terminal sends to this manager is not meant for it.
        .process_group(0)
        .kill_on_drop(false);
    // By the environment: a program that does not know it is not stopped by it.
    if let Some(claim) = command::claim(&launch.role) {
        command.env(command::CLAIM_VARIABLE, claim.to_string());
    }
    let child = command.spawn().map_err(failed)?;
    let pid = child.id().unwrap_or_default();
    if let Some(start_ticks) = find::start_ticks(pid) {
        record.process = Some(ProcessId { pid, start_ticks, boot: host.boot.clone() });
        let (root, told) = (host.options.root.clone(), record.clone());
        let written = host.tasks.blocking("record", move || record::write(&root, &told)).await;
        if let Ok(Err(error)) = written {
            // It is found by its environment as well.
            let key = &record.key;
            tracing::warn!(error = %telemetry::Chain(&error), "cannot write down the id of {key}");
        }
    }
    Ok((child, record))
}

fn open_log(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > LOG_MAX_BYTES) {
        let aside = path.with_extension("1");
        std::fs::rename(path, aside)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// What it ended with, and the last it said.
fn why(host: &Inner, record: &Record, status: Option<ExitStatus>) -> String {
    let said = last_words(&record::log_file(&host.options.root, &record.key)).unwrap_or_default();
    let how = match status {
        // It was another manager's child.
        None => "it ended, nobody was told how".to_owned(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
    };
    // What a killed process said last has nothing to do with its end.
    let is_told = status.is_some_and(|status| status.code().is_some_and(|code| code != 0));
    if said.is_empty() || !is_told { how } else { format!("{how}: {said}") }
}

fn last_words(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let from = file.metadata().ok()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let from = line.chars().count().saturating_sub(REASON_MAX_CHARS);
    Some(line.chars().skip(from).collect())
}
