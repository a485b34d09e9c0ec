//! What can be done: each is one request to the API, or a snapshot and a backup of it, with the
//! rights of whoever asks.

use api::longhorn::{Backup, BackupTarget, Snapshot, Volume};
use api::nonadmin::{NonAdminBackup, NonAdminRestore};
use k8s_openapi::NamespaceResourceScope;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use people::{NAMESPACE, backup, snapshot, standby, tenant, units, volume};
use serde_json::json;

use crate::view::path;
use crate::visit::Visit;
use crate::web::Oops;

const MAX_NAME: usize = 253;
const MAX_NAMESPACE: usize = 63;

/// Whether a text can be the name of an object. Nothing else ever gets into a path of the API.
pub(crate) fn is_name(text: &str) -> bool {
    let label = |part: &str| {
        let inner =
            part.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
        inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= MAX_NAME && text.split('.').all(label)
}

pub(crate) fn is_namespace(text: &str) -> bool {
    is_name(text) && !text.contains('.') && text.len() <= MAX_NAMESPACE
}

/// Something to do, with the names from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    CreateVolume,
    SnapshotVolume(String),
    BackUpVolume(String),
    DeleteVolume(String),
    DeleteBackup(String),
    RetryBackup(String),
    RestoreBackup(String),
    FollowBackup(String),
    Activate(String),
    LookAtTarget(String),
    BackUpNamespace,
    RestoreNamespace { namespace: String, backup: String },
    DeleteNamespaceBackup { namespace: String, backup: String },
}

/// What was done, and where to go.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) told: String,
    /// Without it, back to where it was asked for.
    pub(crate) then: Option<String>,
}

fn done(told: impl Into<String>) -> Done {
    Done { told: told.into(), then: None }
}

/// The fields of a form.
pub(crate) type Fields<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

impl Action {
    pub(crate) fn parse(segments: &[String]) -> Option<Self> {
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let named = |name: &str| is_name(name).then(|| name.to_owned());
        let placed = |namespace: &str| is_namespace(namespace).then(|| namespace.to_owned());
        match parts.as_slice() {
            ["volumes"] => Some(Self::CreateVolume),
            ["volumes", name, "snapshot"] => named(name).map(Self::SnapshotVolume),
            ["volumes", name, "backup"] => named(name).map(Self::BackUpVolume),
            ["volumes", name, "delete"] => named(name).map(Self::DeleteVolume),
            ["backups", name, "delete"] => named(name).map(Self::DeleteBackup),
            ["backups", name, "retry"] => named(name).map(Self::RetryBackup),
            ["backups", name, "restore"] => named(name).map(Self::RestoreBackup),
            ["backups", name, "standby"] => named(name).map(Self::FollowBackup),
            ["standby", name, "activate"] => named(name).map(Self::Activate),
            ["targets", name, "look"] => named(name).map(Self::LookAtTarget),
            ["tenants"] => Some(Self::BackUpNamespace),
            ["tenants", namespace, backup, "restore"] => Some(Self::RestoreNamespace {
                namespace: placed(namespace)?,
                backup: named(backup)?,
            }),
            ["tenants", namespace, backup, "delete"] => Some(Self::DeleteNamespaceBackup {
                namespace: placed(namespace)?,
                backup: named(backup)?,
            }),
            _ => None,
        }
    }

    /// The page it is asked for on.
    pub(crate) fn back(&self) -> String {
        match self {
            Self::CreateVolume => "/volumes".to_owned(),
            Self::SnapshotVolume(name) | Self::BackUpVolume(name) | Self::DeleteVolume(name) => {
                path("/volumes", name)
            }
            Self::DeleteBackup(_)
            | Self::RetryBackup(_)
            | Self::RestoreBackup(_)
            | Self::FollowBackup(_) => "/backups".to_owned(),
            Self::Activate(_) => "/standby".to_owned(),
            Self::LookAtTarget(_) => "/targets".to_owned(),
            Self::BackUpNamespace
            | Self::RestoreNamespace { .. }
            | Self::DeleteNamespaceBackup { .. } => "/tenants".to_owned(),
        }
    }

