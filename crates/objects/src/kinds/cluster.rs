//! The table of kinds that a cluster's own controllers list, and which are data here.
//!
//! Owns: names, verbs and traits. Never: behaviour.

use super::registry::{READ_WRITE, SCALE, kind, status};
use super::{Kind, PutRule, Subresource};
use crate::names::NameRule;

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";

/// A PUT without a resource version is refused.
const CHECKED: PutRule = PutRule { requires_rv: true, creates: false };

/// What says how requests are admitted: never removed from a list, always by a version.
const fn admission(common: Kind, description: &'static str) -> Kind {
    Kind {
        namespaced: false,
        categories: &["api-extensions"],
        generation: true,
        put: CHECKED,
        description,
        ..common
    }
}

/// Where storage drivers say what they can do.
const fn driver(common: Kind, description: &'static str) -> Kind {
    Kind { namespaced: false, delete_returns_object: true, put: CHECKED, description, ..common }
}

const APPROVAL: Subresource = Subresource {
    name: "approval",
    kind: "CertificateSigningRequest",
    group: CERTIFICATES,
    version: "v1",
    verbs: READ_WRITE,
};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        short_names: &["ep"],
        put: PutRule { requires_rv: false, creates: true },
        description: "Endpoints are the addresses behind a Service, in the form before slices.",
        ..kind("", "endpoints", "endpoints", "Endpoints", "EndpointsList")
    },
    Kind {
        delete_returns_object: true,
        generation: true,
        description: "A PodTemplate is a pattern that pods are made from.",
        ..kind("", "podtemplates", "podtemplate", "PodTemplate", "PodTemplateList")
    },
    Kind {
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[SCALE, status("", "ReplicationController")],
        generation: true,
        status: true,
        description: "A ReplicationController keeps a number of equal pods; ReplicaSets came after it.",
        ..kind(
            "",
            "replicationcontrollers",
            "replicationcontroller",
            "ReplicationController",
            "ReplicationControllerList",
        )
    },
    Kind {
        description: "A ControllerRevision is a former state of a StatefulSet or DaemonSet.",
        ..kind(
            "apps",
            "controllerrevisions",
            "controllerrevision",
            "ControllerRevision",
            "ControllerRevisionList",
        )
    },
    admission(
        kind(
            ADMISSION,
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
            "MutatingWebhookConfiguration",
            "MutatingWebhookConfigurationList",
        ),
        "A MutatingWebhookConfiguration names services that change requests; none are called here.",
    ),
    admission(
        kind(
            ADMISSION,
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
            "ValidatingWebhookConfiguration",
            "ValidatingWebhookConfigurationList",
        ),
        "A ValidatingWebhookConfiguration names services that judge requests; none are called here.",
    ),
    admission(
        Kind {
            subresources: &[status(ADMISSION, "ValidatingAdmissionPolicy")],
            status: true,
            ..kind(
                ADMISSION,
                "validatingadmissionpolicies",
                "validatingadmissionpolicy",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyList",
            )
        },
        "A ValidatingAdmissionPolicy is a set of rules for requests; none are applied here.",
    ),
    admission(
        kind(
            ADMISSION,
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicyBindingList",
        ),
        "A ValidatingAdmissionPolicyBinding puts a policy into force; none are applied here.",
    ),
    Kind {
        namespaced: false,
        categories: &["api-extensions"],
        subresources: &[status("apiregistration.k8s.io", "APIService")],
        name_rule: NameRule::PathSegment,
        put: CHECKED,
        status: true,
        description: "An APIService says who serves a group and version; here always this server.",
        ..kind(
            "apiregistration.k8s.io",
            "apiservices",
            "apiservice",
            "APIService",
            "APIServiceList",
        )
    },
    Kind {
        version: "v2",
        short_names: &["hpa"],
        categories: &["all"],
        subresources: &[Subresource {
            version: "v2",
            ..status("autoscaling", "HorizontalPodAutoscaler")
        }],
        status: true,
        description: "A HorizontalPodAutoscaler says between which bounds a workload is scaled.",
        ..kind(
            "autoscaling",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
            "HorizontalPodAutoscalerList",
        )
    },
    Kind {
        namespaced: false,
        short_names: &["csr"],
        subresources: &[APPROVAL, status(CERTIFICATES, "CertificateSigningRequest")],
        status: true,
        description: "A CertificateSigningRequest asks a signer for a certificate.",
        ..kind(
            CERTIFICATES,
            "certificatesigningrequests",
            "certificatesigningrequest",
            "CertificateSigningRequest",
            "CertificateSigningRequestList",
        )
    },
    Kind {
        generation: true,
        description: "An EndpointSlice is a part of the addresses behind a Service.",
        ..kind(
            "discovery.k8s.io",
            "endpointslices",
            "endpointslice",
            "EndpointSlice",
            "EndpointSliceList",
        )
    },
    Kind {
        namespaced: false,
        subresources: &[status(FLOW, "FlowSchema")],
        generation: true,
        status: true,
        description: "A FlowSchema sorts requests into priority levels; stored here as data.",
        ..kind(FLOW, "flowschemas", "flowschema", "FlowSchema", "FlowSchemaList")
    },
    Kind {
        namespaced: false,
        subresources: &[status(FLOW, "PriorityLevelConfiguration")],
        generation: true,
        status: true,
        description: "A PriorityLevelConfiguration shares out a server's attention; stored here as data.",
        ..kind(
            FLOW,
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
            "PriorityLevelConfiguration",
            "PriorityLevelConfigurationList",
        )
    },
    Kind {
        short_names: &["ing"],
        subresources: &[status(NETWORKING, "Ingress")],
        generation: true,
        status: true,
        description: "An Ingress leads requests from outside to Services.",
        ..kind(NETWORKING, "ingresses", "ingress", "Ingress", "IngressList")
    },
    Kind {
        namespaced: false,
        generation: true,
        description: "An IngressClass says which controller looks after an Ingress.",
        ..kind(NETWORKING, "ingressclasses", "ingressclass", "IngressClass", "IngressClassList")
    },
    Kind {
        short_names: &["netpol"],
        generation: true,
        description: "A NetworkPolicy says which pods may talk to which.",
        ..kind(NETWORKING, "networkpolicies", "networkpolicy", "NetworkPolicy", "NetworkPolicyList")
    },
    Kind {
        namespaced: false,
        short_names: &["ip"],
        generation: true,
        description: "An IPAddress marks an address that a Service has.",
        ..kind(NETWORKING, "ipaddresses", "ipaddress", "IPAddress", "IPAddressList")
    },
    Kind {
        namespaced: false,
        subresources: &[status(NETWORKING, "ServiceCIDR")],
        generation: true,
        status: true,
        description: "A ServiceCIDR is a range that addresses of Services come from.",
        ..kind(NETWORKING, "servicecidrs", "servicecidr", "ServiceCIDR", "ServiceCIDRList")
    },
    Kind {
        namespaced: false,
        put: PutRule { requires_rv: true, creates: true },
        description: "A RuntimeClass names a way to run containers.",
        ..kind("node.k8s.io", "runtimeclasses", "runtimeclass", "RuntimeClass", "RuntimeClassList")
    },
    Kind {
        short_names: &["pdb"],
        subresources: &[status("policy", "PodDisruptionBudget")],
        put: CHECKED,
        generation: true,
        status: true,
        description: "A PodDisruptionBudget says how many pods must stay when nodes are emptied.",
        ..kind(
            "policy",
            "poddisruptionbudgets",
            "poddisruptionbudget",
            "PodDisruptionBudget",
            "PodDisruptionBudgetList",
        )
    },
    Kind {
        namespaced: false,
        delete_returns_object: true,
        generation: true,
        description: "A DeviceClass describes devices that claims can ask for.",
        ..kind(RESOURCE, "deviceclasses", "deviceclass", "DeviceClass", "DeviceClassList")
    },
    Kind {
        subresources: &[status(RESOURCE, "ResourceClaim")],
        delete_returns_object: true,
        status: true,
        description: "A ResourceClaim asks for devices and names those it got.",
        ..kind(RESOURCE, "resourceclaims", "resourceclaim", "ResourceClaim", "ResourceClaimList")
    },
    Kind {
        delete_returns_object: true,
        description: "A ResourceClaimTemplate is a pattern that claims of pods are made from.",
        ..kind(
            RESOURCE,
            "resourceclaimtemplates",
            "resourceclaimtemplate",
            "ResourceClaimTemplate",
            "ResourceClaimTemplateList",
        )
    },
    Kind {
        namespaced: false,
        delete_returns_object: true,
        generation: true,
        description: "A ResourceSlice lists devices that a driver offers.",
        ..kind(RESOURCE, "resourceslices", "resourceslice", "ResourceSlice", "ResourceSliceList")
    },
    Kind {
        namespaced: false,
        short_names: &["pc"],
        generation: true,
        description: "A PriorityClass gives a name to the priority of pods.",
        ..kind(
            "scheduling.k8s.io",
            "priorityclasses",
            "priorityclass",
            "PriorityClass",
            "PriorityClassList",
        )
    },
    driver(
        Kind {
            generation: true,
            ..kind(STORAGE, "csidrivers", "csidriver", "CSIDriver", "CSIDriverList")
        },
        "A CSIDriver says what a storage driver needs from the cluster.",
    ),
    driver(
        kind(STORAGE, "csinodes", "csinode", "CSINode", "CSINodeList"),
        "A CSINode lists the storage drivers of a node.",
    ),
    Kind {
        put: CHECKED,
        description: "A CSIStorageCapacity says how much of a class can be had where.",
        ..kind(
            STORAGE,
            "csistoragecapacities",
            "csistoragecapacity",
            "CSIStorageCapacity",
            "CSIStorageCapacityList",
        )
    },
    driver(
        Kind {
            subresources: &[status(STORAGE, "VolumeAttachment")],
            status: true,
            ..kind(
                STORAGE,
                "volumeattachments",
                "volumeattachment",
                "VolumeAttachment",
                "VolumeAttachmentList",
            )
        },
        "A VolumeAttachment asks that a volume be attached to a node.",
    ),
    Kind {
        namespaced: false,
        short_names: &["vac"],
        delete_returns_object: true,
        description: "A VolumeAttributesClass names attributes of volumes that can change.",
        ..kind(
            STORAGE,
            "volumeattributesclasses",
            "volumeattributesclass",
            "VolumeAttributesClass",
            "VolumeAttributesClassList",
        )
    },
];
