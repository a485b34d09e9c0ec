//! Finding processes again: what /proc says of them, and a handle that cannot mean another one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::record::{ProcessId, Record};

/// In the environment of each process: which run of which host it is.
pub(super) const RUN_VARIABLE: &str = "HOLDFAST_INSTANCE_RUN";
pub(super) const HOST_VARIABLE: &str = "HOLDFAST_INSTANCE_HOST";

/// This run of the machine.
pub(super) fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// When a process that lives was started.
pub(super) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat)
}

/// The name of the program may hold anything, so fields are counted from its last parenthesis.
fn parse_stat(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // It has ended, and nobody has asked for its code yet.
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A handle of the process, if it is still the one of the record.
pub(super) fn open(id: &ProcessId, boot: &str) -> Option<OwnedFd> {
    if id.boot != boot {
        return None;
    }
    let handle = handle(id.pid)?;
    // Asked after the handle was opened: from here on it cannot become another's.
    (start_ticks(id.pid) == Some(id.start_ticks)).then_some(handle)
}

pub(super) fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::NONBLOCK).ok()
}

/// Every process of the host at `root`: its run and its id. What a process has started itself, as a tool that
/// mounts a store, has the same run: the one that was there first is meant.
pub(super) fn scan(root: &Path, boot: &str) -> BTreeMap<String, ProcessId> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let host = format!("{HOST_VARIABLE}={}", root.display());
    let found = pids.filter_map(|pid: u32| {
        let start_ticks = start_ticks(pid)?;
        let environment = std::fs::read(PathBuf::from(format!("/proc/{pid}/environ"))).ok()?;
        let run = run_of(&environment, host.as_bytes())?;
        // It is still the same after its environment was read.
        let same = self::start_ticks(pid) == Some(start_ticks);
        same.then(|| (run, ProcessId { pid, start_ticks, boot: boot.to_owned() }))
    });
    let mut all: BTreeMap<String, ProcessId> = BTreeMap::new();
    for (run, id) in found {
        let age = |it: &ProcessId| (it.start_ticks, it.pid);
        if all.get(&run).is_none_or(|known| age(&id) < age(known)) {
            all.insert(run, id);
        }
    }
    all
}

fn run_of(environment: &[u8], host: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let is_ours = variables.clone().any(|variable| variable == host);
    let prefix = format!("{RUN_VARIABLE}=");
    let run = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()))?;
    is_ours.then(|| String::from_utf8_lossy(run).into_owned())
}

/// What became of a process with a record.
#[derive(Debug)]
pub(super) enum Found {
    /// It lives, and this is its handle.
    Alive(ProcessId, OwnedFd),
    Gone,
}

pub(super) fn find(record: &Record, runs: &BTreeMap<String, ProcessId>, boot: &str) -> Found {
    // Number, start and boot are those of one process; the run in its environment tells where they were
    // not written down any more. What is left of a process that is gone is not it.
    let id = record.process.as_ref().or_else(|| runs.get(&record.run));
    let alive = id.and_then(|id| Some((id.clone(), open(id, boot)?)));
    alive.map_or(Found::Gone, |(id, handle)| Found::Alive(id, handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::Key;

    /// A tool that the process runs when its manager is killed has its environment: to take that over would
    /// be to lose the process itself.
    #[test]
    fn what_a_process_has_started_is_not_taken_for_it() {
        let (root, boot) = (tempfile::tempdir().unwrap(), boot().unwrap());
        let record = Record::new(Key::replica("r"), "v".into(), "i".into(), (1, 2));
        let mut process = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .env(RUN_VARIABLE, &record.run)
            .env(HOST_VARIABLE, root.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut tool = String::new();
        let mut said = std::io::BufReader::new(process.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut tool).unwrap();
        let runs = scan(root.path(), &boot);
        let known = ProcessId {
            pid: process.id(),
            start_ticks: start_ticks(process.id()).unwrap(),
            boot: boot.clone(),
        };
        for process in [None, Some(known.clone())] {
            let record = Record { process, ..record.clone() };
            let found = find(&record, &runs, &boot);
            assert!(matches!(found, Found::Alive(id, _) if id == known), "tool {tool}");
        }
        // The process is gone, and the tool is left.
        process.kill().unwrap();
        process.wait().unwrap();
        let record = Record { process: Some(known), ..record };
        assert!(matches!(find(&record, &scan(root.path(), &boot), &boot), Found::Gone));
        let tool = tool.trim().parse().ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(tool, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn this_process_is_found_and_another_of_its_number_is_not() {
        let (pid, boot) = (std::process::id(), boot().unwrap());
        let start_ticks = start_ticks(pid).unwrap();
        let id = ProcessId { pid, start_ticks, boot: boot.clone() };
        assert!(open(&id, &boot).is_some());
        assert!(open(&ProcessId { start_ticks: start_ticks + 1, ..id.clone() }, &boot).is_none());
        assert!(open(&ProcessId { boot: "earlier".into(), ..id.clone() }, &boot).is_none());
        let mut record = Record::new(Key::engine("e"), "v".into(), "i".into(), (1, 2));
        assert!(matches!(find(&record, &BTreeMap::new(), &boot), Found::Gone));
        record.process = Some(id.clone());
        assert!(matches!(find(&record, &BTreeMap::new(), &boot), Found::Alive(..)));
        // Killed before it could write the number down.
        record.process = None;
        let runs = BTreeMap::from([(record.run.clone(), id)]);
        assert!(matches!(find(&record, &runs, &boot), Found::Alive(..)));
    }

    #[test]
    fn fields_are_counted_behind_odd_names() {
        let tail = (4..=21).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("7 (a b) c) S {tail} 4242 23 24");
        assert_eq!(parse_stat(&stat), Some(4242));
        assert_eq!(parse_stat(&stat.replace(") S ", ") Z ")), None);
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_run_counts_only_for_its_own_host() {
        let environment = b"A=1\0HOLDFAST_INSTANCE_RUN=r1\0HOLDFAST_INSTANCE_HOST=/data/i\0";
        let host = |path: &str| format!("{HOST_VARIABLE}={path}");
        assert_eq!(run_of(environment, host("/data/i").as_bytes()).as_deref(), Some("r1"));
        assert_eq!(run_of(environment, host("/data").as_bytes()), None);
    }
}
