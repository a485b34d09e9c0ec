//! Names of what there is, for shells that complete words.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use api::longhorn::{Backup, BackupTarget, Node, RecurringJob, Snapshot, Volume};
use api::nonadmin::NonAdminBackup;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::connection::Connection;
use crate::listing::Object;

/// Whoever presses a key waits no longer for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Nobody chooses among more.
const MOST: u32 = 1000;

/// What a word of a command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Volume,
    /// A volume that follows another.
    Standby,
    Snapshot,
    Backup,
    Target,
    Job,
    Node,
    TenantBackup,
    Namespace,
    /// A context of the kubeconfig.
    Context,
}

/// The names there are, as far as the line that is being typed says where to ask. None where that
/// fails: an error would stand in the middle of somebody's line.
pub async fn of(kind: Kind, line: &[OsString]) -> Vec<String> {
    let asked = Asked::of(line);
    let names = tokio::time::timeout(TIMEOUT, asked.names(kind)).await;
    names.ok().and_then(Result::ok).unwrap_or_default()
}

/// What a line says of where to ask.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
}

impl Asked {
    fn of(line: &[OsString]) -> Self {
        let mut asked = Self::default();
        let mut words = line.iter().map(|it| it.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            let (name, given) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let place = match name.as_str() {
                "--kubeconfig" => {
                    asked.kubeconfig = given.or_else(|| words.next()).map(PathBuf::from);
                    continue;
                }
                "--context" => &mut asked.context,
                "-n" | "--namespace" => &mut asked.namespace,
                _ => continue,
            };
            *place = given.or_else(|| words.next());
        }
        asked
    }

    async fn names(&self, kind: Kind) -> anyhow::Result<Vec<String>> {
        let at = Connection::named(self.kubeconfig.clone(), self.context.clone());
        match kind {
            Kind::Context => at.contexts(),
            Kind::Volume => of_volumes::<Volume>(&at).await,
            Kind::Snapshot => of_volumes::<Snapshot>(&at).await,
            Kind::Backup => of_volumes::<Backup>(&at).await,
            Kind::Target => of_volumes::<BackupTarget>(&at).await,
            Kind::Job => of_volumes::<RecurringJob>(&at).await,
            Kind::Node => of_volumes::<Node>(&at).await,
            Kind::Namespace => listed(&Api::<Namespace>::all(at.client().await?)).await,
            Kind::Standby => {
                let volumes = at.volumes::<Volume>().await?;
                let found = volumes.list(&ListParams::default().limit(MOST)).await?;
                let standby = found.items.iter().filter(|it| people::standby::is_standby(it));
                Ok(standby.map(ResourceExt::name_any).collect())
            }
            Kind::TenantBackup => {
                let client = at.client().await?;
                let api: Api<NonAdminBackup> = match &self.namespace {
                    Some(namespace) => Api::namespaced(client, namespace),
                    None => Api::default_namespaced(client),
                };
                listed(&api).await
            }
        }
    }
}

async fn of_volumes<K>(at: &Connection) -> anyhow::Result<Vec<String>>
where
    K: Object + kube::Resource<Scope = NamespaceResourceScope>,
{
    listed(&at.volumes::<K>().await?).await
}

async fn listed<K: Object>(api: &Api<K>) -> anyhow::Result<Vec<String>> {
    let found = api.list_metadata(&ListParams::default().limit(MOST)).await?;
    Ok(found.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Asked {
        Asked::of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_line_says_where_to_ask() {
        let wanted = Asked {
            kubeconfig: Some("a".into()),
            context: Some("c".into()),
            namespace: Some("team".into()),
        };
        assert_eq!(asked("tenant rm --kubeconfig a --context=c -n team x"), wanted);
        assert_eq!(asked("tenant rm --kubeconfig=a --namespace=team --context c"), wanted);
        assert_eq!(asked("volume show x"), Asked::default());
        assert_eq!(asked("volume show --kubeconfig"), Asked::default());
    }
}
