//! What is done by the clock: recurring jobs.
//!
//! A job runs when its schedule says so, whatever became of the run before: a volume on which the
//! last run still works is left out, with a warning, and the others have their turn. A run ends by
//! itself, by its deadline, or when somebody asks for that.

mod decide;
mod retention;
mod run;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::longhorn::{
    Backup, Engine, RecurringJob, RecurringJobStatus, Setting, Snapshot, SystemBackup, Volume,
};
use api::scalar::Time;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use reconcile::{
    Context, Controller, EVENT_RIGHTS, Events, Failure, Grant, Key, Loop, Next, Queue, Reconciler,
    Severity, Store,
};
use tasks::CancellationToken;

pub(crate) use self::decide::ran_at;
use self::decide::{Act, Seen, decide};
pub(crate) use self::run::{group_label, is_job_label, job_label};
use crate::backup::now;
use crate::cron::Schedule;
use crate::work::{Stand, Work};
use crate::{FINALIZER, NAMESPACE};

/// Ends the runs of a job that are under way.
pub const CANCEL: &str = "holdfast.io/cancel";

pub(crate) const CONTROLLERS: &[Controller] = &[Controller {
    name: "recurring-jobs",
    grants: &[
        Grant {
            groups: &["longhorn.io"],
            resources: &["recurringjobs"],
            verbs: &["get", "list", "watch", "patch"],
        },
        Grant { groups: &["longhorn.io"], resources: &["recurringjobs/status"], verbs: &["patch"] },
        Grant {
            groups: &["longhorn.io"],
            resources: &["volumes"],
            verbs: &["get", "list", "watch", "patch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["engines", "settings"],
            verbs: &["get", "list", "watch"],
        },
        Grant {
            groups: &["longhorn.io"],
            resources: &["snapshots", "backups", "systembackups"],
            verbs: &["get", "list", "watch", "create", "delete"],
        },
        EVENT_RIGHTS,
    ],
    acts_on: &["recurringjobs.longhorn.io"],
    run: |context| run(context),
}];

/// What runs look at and change.
#[derive(Debug)]
pub(crate) struct World {
    jobs: Store<RecurringJob>,
    volumes: Store<Volume>,
    engines: Store<Engine>,
    snapshots: Store<Snapshot>,
    backups: Store<Backup>,
    system_backups: Store<SystemBackup>,
    settings: Store<Setting>,
    events: Events,
    queue: Arc<Queue>,
    /// By the uid of the job and the number of the run.
    runs: Runs,
    /// Jobs and the volumes they work on now.
    busy: Mutex<HashSet<(String, String)>>,
    me: String,
}

fn run(context: Context) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let jobs = Loop::new("recurring-jobs", &context);
        let world = Arc::new(World {
            jobs: Store::within(NAMESPACE).start(&context),
            volumes: Store::within(NAMESPACE).start(&context),
            engines: Store::within(NAMESPACE)
                .index("volume", |it: &Engine| {
                    it.spec.instance.volume_name.clone().into_iter().collect()
                })
                .start(&context),
            snapshots: Store::within(NAMESPACE)
                .index("volume", |it: &Snapshot| it.spec.volume.clone().into_iter().collect())
                .start(&context),
            backups: Store::within(NAMESPACE)
                .index("volume", |it: &Backup| {
                    it.labels().get(crate::label::BACKUP_VOLUME).cloned().into_iter().collect()
                })
                .start(&context),
            system_backups: Store::within(NAMESPACE).start(&context),
            settings: Store::within(NAMESPACE).start(&context),
            events: context.events.clone(),
            queue: jobs.queue(),
            runs: Work::new("runs", &context.tasks),
            busy: Mutex::default(),
            me: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        });
        let jobs = jobs
            .on(&world.jobs)
            .needs(&world.volumes)
            .needs(&world.engines)
            .needs(&world.snapshots)
            .needs(&world.backups)
            .needs(&world.system_backups)
            .needs(&world.settings);
        jobs.run(Arc::new(Jobs(world))).await;
    })
}

