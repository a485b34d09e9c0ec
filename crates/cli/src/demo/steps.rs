//! The steps of the tour, in their order.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use api::longhorn::{Backup, BackupTarget, Engine, Replica, Snapshot, Volume};
use api::nonadmin::{NonAdminBackup, NonAdminRestore};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::disk::Disk;
use super::{Tour, blocks, etcd, found};
use crate::connection::explained;
use crate::listing::Object;
use crate::output::Hint;
use crate::waiting::{Stand, Wait};
use crate::{backup, dr, restore, target, tenant, volume};

const DATA: &str = "demo-data";
const TWIN: &str = "demo-twin";
const STANDBY: &str = "demo-standby";
const TARGET: &str = "demo-target";
const TEAM: &str = "demo-team";
const BACKUPS: [&str; 4] = ["demo-one", "demo-two", "demo-three", "demo-four"];
/// Says of an object that a tour has made it: only such are taken away again.
pub(super) const MARK: &str = "holdfast.io/demo";
pub(super) const TIMEOUT: Duration = Duration::from_mins(5);
const WAIT: Wait = Wait::up_to(TIMEOUT);

pub(super) async fn all(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    a_place_for_backups(tour).await?;
    a_volume_is_written(tour).await?;
    two_backups(tour).await?;
    one_goes_while_another_is_made(tour).await?;
    a_copy_crashes_while_it_restores(tour).await?;
    a_standby_takes_over(tour).await?;
    a_namespace_comes_back(tour).await?;
    blocks::a_volume_grows_during_its_backup(tour).await?;
    etcd::an_etcd_comes_back(tour).await
}

fn volumes<K>(tour: &Tour<'_>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(tour.client.clone(), crate::NAMESPACE)
}

/// Whose something is that has a name of the tour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Tours,
    Anothers,
}

impl Whose {
    fn of(is_the_tours: bool) -> Self {
        if is_the_tours { Self::Tours } else { Self::Anothers }
    }
}

fn is_marked<K: ResourceExt>(it: &K) -> Whose {
    Whose::of(it.labels().contains_key(MARK))
}

/// Its backups go where nobody else's go.
fn of_backup(it: &Backup) -> Whose {
    Whose::of(it.labels().get("backup-target").is_some_and(|it| it == TARGET))
}

/// Snapshots are of whom their volume is; without it they are nobody's.
async fn of_snapshots(tour: &Tour<'_>) -> anyhow::Result<impl Fn(&Snapshot) -> Whose + use<>> {
    let volume = there(&volumes::<Volume>(tour), DATA).await?;
    let is_ours = volume.as_ref().is_none_or(|it| is_marked(it) == Whose::Tours);
    Ok(move |it: &Snapshot| Whose::of(is_ours && it.spec.volume.as_deref() == Some(DATA)))
}

/// What there is under names of the tour.
#[derive(Default)]
pub(super) struct Met {
    pub(super) left: Vec<String>,
    pub(super) foreign: Vec<String>,
}

impl Met {
    async fn look<K: Object>(
        &mut self,
        api: &Api<K>,
        names: &[&str],
        whose: impl Fn(&K) -> Whose,
    ) -> anyhow::Result<()> {
        for name in names {
            let Some(found) = there(api, name).await? else { continue };
            let told = format!("{} {name}", K::kind(&()).to_lowercase());
            match whose(&found) {
                Whose::Tours => self.left.push(told),
                Whose::Anothers => self.foreign.push(told),
            }
        }
        Ok(())
    }
}

pub(super) async fn nothing_of_an_earlier_tour(tour: &Tour<'_>) -> anyhow::Result<()> {
    let mut met = Met::default();
    met.look(&volumes::<Volume>(tour), &[DATA, TWIN, STANDBY], is_marked).await?;
    met.look(&volumes::<BackupTarget>(tour), &[TARGET], is_marked).await?;
    met.look(&Api::<Namespace>::all(tour.client.clone()), &[TEAM], is_marked).await?;
    met.look(&volumes::<Backup>(tour), &BACKUPS, of_backup).await?;
    met.look(&volumes::<Snapshot>(tour), &BACKUPS, of_snapshots(tour).await?).await?;
    blocks::look(tour, &mut met).await?;
    if !met.foreign.is_empty() {
        let foreign = met.foreign.join(", ");
        return Err(anyhow::anyhow!("the tour needs names that somebody else uses: {foreign}"))
            .hint("nothing was touched; run it where nobody uses these names, as on a fresh `holdfast up`");
    }
    if met.left.is_empty() {
        return Ok(());
    }
    Err(anyhow::anyhow!("there is something left of an earlier tour: {}", met.left.join(", ")))
        .hint("remove it with `holdfast demo --clean`, or wait for the end of that tour")
}

