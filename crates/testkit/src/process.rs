//! Real child processes for tests of whole binaries: started with their output in files, waited
//! for with a deadline, and gone when the test is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub use crate::ports::{Ports, free_port, free_ports};

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of output quoted in an error.
const QUOTED_MAX_BYTES: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("{what} did not come within {timeout:?}; the process wrote:\n{output}")]
    Timeout { what: String, timeout: Duration, output: String },
    #[error("the process ended ({status}) before {what}; it wrote:\n{output}")]
    Ended { what: String, status: ExitStatus, output: String },
    #[error("cannot watch the process")]
    Io(#[from] io::Error),
}

/// A directory for one test: removed at its end, kept and named if it fails.
#[derive(Debug)]
pub struct Scratch(Option<tempfile::TempDir>, PathBuf);

impl Scratch {
    pub fn new() -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("holdfast-test-").tempdir()?;
        let path = dir.path().to_owned();
        Ok(Self(Some(dir), path))
    }

    pub fn path(&self) -> &Path {
        &self.1
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take().filter(|_| std::thread::panicking()) {
            eprintln!("the files of the failed test are kept in {}", dir.keep().display());
        }
    }
}

/// A child process. Dropping it kills it, by its own id, and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Output,
    stderr: Output,
}

/// A file that a process writes to.
#[derive(Debug, Clone)]
struct Output {
    path: PathBuf,
    /// How much of it an earlier process has written.
    earlier_bytes: usize,
}

impl Output {
    fn open(path: PathBuf) -> io::Result<(Self, File)> {
        let file = File::options().create(true).append(true).open(&path)?;
        let earlier_bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Ok((Self { path, earlier_bytes }, file))
    }

    fn read(&self) -> String {
        let bytes = fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.earlier_bytes..).unwrap_or_default()).into()
    }
}

impl Process {
    /// Starts `command` with its output in `<dir>/<name>.stdout` and `<dir>/<name>.stderr`, behind
    /// what an earlier process of that name left there.
    pub fn start(mut command: Command, dir: &Path, name: &str) -> io::Result<Self> {
        let (stdout, out) = Output::open(dir.join(format!("{name}.stdout")))?;
        let (stderr, err) = Output::open(dir.join(format!("{name}.stderr")))?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        Ok(Self { child, stdout, stderr })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.read()
    }

    pub fn stderr(&self) -> String {
        self.stderr.read()
    }

    /// The first line of either output that holds `part`.
    pub fn wait_for_line(&mut self, part: &str, timeout: Duration) -> Result<String, WaitError> {
        let outputs = [self.stdout.clone(), self.stderr.clone()];
        self.wait(&format!("a line with {part:?}"), timeout, || {
            outputs.iter().find_map(|output| {
                let text = output.read();
                // A line without its end may still grow.
                let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
                whole.map(str::trim_end).find(|line| line.contains(part)).map(str::to_owned)
            })
        })
    }

    /// Until something accepts connections there.
    pub fn wait_for_port(&mut self, at: SocketAddr, timeout: Duration) -> Result<(), WaitError> {
        self.wait(&format!("a listener on {at}"), timeout, || {
            TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).ok().map(drop)
        })
    }

    pub fn wait_for_exit(&mut self, timeout: Duration) -> Result<ExitStatus, WaitError> {
        let ended = poll_until(timeout, || self.child.try_wait().transpose());
        match ended {
            Some(status) => Ok(status?),
            None => Err(self.timeout("its end", timeout)),
        }
    }

    /// SIGTERM: asks it to end.
    pub fn terminate(&self) -> io::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(kill_process(id, Signal::TERM)?)
    }

    /// SIGKILL, and its end. Not an error if it has ended already.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    fn wait<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut ended = None;
        let found = poll_until(timeout, || {
            // Asked before the look: what it wrote just before its end still counts.
            ended = self.child.try_wait().transpose();
            look().map(Some).or_else(|| ended.is_some().then_some(None))
        });
        match (found, ended) {
            (Some(Some(found)), _) => Ok(found),
            (_, Some(status)) => {
                let (what, output) = (what.to_owned(), self.output());
                Err(WaitError::Ended { what, status: status?, output })
            }
            _ => Err(self.timeout(what, timeout)),
        }
    }

    fn timeout(&self, what: &str, timeout: Duration) -> WaitError {
        WaitError::Timeout { what: what.to_owned(), timeout, output: self.output() }
    }

    fn output(&self) -> String {
        let text = format!("{}{}", self.stdout(), self.stderr());
        let from = text.len().saturating_sub(QUOTED_MAX_BYTES);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.get(from..).unwrap_or_default().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; there is nothing to do about any other error.
        let _ = self.kill();
    }
}