    pub(crate) async fn run(&self, visit: &Visit, fields: &Fields<'_>) -> Result<Done, Oops> {
        match self {
            Self::CreateVolume => create_volume(visit, fields).await,
            Self::SnapshotVolume(name) => {
                let wanted = name_of(fields)?;
                take_snapshot(visit, name, &wanted).await?;
                Ok(done(format!("Snapshot {wanted} is being taken.")))
            }
            Self::BackUpVolume(name) => back_up(visit, name, &name_of(fields)?).await,
            Self::DeleteVolume(name) => {
                volumes::<Volume>(visit).delete(name, &DeleteParams::default()).await?;
                let then = Some("/volumes".to_owned());
                Ok(Done { told: format!("Volume {name} is being deleted."), then })
            }
            Self::DeleteBackup(name) => {
                volumes::<Backup>(visit).delete(name, &DeleteParams::default()).await?;
                Ok(done(format!(
                    "Backup {name} is being deleted, with all data that no other backup uses."
                )))
            }
            Self::RetryBackup(name) => {
                let now =
                    json!({ "metadata": { "annotations": { "holdfast.io/retry-now": "true" } } });
                patch(&volumes::<Backup>(visit), name, &now).await?;
                Ok(done(format!("The deletion of backup {name} is being retried.")))
            }
            Self::RestoreBackup(name) => from_backup(visit, name, fields, Of::Restore).await,
            Self::FollowBackup(name) => from_backup(visit, name, fields, Of::Standby).await,
            Self::Activate(name) => activate(visit, name).await,
            Self::LookAtTarget(name) => {
                let now = api::scalar::Time::new(visit.now);
                let asked = json!({ "spec": { "syncRequestedAt": now } });
                patch(&volumes::<BackupTarget>(visit), name, &asked).await?;
                Ok(done(format!("Target {name} is being checked.")))
            }
            Self::BackUpNamespace => {
                let namespace = fields("namespace").filter(|it| is_namespace(it));
                let namespace = namespace.ok_or_else(|| refused("Enter a namespace."))?;
                let name = name_of(fields)?;
                let api: Api<NonAdminBackup> = Api::namespaced(visit.client.clone(), &namespace);
                let asked = tenant::asked_backup(&name, None);
                api.create(&PostParams::default(), &asked).await?;
                Ok(done(format!("Backup {name} of {namespace} has been requested.")))
            }
            Self::RestoreNamespace { namespace, backup } => {
                let name = name_of(fields)?;
                let api: Api<NonAdminRestore> = Api::namespaced(visit.client.clone(), namespace);
                let asked = tenant::asked_restore(&name, backup);
                api.create(&PostParams::default(), &asked).await?;
                Ok(done(format!("Restore {name} of {namespace} has been requested.")))
            }
            Self::DeleteNamespaceBackup { namespace, backup } => {
                let api: Api<NonAdminBackup> = Api::namespaced(visit.client.clone(), namespace);
                patch(&api, backup, &tenant::deletion()).await?;
                Ok(done(format!("Backup {backup} of {namespace} is being deleted with its data.")))
            }
        }
    }
}

fn refused(why: impl Into<String>) -> Oops {
    Oops::Refused(why.into())
}

fn name_of(fields: &Fields<'_>) -> Result<String, Oops> {
    let name = fields("name").filter(|it| is_name(it));
    name.ok_or_else(|| refused("A name consists of lower-case letters, digits, dashes and dots."))
}

fn replicas_of(fields: &Fields<'_>) -> Result<i32, Oops> {
    let count = fields("replicas").and_then(|it| it.parse().ok());
    count.filter(|it| (1..=20).contains(it)).ok_or_else(|| refused("Choose 1 to 20 copies."))
}

fn volumes<K>(visit: &Visit) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(visit.client.clone(), NAMESPACE)
}

async fn patch<K>(api: &Api<K>, name: &str, change: &serde_json::Value) -> Result<(), Oops>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

