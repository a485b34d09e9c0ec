//! From a claim and its class to a volume. Pure.

use std::collections::BTreeMap;

use api::longhorn::{
    AccessMode, AutoBalance, BlockSize, DataEngine, DataLocality, Frontend, Override, Volume,
    VolumeSpec,
};
use api::scalar::TextInt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use objects::quantity::Quantity;
use serde::Deserialize;

use crate::job::{group_label, is_job_label, job_label};

/// Sizes are whole numbers of these.
const UNIT_BYTES: i64 = 2 * 1024 * 1024;
const LEAST_BYTES: i64 = 10 * 1024 * 1024;
/// Minutes, where a class does not say.
const STALE_REPLICA_TIMEOUT: i32 = 2880;

/// Parameters that say nothing about the volume itself.
const ELSEWHERE: &[&str] = &["fsType", "mkfsParams", "nfsOptions", "share", "exclusive"];

/// Why a claim gets no volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the claim asks for no size")]
    Size,
    #[error("parameter {name} of the class: {value:?} {rule}")]
    Parameter { name: String, value: String, rule: &'static str },
    #[error(
        "a claim can copy another claim of its namespace, not a {0}: write dataSource with kind PersistentVolumeClaim, or restore a backup with parameter fromBackup"
    )]
    Source(String),
    #[error("the claim {0} that is to be copied {1}")]
    SourceNotReady(String, &'static str),
}

/// The bytes a claim asks for, as volumes have them.
pub(super) fn asked_bytes(claim: &PersistentVolumeClaim) -> Option<i64> {
    let spec = claim.spec.as_ref()?;
    let amount = spec.resources.as_ref()?.requests.as_ref()?.get("storage")?;
    bytes(&amount.0).map(rounded)
}

