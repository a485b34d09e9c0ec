//! The data directory, made and held: two processes that work in it would each change what the other
//! has read.

use std::path::Path;
use std::time::{Duration, Instant};

use durable::{DirLock, LockError};

use ::cli::output::Hint as _;

/// A process that was killed while it started another one leaves its lock to that one until it runs a
/// program of its own.
const LINGERS: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Makes the directory if it is not there, and holds it for as long as what comes back lives.
pub(crate) async fn hold(dir: &Path) -> anyhow::Result<DirLock> {
    durable::create_dir_private(dir).hint("choose a directory you can write to with --data-dir")?;
    let until = Instant::now() + LINGERS;
    loop {
        match DirLock::acquire(dir) {
            Err(LockError::Held { pid: Some(holder), .. })
                if !is_alive(holder) && Instant::now() < until =>
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            done => {
                return done
                    .hint("stop the other process, or choose another directory with --data-dir");
            }
        }
    }
}

fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name stands in parentheses, and may hold anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_a_dead_process_left_to_another_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let first = hold(&data).await.unwrap();
        // Of a living one nobody waits.
        hold(&data).await.unwrap_err();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        assert!(is_alive(std::process::id()) && !is_alive(gone.id()));
        durable::replace(dir.path().join("number"), format!("{}\n", gone.id()).as_bytes()).unwrap();
        std::fs::copy(dir.path().join("number"), data.join("LOCK")).unwrap();
        let later = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(first);
        };
        let (held, ()) = tokio::join!(hold(&data), later);
        drop(held.unwrap());
    }
}
