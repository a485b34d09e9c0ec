//! Volumes and their copies.

use api::longhorn::{
    EngineStatus, Frontend, Replica, ReplicaMode, Robustness, Volume, VolumeSpec, VolumeState,
};
use api::scalar::TextInt;
use kube_core::ResourceExt as _;

/// A volume with nothing in it.
pub fn empty(size: i64, replicas: i32) -> VolumeSpec {
    VolumeSpec {
        size: Some(TextInt(size)),
        number_of_replicas: Some(replicas),
        frontend: Some(Frontend::BlockDevice),
        ..VolumeSpec::default()
    }
}

pub fn state(volume: &Volume) -> VolumeState {
    let status = volume.status.as_ref();
    status.and_then(|it| it.state.clone()).unwrap_or(VolumeState::Unset)
}

pub fn robustness(volume: &Volume) -> Robustness {
    let status = volume.status.as_ref();
    status.and_then(|it| it.robustness.clone()).unwrap_or(Robustness::Unset)
}

/// Whether all its copies have places; unknown until somebody has looked for them.
pub fn scheduled(volume: &Volume) -> Option<bool> {
    let conditions = volume.status.as_ref()?.conditions.as_deref()?;
    let found = conditions.iter().find(|it| it.kind == "Scheduled")?;
    Some(found.status.as_str() == "True")
}

/// What its conditions say against it.
pub fn why(volume: &Volume) -> String {
    let status = volume.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let bad = conditions.iter().filter(|it| match it.kind.as_str() {
        "Scheduled" | "Attach" => it.status.as_str() != "True",
        "TooManySnapshots" => it.status.as_str() != "False",
        // True while it restores or follows another volume; only its reason tells a failure.
        "Restore" => matches!(it.reason.as_deref(), Some("RestoreFailure" | "RestoreRefused")),
        _ => false,
    });
    let told = bad.filter_map(|it| it.message.as_deref().or(it.reason.as_deref()));
    told.filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ")
}

/// One copy of a volume, as its engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub name: String,
    pub mode: &'static str,
    pub state: String,
    pub node: String,
    pub work: String,
    /// How far the slowest work on it is, in percent.
    pub progress: Option<i32>,
}

impl Copy {
    pub fn of(replica: &Replica, engine: &EngineStatus) -> Self {
        let name = replica.name_any();
        let mode = engine.replica_mode_map.as_ref().and_then(|it| it.get(&name));
        let mode = match mode {
            Some(ReplicaMode::ReadWrite) => "reads and writes",
            Some(ReplicaMode::WriteOnly) => "being filled",
            Some(ReplicaMode::Error) => "failed",
            Some(ReplicaMode::Other(_)) | None => "-",
        };
        let failed = replica.spec.failed_at.as_ref().is_some_and(api::scalar::Stamp::is_set);
        let state = replica.status.as_ref().and_then(|it| it.instance.current_state.clone());
        let state = match state {
            Some(state) if failed => format!("{}, failed", state.as_str()),
            Some(state) => crate::or_dash(state.as_str()),
            None => "-".to_owned(),
        };
        let address = engine
            .current_replica_address_map
            .as_ref()
            .and_then(|it| it.get(&name))
            .map(|it| format!("tcp://{it}"));
        let under_way = address.map(|it| under_way(engine, &it)).unwrap_or_default();
        Self {
            name,
            mode,
            state,
            node: crate::or_dash(replica.spec.instance.node_id.as_deref().unwrap_or_default()),
            work: told(&under_way),
            progress: under_way.iter().map(|(_, progress)| *progress).min(),
        }
    }
}

/// How far the copies of a volume are with what they are being filled with: the slowest counts.
pub fn filling(engine: &EngineStatus) -> Option<(i32, String)> {
    let restores = engine.restore_status.iter().flat_map(|it| it.keys());
    let clones = engine.clone_status.iter().flat_map(|it| it.keys());
    let all = restores.chain(clones).flat_map(|it| under_way(engine, it));
    let slowest = all.min_by_key(|(_, progress)| *progress)?;
    Some((slowest.1, format!("{} {} %", slowest.0, slowest.1)))
}

/// What is being done to the copy at an address.
pub fn work(engine: &EngineStatus, address: &str) -> String {
    told(&under_way(engine, address))
}

fn told(under_way: &[(&'static str, i32)]) -> String {
    let told = under_way.iter().map(|(what, progress)| format!("{what} {progress} %"));
    told.collect::<Vec<_>>().join(", ")
}

fn under_way(engine: &EngineStatus, address: &str) -> Vec<(&'static str, i32)> {
    let rebuild = engine.rebuild_status.as_ref().and_then(|it| it.get(address));
    let restore = engine.restore_status.as_ref().and_then(|it| it.get(address));
    let purge = engine.purge_status.as_ref().and_then(|it| it.get(address));
    let clone = engine.clone_status.as_ref().and_then(|it| it.get(address));
    let mut told = Vec::new();
    if let Some(it) = rebuild.filter(|it| it.is_rebuilding == Some(true)) {
        told.push(("rebuilding", it.progress.unwrap_or(0)));
    }
    if let Some(it) = restore.filter(|it| it.is_restoring == Some(true)) {
        told.push(("restoring", it.progress.unwrap_or(0)));
    }
    if let Some(it) = clone.filter(|it| it.is_cloning == Some(true)) {
        told.push(("copying", it.progress.unwrap_or(0)));
    }
    if let Some(it) = purge.filter(|it| it.is_purging == Some(true)) {
        told.push(("purging", it.progress.unwrap_or(0)));
    }
    told
}
