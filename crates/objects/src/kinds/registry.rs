//! The table of built-in kinds.
//!
//! Owns: names, verbs and traits. Never: behaviour.

use std::sync::LazyLock;

use super::{Kind, PutRule, Subresource};
use crate::names::NameRule;

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces go one by one: each takes everything in it along.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
pub(super) const READ_WRITE: &[&str] = &["get", "patch", "update"];

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const UPSERT: PutRule = PutRule { requires_rv: false, creates: true };

/// Every kind served, those of one group and version together.
pub fn all() -> &'static [Kind] {
    static WHOLE: LazyLock<Vec<Kind>> =
        LazyLock::new(|| ALL.iter().chain(super::cluster::KINDS).copied().collect());
    &WHOLE
}

/// What most kinds have in common.
pub(super) const fn kind(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    list_kind: &'static str,
) -> Kind {
    Kind {
        group,
        version: "v1",
        plural,
        singular,
        kind,
        list_kind,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: ALL_VERBS,
        subresources: &[],
        name_rule: NameRule::Subdomain,
        put: PutRule { requires_rv: false, creates: false },
        delete_returns_object: false,
        generation: false,
        status: false,
        description: "",
    }
}

const fn review(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    name: &'static str,
    description: &'static str,
) -> Kind {
    let common = kind(group, plural, singular, name, "");
    Kind { namespaced: false, verbs: CREATE, description, ..common }
}

const fn rbac(
    plural: &'static str,
    singular: &'static str,
    name: &'static str,
    list_kind: &'static str,
    description: &'static str,
) -> Kind {
    let common = kind(RBAC, plural, singular, name, list_kind);
    Kind { name_rule: NameRule::PathSegment, put: UPSERT, description, ..common }
}

/// A kind of `apps` or `batch`.
const fn workload(common: Kind, description: &'static str) -> Kind {
    Kind { categories: &["all"], generation: true, status: true, description, ..common }
}

pub(super) const fn status(group: &'static str, kind: &'static str) -> Subresource {
    Subresource { name: "status", kind, group, version: "v1", verbs: READ_WRITE }
}

pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    kind: "Scale",
    group: "autoscaling",
    version: "v1",
    verbs: READ_WRITE,
};

