//! `restore`: makes a data directory from a backup, or says what it would make.

use jiff::Timestamp;
use serde::Serialize;

use super::error::CommandError;
use super::flag::Given;
use super::parse::Line;
use super::{Context, Invocation, settings};
use crate::restore::{self, DryRun, Existing, PlanError, Progress, RestoreError, Target};
use crate::server::config::ConfigError;
use crate::store::{SnapStore, Snapshot};

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    let store = settings::store(&line.given, "");
    let config = settings::restoration(&line.given);
    store.validate().map_err(ConfigError::Store)?;
    config.check()?;
    let target = target(&line.given)?;
    let store = SnapStore::open(&store, &context.environment)?;
    if line.given.switch("dry-run") {
        let told = Told::from(restore::dry_run(&store, target).await?);
        return super::print_json(&told);
    }
    let how = config.restoration(Existing::Refuse);
    match restore::restore(&store, &how, target, &Progress::default()).await {
        Ok(restored) => {
            tracing::info!(actor = "restorer", "restored revision {}", restored.revision);
            if let Some(origin) = &restored.origin {
                tracing::info!(
                    actor = "restorer",
                    "{}: a guard that starts an etcd on it keeps it so, and begins a new history in \
                     the store; what was there stays until the collection policy removes it",
                    origin.reason
                );
            }
            Ok(())
        }
        Err(RestoreError::Plan(PlanError::Empty)) => {
            if context.invocation == Invocation::Holdfast {
                return Err(CommandError::Nothing("restored"));
            }
            tracing::info!(actor = "restorer", "no base snapshot found: nothing is restored");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The newest state, unless an earlier one is asked for.
fn target(given: &Given) -> Result<Target, CommandError> {
    let (revision, time) = (given.integer("to-revision"), given.text("to-time"));
    match (given.is_typed("to-revision"), time.as_str()) {
        (false, "") => Ok(Target::Newest),
        (true, "") if revision > 0 => Ok(Target::Revision(revision)),
        (true, "") => Err(CommandError::Usage("to-revision: there is no such revision".to_owned())),
        (false, text) => match text.parse::<Timestamp>() {
            Ok(time) => Ok(Target::Time(time)),
            Err(error) => Err(CommandError::Usage(format!("to-time: {error}"))),
        },
        (true, _) => {
            Err(CommandError::Usage("give either to-revision or to-time, not both".to_owned()))
        }
    }
}

/// What would be restored, for people and programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    revision: i64,
    base: Option<Snapshot>,
    deltas: Vec<Snapshot>,
    bytes_to_fetch: u64,
    missing: Option<Missing>,
}

/// Revisions that no object holds.
#[derive(Serialize)]
struct Missing {
    after: i64,
    next: i64,
}

impl From<DryRun> for Told {
    fn from(found: DryRun) -> Self {
        Self {
            revision: found.revision,
            base: found.base,
            deltas: found.deltas,
            bytes_to_fetch: found.bytes,
            missing: found.gap.map(|gap| Missing { after: gap.after, next: gap.next }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Asked, parse};
    use super::super::table::Command;
    use super::*;

    fn asked(words: &[(&str, &str)]) -> Result<Target, CommandError> {
        let flags = Command::find("restore").unwrap().flags();
        let mut given = Given::defaults(flags.iter().copied());
        for (name, value) in words {
            let flag = flags.iter().find(|flag| flag.name() == *name).unwrap();
            given.add(flag, value).unwrap();
        }
        target(&given)
    }

    #[test]
    fn one_target_can_be_asked_for() {
        assert_eq!(asked(&[]).unwrap(), Target::Newest);
        assert_eq!(asked(&[("to-revision", "7")]).unwrap(), Target::Revision(7));
        let time = "2026-01-31T12:00:00Z";
        assert_eq!(asked(&[("to-time", time)]).unwrap(), Target::Time(time.parse().unwrap()));
        for words in [
            [("to-revision", "0")].as_slice(),
            &[("to-revision", "-3")],
            &[("to-time", "yesterday")],
            &[("to-revision", "7"), ("to-time", time)],
        ] {
            assert!(asked(words).is_err(), "{words:?}");
        }
    }

    /// Restores from a directory that holds no backup.
    async fn from_nothing(invocation: Invocation) -> Result<(), CommandError> {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let words = [
            "restore".to_owned(),
            format!("--store-container={}", store.display()),
            format!("--data-dir={}", place.path().join("data").display()),
            format!("--restoration-temp-snapshots-dir={}", place.path().join("temp").display()),
        ];
        let Asked::Run(line) = parse(words.map(Into::into).to_vec()).unwrap() else {
            panic!("nothing to run")
        };
        let (tasks, environment) = (tasks::Tasks::new(), crate::store::Environment::default());
        run(&line, &Context { tasks, environment, invocation }).await
    }

    #[tokio::test]
    async fn an_empty_store_is_a_success_for_a_peers_scripts_only() {
        from_nothing(Invocation::Etcdbrctl).await.unwrap();
        let error = from_nothing(Invocation::Holdfast).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no backup: nothing was restored");
    }
}
