//! Names, labels and annotations that tie a tenant's object to the Velero object made for it.
//!
//! Owns the identity (`nacuuid`) and the test of ownership. The identity is no secret: it stands on
//! every restored object. Whoever reads from or deletes a Velero object asks [`Origin::owns`] first.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The namespace of the executor and of administrators' settings, unless told otherwise.
pub const ADMIN_NAMESPACE: &str = "openshift-adp";

pub const BACKUP_FINALIZER: &str = "nonadminbackup.oadp.openshift.io/finalizer";
pub const RESTORE_FINALIZER: &str = "nonadminrestore.oadp.openshift.io/finalizer";
pub const LOCATION_FINALIZER: &str = "nonadminbackupstoragelocation.oadp.openshift.io/finalizer";

/// On backups of tenants that were made from a Velero backup found in a store.
pub const SYNCED_FROM: &str = "openshift.io/oadp-nab-synced-from-nacuuid";

/// On backups of tenants that were told to go because their storage location goes.
pub const LEAVES_WITH_LOCATION: &str = "holdfast.io/leaves-with-location";

/// Of a backup: the schedule that asked for it.
pub const VELERO_SCHEDULE_NAME: &str = "velero.io/schedule-name";
pub const VELERO_BACKUP_NAME: &str = "velero.io/backup-name";
pub const VELERO_BACKUP_UID: &str = "velero.io/backup-uid";
pub const VELERO_RESTORE_NAME: &str = "velero.io/restore-name";

/// How often a deletion of this backup was asked for before this request.
pub const ATTEMPT: &str = "holdfast.io/attempt";

/// Of a restore: who asked for it, as the embedded server writes it down. Anybody can write it elsewhere.
pub const ASKED_BY: &str = "holdfast.io/asked-by";
/// Of a Velero restore: whose rights it is carried out with.
pub const RUN_AS: &str = "holdfast.io/run-as";

/// Of a Velero backup: the namespace it was taken of and the cluster it was taken in, by their uids.
const NAMESPACE_UID: &str = "holdfast.io/namespace-uid";
const CLUSTER_UID: &str = "holdfast.io/cluster-uid";

/// What both labels on every object made for a tenant say.
pub const MARKS: [(&str, &str); 2] =
    [("openshift.io/oadp", "True"), ("app.kubernetes.io/managed-by", "oadp-nac-controller")];

/// Longest label value and DNS label.
const LABEL_MAX: usize = 63;
const UUID_LENGTH: usize = 36;
/// No name is longer: labels and annotations that are were not written by us.
const VALUE_MAX: usize = 253;

/// The kinds of tenants' objects that Velero objects are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Backup,
    Restore,
    Location,
    Download,
}

impl Kind {
    const fn short(self) -> &'static str {
        match self {
            Self::Backup => "nab",
            Self::Restore => "nar",
            Self::Location => "nabsl",
            Self::Download => "nadr",
        }
    }

    /// The label that carries the identity.
    pub fn label(self) -> String {
        format!("openshift.io/oadp-{}-origin-nacuuid", self.short())
    }

    fn annotation(self, what: &str) -> String {
        format!("openshift.io/oadp-{}-origin-{what}", self.short())
    }
}

/// The tenant's object that an object of the executor belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub namespace: String,
    pub name: String,
    pub nacuuid: String,
}

impl Origin {
    pub fn new(namespace: &str, name: &str, nacuuid: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into(), nacuuid: nacuuid.into() }
    }

    /// What an object says of its origin. Nothing, unless it says all of it in the way we write it.
    pub fn read(kind: Kind, meta: &ObjectMeta) -> Option<Self> {
        let labels = meta.labels.as_ref()?;
        let marked = MARKS.iter().all(|(key, value)| labels.get(*key).is_some_and(|v| v == value));
        let annotations = meta.annotations.as_ref()?;
        let text = |map: &BTreeMap<String, String>, key: &str| {
            map.get(key).filter(|value| (1..=VALUE_MAX).contains(&value.len())).cloned()
        };
        Some(Self {
            namespace: text(annotations, &kind.annotation("namespace"))?,
            name: text(annotations, &kind.annotation("name"))?,
            nacuuid: text(labels, &kind.label())?,
        })
        .filter(|_| marked)
    }

    /// Whether this object was made for this origin: all of what it says must agree. Never the
    /// identity alone, which others can read.
    pub fn owns(&self, kind: Kind, meta: &ObjectMeta) -> bool {
        Self::read(kind, meta).is_some_and(|said| said == *self)
    }

    pub fn labels(&self, kind: Kind) -> BTreeMap<String, String> {
        let marks = MARKS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        marks.chain([(kind.label(), self.nacuuid.clone())]).collect()
    }

    pub fn annotations(&self, kind: Kind) -> BTreeMap<String, String> {
        [
            (kind.annotation("name"), self.name.clone()),
            (kind.annotation("namespace"), self.namespace.clone()),
        ]
        .into()
    }

    /// Metadata of the object in the executor's namespace, which is named by the identity.
    pub fn meta(&self, kind: Kind, namespace: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.nacuuid.clone()),
            namespace: Some(namespace.to_owned()),
            labels: Some(self.labels(kind)),
            annotations: Some(self.annotations(kind)),
            ..ObjectMeta::default()
        }
    }
}

/// A namespace, not only its name: whoever has the name next is somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    pub namespace_uid: String,
    /// After the loss of a cluster every namespace has another uid, and its backups are its own.
    pub cluster_uid: String,
}