const ALL: &[Kind] = &[
    Kind {
        namespaced: false,
        short_names: &["ns"],
        verbs: NO_COLLECTION,
        subresources: &[
            Subresource {
                name: "finalize",
                kind: "Namespace",
                group: "",
                version: "v1",
                verbs: &["update"],
            },
            status("", "Namespace"),
        ],
        name_rule: NameRule::Label,
        status: true,
        description: "A Namespace is a scope of names; deleting it deletes everything in it.",
        ..kind("", "namespaces", "namespace", "Namespace", "NamespaceList")
    },
    Kind {
        description: "A Secret holds small confidential values.",
        ..kind("", "secrets", "secret", "Secret", "SecretList")
    },
    Kind {
        short_names: &["cm"],
        description: "A ConfigMap holds small values that are not confidential.",
        ..kind("", "configmaps", "configmap", "ConfigMap", "ConfigMapList")
    },
    Kind {
        short_names: &["ev"],
        put: UPSERT,
        description: "An Event says what happened to an object; it vanishes after an hour.",
        ..kind("", "events", "event", "Event", "EventList")
    },
    Kind {
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            kind: "TokenRequest",
            group: AUTHENTICATION,
            version: "v1",
            verbs: CREATE,
        }],
        delete_returns_object: true,
        description: "A ServiceAccount is an identity for programs.",
        ..kind("", "serviceaccounts", "serviceaccount", "ServiceAccount", "ServiceAccountList")
    },
    Kind {
        short_names: &["pvc"],
        subresources: &[status("", "PersistentVolumeClaim")],
        delete_returns_object: true,
        status: true,
        description: "A PersistentVolumeClaim asks for storage and names the volume it got.",
        ..kind(
            "",
            "persistentvolumeclaims",
            "persistentvolumeclaim",
            "PersistentVolumeClaim",
            "PersistentVolumeClaimList",
        )
    },
    Kind {
        namespaced: false,
        short_names: &["pv"],
        subresources: &[status("", "PersistentVolume")],
        delete_returns_object: true,
        status: true,
        description: "A PersistentVolume is a piece of storage that a claim can be bound to.",
        ..kind(
            "",
            "persistentvolumes",
            "persistentvolume",
            "PersistentVolume",
            "PersistentVolumeList",
        )
    },
    Kind {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[status("", "Service")],
        name_rule: NameRule::LetterLabel,
        put: UPSERT,
        delete_returns_object: true,
        status: true,
        description: "A Service names the ports behind which a set of pods answers.",
        ..kind("", "services", "service", "Service", "ServiceList")
    },
    Kind {
        short_names: &["po"],
        categories: &["all"],
        subresources: &[status("", "Pod")],
        delete_returns_object: true,
        generation: true,
        status: true,
        description: "A Pod is a group of containers on one node; stored here as data.",
        ..kind("", "pods", "pod", "Pod", "PodList")
    },
    Kind {
        namespaced: false,
        short_names: &["no"],
        subresources: &[status("", "Node")],
        status: true,
        description: "A Node is a machine.",
        ..kind("", "nodes", "node", "Node", "NodeList")
    },
    Kind {
        short_names: &["quota"],
        subresources: &[status("", "ResourceQuota")],
        delete_returns_object: true,
        status: true,
        description: "A ResourceQuota limits what a namespace may hold; stored here as data.",
        ..kind("", "resourcequotas", "resourcequota", "ResourceQuota", "ResourceQuotaList")
    },
    Kind {
        short_names: &["limits"],
        put: UPSERT,
        description: "A LimitRange bounds single objects of a namespace; stored here as data.",
        ..kind("", "limitranges", "limitrange", "LimitRange", "LimitRangeList")
    },
    Kind {
        short_names: &["ev"],
        put: UPSERT,
        description: "An Event says what happened to an object; it vanishes after an hour.",
        ..kind("events.k8s.io", "events", "event", "Event", "EventList")
    },
    workload(
        Kind {
            short_names: &["deploy"],
            subresources: &[SCALE, status("apps", "Deployment")],
            ..kind("apps", "deployments", "deployment", "Deployment", "DeploymentList")
        },
        "A Deployment keeps a number of equal pods and replaces them step by step.",
    ),
    workload(
        Kind {
            short_names: &["rs"],
            subresources: &[SCALE, status("apps", "ReplicaSet")],
            ..kind("apps", "replicasets", "replicaset", "ReplicaSet", "ReplicaSetList")
        },
        "A ReplicaSet keeps a number of equal pods.",
    ),
    workload(
        Kind {
            short_names: &["sts"],
            subresources: &[SCALE, status("apps", "StatefulSet")],
            ..kind("apps", "statefulsets", "statefulset", "StatefulSet", "StatefulSetList")
        },
        "A StatefulSet keeps pods with lasting names and storage.",
    ),
    workload(
        Kind {
            short_names: &["ds"],
            subresources: &[status("apps", "DaemonSet")],
            ..kind("apps", "daemonsets", "daemonset", "DaemonSet", "DaemonSetList")
        },
        "A DaemonSet keeps one pod on every node.",
    ),
    workload(
        Kind {
            subresources: &[status("batch", "Job")],
            ..kind("batch", "jobs", "job", "Job", "JobList")
        },
        "A Job runs pods until enough of them have succeeded; stored here as data.",
    ),
    workload(
        Kind {
            short_names: &["cj"],
            subresources: &[status("batch", "CronJob")],
            ..kind("batch", "cronjobs", "cronjob", "CronJob", "CronJobList")
        },
        "A CronJob makes Jobs on a schedule; stored here as data.",
    ),
    Kind {
        namespaced: false,
        short_names: &["sc"],
        delete_returns_object: true,
        description: "A StorageClass says who makes volumes and how.",
        ..kind(
            "storage.k8s.io",
            "storageclasses",
            "storageclass",
            "StorageClass",
            "StorageClassList",
        )
    },
    Kind {
        put: PutRule { requires_rv: true, creates: true },
        description: "A Lease is a lock with an expiry; leader election uses it.",
        ..kind("coordination.k8s.io", "leases", "lease", "Lease", "LeaseList")
    },
    rbac("roles", "role", "Role", "RoleList", "A Role is a set of rights in one namespace."),
    rbac(
        "rolebindings",
        "rolebinding",
        "RoleBinding",
        "RoleBindingList",
        "A RoleBinding gives the rights of a role to subjects, in one namespace.",
    ),
    Kind {
        namespaced: false,
        ..rbac(
            "clusterroles",
            "clusterrole",
            "ClusterRole",
            "ClusterRoleList",
            "A ClusterRole is a set of rights that a binding can give anywhere.",
        )
    },
    Kind {
        namespaced: false,
        ..rbac(
            "clusterrolebindings",
            "clusterrolebinding",
            "ClusterRoleBinding",
            "ClusterRoleBindingList",
            "A ClusterRoleBinding gives the rights of a ClusterRole to subjects, everywhere.",
        )
    },
    Kind {
        namespaced: false,
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[status("apiextensions.k8s.io", "CustomResourceDefinition")],
        put: PutRule { requires_rv: true, creates: false },
        generation: true,
        status: true,
        description: "A CustomResourceDefinition adds a kind to the server.",
        ..kind(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
            "CustomResourceDefinitionList",
        )
    },
    review(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
        "A SelfSubjectAccessReview asks whether the caller may do something.",
    ),
    review(
        AUTHORIZATION,
        "subjectaccessreviews",
        "subjectaccessreview",
        "SubjectAccessReview",
        "A SubjectAccessReview asks whether someone may do something.",
    ),
    Kind {
        namespaced: true,
        ..review(
            AUTHORIZATION,
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
            "A LocalSubjectAccessReview asks whether someone may do something in a namespace.",
        )
    },
    review(
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
        "SelfSubjectRulesReview",
        "A SelfSubjectRulesReview asks for all rights of the caller in a namespace.",
    ),
    review(
        AUTHENTICATION,
        "selfsubjectreviews",
        "selfsubjectreview",
        "SelfSubjectReview",
        "A SelfSubjectReview asks who the caller is.",
    ),
    review(
        AUTHENTICATION,
        "tokenreviews",
        "tokenreview",
        "TokenReview",
        "A TokenReview asks whom a token belongs to.",
    ),
];
