//! What answers mean: pure.

use std::time::Duration;

use people::units::bytes;

use super::Finding;

const MIN_KERNEL: (u32, u32) = (5, 4);
/// Each volume has processes and each process connections.
const MIN_OPEN_FILES: u64 = 65_536;
const MIN_PROCESSES: u64 = 4096;
const MIN_FREE_BYTES: u64 = 1 << 30;
const MIN_FREE_PERCENT: u64 = 10;
const MIN_MEMORY_BYTES: u64 = 512 << 20;
/// Every write that is acknowledged waits for one of these.
const SLOW_SYNC: Duration = Duration::from_millis(30);
const SOON_DAYS: i64 = 30;
const SERVER_CLOCK_TOLERANCE: Duration = Duration::from_secs(10);
const CLOCK_TOLERANCE: Duration = Duration::from_mins(5);

pub(super) fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= MIN_KERNEL => {
            Finding::ok("kernel", release)
        }
        (Some(Ok(_)), Some(Ok(_))) => Finding::warn(
            "kernel",
            format!("{release} is older than {}.{}", MIN_KERNEL.0, MIN_KERNEL.1),
            "use a newer kernel: this one is not tested",
        ),
        _ => Finding::warn("kernel", format!("{release:?} cannot be read"), "look with uname -r"),
    }
}

pub(super) fn open_files(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::ok("open files", "no limit"),
        Some(limit) if limit >= MIN_OPEN_FILES => Finding::ok("open files", limit.to_string()),
        Some(limit) => Finding::warn(
            "open files",
            format!("at most {limit}"),
            format!(
                "raise the hard limit to {MIN_OPEN_FILES} or more: LimitNOFILE= in the unit, or \
                 ulimit -Hn"
            ),
        ),
    }
}

/// How many processes and threads this user may have.
pub(super) fn processes(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::ok("processes", "no limit"),
        Some(limit) if limit >= MIN_PROCESSES => Finding::ok("processes", limit.to_string()),
        Some(limit) => Finding::warn(
            "processes",
            format!("at most {limit}"),
            format!(
                "raise it to {MIN_PROCESSES} or more: LimitNPROC= in the unit, or ulimit -u; each \
                 copy of a volume is a process"
            ),
        ),
    }
}

pub(super) fn memory(available: Option<u64>) -> Finding {
    match available {
        None => Finding::warn("memory", "the kernel does not tell", "look with free -m"),
        Some(free) if free >= MIN_MEMORY_BYTES => {
            Finding::ok("memory", format!("{} available", bytes(free)))
        }
        Some(free) => Finding::warn(
            "memory",
            format!("only {} available", bytes(free)),
            format!("leave {} for it", bytes(MIN_MEMORY_BYTES)),
        ),
    }
}

/// The file system of the data directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Space {
    pub(super) free: u64,
    pub(super) all: u64,
    pub(super) free_files: u64,
    pub(super) all_files: u64,
}

pub(super) fn space(of: Space) -> Finding {
    let percent = |part: u64, all: u64| part.saturating_mul(100).checked_div(all).unwrap_or(100);
    let told = format!("{} free of {}", bytes(of.free), bytes(of.all));
    let room = "make room: see docs/operations/disk-full.md";
    if of.free < MIN_FREE_BYTES {
        return Finding::fail("disk space", told, room);
    }
    if percent(of.free, of.all) < MIN_FREE_PERCENT {
        return Finding::warn("disk space", told, room);
    }
    if of.all_files > 0 && percent(of.free_files, of.all_files) < MIN_FREE_PERCENT {
        let told = format!("{} of {} files left", of.free_files, of.all_files);
        return Finding::warn(
            "disk space",
            told,
            "remove files: the file system has no more inodes",
        );
    }
    Finding::ok("disk space", told)
}

/// The type of a file system, as statfs tells it.
pub(super) fn file_system(magic: i64) -> Finding {
    let check = "file system";
    let local = "use a file system of a local disk, such as ext4 or XFS, for the data directory";
    match magic & 0xffff_ffff {
        0xef53 => Finding::ok(check, "ext4"),
        0x5846_5342 => Finding::ok(check, "XFS"),
        0x9123_683e => Finding::ok(check, "Btrfs"),
        0x2fc1_2fc1 => Finding::ok(check, "ZFS"),
        0xf2f5_2010 => Finding::ok(check, "F2FS"),
        0x0102_1994 | 0x8584_58f6 => {
            Finding::warn(check, "in memory: all is lost when the machine stops", local)
        }
        0x794c_7630 => {
            Finding::warn(check, "overlay: all is lost with the container", "mount a volume there")
        }
        0x6969 => Finding::warn(check, "NFS: locks and syncs hang on the network", local),
        0xff53_4d42 | 0xfe53_4d42 => {
            Finding::warn(check, "CIFS: locks and syncs hang on the network", local)
        }
        0x6573_5546 => {
            Finding::warn(check, "FUSE: whether it keeps what it synced is its own", local)
        }
        other => {
            Finding::note(check, format!("of type {other:#x}"), "it is not tested with this one")
        }
    }
}