impl World {
    fn word(&self, setting: &str) -> Option<String> {
        let found = self.settings.get(&Key::new(NAMESPACE, setting));
        found.map(|it| it.value.trim().to_owned()).filter(|it| !it.is_empty())
    }
}

/// One pass over one job.
#[derive(Debug)]
struct Jobs(Arc<World>);

impl Reconciler for Jobs {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.0;
        let Some(job) = world.jobs.get(key) else { return Ok(Next::WAIT) };
        if job.metadata.deletion_timestamp.is_some() {
            return go(world, &job).await;
        }
        let job = world.jobs.add_finalizer(&job, FINALIZER).await?;
        let seen = seen(world, &job);
        let verdict = decide(&seen);
        let job = match verdict.act {
            Act::Cancel => {
                cancel(world, &job);
                let mut new = job.as_ref().clone();
                new.annotations_mut().remove(CANCEL);
                world.jobs.update(&job, &new).await?
            }
            Act::Take | Act::Run | Act::Nothing => job,
        };
        match verdict.act {
            Act::Take => take(world, &job).await?,
            Act::Run => begin(world, &job).await?,
            Act::Nothing | Act::Cancel => show_next(world, &job, &verdict).await?,
        }
        Ok(verdict.look_after.map_or(Next::WAIT, Next::after))
    }
}

fn run_key(uid: &str, number: impl std::fmt::Display) -> String {
    format!("{uid}/{number}")
}

type Runs = Work<CancellationToken, run::End>;

/// The runs that are not yet written down, however many have begun since: a few, since each works on
/// volumes of its own.
fn open_runs(runs: &Runs, uid: &str) -> Vec<(i64, Stand<run::End>, CancellationToken)> {
    let found = runs.under(&run_key(uid, "")).into_iter();
    let numbered = found.filter_map(|(number, it)| Some((number.parse().ok()?, it.stand, it.mark)));
    let mut all: Vec<_> = numbered.collect();
    all.sort_by_key(|(number, _, _)| *number);
    all
}

fn seen(world: &World, job: &RecurringJob) -> Seen {
    let status = job.status.clone().unwrap_or_default();
    let runs = open_runs(&world.runs, &job.uid().unwrap_or_default());
    let created = job.metadata.creation_timestamp.as_ref().map(Time::from);
    let since = status.last_run_at.or(created).map_or_else(now, Time::timestamp);
    let since = ran_at(since, now());
    let cron = job.spec.cron.clone().unwrap_or_default();
    Seen {
        now: now(),
        due: Schedule::parse(&cron).map(|it| it.next(since)),
        is_cancelled: job.annotations().contains_key(CANCEL),
        has_ended: runs.iter().any(|(_, stand, _)| !matches!(stand, Stand::Running)),
        is_running: runs.iter().any(|(_, stand, _)| matches!(stand, Stand::Running)),
        is_shown_running: status.running == Some(true),
    }
}

fn cancel(world: &World, job: &RecurringJob) {
    for (_, _, token) in open_runs(&world.runs, &job.uid().unwrap_or_default()) {
        token.cancel();
    }
}

async fn show_next(
    world: &World,
    job: &Arc<RecurringJob>,
    verdict: &decide::Verdict,
) -> Result<(), Failure> {
    let mut new = job.as_ref().clone();
    let status = new.status.get_or_insert_default();
    status.owner_id = Some(world.me.clone());
    status.next_run_at = verdict.next.map(Time::new);
    // What the next run is counted from has to stay where it is.
    status.last_run_at = status.last_run_at.map(|it| Time::new(ran_at(it.timestamp(), now())));
    if let Some(why) = &verdict.wrong {
        status.last_result = Some("Failed".to_owned());
        status.last_message = Some(why.clone());
    }
    if verdict.was_interrupted {
        status.running = Some(false);
        status.last_result = Some("Interrupted".to_owned());
        status.last_message = Some("The controllers ended while it ran".to_owned());
        world.events.say(
            job.as_ref(),
            Severity::Warning,
            "Interrupted",
            "The controllers ended while the job ran",
        );
    }
    world.jobs.update(job, &new).await?;
    Ok(())
}