/// A quantity as bytes, rounded up.
pub(super) fn bytes(text: &str) -> Option<i64> {
    let amount = Quantity::parse(text)?;
    // The only way to a number: by halves, from above.
    let (mut low, mut high) = (0_i64, i64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if Quantity::parse(&middle.to_string())? >= amount {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

fn rounded(bytes: i64) -> i64 {
    let units = bytes.max(LEAST_BYTES).saturating_add(UNIT_BYTES - 1) / UNIT_BYTES;
    units.saturating_mul(UNIT_BYTES)
}

/// The claim that a claim is to be a copy of.
pub(super) fn copied(claim: &PersistentVolumeClaim) -> Result<Option<String>, Refused> {
    let Some(spec) = &claim.spec else { return Ok(None) };
    let plain = spec.data_source.as_ref().map(|it| (&it.kind, &it.name, &it.api_group, None));
    let other = spec.data_source_ref.as_ref();
    let other = other.map(|it| (&it.kind, &it.name, &it.api_group, it.namespace.as_ref()));
    let Some((kind, name, group, namespace)) = plain.or(other) else { return Ok(None) };
    let is_near = namespace.is_none_or(|it| Some(it) == claim.metadata.namespace.as_ref());
    let is_core = group.as_deref().is_none_or(str::is_empty);
    if kind == "PersistentVolumeClaim" && is_core && is_near {
        return Ok(Some(name.clone()));
    }
    Err(Refused::Source(if is_near { kind.clone() } else { format!("{kind} of another") }))
}

/// The volume of a claim. `copies`: how many without the class saying so.
pub(super) fn volume(
    name: &str,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    copies: i32,
) -> Result<Volume, Refused> {
    let spec = claim.spec.as_ref().ok_or(Refused::Size)?;
    let size = asked_bytes(claim).ok_or(Refused::Size)?;
    let parameters = Parameters(class.parameters.as_ref());
    parameters.check()?;
    let tags = |name: &str| {
        let words = parameters.text(name).unwrap_or_default();
        let words: Vec<String> = words
            .split(',')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect();
        Some(words)
    };
    let own = |name| parameters.word(name, Override::KNOWN).map(|it| it.map(Override::from));
    let wanted = VolumeSpec {
        size: Some(TextInt(size)),
        frontend: Some(
            parameters
                .word("frontend", Frontend::KNOWN)?
                .map_or(Frontend::BlockDevice, Frontend::from),
        ),
        from_backup: parameters.text("fromBackup").map(str::to_owned),
        number_of_replicas: Some(parameters.number("numberOfReplicas", 1, 20)?.unwrap_or(copies)),
        stale_replica_timeout: Some(
            parameters.number("staleReplicaTimeout", 0, i32::MAX)?.unwrap_or(STALE_REPLICA_TIMEOUT),
        ),
        backup_target_name: Some(
            parameters.text("backupTargetName").unwrap_or("default").to_owned(),
        ),
        data_locality: parameters
            .word("dataLocality", DataLocality::KNOWN)?
            .map(DataLocality::from),
        replica_auto_balance: parameters
            .word("replicaAutoBalance", AutoBalance::KNOWN)?
            .map(AutoBalance::from),
        replica_soft_anti_affinity: own("replicaSoftAntiAffinity")?,
        replica_zone_soft_anti_affinity: own("replicaZoneSoftAntiAffinity")?,
        replica_disk_soft_anti_affinity: own("replicaDiskSoftAntiAffinity")?,
        unmap_mark_snap_chain_removed: own("unmapMarkSnapChainRemoved")?,
        freeze_filesystem_for_snapshot: own("freezeFilesystemForSnapshot")?,
        disk_selector: tags("diskSelector"),
        node_selector: tags("nodeSelector"),
        encrypted: parameters.plain()?,
        backup_block_size: parameters.block_size()?,
        migratable: parameters.switch("migratable")?,
        data_engine: Some(
            parameters
                .word("dataEngine", DataEngine::KNOWN)?
                .map_or(DataEngine::V1, DataEngine::from),
        ),
        access_mode: Some(access(spec.access_modes.as_deref().unwrap_or_default())),
        ..VolumeSpec::default()
    };
    let mut volume = Volume::new(name, wanted);
    let jobs = parameters.jobs()?.into_iter().map(|it| (it, "enabled".to_owned()));
    volume.labels_mut().extend(jobs);
    Ok(volume)
}

/// On a claim: its labels say which jobs its volume has.
const JOBS_OF_CLAIM: &str = "recurring-job.longhorn.io/source";

/// The volume with the jobs that its claim says it has; nothing where the claim says nothing, or they are the same.
pub(super) fn with_jobs_of(volume: &Volume, claim: &PersistentVolumeClaim) -> Option<Volume> {
    let is_on = |(_, value): &(&String, &String)| *value == "enabled";
    let of_claim: Vec<_> = claim.labels().iter().filter(is_on).collect();
    if !of_claim.iter().any(|(name, _)| *name == JOBS_OF_CLAIM) {
        return None;
    }
    let names_jobs = |name: &str| name != JOBS_OF_CLAIM && is_job_label(name);
    let mut next = volume.clone();
    let labels = next.labels_mut();
    labels.retain(|name, _| !names_jobs(name));
    let jobs = of_claim.into_iter().filter(|(name, _)| names_jobs(name));
    labels.extend(jobs.map(|(name, value)| (name.clone(), value.clone())));
    (next.labels() != volume.labels()).then_some(next)
}

/// One job, or one group of jobs, that a class names.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    name: String,
    #[serde(default)]
    is_group: bool,
}

fn access(modes: &[String]) -> AccessMode {
    let has = |word: &str| modes.iter().any(|mode| mode == word);
    if has("ReadWriteMany") {
        AccessMode::ReadWriteMany
    } else if has("ReadWriteOncePod") {
        AccessMode::ReadWriteOncePod
    } else {
        AccessMode::ReadWriteOnce
    }
}

#[derive(Clone, Copy)]
struct Parameters<'a>(Option<&'a BTreeMap<String, String>>);

impl<'a> Parameters<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.and_then(|all| all.get(name)).map(|it| it.trim()).filter(|it| !it.is_empty())
    }

    fn refused(self, name: &str, rule: &'static str) -> Refused {
        let value = self.text(name).unwrap_or_default().to_owned();
        Refused::Parameter { name: name.to_owned(), value, rule }
    }

    fn number(self, name: &str, least: i32, most: i32) -> Result<Option<i32>, Refused> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|it| (least..=most).contains(it));
        number.map(Some).ok_or_else(|| self.refused(name, "is no number, or out of range"))
    }

    fn word(self, name: &str, known: &[&str]) -> Result<Option<&'a str>, Refused> {
        match self.text(name) {
            None => Ok(None),
            Some(text) if known.contains(&text) => Ok(Some(text)),
            Some(_) => Err(self.refused(name, "is not one of the words there are for it")),
        }
    }

    fn switch(self, name: &str) -> Result<Option<bool>, Refused> {
        match self.text(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.refused(name, "is neither true nor false")),
        }
    }

    /// Whoever asks for it would take what is on the disks for encrypted.
    fn plain(self) -> Result<Option<bool>, Refused> {
        match self.switch("encrypted")? {
            Some(true) => Err(self.refused(
                "encrypted",
                "cannot be had: volumes are not encrypted here, what is written into them can be",
            )),
            other => Ok(other),
        }
    }

    /// In bytes, or in MiB as the setting for it.
    fn block_size(self) -> Result<Option<BlockSize>, Refused> {
        match self.text("backupBlockSize") {
            None => Ok(None),
            Some("2" | "2097152") => Ok(Some(BlockSize::TwoMib)),
            Some("16" | "16777216") => Ok(Some(BlockSize::SixteenMib)),
            Some(_) => Err(self.refused("backupBlockSize", "is neither 2 nor 16 MiB")),
        }
    }

    /// The labels by which a volume has the jobs that its class names.
    fn jobs(self) -> Result<Vec<String>, Refused> {
        let name = "recurringJobSelector";
        let Some(text) = self.text(name) else { return Ok(Vec::new()) };
        let rule = "is no JSON list of jobs, as [{\"name\":\"nightly\", \"isGroup\":false}]";
        let all: Vec<Job> = serde_json::from_str(text).map_err(|_| self.refused(name, rule))?;
        let label =
            |it: &Job| if it.is_group { group_label(&it.name) } else { job_label(&it.name) };
        Ok(all.iter().map(label).collect())
    }

    /// A parameter that nobody knows is a mistake that would be found too late.
    fn check(self) -> Result<(), Refused> {
        let is_known = |name: &str| {
            KNOWN.contains(&name)
                || ELSEWHERE.contains(&name)
                || name.starts_with("csi.storage.k8s.io/")
        };
        match self.0.into_iter().flatten().find(|(name, _)| !is_known(name)) {
            None => Ok(()),
            Some((name, _)) => Err(self.refused(name, "is not known: is its name spelled right?")),
        }
    }
}

