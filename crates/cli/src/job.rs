//! `holdfast job`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use api::duration::GoDuration;
use api::longhorn::{RecurringJob, RecurringJobSpec, RecurringTask};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use people::or_dash;
use serde_json::json;

use crate::connection::{Connection, explained};
use crate::listing::{Ls, Rm, Row};
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List jobs with the result of the last run and the time of the next.
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Create a job.
    Create(Create),
    /// Cancel the runs of a job that are in progress.
    Cancel {
        name: String,
        #[command(flatten)]
        at: Connection,
    },
    /// Delete jobs; their snapshots and backups are kept.
    #[command(visible_alias = "delete")]
    Rm(Rm),
}

#[derive(Debug, clap::Args)]
pub struct Create {
    name: String,
    /// Schedule as a cron expression with five fields: "0 2 * * *" is every night at two.
    #[arg(long, value_parser = parse_cron)]
    cron: String,
    /// Task: backup, snapshot, snapshot-delete, snapshot-cleanup, system-backup and others.
    #[arg(long, default_value = "backup", value_parser = parse_task)]
    task: RecurringTask,
    /// Number of results to keep for each volume.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(i32).range(1..))]
    retain: i32,
    /// Number of volumes to process at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    concurrency: i32,
    /// Groups of volumes; `default` is every volume without a job of its own.
    #[arg(long = "group", default_value = "default")]
    groups: Vec<String>,
    /// Maximum duration of a run, for example 6h.
    #[arg(long, value_name = "DURATION", value_parser = parse_deadline)]
    deadline: Option<String>,
    #[command(flatten)]
    at: Connection,
}

fn parse_cron(text: &str) -> Result<String, String> {
    people::cron::parse(text).map(|_| text.to_owned())
}

/// As it is kept: what cannot be read there would be no deadline at all.
fn parse_deadline(text: &str) -> Result<String, String> {
    match GoDuration::from(text).get() {
        Ok(deadline) if !deadline.is_zero() => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is no deadline, as 90s, 45m and 1h30m are")),
    }
}

fn parse_task(text: &str) -> Result<RecurringTask, String> {
    if RecurringTask::KNOWN.contains(&text) {
        Ok(RecurringTask::from(text))
    } else {
        Err(format!("there is no task {text:?}; there are {}", RecurringTask::KNOWN.join(", ")))
    }
}

impl Row for RecurringJob {
    const HEAD: &'static [&'static str] =
        &["JOB", "TASK", "CRON", "KEEPS", "GROUPS", "LAST RUN", "RESULT", "NEXT RUN"];
    const WIDE: &'static [&'static str] = &["RUNS", "MESSAGE"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let last = status.last_run_at.map(|it| people::units::age(it.timestamp(), now) + " ago");
        vec![
            self.name_any(),
            or_dash(self.spec.task.as_ref().map(RecurringTask::as_str).unwrap_or_default()),
            or_dash(self.spec.cron.as_deref().unwrap_or_default()),
            self.spec.retain.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            or_dash(&self.spec.groups.clone().unwrap_or_default().join(",")),
            last.unwrap_or_else(|| "never".to_owned()),
            if status.running == Some(true) {
                "running".to_owned()
            } else {
                or_dash(&status.last_result.unwrap_or_default())
            },
            status
                .next_run_at
                .map_or_else(|| "-".to_owned(), |it| people::units::date(it.timestamp())),
        ]
    }

    fn wide(&self, _: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        vec![
            status.execution_count.unwrap_or(0).to_string(),
            or_dash(&status.last_message.unwrap_or_default()),
        ]
    }
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(ls) => ls.run::<RecurringJob>().await?,
        Command::Create(args) => {
            let api = args.at.volumes::<RecurringJob>().await?;
            let deadline = args.deadline.clone();
            let job = RecurringJob::new(
                &args.name,
                RecurringJobSpec {
                    name: Some(args.name.clone()),
                    groups: Some(args.groups.clone()),
                    task: Some(args.task.clone()),
                    cron: Some(args.cron.clone()),
                    retain: Some(args.retain),
                    concurrency: Some(args.concurrency),
                    parameters: deadline.map(|it| BTreeMap::from([("deadline".to_owned(), it)])),
                    ..RecurringJobSpec::default()
                },
            );
            api.create(&PostParams::default(), &job)
                .await
                .map_err(|error| explained(error, &format!("make job {}", args.name)))?;
            output::say(&format!("job {} is created", args.name))?;
        }
        Command::Cancel { name, at } => {
            let api = at.volumes::<RecurringJob>().await?;
            let patch = json!({ "metadata": { "annotations": { "holdfast.io/cancel": "true" } } });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map_err(|error| explained(error, &format!("cancel job {name}")))?;
            output::say(&format!("the runs of job {name} are cancelled"))?;
        }
        Command::Rm(rm) => rm.run::<RecurringJob>().await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_is_none_is_refused() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            create: Create,
        }
        let asked = |deadline: &str| {
            let words = ["x", "nightly", "--cron", "0 2 * * *", "--deadline", deadline];
            <Line as clap::Parser>::try_parse_from(words).map(|it| it.create.deadline)
        };
        assert_eq!(asked("1h30m").unwrap().as_deref(), Some("1h30m"));
        for bad in ["soon", "2d", "0s", ""] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_job_that_could_never_run_is_not_made() {
        assert_eq!(parse_cron("0 2 * * *").as_deref(), Ok("0 2 * * *"));
        assert!(parse_cron("@daily").is_ok());
        for bad in ["bad", "61 * * * *", "* * * *", ""] {
            assert!(parse_cron(bad).is_err(), "{bad}");
        }
    }
}