/// The count is stored before the run begins: a run is never begun twice.
async fn begin(world: &Arc<World>, job: &Arc<RecurringJob>) -> Result<(), Failure> {
    let mut new = job.as_ref().clone();
    let status = new.status.get_or_insert_default();
    let number = status.execution_count.unwrap_or(0).saturating_add(1);
    *status = RecurringJobStatus {
        execution_count: Some(number),
        last_run_at: Some(Time::new(now())),
        running: Some(true),
        owner_id: Some(world.me.clone()),
        ..status.clone()
    };
    let job = world.jobs.update(job, &new).await?;
    world.events.say(job.as_ref(), Severity::Normal, "Started", &format!("Run {number} begins"));
    let token = CancellationToken::new();
    let tell = (Arc::clone(&world.queue), Key::of(job.as_ref()));
    let key = run_key(&job.uid().unwrap_or_default(), number);
    let work = run::run(Arc::clone(world), job, number, token.clone());
    world.runs.start(&key, token, tell, work);
    Ok(())
}

async fn take(world: &Arc<World>, job: &Arc<RecurringJob>) -> Result<(), Failure> {
    let uid = job.uid().unwrap_or_default();
    let runs = open_runs(&world.runs, &uid);
    let is_running = runs.iter().any(|(_, stand, _)| matches!(stand, Stand::Running));
    let mut new = job.as_ref().clone();
    let status = new.status.get_or_insert_default();
    let mut written = Vec::new();
    for (number, stand, _) in runs {
        let end = match stand {
            Stand::Running => continue,
            Stand::Ended(end) => end,
            Stand::Broken => run::End::broken(),
        };
        let severity = if end.is_well() { Severity::Normal } else { Severity::Warning };
        let text = format!("Run {number}: {}", end.message);
        world.events.say(job.as_ref(), severity, end.result, &text);
        status.last_result = Some(end.result.to_owned());
        status.last_message = Some(text);
        status.last_finished_at = Some(Time::new(now()));
        written.push(number);
    }
    status.running = Some(is_running);
    world.jobs.update(job, &new).await?;
    for number in written {
        world.runs.forget(&run_key(&uid, number));
    }
    Ok(())
}

/// A job that is gone is no longer wanted on any volume.
async fn go(world: &Arc<World>, job: &Arc<RecurringJob>) -> Result<Next, Failure> {
    cancel(world, job);
    let mut labels = vec![run::job_label(&job.name_any())];
    for group in job.spec.groups.iter().flatten() {
        let others = world.jobs.list().into_iter().filter(|it| it.name_any() != job.name_any());
        let is_last =
            !others.into_iter().any(|it| it.spec.groups.iter().flatten().any(|one| one == group));
        if is_last {
            labels.push(run::group_label(group));
        }
    }
    for volume in world.volumes.list() {
        let mut new = volume.as_ref().clone();
        new.labels_mut().retain(|name, _| !labels.contains(name));
        if new.metadata.labels != volume.metadata.labels && volume.metadata.labels.is_some() {
            world.volumes.merge(&volume, &new).await?;
        }
    }
    world.jobs.remove_finalizer(job, FINALIZER).await?;
    Ok(Next::WAIT)
}

/// Clocks may be set: nobody waits for longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use reconcile::Backoff;

    use super::*;

    /// A run that hangs is ended by whoever asks for that, also when very many others have begun since.
    #[tokio::test]
    async fn a_run_that_hangs_is_found_however_long_it_does() {
        let runs = Runs::new("test", &tasks::Tasks::new());
        let tell = || (Arc::new(Queue::new(Backoff::DEFAULT)), Key::new("n", "j"));
        for (uid, number) in [("u", 1), ("u", 1_000), ("u2", 7)] {
            let hangs = std::future::pending::<run::End>();
            runs.start(&run_key(uid, number), CancellationToken::new(), tell(), hangs);
        }
        let found = open_runs(&runs, "u");
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 1_000]);
    }
}
