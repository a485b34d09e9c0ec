//! Which process wrote a lock, for others on its machine: one that was killed cannot give its lock back,
//! and those beside it need not wait for the end of it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::{fmt, fs};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// A process of one run of one machine, as those who share its process ids can look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// This run of the machine.
    pub boot: String,
    /// Whose process ids: those of a container are its own.
    pub namespace: u64,
    pub pid: i32,
    /// Ticks from the start of the machine to that of the process: a number alone comes again.
    pub started: u64,
}

/// The processes that locks tell of.
pub trait Processes: fmt::Debug + Send + Sync {
    /// The one that writes locks here, if that can be told.
    fn this(&self) -> Option<Holder>;

    /// Whether it has certainly ended. One of another machine, or of other process ids, never has.
    fn is_gone(&self, holder: &Holder) -> bool;
}

/// Those of this machine, as `/proc` shows them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemProcesses;

impl Processes for SystemProcesses {
    fn this(&self) -> Option<Holder> {
        static THIS: OnceLock<Option<Holder>> = OnceLock::new();
        THIS.get_or_init(|| this(Path::new("/proc"))).clone()
    }

    fn is_gone(&self, holder: &Holder) -> bool {
        let Some(this) = self.this() else { return false };
        if (&holder.boot, holder.namespace) != (&this.boot, this.namespace) {
            return false;
        }
        let Some(pid) = Pid::from_raw(holder.pid) else { return false };
        // One that is there may be another's: what cannot be read is not gone.
        let started = || started(Path::new("/proc"), &holder.pid.to_string());
        test_kill_process(pid) == Err(Errno::SRCH)
            || started().is_some_and(|it| it != holder.started)
    }
}

/// The inode of the namespace of clocks that a machine begins with. In others, starts of processes are
/// told by another clock: the same process seems to be another.
const FIRST_CLOCKS: u64 = 0xefff_fffa;

fn this(proc: &Path) -> Option<Holder> {
    let id = std::process::id();
    let inode = |path: &str| fs::metadata(proc.join(path)).ok().map(|found| found.ino());
    // One that shows the ids of another namespace says nothing of ours.
    let is_ours = fs::read_link(proc.join("self")).ok()? == Path::new(&id.to_string());
    // Older kernels have only one.
    let is_told_by_one_clock = inode("self/ns/time").is_none_or(|it| it == FIRST_CLOCKS);
    if !is_ours || !is_told_by_one_clock {
        return None;
    }
    Some(Holder {
        boot: boot(proc)?,
        namespace: inode("self/ns/pid")?,
        pid: i32::try_from(id).ok()?,
        started: started(proc, "self")?,
    })
}

fn boot(proc: &Path) -> Option<String> {
    let text = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The name of the program may hold anything, so fields are counted from its last parenthesis.
fn started(proc: &Path, process: &str) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(process).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_process_that_ended_is_gone_and_no_other() {
        let (all, proc) = (SystemProcesses, Path::new("/proc"));
        let this = all.this().unwrap();
        assert!(!all.is_gone(&this));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let started = started(proc, &pid.to_string()).unwrap();
        let other = Holder { pid, started, ..this.clone() };
        assert!(!all.is_gone(&other));
        child.kill().unwrap();
        assert!(!all.is_gone(&other), "its parent has not seen its end: it may not have ended");
        child.wait().unwrap();
        assert!(all.is_gone(&other));
        // Its number belongs to another by now.
        assert!(all.is_gone(&Holder { started: this.started + 1, ..this.clone() }));
        // Of other machines and containers nobody here can tell.
        assert!(!all.is_gone(&Holder { boot: "another".to_owned(), ..other.clone() }));
        assert!(!all.is_gone(&Holder { namespace: this.namespace + 1, ..other }));
    }

    /// As where a container has its own process ids, and the `/proc` of the machine: our id is there that
    /// of somebody else.
    #[test]
    fn who_is_shown_other_process_ids_says_nothing_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (std::process::id(), std::process::id() + 1);
        for id in [own, other] {
            let folder = dir.path().join(id.to_string());
            fs::create_dir_all(folder.join("ns")).unwrap();
            File::create(folder.join("ns/pid")).unwrap();
            fs::copy("/proc/self/stat", folder.join("stat")).unwrap();
        }
        fs::create_dir_all(dir.path().join("sys/kernel/random")).unwrap();
        let boot_id = dir.path().join("sys/kernel/random/boot_id");
        File::create(boot_id).unwrap().write_all(b"a\n").unwrap();
        let link = dir.path().join("self");
        symlink(other.to_string(), &link).unwrap();
        assert_eq!(this(dir.path()), None);
        fs::remove_file(&link).unwrap();
        symlink(own.to_string(), &link).unwrap();
        assert!(this(dir.path()).is_some());
        // Clocks of its own: starts of processes are told by them.
        File::create(dir.path().join(own.to_string()).join("ns/time")).unwrap();
        assert_eq!(this(dir.path()), None);
    }
}