async fn create_volume(visit: &Visit, fields: &Fields<'_>) -> Result<Done, Oops> {
    let name = name_of(fields)?;
    let size = units::parse_volume_size(&fields("size").unwrap_or_default()).map_err(refused)?;
    let size = i64::try_from(size).map_err(|_| refused("That size is larger than any disk."))?;
    let asked = Volume::new(&name, volume::empty(size, replicas_of(fields)?));
    volumes(visit).create(&PostParams::default(), &asked).await?;
    Ok(Done {
        told: format!("Volume {name} is being created."),
        then: Some(path("/volumes", &name)),
    })
}

async fn take_snapshot(visit: &Visit, volume: &str, name: &str) -> Result<(), Oops> {
    // The API would keep a snapshot of nothing, and it would never be taken.
    volumes::<Volume>(visit).get(volume).await?;
    let asked = snapshot::asked(volume, name);
    volumes::<Snapshot>(visit).create(&PostParams::default(), &asked).await?;
    Ok(())
}

async fn back_up(visit: &Visit, volume: &str, name: &str) -> Result<Done, Oops> {
    take_snapshot(visit, volume, name).await?;
    let asked = backup::Asked { volume, name, snapshot: name, ..backup::Asked::default() };
    // It waits for the snapshot by itself.
    volumes(visit).create(&PostParams::default(), &asked.object()).await?;
    Ok(done(format!("Backup {name} of volume {volume} has started.")))
}

#[derive(Clone, Copy)]
enum Of {
    Restore,
    Standby,
}

async fn from_backup(visit: &Visit, name: &str, fields: &Fields<'_>, of: Of) -> Result<Done, Oops> {
    let wanted = name_of(fields)?;
    let backup: Backup = volumes(visit).get(name).await?;
    let spec = backup::as_volume(&backup, replicas_of(fields)?);
    let mut spec = spec.map_err(|error| refused(error.to_string()))?;
    let (told, then) = match of {
        Of::Restore => (
            format!("Backup {name} is being restored as volume {wanted}."),
            path("/volumes", &wanted),
        ),
        Of::Standby => {
            standby::make_standby(&mut spec);
            (
                format!("Volume {wanted} follows the backups of its source, starting from {name}."),
                "/standby".to_owned(),
            )
        }
    };
    volumes(visit).create(&PostParams::default(), &Volume::new(&wanted, spec)).await?;
    Ok(Done { told, then: Some(then) })
}

async fn activate(visit: &Visit, name: &str) -> Result<Done, Oops> {
    let api = volumes::<Volume>(visit);
    if !standby::is_standby(&api.get(name).await?) {
        return Err(refused(format!("Volume {name} is not a standby volume.")));
    }
    patch(&api, name, &standby::activation()).await?;
    let then = Some(path("/volumes", name));
    Ok(Done {
        told: format!(
            "Volume {name} restores the newest backup and then becomes an ordinary volume."
        ),
        then,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<Action> {
        Action::parse(&path.split('/').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn only_names_get_into_paths_of_the_api() {
        for bad in ["", ".", "..", "../secrets", "a/b", "a?b", "A", "-a", "a-", "a..b", "a b", "ä"]
        {
            assert!(!is_name(bad), "{bad:?}");
            let segments = ["volumes".to_owned(), bad.to_owned(), "delete".to_owned()];
            assert_eq!(Action::parse(&segments), None, "{bad:?}");
        }
        assert!(is_name("a") && is_name("a-1.b") && !is_name(&"a".repeat(254)));
        assert!(is_namespace("team-a") && !is_namespace("a.b"));
        assert_eq!(parse("tenants/a.b/c/delete"), None);
    }

    #[test]
    fn an_action_goes_back_to_its_page() {
        for (asked, back) in [
            ("volumes/a/backup", "/volumes/a"),
            ("backups/b/restore", "/backups"),
            ("standby/c/activate", "/standby"),
            ("tenants/team/d/delete", "/tenants"),
        ] {
            assert_eq!(parse(asked).unwrap().back(), back);
        }
        assert_eq!(parse("volumes/a/explode"), None);
    }
}