pub(super) fn holes(found: &std::io::Result<bool>) -> Finding {
    let hint = "use ext4, XFS or Btrfs: without holes, space of deleted data is not given back";
    match found {
        Ok(true) => Finding::ok("sparse files", "holes are punched and found"),
        Ok(false) => Finding::warn("sparse files", "holes are not found again", hint),
        Err(error) => Finding::warn("sparse files", format!("cannot be made: {error}"), hint),
    }
}

/// How long it takes until what is written is on the disk.
pub(super) fn sync_cost(mut took: Vec<Duration>) -> Finding {
    took.sort();
    let Some(median) = took.get(took.len() / 2) else {
        return Finding::warn("fsync", "not measured", "look with fio --fsync=1");
    };
    let told = format!("{:.1} ms (median of {})", median.as_secs_f64() * 1000.0, took.len());
    if *median > SLOW_SYNC {
        let hint =
            "use a faster disk for the data directory: every acknowledged write waits for it";
        return Finding::warn("fsync", told, hint);
    }
    Finding::ok("fsync", told)
}

pub(super) fn rights(path: &str, mode: u32, is_owner: bool) -> Finding {
    if !is_owner {
        let told = format!("{path} belongs to another user");
        return Finding::fail(
            "data directory",
            told,
            "run as its owner, or give it away with chown",
        );
    }
    if mode & 0o077 != 0 {
        let told = format!("{path} is open to other users (mode {:o})", mode & 0o777);
        return Finding::fail("data directory", told, format!("close it with chmod 700 {path}"));
    }
    Finding::ok("data directory", path)
}

/// How far the clock is behind the newest file.
pub(super) fn clock(behind: Option<Duration>) -> Finding {
    match behind {
        Some(behind) if behind > CLOCK_TOLERANCE => Finding::fail(
            "clock",
            format!("{} s behind what was written in the data directory", behind.as_secs()),
            "set the clock: leases, tokens and certificates are judged by it",
        ),
        _ => Finding::ok("clock", "not behind what was written"),
    }
}

/// Which builds work in an installation, beside this one.
pub(super) fn versions(mine: &str, found: &[String]) -> Finding {
    let others: Vec<&str> = found.iter().map(String::as_str).filter(|it| *it != mine).collect();
    if others.is_empty() {
        return Finding::ok("versions", format!("{mine} everywhere"));
    }
    let told = format!("this program is {mine}, and {} is at work", others.join(", "));
    Finding::warn("versions", told, "bring all to one version, the servers first")
}

/// How many seconds the server's clock is ahead of this one.
pub(super) fn server_clock(ahead_seconds: i64) -> Finding {
    let apart = Duration::from_secs(ahead_seconds.unsigned_abs());
    if apart <= SERVER_CLOCK_TOLERANCE {
        return Finding::ok("clock of the server", "as here");
    }
    let (seconds, which) = (apart.as_secs(), if ahead_seconds > 0 { "ahead of" } else { "behind" });
    let told = format!("{seconds} s {which} the clock of this machine");
    Finding::warn("clock of the server", told, "keep both in time, for example with chrony")
}

/// Which kinds of this build a server lacks.
pub(super) fn definitions(all: usize, missing: &[String]) -> Finding {
    if missing.is_empty() {
        return Finding::ok("definitions", format!("all {all} are served"));
    }
    let told = format!("{} of {all} are missing: {}", missing.len(), missing.join(", "));
    let hint = "install those of this build: holdfast install-crds; an older server: update it";
    Finding::fail("definitions", told, hint)
}

/// What this caller may not do, of what an operator does.
pub(super) fn rights_of(denied: &Result<Vec<String>, String>) -> Finding {
    match denied {
        Ok(denied) if denied.is_empty() => Finding::ok("rights", "those of an operator"),
        Ok(denied) => Finding::warn(
            "rights",
            format!("this caller may not {}", denied.join(", ")),
            "use the kubeconfig of an administrator for what it may not",
        ),
        Err(why) => Finding::warn("rights", format!("not known: {why}"), "use another kubeconfig"),
    }
}

