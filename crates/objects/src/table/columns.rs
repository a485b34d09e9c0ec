//! The columns of each built-in kind.

use super::Column;
use crate::kinds::Kind;

/// Name, type, description, whether it is shown in wide output only.
type Row = (&'static str, &'static str, &'static str, Shown);

#[derive(Clone, Copy)]
enum Shown {
    Always,
    Wide,
}
use Shown::{Always, Wide};

const AGE: Row = ("Age", "string", "Time since the object was created.", Always);
const CREATED: Row = ("Created At", "date", "When the object was created.", Always);
const CONTAINERS: Row = ("Containers", "string", "Names of the containers.", Wide);
const IMAGES: Row = ("Images", "string", "Images of the containers.", Wide);
const SELECTOR: Row = ("Selector", "string", "Which pods belong to the object.", Wide);

const POD: &[Row] = &[
    ("Ready", "string", "Ready containers of all.", Always),
    ("Status", "string", "State of the pod in one word.", Always),
    ("Restarts", "string", "Restarts of its containers, and when the last was.", Always),
    AGE,
    ("IP", "string", "Address of the pod.", Wide),
    ("Node", "string", "Node the pod is on.", Wide),
    ("Nominated Node", "string", "Node that makes room for the pod.", Wide),
    ("Readiness Gates", "string", "Conditions that hold of those asked for.", Wide),
];
const DEPLOYMENT: &[Row] = &[
    ("Ready", "string", "Ready pods of those wanted.", Always),
    ("Up-to-date", "integer", "Pods that have the newest template.", Always),
    ("Available", "integer", "Pods that have been ready long enough.", Always),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const REPLICA_SET: &[Row] = &[
    ("Desired", "integer", "Pods wanted.", Always),
    ("Current", "integer", "Pods there are.", Always),
    ("Ready", "integer", "Pods that are ready.", Always),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const STATEFUL_SET: &[Row] =
    &[("Ready", "string", "Ready pods of those wanted.", Always), AGE, CONTAINERS, IMAGES];
const DAEMON_SET: &[Row] = &[
    ("Desired", "integer", "Nodes that should have a pod.", Always),
    ("Current", "integer", "Nodes that have a pod.", Always),
    ("Ready", "integer", "Nodes whose pod is ready.", Always),
    ("Up-to-date", "integer", "Nodes whose pod has the newest template.", Always),
    ("Available", "integer", "Nodes whose pod has been ready long enough.", Always),
    ("Node Selector", "string", "Labels a node must have.", Always),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const JOB: &[Row] = &[
    ("Status", "string", "State of the job.", Always),
    ("Completions", "string", "Pods that succeeded of those wanted.", Always),
    ("Duration", "string", "Time the job took, or has taken until now.", Always),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const CRON_JOB: &[Row] = &[
    ("Schedule", "string", "When jobs are made, in cron format.", Always),
    ("Timezone", "string", "Time zone of the schedule.", Always),
    ("Suspend", "string", "Whether no more jobs are made.", Always),
    ("Active", "integer", "Jobs that run now.", Always),
    ("Last Schedule", "string", "Time since a job was made last.", Always),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
const SERVICE: &[Row] = &[
    ("Type", "string", "How the service is exposed.", Always),
    ("Cluster-IP", "string", "Address inside the cluster.", Always),
    ("External-IP", "string", "Addresses from outside.", Always),
    ("Port(s)", "string", "Ports and protocols.", Always),
    AGE,
    ("Selector", "string", "Labels of the pods behind the service.", Wide),
];
const NODE: &[Row] = &[
    ("Status", "string", "Whether the node is ready and takes pods.", Always),
    ("Roles", "string", "Roles its labels give it.", Always),
    AGE,
    ("Version", "string", "Version of its kubelet.", Always),
    ("Internal-IP", "string", "Address inside the cluster.", Wide),
    ("External-IP", "string", "Address from outside.", Wide),
    ("OS-Image", "string", "Operating system.", Wide),
    ("Kernel-Version", "string", "Kernel.", Wide),
    ("Container-Runtime", "string", "Container runtime.", Wide),
];
const EVENT: &[Row] = &[
    ("Last Seen", "string", "Time since it happened last.", Always),
    ("Type", "string", "Normal or Warning.", Always),
    ("Reason", "string", "Why, in one word.", Always),
    ("Object", "string", "What it happened to.", Always),
    ("Subobject", "string", "Which part of the object.", Wide),
    ("Source", "string", "Who says so.", Wide),
    ("Message", "string", "What happened.", Always),
    ("First Seen", "string", "Time since it happened first.", Wide),
    ("Count", "integer", "How often it happened.", Wide),
    ("Name", "string", "Name of the event.", Wide),
];
const VOLUME: &[Row] = &[
    ("Capacity", "string", "Size of the volume.", Always),
    ("Access Modes", "string", "How it can be mounted.", Always),
    ("Reclaim Policy", "string", "What happens to it when its claim goes.", Always),
    ("Status", "string", "Phase of the volume.", Always),
    ("Claim", "string", "Claim it is bound to.", Always),
    ("StorageClass", "string", "Class of the volume.", Always),
    ("VolumeAttributesClass", "string", "Class of its changeable attributes.", Always),
    ("Reason", "string", "Why it is in this phase.", Always),
    AGE,
    ("VolumeMode", "string", "File system or block device.", Wide),
];
const CLAIM: &[Row] = &[
    ("Status", "string", "Phase of the claim.", Always),
    ("Volume", "string", "Volume it is bound to.", Always),
    ("Capacity", "string", "Size of that volume.", Always),
    ("Access Modes", "string", "How that volume can be mounted.", Always),
    ("StorageClass", "string", "Class asked for.", Always),
    ("VolumeAttributesClass", "string", "Class of its changeable attributes.", Always),
    AGE,
    ("VolumeMode", "string", "File system or block device.", Wide),
];
const STORAGE_CLASS: &[Row] = &[
    ("Provisioner", "string", "Who makes the volumes.", Always),
    ("ReclaimPolicy", "string", "What happens to volumes when their claim goes.", Always),
    ("VolumeBindingMode", "string", "When claims are bound.", Always),
    ("AllowVolumeExpansion", "boolean", "Whether volumes may grow.", Always),
    AGE,
];
const BINDING: &[Row] = &[
    ("Role", "string", "Role whose rights are given.", Always),
    AGE,
    ("Users", "string", "Users who get them.", Wide),
    ("Groups", "string", "Groups that get them.", Wide),
    ("ServiceAccounts", "string", "Service accounts that get them.", Wide),
];
const DEFINITION: &[Row] = &[
    ("Scope", "string", "Namespaced or Cluster.", Always),
    ("Versions", "string", "Versions served.", Always),
    CREATED,
    ("Group", "string", "API group of the kind.", Wide),
    ("Kind", "string", "The kind.", Wide),
    ("ShortNames", "string", "Short names of the resource.", Wide),
    ("Established", "string", "Whether the kind is served.", Wide),
];
const QUOTA: &[Row] = &[
    ("Request", "string", "Amounts requested of those allowed.", Always),
    ("Limit", "string", "Limits used of those allowed.", Always),
    AGE,
];
const COUNT: Row = ("Data", "integer", "Number of keys.", Always);

fn rows(kind: &Kind) -> &'static [Row] {
    match kind.kind {
        "Pod" => POD,
        "Deployment" => DEPLOYMENT,
        "ReplicaSet" => REPLICA_SET,
        "StatefulSet" => STATEFUL_SET,
        "DaemonSet" => DAEMON_SET,
        "Job" => JOB,
        "CronJob" => CRON_JOB,
        "Service" => SERVICE,
        "Node" => NODE,
        "Event" => EVENT,
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        "StorageClass" => STORAGE_CLASS,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "CustomResourceDefinition" => DEFINITION,
        "ResourceQuota" => QUOTA,
        "Namespace" => &[("Status", "string", "Phase of the namespace.", Always), AGE],
        "Secret" => &[("Type", "string", "What the secret is for.", Always), COUNT, AGE],
        "ConfigMap" => &[COUNT, AGE],
        "Lease" => &[("Holder", "string", "Who holds the lease.", Always), AGE],
        "ServiceAccount" => &[AGE],
        _ => &[CREATED],
    }
}

pub(super) fn of(kind: &Kind) -> Vec<Column> {
    let rest = rows(kind).iter().map(|(name, kind, description, shown)| Column {
        name: (*name).to_owned(),
        kind: (*kind).to_owned(),
        // The last column of an event is its name, though it is not the first.
        format: if *name == "Name" { "name".to_owned() } else { String::new() },
        description: (*description).to_owned(),
        priority: match shown {
            Always => 0,
            Wide => 1,
        },
    });
    let first = (kind.kind != "Event").then(Column::name);
    first.into_iter().chain(rest).collect()
}