/// Looks until there is something to see, or the timeout is over.
pub fn poll_until<T>(timeout: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Ends every process that was given a path below this directory, or works below it: what outlives the
/// server that a test started, and would hold files and ports for ever.
pub fn end_all_below(directory: &Path) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let wanted = directory.as_os_str().as_encoded_bytes();
    for process in processes.flatten() {
        let name = process.file_name();
        let id = name.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id.filter(|id| *id != rustix::process::getpid()) else { continue };
        let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
        let works_below = || {
            let place = fs::read_link(process.path().join("cwd"));
            place.is_ok_and(|place| place.starts_with(directory))
        };
        if line.windows(wanted.len()).any(|part| part == wanted) || works_below() {
            // It may have ended meanwhile.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Writes a program that a test is about to run. Another process does it: while one of this process
/// has it open for writing, if only because another thread is about to start something, it cannot
/// be run.
pub fn write_program(path: &Path, text: &str) -> io::Result<()> {
    let script = "cat > \"$0\" && chmod 755 \"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    let sent = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(text.as_bytes()));
    let status = child.wait()?;
    sent?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    fn shell(script: &str, scratch: &Scratch) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, scratch.path(), "shell").unwrap()
    }

    #[test]
    fn output_is_captured_and_waited_for() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell("echo one; echo 'ready on 7' >&2; exec sleep 60", &scratch);
        assert_eq!(process.wait_for_line("ready", TIMEOUT).unwrap(), "ready on 7");
        assert_eq!(process.stdout(), "one\n");
        assert_eq!(process.stderr(), "ready on 7\n");
        process.terminate().unwrap();
        assert!(!process.wait_for_exit(TIMEOUT).unwrap().success());
    }

    #[test]
    fn a_process_that_ends_early_is_quoted() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell("echo no luck; exit 3", &scratch);
        let error = process.wait_for_line("ready", TIMEOUT).unwrap_err();
        assert!(matches!(&error, WaitError::Ended { status, .. } if status.code() == Some(3)));
        assert!(error.to_string().contains("no luck"), "{error}");
    }

    #[test]
    fn the_last_line_of_an_ended_process_counts() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell("echo ready", &scratch);
        process.wait_for_exit(TIMEOUT).unwrap();
        assert_eq!(process.wait_for_line("ready", TIMEOUT).unwrap(), "ready");
    }

    #[test]
    fn patience_ends() {
        let scratch = Scratch::new().unwrap();
        let mut process = shell("exec sleep 60", &scratch);
        let at = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let error = process.wait_for_port(at, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, WaitError::Timeout { .. }), "{error}");
    }

    #[test]
    fn a_listener_is_found() {
        let scratch = Scratch::new().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut process = shell("exec sleep 60", &scratch);
        process.wait_for_port(listener.local_addr().unwrap(), TIMEOUT).unwrap();
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let scratch = Scratch::new().unwrap();
        let process = shell("exec sleep 60", &scratch);
        let proc = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(proc.exists());
        drop(process);
        assert!(!proc.exists());
    }

    #[test]
    fn what_works_below_a_directory_is_ended_though_it_was_not_given_its_path() {
        let scratch = Scratch::new().unwrap();
        let below = scratch.path().join("below");
        fs::create_dir(&below).unwrap();
        let mut command = Command::new("sleep");
        let mut child = command.arg("60").current_dir(&below).spawn().unwrap();
        end_all_below(scratch.path());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn what_an_earlier_process_wrote_is_not_taken_for_this_ones() {
        let scratch = Scratch::new().unwrap();
        let mut earlier = shell("echo ready", &scratch);
        earlier.wait_for_exit(TIMEOUT).unwrap();
        let mut process = shell("echo other; exit 3", &scratch);
        let error = process.wait_for_line("ready", TIMEOUT).unwrap_err();
        assert!(matches!(error, WaitError::Ended { .. }), "{error}");
        assert_eq!(process.stdout(), "other\n");
        assert_eq!(
            fs::read_to_string(scratch.path().join("shell.stdout")).unwrap(),
            "ready\nother\n"
        );
    }

    #[test]
    fn a_program_that_was_written_can_be_run_at_once() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().join("program");
        write_program(&path, "#!/bin/sh\necho \"$1\"\n").unwrap();
        let output = Command::new(&path).arg("two words").output().unwrap();
        assert_eq!(output.stdout, b"two words\n");
        let nowhere = scratch.path().join("missing/program");
        assert!(write_program(&nowhere, "").is_err());
    }

    #[test]
    fn scratch_goes_with_the_test() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