/// Whether a list of the kernel's locks has one of the whole file with this number.
pub(super) fn is_locked(locks: &str, inode: u64) -> bool {
    let inode = inode.to_string();
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`; those that wait for it begin with `->`.
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_flock = words.get(1) == Some(&"FLOCK");
        is_flock && words.iter().any(|it| it.rsplit_once(':').is_some_and(|(_, it)| it == inode))
    })
}

/// How many days a certificate is still good for.
pub(super) fn certificate(name: &str, days: i64) -> Finding {
    let check = format!("certificate {name}");
    let renew =
        "restart the server: it renews what is nearly over; see docs/operations/certificates.md";
    match days {
        days if days < 0 => Finding::fail(check, format!("ended {} days ago", -days), renew),
        days if days < SOON_DAYS => Finding::warn(check, format!("ends in {days} days"), renew),
        days => Finding::ok(check, format!("good for {days} days")),
    }
}

pub(super) enum Port {
    Free,
    /// By the server of this data directory.
    Ours,
    Taken(String),
}

pub(super) fn port(what: &str, address: &str, found: Port) -> Finding {
    let check = format!("port of {what}");
    match found {
        Port::Free => Finding::ok(check, format!("{address} is free")),
        Port::Ours => Finding::ok(check, format!("{address}, in use by the running server")),
        Port::Taken(why) => Finding::fail(
            check,
            format!("{address} cannot be used: {why}"),
            "end who uses it, or choose another; `ss -ltnp` names the process",
        ),
    }
}

/// A program that is of use, and for what.
pub(super) fn tool(name: &str, for_what: &str, is_there: bool) -> Finding {
    let check = format!("tool {name}");
    if is_there {
        Finding::ok(check, "found")
    } else {
        let told = format!("not found; it is used for {for_what}");
        Finding::note(check, told, format!("install {name}, if you want that"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict::{self, Fail, Note, Ok, Warn};

    fn is(found: &Finding, verdict: Verdict) {
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert_eq!(found.hint.is_some(), verdict != Ok, "{found:?}");
    }

    #[test]
    fn kernels() {
        is(&kernel("6.1.0-18-amd64"), Ok);
        is(&kernel("5.4"), Ok);
        is(&kernel("4.19.0"), Warn);
        is(&kernel("strange"), Warn);
    }

    #[test]
    fn limits_and_room() {
        is(&open_files(None), Ok);
        is(&open_files(Some(1024)), Warn);
        is(&memory(Some(1 << 30)), Ok);
        is(&memory(Some(1 << 20)), Warn);
        let space_of = |free: u64, all: u64, free_files: u64| {
            space(Space { free: free << 30, all: all << 30, free_files, all_files: 100 })
        };
        is(&space_of(50, 100, 50), Ok);
        is(&space_of(5, 100, 50), Warn);
        is(&space_of(0, 100, 50), Fail);
        is(&space_of(50, 100, 3), Warn);
        is(&space(Space { free: 2 << 30, all: 4 << 30, free_files: 0, all_files: 0 }), Ok);
    }

    #[test]
    fn disks_and_clocks() {
        let ms = Duration::from_millis;
        is(&sync_cost(vec![ms(1), ms(500), ms(2)]), Ok);
        is(&sync_cost(vec![ms(40), ms(50), ms(60)]), Warn);
        is(&sync_cost(Vec::new()), Warn);
        is(&clock(None), Ok);
        is(&clock(Some(Duration::from_secs(10))), Ok);
        is(&clock(Some(Duration::from_hours(1))), Fail);
    }

    #[test]
    fn rights_and_certificates() {
        is(&rights("d", 0o40700, true), Ok);
        is(&rights("d", 0o40750, true), Fail);
        is(&rights("d", 0o40700, false), Fail);
        is(&certificate("server", 300), Ok);
        is(&certificate("server", 10), Warn);
        is(&certificate("server", -1), Fail);
    }

    #[test]
    fn ports_and_tools() {
        is(&port("the API", "127.0.0.1:1", Port::Free), Ok);
        is(&port("the API", "127.0.0.1:1", Port::Ours), Ok);
        is(&port("the API", "127.0.0.1:1", Port::Taken("in use".into())), Fail);
        is(&tool("kubectl", "looking around", true), Ok);
        is(&tool("kubectl", "looking around", false), Note);
    }

    #[test]
    fn file_systems() {
        is(&file_system(0xef53), Ok);
        is(&file_system(0x0102_1994), Warn);
        is(&file_system(0x6969), Warn);
        is(&file_system(-1), Note);
        is(&holes(&Result::Ok(true)), Ok);
        is(&holes(&Result::Ok(false)), Warn);
        is(&holes(&Err(std::io::ErrorKind::Unsupported.into())), Warn);
    }

    #[test]
    fn servers() {
        is(&versions("1.0.0", &[]), Ok);
        is(&versions("1.0.0", &["1.0.0".to_owned()]), Ok);
        is(&versions("1.0.0", &["0.9.0".to_owned(), "1.0.0".to_owned()]), Warn);
        is(&server_clock(-3), Ok);
        is(&server_clock(60), Warn);
        is(&server_clock(-60), Warn);
        is(&definitions(3, &[]), Ok);
        is(&definitions(3, &["volumes.longhorn.io".to_owned()]), Fail);
        is(&rights_of(&Result::Ok(Vec::new())), Ok);
        is(&rights_of(&Result::Ok(vec!["create backups".to_owned()])), Warn);
        is(&rights_of(&Err("no".to_owned())), Warn);
        is(&processes(Some(100)), Warn);
        is(&processes(None), Ok);
    }

    #[test]
    fn locks_of_the_kernel() {
        let locks = "1: POSIX  ADVISORY  READ  9 08:02:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF\n";
        assert!(is_locked(locks, 5678));
        assert!(!is_locked(locks, 77) && !is_locked(locks, 678) && !is_locked("", 1));
    }
}
