//! Commands of the engine's dialect, run as processes: what takes many steps, or long.
//!
//! A command ends with whoever waits for it. What it began is found again by the next look at the
//! engine: a replica that was being added is write-only or failed, and is removed and added again.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::client::Reach;

/// Bytes of its output that are kept.
const OUTPUT_MAX: usize = 256 * 1024;

/// Has every copy merge away what nobody wants any more, the removed parent of the head too: all copies
/// are of this make, so that their chains stay equal.
pub(crate) const PURGE: [&str; 4] =
    ["snapshot", "purge", "--skip-if-in-progress", "--fold-head-parent"];

/// A command did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("cannot run the engine's command {0}: {1}")]
    Start(String, String),
    /// What it wrote, results and messages.
    #[error("{text}")]
    Refused { text: String, output: String },
    #[error("the command {0} took longer than {1} s")]
    TooLong(String, u64),
}

/// Runs one and gives what it printed.
///
/// # Cancel safety
///
/// The process is killed.
pub(crate) async fn run(
    reach: &Reach,
    arguments: &[String],
    environment: &[(String, String)],
    timeout: Duration,
) -> Result<String, CommandError> {
    let name = arguments.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
    let failed = |error: std::io::Error| CommandError::Start(name.clone(), error.to_string());
    // This very program, also after its file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("engine")
        .args(["--url", &format!("http://{}", reach.address)])
        .args(["--volume-name", &reach.volume])
        .args(["--engine-instance-name", &reach.engine])
        .args(arguments)
        .envs(environment.iter().cloned())
        .envs(telemetry::traceparent().map(|it| (telemetry::TRACEPARENT_VARIABLE, it)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().map_err(failed)?;
    let ended = tokio::time::timeout(timeout, child.wait_with_output()).await;
    let output = match ended {
        Ok(output) => output.map_err(failed)?,
        Err(_) => return Err(CommandError::TooLong(name, timeout.as_secs())),
    };
    let printed = shorten(&output.stdout);
    if output.status.success() {
        return Ok(printed);
    }
    let said = shorten(&output.stderr);
    Err(CommandError::Refused { text: reason(&said, &printed), output: printed })
}

fn shorten(bytes: &[u8]) -> String {
    let kept = bytes.get(..bytes.len().min(OUTPUT_MAX)).unwrap_or_default();
    String::from_utf8_lossy(kept).into_owned()
}

/// The reason in the last line of the log, `… error="…"`, or the line itself.
fn reason(said: &str, printed: &str) -> String {
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let Some(last) = last.or_else(|| printed.lines().rev().find(|line| !line.trim().is_empty()))
    else {
        return "the command failed and did not say why".to_owned();
    };
    let quoted = last.split_once("error=\"").and_then(|(_, rest)| rest.rsplit_once('"'));
    let plain = last.split_once("error=").map(|(_, rest)| rest);
    let text = quoted.map(|(text, _)| text).or(plain).unwrap_or(last);
    text.replace("\\\"", "\"").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_the_last_line_says() {
        let line = r#"level=fatal msg="Error running add replica command" error="replica \"a\" has failed""#;
        assert_eq!(reason(line, ""), "replica \"a\" has failed");
        assert_eq!(reason("level=fatal error=refused\n", "x"), "refused");
        assert_eq!(reason("", "plain words\n"), "plain words");
        assert_eq!(reason(" \n", ""), "the command failed and did not say why");
    }
}
