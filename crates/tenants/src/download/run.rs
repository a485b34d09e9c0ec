//! Observes a tenant's download request and carries out what was decided.

use std::sync::Arc;

use api::mirror::Mirror;
use api::nonadmin::{
    NonAdminBackup, NonAdminBackupStatus, NonAdminDownloadRequest,
    NonAdminDownloadRequestStatus as Status, NonAdminRestore, NonAdminRestoreStatus,
};
use api::velero::{Backup, DownloadRequest, Restore};
use reconcile::{Failure, Key, Next, OrFail as _, Reconciler};
use serde_json::json;

use super::decide::{self, Observed, Step, Target};
use crate::names::{Kind, Origin};
use crate::world::{Bsl, Dr, Nadr, Vb, Vr, World, created};

const STEPS_MAX: usize = 8;

/// The controller of download requests.
pub(crate) struct Downloads(pub(crate) Arc<World>);

impl Reconciler for Downloads {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        if !self.0.settings().enable {
            return Ok(Next::WAIT);
        }
        match self.0.fresh::<NonAdminDownloadRequest>(key).await? {
            Some(object) if !object.is_deleted() => {
                Pass { world: &self.0, key, object: Arc::new(object) }.walk().await
            }
            _ => Ok(Next::WAIT),
        }
    }
}

/// One pass over one object.
struct Pass<'a> {
    world: &'a World,
    key: &'a Key,
    object: Arc<Nadr>,
}

impl Pass<'_> {
    async fn walk(mut self) -> Result<Next, Failure> {
        for _ in 0..STEPS_MAX {
            let seen = self.observe().await?;
            match decide::decide(&seen) {
                Step::End | Step::Terminal(_) => return Ok(Next::WAIT),
                Step::Requeue(pause) => return Ok(Next::after(pause)),
                Step::Report(status) => {
                    let mut next = (*self.object).clone();
                    next.status = serde_json::to_value(*status)
                        .or_fail(|| format!("write the status of {}", self.key))?;
                    self.object = self.world.downloads.update(&self.object, &next).await?;
                }
                Step::CreateVeleroRequest(target) => self.create(&target).await?,
                Step::DeleteBoth => {
                    if let Some(request) = self.request().await? {
                        self.world.download_requests.delete(&request).await?;
                    }
                    self.world.downloads.delete(&self.object).await?;
                    return Ok(Next::WAIT);
                }
            }
        }
        Err(Failure::other("end the pass", "it goes in a circle"))
    }

    fn origin(&self) -> Origin {
        let uid = self.object.metadata.uid.clone().unwrap_or_default();
        Origin::new(&self.key.namespace, &self.key.name, &uid)
    }

    fn request_name(&self) -> String {
        format!("nadr-{}", self.origin().nacuuid)
    }

    async fn request(&self) -> Result<Option<Dr>, Failure> {
        let key = self.world.admin_key(&self.request_name());
        let found = self.world.fresh::<DownloadRequest>(&key).await?;
        Ok(found.filter(|it| self.origin().owns(Kind::Download, &it.metadata)))
    }

    async fn observe(&self) -> Result<Observed, Failure> {
        let request = self.request().await?;
        let request = request.map(|it| {
            (Mirror::from(Dr::document(&it.status)), created(&it).unwrap_or_else(World::now))
        });
        let status: Status = self.object.view();
        let target = if request.is_some() { Target::NoBackup } else { self.target().await? };
        let generation = self.object.metadata.generation;
        Ok(Observed { now: World::now(), generation, status, target, request })
    }

    /// The Velero object that the request means, if it is this namespace's own.
    async fn target(&self) -> Result<Target, Failure> {
        let kind = Nadr::text(&self.object.spec, "/target/kind").unwrap_or_default();
        let Some(name) = Nadr::text(&self.object.spec, "/target/name") else {
            return Ok(Target::NoBackup);
        };
        if !kind.starts_with("Restore") {
            return self.backup(name).await;
        }
        let Some(restore) = self.world.fresh::<NonAdminRestore>(&self.key.beside(name)).await?
        else {
            return Ok(Target::NoRestore);
        };
        let status: NonAdminRestoreStatus = restore.view();
        let nacuuid = status.velero_restore.and_then(|it| it.nacuuid).unwrap_or_default();
        let origin = Origin::new(&self.key.namespace, name, &nacuuid);
        let found: Option<Vr> = match nacuuid.as_str() {
            "" => None,
            nacuuid => self.world.fresh::<Restore>(&self.world.admin_key(nacuuid)).await?,
        };
        let Some(found) = found.filter(|it| origin.owns(Kind::Restore, &it.metadata)) else {
            return Ok(Target::NoRestore);
        };
        // Its files lie where those of its backup do: of the one that was restored from, not of the one
        // that the tenant's spec names by now.
        let backup = Vr::text(&found.spec, "/backupName").unwrap_or_default();
        Ok(match self.velero_backup(backup, None).await? {
            Target::Found(_) => Target::Found(nacuuid),
            other => other,
        })
    }

    async fn backup(&self, name: &str) -> Result<Target, Failure> {
        let Some(backup) = self.world.fresh::<NonAdminBackup>(&self.key.beside(name)).await? else {
            return Ok(Target::NoBackup);
        };
        let status: NonAdminBackupStatus = backup.view();
        let nacuuid = status.velero_backup.and_then(|it| it.nacuuid).unwrap_or_default();
        self.velero_backup(&nacuuid, Some(name)).await
    }

    /// A Velero backup of this namespace, made for the backup of that name if one is given.
    async fn velero_backup(&self, nacuuid: &str, name: Option<&str>) -> Result<Target, Failure> {
        let found = self.world.fresh::<Backup>(&self.world.admin_key(nacuuid)).await?;
        let own = |it: &Vb| {
            Origin::read(Kind::Backup, &it.metadata).is_some_and(|origin| {
                *origin.namespace == *self.key.namespace
                    && origin.nacuuid == nacuuid
                    && name.is_none_or(|name| origin.name == name)
                    && self.world.owns_backup(&origin, it)
            })
        };
        let Some(found) = found.filter(own) else { return Ok(Target::NoBackup) };
        // Where it lies, not where the tenant's spec says by now.
        let location = Vb::text(&found.spec, "/storageLocation").unwrap_or_default();
        let location = self.world.fresh(&self.world.admin_key(location)).await?;
        let owner = location.and_then(|it: Bsl| Origin::read(Kind::Location, &it.metadata));
        let own = owner.is_some_and(|owner| *owner.namespace == *self.key.namespace);
        Ok(if own { Target::Found(nacuuid.to_owned()) } else { Target::NoLocation })
    }

    async fn create(&self, target: &str) -> Result<(), Failure> {
        let kind = Nadr::text(&self.object.spec, "/target/kind").unwrap_or_default();
        let mut meta = self.origin().meta(Kind::Download, &self.world.admin);
        meta.name = Some(self.request_name());
        let spec = [("target".to_owned(), json!({"kind": kind, "name": target}))];
        let made = Dr::new(meta, spec.into_iter().collect());
        match self.world.download_requests.create(&made).await {
            Ok(_) | Err(Failure::Conflict { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
