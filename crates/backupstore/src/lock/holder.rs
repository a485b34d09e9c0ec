//! Which process wrote a lock, for others on its machine: one that was killed cannot give its lock back,
//! and those beside it need not wait for the end of it.

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

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

impl Holder {
    /// This process, if that can be told.
    pub(crate) fn this() -> Option<&'static Self> {
        static THIS: OnceLock<Option<Holder>> = OnceLock::new();
        THIS.get_or_init(|| {
            let pid = i32::try_from(std::process::id()).ok()?;
            Some(Self { boot: boot()?, namespace: namespace()?, pid, started: started(pid)? })
        })
        .as_ref()
    }

    /// Whether it has certainly ended. One of another machine, or of other process ids, never has.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(this) = Self::this() else { return false };
        if (&self.boot, self.namespace) != (&this.boot, this.namespace) {
            return false;
        }
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        match test_kill_process(pid) {
            Err(Errno::SRCH) => true,
            // It is there, be it another's: what cannot be read is not gone.
            Ok(()) | Err(_) => started(self.pid).is_some_and(|it| it != self.started),
        }
    }
}

fn boot() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// The name of the program may hold anything, so fields are counted from its last parenthesis.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_gone_and_no_other() {
        let this = Holder::this().unwrap().clone();
        assert!(!this.is_gone());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let other = Holder { pid, started: started(pid).unwrap(), ..this.clone() };
        assert!(!other.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.is_gone());
        // Its number belongs to another by now.
        assert!(Holder { started: this.started + 1, ..this.clone() }.is_gone());
        // Of other machines and containers nobody here can tell.
        assert!(!Holder { boot: "another".to_owned(), ..other.clone() }.is_gone());
        assert!(!Holder { namespace: this.namespace + 1, ..other }.is_gone());
    }
}