impl Home {
    pub fn annotations(&self) -> BTreeMap<String, String> {
        [(NAMESPACE_UID, &self.namespace_uid), (CLUSTER_UID, &self.cluster_uid)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into()
    }

    /// Whether an object says which namespace it is of.
    pub fn is_said(meta: &ObjectMeta) -> bool {
        meta.annotations.as_ref().is_some_and(|it| it.contains_key(NAMESPACE_UID))
    }

    /// Takes off what an object says of that.
    pub fn unsay(meta: &mut ObjectMeta) {
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(NAMESPACE_UID);
            annotations.remove(CLUSTER_UID);
        }
    }

    /// Whether an object is of an earlier namespace of this name, in this cluster. One that does not say
    /// so goes by the name.
    pub fn succeeds(&self, meta: &ObjectMeta) -> bool {
        let said = |key: &str| meta.annotations.as_ref().and_then(|it| it.get(key));
        said(CLUSTER_UID) == Some(&self.cluster_uid)
            && said(NAMESPACE_UID).is_some_and(|it| *it != self.namespace_uid)
    }
}

/// `<namespace>-<name>-<uuid>`, cut to what a label can hold. The uuid is always whole; a piece that
/// was cut never ends in a mark that a name may not end in.
pub fn nacuuid(namespace: &str, name: &str, uuid: &str) -> String {
    let whole = join(&[namespace, name, uuid]);
    if whole.len() <= LABEL_MAX {
        return whole;
    }
    let room = LABEL_MAX - UUID_LENGTH - 2;
    if namespace.len() > room {
        return join(&[cut(namespace, room), uuid]);
    }
    join(&[namespace, cut(name, room - namespace.len()), uuid])
}

fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

/// The first `length` characters; names of objects are ASCII, and what is not is cut at a boundary.
fn cut(text: &str, length: usize) -> &str {
    if text.len() <= length {
        return text;
    }
    let end = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().trim_end_matches(['.', '-'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "0d0b7b2c-ee76-412d-a867-2c23b8aa51ab";

    #[test]
    fn the_identity_is_cut_to_a_label() {
        let table = [
            ("mongo-persistent", "anothertest-backup", "mongo-persistent-anotherte"),
            ("ns", "nab", "ns-nab"),
            ("a-namespace-with-25-charsx", "name", "a-namespace-with-25-chars"),
            ("a-namespace-with-25-chars", "name", "a-namespace-with-25-chars"),
            ("twenty-three-characters", "my.backup", "twenty-three-characters-my"),
            ("twenty-three-characters", "m.backup-of-today", "twenty-three-characters-m"),
            ("a-namespace-cut-at-hyph--xyz", "n", "a-namespace-cut-at-hyph"),
        ];
        for (namespace, name, want) in table {
            assert_eq!(
                nacuuid(namespace, name, UUID),
                format!("{want}-{UUID}"),
                "{namespace}/{name}"
            );
        }
        assert_eq!(nacuuid("mongo-persistent", "anothertest", UUID).len(), 63);
    }

    #[test]
    fn an_object_belongs_to_an_origin_only_if_all_it_says_agrees() {
        let mine = Origin::new("a", "nab", "a-nab-1");
        let meta = mine.meta(Kind::Backup, ADMIN_NAMESPACE);
        assert!(mine.owns(Kind::Backup, &meta));
        assert!(!mine.owns(Kind::Restore, &meta));
        for other in [
            Origin::new("b", "nab", "a-nab-1"),
            Origin::new("a", "x", "a-nab-1"),
            Origin::new("a", "nab", "a"),
        ] {
            assert!(!other.owns(Kind::Backup, &meta), "{other:?}");
        }
        let long = Origin::new(&"n".repeat(63), &"a".repeat(253), "a-nab-1");
        assert!(long.owns(Kind::Backup, &long.meta(Kind::Backup, ADMIN_NAMESPACE)), "any name");
        let mut unmarked = meta.clone();
        unmarked.labels.as_mut().unwrap().remove("openshift.io/oadp");
        assert!(!mine.owns(Kind::Backup, &unmarked));
        let mut silent = meta;
        silent.annotations = None;
        assert!(!mine.owns(Kind::Backup, &silent));
    }

    #[test]
    fn a_namespace_of_the_same_name_is_another_unless_the_cluster_was_lost() {
        let home = |namespace: &str, cluster: &str| Home {
            namespace_uid: namespace.to_owned(),
            cluster_uid: cluster.to_owned(),
        };
        let mut meta = ObjectMeta {
            annotations: Some(home("old", "here").annotations()),
            ..ObjectMeta::default()
        };
        assert!(!home("old", "here").succeeds(&meta));
        assert!(home("new", "here").succeeds(&meta), "made anew");
        assert!(!home("new", "elsewhere").succeeds(&meta), "after the loss of a cluster");
        assert!(Home::is_said(&meta));
        Home::unsay(&mut meta);
        assert!(!Home::is_said(&meta) && !home("new", "here").succeeds(&meta), "by its name");
    }

    proptest! {
        #[test]
        fn an_identity_is_a_name_and_a_label(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,120}[a-z0-9])?",
        ) {
            let made = nacuuid(&namespace, &name, UUID);
            prop_assert!(made.len() <= LABEL_MAX, "{made}");
            prop_assert!(made.ends_with(UUID));
            let head = &made[..made.len() - UUID_LENGTH - 1];
            prop_assert!(!head.ends_with(['.', '-']) && !head.is_empty(), "{made}");
        }
    }
}
