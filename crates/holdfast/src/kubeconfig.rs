//! `holdfast kubeconfig`: a file that lets one user work in one namespace of a running server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use apiserver::auth::kubeconfig::{Credential, DASHBOARD, Kubeconfig, render};
use apiserver::pki::Pki;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::config::Settings;
use crate::{cli, controllers};
use ::cli::output::{self, Hint};

const MANAGER: &str = "holdfast-kubeconfig";
const MAX_LIFETIME_DAYS: u64 = 3650;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    /// The user the file stands for.
    #[arg(long)]
    user: String,
    /// Groups of the user, separated by commas.
    #[arg(long, value_delimiter = ',')]
    group: Vec<String>,
    /// The namespace to work in; made if it is missing.
    #[arg(long)]
    namespace: String,
    /// What the user may do there: a `ClusterRole` such as view, edit or admin.
    #[arg(long, default_value = "view")]
    role: String,
    /// Days until the certificate in the file runs out.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=MAX_LIFETIME_DAYS))]
    days: u64,
    /// Write the file here instead of printing it.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let config = cli::resolve(&args.settings)?;
    let Some(admin) = config.kubeconfig("--data-dir and its whole path")? else {
        let admin = config.data_dir.join("kubeconfig");
        return Err(anyhow::anyhow!("there is no {}", admin.display()))
            .hint("start the server with `holdfast up`, and name its directory with --data-dir");
    };
    cli::runtime()?.block_on(make(args, &config.data_dir, &admin))
}

fn check(args: &Args) -> anyhow::Result<()> {
    // Names and groups of the system, and of our own controllers, carry rights of their own; a certificate must
    // not claim them.
    let reserved = |name: &String| name.starts_with("system:") || name.starts_with("holdfast:");
    if args.user.is_empty() || reserved(&args.user) {
        bail!("{:?} cannot be the name of a user", args.user);
    }
    if let Some(group) = args.group.iter().find(|group| reserved(group)) {
        bail!("{group:?} is a group of the system");
    }
    Ok(())
}

async fn make(args: &Args, data_dir: &Path, admin: &PathBuf) -> anyhow::Result<ExitCode> {
    let file = kube::config::Kubeconfig::read_from(admin)?;
    let server = file
        .clusters
        .first()
        .and_then(|cluster| cluster.cluster.as_ref()?.server.clone())
        .with_context(|| format!("{} names no server", admin.display()))?;
    let dashboard = ::cli::connection::dashboard(&file);
    let client = controllers::connect(Some(admin), None).await?;
    let unreachable = || format!("is the server at {server} up? Start it with `holdfast up`");
    let roles = roles(&client).await.hint(unreachable())?;
    known_role(&args.role, &roles)?;
    grant(&client, args).await.hint(unreachable())?;
    let pki = Pki::open(&data_dir.join("pki"), &[])?;
    let groups: Vec<&str> = args.group.iter().map(String::as_str).collect();
    let lifetime = Duration::from_secs(args.days * 24 * 3600);
    let issued = pki.issue_client(&args.user, &groups, lifetime)?;
    let places: Vec<_> = dashboard.iter().map(|it| (DASHBOARD, it.as_str())).collect();
    let text = render(&Kubeconfig {
        server: &server,
        ca_pem: pki.ca_pem(),
        user: &args.user,
        credential: Credential::Certificate {
            cert_pem: &issued.cert_pem,
            key_pem: &issued.key_pem,
        },
        namespace: &args.namespace,
        places: &places,
    });
    match &args.file {
        None => output::say(text.trim_end())?,
        Some(path) => {
            durable::replace_private(path, text.as_bytes())?;
            output::say(&format!(
                "{} may {} in namespace {}: {}",
                args.user,
                args.role,
                args.namespace,
                path.display()
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of all roles that a binding in a namespace can name.
async fn roles(client: &Client) -> Result<Vec<String>, kube::Error> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let listed = roles.list_metadata(&ListParams::default()).await?;
    Ok(listed.items.into_iter().filter_map(|role| role.metadata.name).collect())
}

/// A binding to a role that is not there would grant nothing, and nobody would say so.
fn known_role(role: &str, roles: &[String]) -> anyhow::Result<()> {
    if roles.iter().any(|known| known == role) {
        return Ok(());
    }
    let usual = || "view, edit and admin are there from the start".to_owned();
    let near = telemetry::nearest(role, roles.iter().map(String::as_str));
    let hint = near.map_or_else(usual, |near| format!("did you mean {near}?"));
    Err(anyhow::anyhow!("there is no ClusterRole {role:?}")).hint(hint)
}

/// The namespace and the binding, made or brought up to date.
async fn grant(client: &Client, args: &Args) -> Result<(), kube::Error> {
    let params = PatchParams::apply(MANAGER).force();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces.get_opt(&args.namespace).await?.is_none() {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": args.namespace},
        });
        namespaces.patch(&args.namespace, &params, &Patch::Apply(&namespace)).await?;
    }
    let name = format!("{}-{}", args.user, args.role);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": args.role,
        },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": args.user,
        }],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &args.namespace);
    bindings.patch(&name, &params, &Patch::Apply(&binding)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_carry_rights_of_their_own_are_not_given_out() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let checked = |user: &str, group: &str| {
            let words = ["x", "--user", user, "--group", group, "--namespace", "team"];
            check(&<Line as clap::Parser>::try_parse_from(words).unwrap().args)
        };
        checked("alice", "team").unwrap();
        for user in ["", "system:admin", "holdfast:controller:velero"] {
            checked(user, "team").unwrap_err();
        }
        for group in ["system:masters", "holdfast:controllers"] {
            checked("alice", group).unwrap_err();
        }
    }

    #[test]
    fn a_role_that_is_not_there_is_refused_with_the_nearest() {
        let roles = ["admin", "edit", "view", "system:node"].map(str::to_owned);
        assert!(known_role("edit", &roles).is_ok());
        let hint = |role: &str| {
            let error = known_role(role, &roles).unwrap_err();
            error.downcast_ref::<output::Hinted>().unwrap().hint().to_owned()
        };
        assert_eq!(hint("edti"), "did you mean edit?");
        assert!(hint("operator").contains("view, edit and admin"));
    }
}