async fn there<K: Object>(api: &Api<K>, name: &str) -> anyhow::Result<Option<K>> {
    let kind = K::kind(&()).to_lowercase();
    let found = api.get_opt(name).await;
    found.map_err(|error| explained(error, &format!("look for {kind} {name}")))
}

fn marked(mut volume: Volume) -> Volume {
    volume.labels_mut().insert(MARK.to_owned(), "tour".to_owned());
    volume
}

/// The directory an earlier tour has made, as its target tells.
pub(super) async fn find_store(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let found = volumes::<BackupTarget>(tour).get_opt(TARGET).await;
    let found = found.map_err(|error| explained(error, "look for the target of a tour"))?;
    let own = found.filter(|it| is_marked(it) == Whose::Tours);
    let url = own.and_then(|it| it.spec.backup_target_url).unwrap_or_default();
    let path = Path::new(url.strip_prefix("vfs://").unwrap_or_default());
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    if name.starts_with(super::STORE) && path.parent() == Some(&std::env::temp_dir()) {
        path.clone_into(&mut tour.store);
    }
    Ok(())
}

async fn a_place_for_backups(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    std::fs::create_dir_all(&tour.store)
        .with_context(|| format!("cannot make {}", tour.store.display()))?;
    let url = format!("vfs://{}", tour.store.display());
    let command = format!("holdfast target set {url} --name {TARGET} --wait");
    tour.step("Use a directory as backup target", &[command]).await?;
    let set = target::Set::demo(&url, TARGET, MARK, tour.at, WAIT);
    target::set(&set).await
}

async fn a_volume_is_written(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let size = tour.mebibytes << 20;
    tour.step(
        "Create a volume with three copies, each in its own process, and write to it",
        &[
            format!(
                "holdfast volume create {DATA} --size {}MiB --replicas 3 --target {TARGET} --wait",
                tour.mebibytes
            ),
            format!("holdfast volume attach {DATA}"),
        ],
    )
    .await?;
    let mut made = Volume::new(DATA, people::volume::empty(i64::try_from(size)?, 3));
    made.spec.backup_target_name = Some(TARGET.to_owned());
    volume::made(&volumes(tour), &marked(made), &WAIT).await?;
    let uri = volume::attach(tour.at, DATA, None, TIMEOUT).await?;
    Disk::open(&uri).await?.write(0..half(tour), 1).await?;
    found(&format!("{} MiB are written through {uri}", half(tour)))
}

fn half(tour: &Tour<'_>) -> u64 {
    tour.mebibytes / 2
}

async fn uri(tour: &Tour<'_>, name: &str) -> anyhow::Result<String> {
    volume::attach(tour.at, name, None, TIMEOUT).await
}

/// Every byte of the first half is of this seed.
async fn check(tour: &Tour<'_>, name: &str, seed: u64) -> anyhow::Result<()> {
    let uri = uri(tour, name).await?;
    match Disk::open(&uri).await?.differs(0..half(tour), seed).await? {
        None => found(&format!("all {} MiB of {name} are as they were written", half(tour))),
        Some(place) => anyhow::bail!("mebibyte {place} of {name} is not what was written"),
    }
}

async fn back_up(tour: &Tour<'_>, name: &str, wait: &Wait) -> anyhow::Result<()> {
    backup::create(&backup::Create::demo(DATA, name, TARGET, tour.at, wait)).await
}

async fn two_backups(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.step(
        "Back it up, change it, and back it up again: only the changes are sent",
        &[
            format!("holdfast backup create {DATA} --name demo-one --target {TARGET} --wait"),
            format!("holdfast backup create {DATA} --name demo-two --target {TARGET} --wait"),
            format!("holdfast backup ls {DATA}"),
        ],
    )
    .await?;
    back_up(tour, "demo-one", &WAIT).await?;
    let uri = uri(tour, DATA).await?;
    Disk::open(&uri).await?.write(half(tour)..half(tour) + 2, 1).await?;
    back_up(tour, "demo-two", &WAIT).await?;
    for name in ["demo-one", "demo-two"] {
        let made = volumes::<Backup>(tour).get(name).await;
        let status = made.map_err(|error| explained(error, "find the backup"))?.status;
        let new = status.and_then(|it| it.newly_upload_data_size);
        found(&format!("{name} sent {}", people::units::bytes_of(new.as_deref())))?;
    }
    Ok(())
}

