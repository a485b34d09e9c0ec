//! `holdfast install-crds`: the definitions of every dialect into a cluster, once, by whoever may write
//! them: so that the controllers need not.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tokio::time::Instant;

use crate::{cli, controllers};
use ::cli::output::{self, Format, Hint};

const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the definitions as YAML, for `kubectl apply --server-side -f -`, and end.
    #[arg(long)]
    print: bool,
    /// The cluster; without it, the usual places: $KUBECONFIG, ~/.kube/config, or the service account
    /// of a pod.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long)]
    context: Option<String>,
    /// Seconds until every definition has to be served.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// What became of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Created,
    Changed,
    Unchanged,
}

impl Outcome {
    /// By the versions before and after: an apply that changes nothing leaves it.
    fn of(before: Option<&str>, after: Option<&str>) -> Self {
        match before {
            None => Self::Created,
            Some(before) if Some(before) == after => Self::Unchanged,
            Some(_) => Self::Changed,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.print {
        output::say(&printed()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    cli::runtime()?.block_on(async {
        let client =
            controllers::connect(args.kubeconfig.as_ref(), args.context.as_deref()).await?;
        let api = Api::all(client);
        let done = apply(&api).await?;
        for (name, outcome) in done.iter().filter(|(_, it)| *it != Outcome::Unchanged) {
            output::say(&format!("{name} {outcome}"))?;
        }
        established(&api, Duration::from_secs(args.timeout)).await?;
        output::say(&told(&done))?;
        Ok(ExitCode::SUCCESS)
    })
}

fn printed() -> anyhow::Result<String> {
    let definitions = api::crds();
    let texts = definitions.iter().map(|it| output::machine(it, Format::Yaml));
    Ok(format!("---\n{}", texts.collect::<Result<Vec<_>, _>>()?.join("\n---\n")))
}

fn told(done: &[(String, Outcome)]) -> String {
    let count = |wanted: Outcome| done.iter().filter(|(_, it)| *it == wanted).count();
    format!(
        "{} definitions are served: {} created, {} changed, {} unchanged",
        done.len(),
        count(Outcome::Created),
        count(Outcome::Changed),
        count(Outcome::Unchanged)
    )
}

/// Applies every definition, as the controllers do: neither undoes what the other did.
async fn apply(api: &Api<CustomResourceDefinition>) -> anyhow::Result<Vec<(String, Outcome)>> {
    let params = PatchParams::apply(controllers::MANAGER).force();
    let mut done = Vec::new();
    for definition in api::crds() {
        let name = name_of(&definition)?;
        let may = "is the cluster up, and may you write CustomResourceDefinitions there?";
        let before = api
            .get_opt(&name)
            .await
            .with_context(|| format!("cannot read the definition {name}"))
            .hint(may)?;
        let after = api
            .patch(&name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("cannot apply the definition {name}"))
            .hint(may)?;
        let version = |it: &CustomResourceDefinition| it.resource_version();
        let before = before.as_ref().and_then(version);
        done.push((name, Outcome::of(before.as_deref(), version(&after).as_deref())));
    }
    Ok(done)
}

fn name_of(definition: &Value) -> anyhow::Result<String> {
    let name = definition.pointer("/metadata/name").and_then(Value::as_str);
    Ok(name.context("a definition has no name")?.to_owned())
}

/// Waits until the server serves all of them.
async fn established(api: &Api<CustomResourceDefinition>, timeout: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + timeout;
    for definition in api::crds() {
        let name = name_of(&definition)?;
        loop {
            let found = api.get_opt(&name).await?;
            match found.map_or(Some("it was deleted".to_owned()), |it| obstacle(&it)) {
                None => break,
                Some(why) if Instant::now() > end => {
                    let seconds = timeout.as_secs();
                    return Err(anyhow!("{name} is not served after {seconds} s: {why}"))
                        .hint(format!("see `kubectl describe crd {name}`, and call this again"));
                }
                Some(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
    Ok(())
}

/// Why a definition is not served, if it is not.
fn obstacle(definition: &CustomResourceDefinition) -> Option<String> {
    let conditions = definition.status.as_ref().and_then(|it| it.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let is = |kind: &str, status: &str| {
        conditions.iter().find(|it| it.type_ == kind && it.status == status)
    };
    if is("Established", "True").is_some() {
        return None;
    }
    let refused = is("NamesAccepted", "False").and_then(|it| it.message.clone());
    Some(refused.unwrap_or_else(|| "the server has not taken it up yet".to_owned()))
}

#[cfg(test)]
mod tests {
    use apiserver::auth::User;
    use apiserver::auth::user::MASTERS;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_became_of_a_definition_shows_in_its_version() {
        assert_eq!(Outcome::of(None, Some("1")), Outcome::Created);
        assert_eq!(Outcome::of(Some("1"), Some("1")), Outcome::Unchanged);
        assert_eq!(Outcome::of(Some("1"), Some("2")), Outcome::Changed);
    }

    #[test]
    fn a_definition_whose_names_are_taken_says_so() {
        let definition = |conditions: Value| -> CustomResourceDefinition {
            let mut it = api::crds().remove(0);
            it["status"] = json!({ "conditions": conditions });
            serde_json::from_value(it).unwrap()
        };
        let taken = json!([{"type": "NamesAccepted", "status": "False", "reason": "x",
            "message": "\"lhv\" is already in use", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        assert_eq!(obstacle(&definition(taken)).unwrap(), "\"lhv\" is already in use");
        assert!(obstacle(&definition(json!([]))).is_some());
        let served = json!([{"type": "Established", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        assert_eq!(obstacle(&definition(served)), None);
    }

    #[test]
    fn what_is_printed_reads_back_as_the_definitions() {
        let read: Vec<Value> = serde_saphyr::from_multiple(&printed().unwrap()).unwrap();
        assert_eq!(read, api::crds());
    }

    #[tokio::test]
    async fn installing_again_changes_what_somebody_changed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (server, tasks) = controllers::tests::server(folder.path(), Vec::new()).await;
        let admin = User::authenticated("admin", "", [MASTERS.to_owned()]);
        let client = kube::Client::new(server.client_service(admin), "default");
        let api: Api<CustomResourceDefinition> = Api::all(client);
        let all = api::crds().len();
        let of = |done: &[(String, Outcome)], wanted: Outcome| {
            done.iter().filter(|(_, it)| *it == wanted).count()
        };
        assert_eq!(of(&apply(&api).await.unwrap(), Outcome::Created), all);
        established(&api, Duration::from_mins(1)).await.unwrap();
        assert_eq!(of(&apply(&api).await.unwrap(), Outcome::Unchanged), all);
        let other = json!({"spec": {"names": {"shortNames": ["other"]}}});
        let params = PatchParams::default();
        api.patch("volumes.longhorn.io", &params, &Patch::Merge(other)).await.unwrap();
        let done = apply(&api).await.unwrap();
        let changed: Vec<_> = done.iter().filter(|(_, it)| *it != Outcome::Unchanged).collect();
        assert_eq!(changed, [&("volumes.longhorn.io".to_owned(), Outcome::Changed)]);
        assert!(told(&done).contains("0 created, 1 changed"), "{}", told(&done));
        let _ = tasks.stop(Duration::from_mins(1)).await;
        server.close(Duration::from_mins(1)).await;
    }
}
