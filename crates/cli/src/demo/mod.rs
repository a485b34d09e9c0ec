//! `holdfast demo`: a tour on a running `up`, with real data, every byte checked.
//!
//! Each step prints the command a user would type and does the same. What it makes begins with
//! `demo-`, and goes at the end, also when a step fails or somebody presses Ctrl-C.

mod blocks;
mod disk;
mod etcd;
mod http;
mod steps;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::Client;

use crate::connection::Connection;
use crate::output::{self, Hint};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Wait for Enter before each step.
    #[arg(long)]
    step: bool,
    /// Keep everything the tour creates, to look around.
    #[arg(long)]
    keep: bool,
    /// Only remove what an earlier tour left behind.
    #[arg(long, conflicts_with_all = ["step", "keep", "mebibytes"])]
    clean: bool,
    /// Size of the volume of the tour, in MiB.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(16..=4096))]
    mebibytes: u64,
    #[command(flatten)]
    at: Connection,
}

/// How the directory begins that its backups go to.
const STORE: &str = "holdfast-demo-";

/// What the steps share.
struct Tour<'a> {
    at: &'a Connection,
    client: Client,
    /// Where its backups go: a directory of this machine.
    store: PathBuf,
    mebibytes: u64,
    ask: bool,
    done: Vec<Step>,
}

/// A step that was begun.
struct Step {
    title: String,
    is_skipped: bool,
}

impl Tour<'_> {
    /// Begins a step: what it is about, and what one would type.
    async fn step(&mut self, title: &str, commands: &[String]) -> anyhow::Result<()> {
        let number = self.done.len() + 1;
        output::say(&format!("\n{number}. {title}"))?;
        for command in commands {
            output::say(&format!("   $ {command}"))?;
        }
        if self.ask {
            eprint!("   [Enter] ");
            std::io::stderr().flush()?;
            enter().await?;
        }
        self.done.push(Step { title: title.to_owned(), is_skipped: false });
        Ok(())
    }

    /// Says of a step that it cannot be shown here, and why.
    async fn skip(&mut self, title: &str, why: &str) -> anyhow::Result<()> {
        self.step(title, &[]).await?;
        if let Some(step) = self.done.last_mut() {
            step.is_skipped = true;
        }
        found(&format!("skipped: {why}"))
    }
}

/// Waits for Enter, on a thread of its own that nobody waits for: Ctrl-C must not have to.
async fn enter() -> anyhow::Result<()> {
    let (told, heard) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Who no longer listens has been interrupted.
        let _ = told.send(std::io::stdin().read_line(&mut String::new()));
    });
    heard.await?.map(drop).context("cannot read the keyboard")
}

/// Says what a step has found.
fn found(text: &str) -> anyhow::Result<()> {
    Ok(output::say(&format!("   {text}"))?)
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let client = args.at.client().await?;
    // In containers that share the directory, two tours can have the same process id.
    let now = jiff::Timestamp::now().as_nanosecond();
    let store = std::env::temp_dir().join(format!("{STORE}{}-{now:x}", std::process::id()));
    let mut tour = Tour {
        at: &args.at,
        client,
        store,
        mebibytes: args.mebibytes,
        ask: args.step,
        done: Vec::new(),
    };
    if args.clean {
        steps::find_store(&mut tour).await?;
        unless_interrupted(Box::pin(steps::clean_up(&tour))).await?;
        output::say("nothing of a tour is left")?;
        return Ok(ExitCode::SUCCESS);
    }
    steps::nothing_of_an_earlier_tour(&tour).await?;
    let toured = unless_interrupted(Box::pin(steps::all(&mut tour))).await;
    let cleaned = if args.keep {
        Ok(output::say("\neverything the tour created is kept; its names begin with demo-")?)
    } else {
        if toured.is_err() {
            eprintln!("\nremoving what the tour created; the error follows");
        }
        let cleaned = unless_interrupted(Box::pin(steps::clean_up(&tour))).await;
        cleaned.hint("remove what is left with `holdfast demo --clean`")
    };
    both(toured, cleaned)?;
    output::say(&summary(&tour.done, began.elapsed()))?;
    if let Some(url) = args.at.dashboard() {
        output::say(&format!("The dashboard shows the same in a browser: {url}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was shown, and how it went.
fn summary(done: &[Step], took: Duration) -> String {
    let word = |it: &Step| if it.is_skipped { "skipped" } else { "done   " };
    let shown: Vec<String> =
        done.iter().map(|it| format!("  {}  {}", word(it), it.title)).collect();
    let skipped = done.iter().filter(|it| it.is_skipped).count();
    let count = people::units::count(done.len() - skipped, "step");
    let steps = match skipped {
        0 => format!("{count} done"),
        _ => format!("{count} done, {skipped} skipped,"),
    };
    let seconds = took.as_secs_f64();
    let shown = shown.join("\n");
    format!("\n{shown}\n\n{steps} in {seconds:.0} s, and every byte was as it should be.")
}

async fn unless_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::select! {
        done = work => done,
        pressed = tokio::signal::ctrl_c() => {
            pressed?;
            anyhow::bail!("interrupted by Ctrl-C")
        }
    }
}

/// What went wrong, be it a step, the clean-up or both.
fn both(toured: anyhow::Result<()>, cleaned: anyhow::Result<()>) -> anyhow::Result<()> {
    match (toured, cleaned) {
        (Err(error), Err(left)) => {
            let left = telemetry::Chain(left.as_ref()).to_string();
            Err(error.context(format!("a step failed, and so did the clean-up ({left})")))
        }
        (toured, cleaned) => toured.and(cleaned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_were_skipped_are_not_called_done() {
        let told = |is_skipped| {
            let steps = [("one", false), ("two", is_skipped)];
            let steps = steps.map(|(it, is_skipped)| Step { title: it.to_owned(), is_skipped });
            summary(&steps, Duration::from_secs(5))
        };
        assert!(told(false).contains("2 steps done in 5 s"), "{}", told(false));
        assert!(told(true).contains("1 step done, 1 skipped, in 5 s"), "{}", told(true));
        assert!(told(true).starts_with("\n  done     one\n  skipped  two\n"), "{}", told(true));
    }

    #[test]
    fn a_clean_up_that_fails_does_not_hide_the_step_that_did() {
        let failed = |why: &'static str| Err(anyhow::anyhow!(why));
        let told = |result: anyhow::Result<()>| format!("{:#}", result.unwrap_err());
        let all = told(both(failed("bytes differ"), failed("volume stays")));
        assert!(all.contains("bytes differ") && all.contains("volume stays"), "{all}");
        assert_eq!(told(both(failed("bytes differ"), Ok(()))), "bytes differ");
        assert_eq!(told(both(Ok(()), failed("volume stays"))), "volume stays");
        assert!(both(Ok(()), Ok(())).is_ok());
    }
}