async fn one_goes_while_another_is_made(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.step(
        "Delete a backup in the background while another one is made",
        &[
            "holdfast backup rm demo-one".to_owned(),
            format!("holdfast backup create {DATA} --name demo-three --target {TARGET} --wait"),
        ],
    )
    .await?;
    let backups = volumes::<Backup>(tour);
    backup::remove(&backups, &["demo-one".to_owned()], &Wait::NOT).await?;
    back_up(tour, "demo-three", &WAIT).await?;
    WAIT.until(&backups, "demo-one", |it| match it {
        None => Stand::Done,
        Some(it) => backup::going(it),
    })
    .await?;
    found("demo-one is gone with its data, demo-three is complete")
}

async fn a_copy_crashes_while_it_restores(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.step(
        "Restore a backup into a new volume, and kill one of its copies meanwhile",
        &[format!("holdfast restore demo-three {TWIN} --wait"), "kill -9 PROCESS".to_owned()],
    )
    .await?;
    let spec = restore::from(&volumes(tour), "demo-three", 3).await?;
    volume::made(&volumes(tour), &marked(Volume::new(TWIN, spec)), &Wait::NOT).await?;
    match crash(tour, TWIN).await? {
        Crash::Killed(copy) => found(&format!("copy {copy} was killed"))?,
        Crash::Late => found("skipped: the restore was done before a copy could be killed")?,
        Crash::Elsewhere => {
            found("skipped: the copies run on another machine, or as another user")?;
        }
    }
    volume::until_usable(&volumes(tour), TWIN, &WAIT).await?;
    check(tour, TWIN, 1).await
}

enum Crash {
    Killed(String),
    /// It was no longer restoring.
    Late,
    Elsewhere,
}

/// Kills the process of one copy while the volume restores.
async fn crash(tour: &Tour<'_>, name: &str) -> anyhow::Result<Crash> {
    let mine = ListParams::default().labels(&format!("longhornvolume={name}"));
    for _ in 0..TIMEOUT.as_secs() * 50 {
        let engines = volumes::<Engine>(tour).list(&mine).await;
        let engines = engines.map_err(|error| explained(error, "list engines"))?;
        let status = engines.items.first().and_then(|it| it.status.clone()).unwrap_or_default();
        let restores = status.restore_status.unwrap_or_default();
        let done = !restores.is_empty()
            && restores
                .values()
                .all(|it| it.last_restored.as_deref().is_some_and(|it| !it.is_empty()));
        if done {
            return Ok(Crash::Late);
        }
        // From here on the engine tells its copies what to restore.
        if status.replica_mode_map.is_some_and(|it| !it.is_empty()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let copies = volumes::<Replica>(tour).list(&mine).await;
    let copies = copies.map_err(|error| explained(error, "list replicas"))?;
    for copy in copies.items {
        if let Some(process) = process_of(&copy.name_any())? {
            let killed = tokio::process::Command::new("kill")
                .args(["-9", &process.to_string()])
                .status()
                .await;
            if killed.is_ok_and(|it| it.success()) {
                return Ok(Crash::Killed(copy.name_any()));
            }
        }
    }
    Ok(Crash::Elsewhere)
}

/// The process on this machine that serves a copy: its directory is named after the copy.
fn process_of(copy: &str) -> anyhow::Result<Option<u32>> {
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // Processes end while one looks.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<_> = line.split(|it| *it == 0).map(String::from_utf8_lossy).collect();
        let serves = words.iter().any(|it| it == "replica")
            && words.iter().any(|it| it.rsplit('/').next() == Some(copy));
        if serves {
            return Ok(Some(process));
        }
    }
    Ok(None)
}

async fn a_standby_takes_over(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let larger = tour.mebibytes * 2;
    tour.step(
        "Let a standby volume follow its source, which changes and grows, and take over",
        &[
            format!("holdfast dr create demo-three {STANDBY} --replicas 2"),
            format!("holdfast volume expand {DATA} {larger}MiB --wait"),
            format!("holdfast backup create {DATA} --name demo-four --target {TARGET} --wait"),
            format!("holdfast dr activate {STANDBY} --wait"),
        ],
    )
    .await?;
    let backups = volumes::<Backup>(tour);
    let mut spec = restore::from(&backups, "demo-three", 2).await?;
    people::standby::make_standby(&mut spec);
    volume::made(&volumes(tour), &marked(Volume::new(STANDBY, spec)), &Wait::NOT).await?;
    let source = uri(tour, DATA).await?;
    Disk::open(&source).await?.write(0..half(tour), 2).await?;
    volume::expand(tour.at, DATA, larger << 20, &WAIT).await?;
    back_up(tour, "demo-four", &WAIT).await?;
    dr::activate(tour.at, STANDBY, &WAIT).await?;
    check(tour, STANDBY, 2).await
}

async fn a_namespace_comes_back(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.step(
        "Back up, damage and restore the namespace of a tenant",
        &[
            format!("kubectl create namespace {TEAM}"),
            format!(
                "kubectl create configmap recipe -n {TEAM} --from-literal='flour=500 g' --from-literal='water=350 g'"
            ),
            format!("holdfast tenant backup demo -n {TEAM} --wait"),
            format!("kubectl delete configmap recipe -n {TEAM}"),
            format!("holdfast tenant restore demo -n {TEAM} --wait"),
        ],
    )
    .await?;
    let namespaces: Api<Namespace> = Api::all(tour.client.clone());
    let namespace: Namespace = serde_json::from_value(json!({
        "metadata": {"name": TEAM, "labels": {MARK: "tour"}}
    }))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .map_err(|error| explained(error, "make a namespace"))?;
    let maps: Api<ConfigMap> = Api::namespaced(tour.client.clone(), TEAM);
    let recipe: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "recipe"}, "data": {"flour": "500 g", "water": "350 g"}
    }))?;
    maps.create(&PostParams::default(), &recipe)
        .await
        .map_err(|error| explained(error, "make a config map"))?;
    let requests: Api<NonAdminBackup> = Api::namespaced(tour.client.clone(), TEAM);
    tenant::back_up(&requests, "demo", None, &WAIT).await?;
    maps.delete("recipe", &DeleteParams::default())
        .await
        .map_err(|error| explained(error, "remove the config map"))?;
    let restores: Api<NonAdminRestore> = Api::namespaced(tour.client.clone(), TEAM);
    tenant::restore(&restores, "demo", "demo", &WAIT).await?;
    let back =
        maps.get("recipe").await.map_err(|error| explained(error, "find what was restored"))?;
    anyhow::ensure!(back.data == recipe.data, "the restored object differs: {:?}", back.data);
    found("the config map is back as it was")
}

