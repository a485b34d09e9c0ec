//! Which API is asked, and as whom.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::NAMESPACE;
use crate::output::Hint;

/// Extensions of a cluster in a kubeconfig that say where else it can be met.
const DASHBOARD: &str = "holdfast.io/dashboard";
const BLOCK_STORAGE: &str = "holdfast.io/block-storage";

/// Where the dashboard of the first cluster of a kubeconfig is, if the file says so.
pub fn dashboard(file: &Kubeconfig) -> Option<String> {
    extension(file, DASHBOARD)
}

fn extension(file: &Kubeconfig, name: &str) -> Option<String> {
    let extensions = file.clusters.first()?.cluster.as_ref()?.extensions.as_deref()?;
    let found = extensions.iter().find(|it| it.name == name)?;
    found.extension.get("url")?.as_str().map(str::to_owned)
}

/// What `holdfast up` leaves where it is started.
const BESIDE: &str = "holdfast-data/kubeconfig";

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The kubeconfig to use; by default $KUBECONFIG, then ./holdfast-data/kubeconfig, then
    /// ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Connection {
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Where the dashboard is, if the kubeconfig says so.
    pub(crate) fn dashboard(&self) -> Option<String> {
        dashboard(&self.kubeconfig().ok().flatten()?)
    }

    /// Where its Block Storage API is, if the kubeconfig says so and it asks nobody who they are.
    pub(crate) fn block_storage(&self) -> Option<String> {
        extension(&self.kubeconfig().ok().flatten()?, BLOCK_STORAGE)
    }

    /// As if it had been typed.
    pub(crate) fn named(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig, context }
    }

    /// The contexts there are to choose from.
    pub(crate) fn contexts(&self) -> anyhow::Result<Vec<String>> {
        let file = match self.kubeconfig()? {
            Some(file) => file,
            None => Kubeconfig::read()?,
        };
        Ok(file.contexts.into_iter().map(|it| it.name).collect())
    }

    /// The file that says whom to ask; nothing: the usual one of this user.
    fn kubeconfig(&self) -> anyhow::Result<Option<Kubeconfig>> {
        match self.file()? {
            Some(path) => Kubeconfig::read_from(&path)
                .map(Some)
                .map_err(|error| {
                    shortened(&error, &format!("read the kubeconfig {}", path.display()))
                })
                .hint("`holdfast up` writes one to DATA-DIR/kubeconfig: name it with --kubeconfig"),
            None => Kubeconfig::from_env()
                .map_err(|error| {
                    let files = std::env::var_os("KUBECONFIG").unwrap_or_default();
                    shortened(&error, &format!("read $KUBECONFIG, which is {}", files.display()))
                })
                .hint("correct $KUBECONFIG, or name a file with --kubeconfig"),
        }
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match self.kubeconfig()? {
            Some(file) => Config::from_custom_kubeconfig(file, &options).await,
            None => Config::from_kubeconfig(&options).await,
        };
        let what = match &self.context {
            Some(context) => format!("use context {context} of the kubeconfig"),
            None => "find an API server to connect to".to_owned(),
        };
        let hint = match &self.context {
            Some(_) => "list its contexts with `kubectl config get-contexts`",
            None => "start one with `holdfast up`, or name a kubeconfig with --kubeconfig FILE",
        };
        config.map(crate::proxy::around).map_err(|error| shortened(&error, &what)).hint(hint)
    }

    /// The one file to read, unless the environment names some or none is named at all.
    fn file(&self) -> anyhow::Result<Option<PathBuf>> {
        if let Some(path) = &self.kubeconfig {
            return Ok(Some(path.clone()));
        }
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|it| !it.is_empty());
        let beside = Path::new(BESIDE);
        if is_set || !beside.is_file() {
            return Ok(None);
        }
        crate::found::check(beside, "--kubeconfig")?;
        Ok(Some(beside.to_owned()))
    }

    /// Volumes and what belongs to them.
    pub(crate) async fn volumes<K>(&self) -> anyhow::Result<Api<K>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Ok(Api::namespaced(self.client().await?, NAMESPACE))
    }
}

/// The command that lists the objects of a resource.
fn lister(plural: &str) -> Option<&'static str> {
    Some(match plural {
        "volumes" | "volumeattachments" => "holdfast volume ls",
        "snapshots" => "holdfast snapshot ls",
        "backups" => "holdfast backup ls",
        "backuptargets" => "holdfast target ls",
        "recurringjobs" => "holdfast job ls",
        "nodes" => "holdfast node ls",
        "nonadminbackups" => "holdfast tenant ls",
        "nonadminrestores" => "holdfast tenant restores",
        _ => return None,
    })
}

/// What could not be done and the innermost cause: the layers between say nothing to people.
fn shortened(error: &dyn std::error::Error, what: &str) -> anyhow::Error {
    let causes = std::iter::successors(Some(error), |it| it.source());
    let last = causes.last().map_or_else(String::new, ToString::to_string);
    anyhow::anyhow!("cannot {what}: {last}")
}

/// An error of the API as a sentence, with what to do about the usual ones.
pub(crate) fn explained(error: kube::Error, what: &str) -> anyhow::Error {
    let hint = match &error {
        kube::Error::Api(status) => match status.code {
            401 => Some("the server does not accept the credentials of this kubeconfig".to_owned()),
            403 => {
                Some("ask an administrator for permission, or use another kubeconfig".to_owned())
            }
            404 => lister(status.details.as_ref().map_or("", |it| it.kind.as_str()))
                .map(|it| format!("see what there is with `{it}`")),
            409 => Some("choose another name".to_owned()),
            _ => None,
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) => Some(
            "is the server running? start it with `holdfast up`, or check --kubeconfig".to_owned(),
        ),
        _ => None,
    };
    let told = match error {
        kube::Error::Api(status) => anyhow::anyhow!("cannot {what}: {}", status.message),
        other @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => shortened(&other, what),
        other => anyhow::Error::new(other).context(format!("cannot {what}")),
    };
    match hint {
        Some(hint) => Err::<(), _>(told).hint(hint).expect_err("it is an error"),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::output::Hinted;

    #[test]
    fn of_an_error_in_layers_the_innermost_is_told() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let layered = std::io::Error::other(std::io::Error::other(refused));
        let told = shortened(&layered, "reach the API server").to_string();
        assert_eq!(told, "cannot reach the API server: connection refused");
    }

    #[test]
    fn what_is_not_there_is_told_with_the_command_that_lists_what_is() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": 404, "details": {"kind": "recurringjobs", "name": "x"},
        }))
        .unwrap();
        let told = explained(kube::Error::Api(Box::new(status)), "cancel job x");
        let hint = told.downcast_ref::<Hinted>().map(Hinted::hint);
        assert_eq!(hint, Some("see what there is with `holdfast job ls`"));
    }
}