const KNOWN: &[&str] = &[
    "numberOfReplicas",
    "staleReplicaTimeout",
    "fromBackup",
    "backupTargetName",
    "backupBlockSize",
    "dataLocality",
    "replicaAutoBalance",
    "replicaSoftAntiAffinity",
    "replicaZoneSoftAntiAffinity",
    "replicaDiskSoftAntiAffinity",
    "diskSelector",
    "nodeSelector",
    "dataEngine",
    "encrypted",
    "migratable",
    "frontend",
    "disableRevisionCounter",
    "unmapMarkSnapChainRemoved",
    "freezeFilesystemForSnapshot",
    "volumeTopology",
    "recurringJobSelector",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(size: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "team"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        }))
        .unwrap()
    }

    fn class(parameters: &serde_json::Value) -> StorageClass {
        let class = json!({"provisioner": "driver.longhorn.io", "parameters": parameters});
        serde_json::from_value(class).unwrap()
    }

    #[test]
    fn sizes_are_whole_units() {
        for (text, bytes) in [
            ("1Gi", 1 << 30),
            ("1", LEAST_BYTES),
            ("33554433", 34 * 1024 * 1024),
            ("100M", 100_663_296),
            ("0.5Gi", 1 << 29),
        ] {
            assert_eq!(asked_bytes(&claim(text)), Some(bytes), "{text}");
        }
        assert_eq!(asked_bytes(&claim("much")), None);
    }

    #[test]
    fn a_class_says_how_its_volumes_are() {
        let class = class(&json!({
            "numberOfReplicas": "2", "staleReplicaTimeout": "30", "diskSelector": "ssd, fast",
            "dataLocality": "best-effort", "fsType": "ext4", "fromBackup": "",
        }));
        let spec = volume("pvc-1", &claim("1Gi"), &class, 1).unwrap().spec;
        assert_eq!((spec.number_of_replicas, spec.stale_replica_timeout), (Some(2), Some(30)));
        assert_eq!(spec.disk_selector.unwrap(), ["ssd", "fast"]);
        assert_eq!(spec.data_locality, Some(DataLocality::BestEffort));
        assert_eq!((spec.from_backup, spec.access_mode), (None, Some(AccessMode::ReadWriteOnce)));
        let plain = volume("pvc-1", &claim("1Gi"), &self::class(&json!({})), 3).unwrap().spec;
        assert_eq!(
            (plain.number_of_replicas, plain.frontend),
            (Some(3), Some(Frontend::BlockDevice))
        );
    }

    /// Who names jobs in a class relies on the backups that they make.
    #[test]
    fn a_class_says_which_jobs_its_volumes_have() {
        let class = class(&json!({
            "recurringJobSelector":
                r#"[{"name":"nightly","isGroup":false},{"name":"fast","isGroup":true}]"#,
            "backupBlockSize": "16777216",
        }));
        let made = volume("pvc-1", &claim("1Gi"), &class, 1).unwrap();
        let labels = made.metadata.labels.unwrap();
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [
                ("recurring-job-group.longhorn.io/fast".to_owned(), "enabled".to_owned()),
                ("recurring-job.longhorn.io/nightly".to_owned(), "enabled".to_owned()),
            ]
        );
        assert_eq!(made.spec.backup_block_size, Some(BlockSize::SixteenMib));
    }

    #[test]
    fn a_claim_that_says_so_says_which_jobs_its_volume_has() {
        let labels = |all: &[&str]| {
            let pair = |it: &&str| ((*it).to_owned(), "enabled".to_owned());
            Some(all.iter().map(pair).collect::<BTreeMap<_, _>>())
        };
        let (old, new) = ("recurring-job.longhorn.io/old", "recurring-job-group.longhorn.io/new");
        let mut made = volume("pvc-1", &claim("1Gi"), &class(&json!({})), 1).unwrap();
        made.metadata.labels = labels(&["of-others", old]);
        let mut claim = claim("1Gi");
        claim.metadata.labels = labels(&[new, "app"]);
        assert_eq!(with_jobs_of(&made, &claim), None, "its volume's labels count");
        claim.metadata.labels = labels(&[new, "app", JOBS_OF_CLAIM]);
        let next = with_jobs_of(&made, &claim).unwrap();
        assert_eq!(next.metadata.labels, labels(&["of-others", new]));
        assert_eq!(with_jobs_of(&next, &claim), None);
        claim.metadata.labels = labels(&[JOBS_OF_CLAIM]);
        let next = with_jobs_of(&next, &claim).unwrap();
        assert_eq!(next.metadata.labels, labels(&["of-others"]));
    }

    #[test]
    fn what_a_class_says_wrongly_is_refused_by_name() {
        for (parameters, name) in [
            (json!({"numberOfReplicas": "many"}), "numberOfReplicas"),
            (json!({"numberOfReplicas": "21"}), "numberOfReplicas"),
            (json!({"dataLocality": "near"}), "dataLocality"),
            (json!({"encrypted": "yes"}), "encrypted"),
            (json!({"encrypted": "true"}), "encrypted"),
            (json!({"backupBlockSize": "4194304"}), "backupBlockSize"),
            (json!({"recurringJobSelector": "nightly"}), "recurringJobSelector"),
            (json!({"numberOfReplica": "2"}), "numberOfReplica"),
        ] {
            let error = volume("pvc-1", &claim("1Gi"), &class(&parameters), 1).unwrap_err();
            assert!(error.to_string().contains(&format!("parameter {name} ")), "{error}");
        }
    }

    #[test]
    fn a_claim_copies_another_of_its_namespace_and_nothing_else() {
        assert_eq!(copied(&claim("1Gi")), Ok(None));
        let mut copy = claim("1Gi");
        let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
        copy.spec.as_mut().unwrap().data_source = Some(serde_json::from_value(source).unwrap());
        assert_eq!(copied(&copy), Ok(Some("other".to_owned())));
        let source =
            json!({"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "s"});
        copy.spec.as_mut().unwrap().data_source = Some(serde_json::from_value(source).unwrap());
        assert_eq!(copied(&copy), Err(Refused::Source("VolumeSnapshot".into())));
        let mut far = claim("1Gi");
        let source = json!({"kind": "PersistentVolumeClaim", "name": "other", "namespace": "else"});
        far.spec.as_mut().unwrap().data_source_ref = Some(serde_json::from_value(source).unwrap());
        assert!(copied(&far).is_err());
    }
}