/// Takes away what the tour made, whatever stage it reached, and nothing else.
pub(super) async fn clean_up(tour: &Tour<'_>) -> anyhow::Result<()> {
    etcd::clean_up(&tour.store).await?;
    blocks::clean_up(tour).await?;
    let namespaces: Api<Namespace> = Api::all(tour.client.clone());
    if there(&namespaces, TEAM).await?.is_some_and(|it| is_marked(&it) == Whose::Tours) {
        let requests: Api<NonAdminBackup> = Api::namespaced(tour.client.clone(), TEAM);
        if requests.get_opt("demo").await.is_ok_and(|it| it.is_some()) {
            tenant::remove(&requests, "demo", &WAIT).await?;
        }
        gone(&namespaces, &[TEAM], is_marked).await?;
    }
    let of_snapshots = of_snapshots(tour).await?;
    gone(&volumes::<Volume>(tour), &[TWIN, STANDBY], is_marked).await?;
    gone(&volumes::<Backup>(tour), &BACKUPS, of_backup).await?;
    gone(&volumes::<Volume>(tour), &[DATA], is_marked).await?;
    gone(&volumes::<Snapshot>(tour), &BACKUPS, of_snapshots).await?;
    gone(&volumes::<BackupTarget>(tour), &[TARGET], is_marked).await?;
    match std::fs::remove_dir_all(&tour.store) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", tour.store.display()))
        }
        _ => Ok(()),
    }
}

/// Asks for the end of those that are there and the tour's, and stays until they are gone.
async fn gone<K: Object>(
    api: &Api<K>,
    names: &[&str],
    whose: impl Fn(&K) -> Whose,
) -> anyhow::Result<()> {
    for name in names {
        let Some(found) = there(api, name).await?.filter(|it| whose(it) == Whose::Tours) else {
            continue;
        };
        let preconditions = Preconditions { uid: found.uid(), resource_version: None };
        let this_one =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match api.delete(name, &this_one).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(explained(error, &format!("remove {name}"))),
        }
        WAIT.until(api, name, |it| match it {
            None => Stand::Done,
            Some(_) => Stand::Going("being removed".to_owned()),
        })
        .await?;
    }
    Ok(())
}
