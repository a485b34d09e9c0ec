//! Goes through the cluster and gives everything a backup takes to the tarball, page by page.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use super::Counts;
use super::pack::{Packer, Unwanted};
use crate::catalog::{Catalog, Kind};
use crate::door::{Door, Next, code, words};
use crate::home::Home;
use crate::journal::{Journal, Place, about};
use crate::layout::{self, Item};
use crate::lists::is_pattern;
use crate::names;
use crate::restore::spool::parts;
use crate::selection::{Cluster, Selection, is_left_out};
use crate::tarball::{Account, Limits, shown};

const SOURCE: &str = "velero/collect";
const CLAIMS: &str = "persistentvolumeclaims";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// `apiVersion/Kind` to sorted names.
pub(crate) type ResourceList = BTreeMap<String, BTreeSet<String>>;

pub(crate) struct Collector<'c> {
    pub(crate) door: &'c Door,
    pub(crate) catalog: &'c Catalog,
    pub(crate) selection: &'c Selection,
    pub(crate) packer: Packer,
    pub(crate) journal: Journal,
    pub(crate) listed: ResourceList,
    /// How many objects are in the tarball so far.
    pub(crate) count: watch::Sender<Counts>,
    pub(crate) backup: String,
    /// `namespace/name` of objects to take before others of their `resource.group`.
    pub(crate) ordered: BTreeMap<String, Vec<String>>,
    /// Of the kind that is being gone through, those that were taken first.
    first: HashSet<String>,
    related: Related,
    /// Namespaces that something was taken from.
    touched: BTreeSet<String>,
    account: Account,
    parts_max: usize,
    /// Claims that were taken, for whoever takes their volumes.
    pub(crate) claims: Vec<Value>,
    /// The namespace of the tenant that asked.
    pub(crate) home: Option<(Home, &'c Client)>,
    /// Why it is not the one of that name any more, or cannot be told from it.
    pub(crate) lost: Option<String>,
}

/// Objects that others need.
#[derive(Debug, Default)]
struct Related {
    /// Claims that pods mount, as `namespace/name`.
    mounted: BTreeSet<String>,
    volumes: BTreeSet<String>,
    priorities: BTreeSet<String>,
    /// `namespace/name`
    accounts: HashSet<String>,
    /// `plural.group` of kinds that objects were taken of.
    kinds: BTreeSet<String>,
}

impl<'c> Collector<'c> {
    pub(crate) fn new(
        door: &'c Door,
        catalog: &'c Catalog,
        selection: &'c Selection,
        packer: Packer,
        journal: Journal,
        backup: &str,
        limits: Limits,
    ) -> Self {
        Self {
            door,
            catalog,
            selection,
            packer,
            journal,
            listed: ResourceList::new(),
            count: watch::Sender::default(),
            backup: backup.to_owned(),
            ordered: BTreeMap::new(),
            first: HashSet::new(),
            related: Related::default(),
            touched: BTreeSet::new(),
            account: Account::new(limits),
            parts_max: limits.parts_max,
            claims: Vec::new(),
            home: None,
            lost: None,
        }
    }

    /// Asked after something was read and before it is used: a namespace that is the same then was the same
    /// when it was read.
    async fn stay_home(&mut self) -> Result<(), Unwanted> {
        let Some((home, client)) = &self.home else { return Ok(()) };
        self.lost = match home.loss(client).await {
            Ok(lost) => lost,
            Err(error) => Some(format!("cannot tell whose namespace it is: {}", words(&error))),
        };
        if self.lost.is_some() { Err(Unwanted) } else { Ok(()) }
    }

    /// Everything, in order. Only an upload that has failed ends it, and a namespace that is another's by
    /// now; what cannot be read is told.
    pub(crate) async fn run(&mut self) -> Result<(), Unwanted> {
        let version = self.packer.begin().await?;
        // Nothing is beside it yet.
        let _ = self.account.admit(layout::VERSION_MEMBER, version);
        let namespaces = self.namespaces().await;
        self.stay_home().await?;
        let wanted: Vec<String> =
            namespaces.iter().filter_map(|it| name_of(it).map(str::to_owned)).collect();
        for kind in self.catalog.to_back_up() {
            if kind.namespaced {
                if self.selection.takes_namespaced(kind) {
                    self.namespaced(kind, &wanted).await?;
                }
            } else if kind.resource() != "namespaces"
                && self.selection.takes_cluster(kind) == Cluster::All
            {
                self.kind(kind, None, None).await?;
            }
        }
        self.namespace_objects(namespaces).await?;
        self.related_objects().await
    }

    /// The Namespace objects that the name filter picks; those that are named and missing are told.
    async fn namespaces(&mut self) -> Vec<Value> {
        let Some(kind) = self.catalog.resource("namespaces") else { return Vec::new() };
        let mut found = Vec::new();
        let mut next: Option<Next> = None;
        loop {
            match self.door.list(kind, None, next.as_ref()).await {
                Ok(page) => {
                    found.extend(page.items);
                    next = page.next;
                }
                Err(error) => {
                    let message = format!("cannot list namespaces: {}", words(&error));
                    self.journal.error(Place::Server, SOURCE, &message);
                    return Vec::new();
                }
            }
            if next.is_none() {
                break;
            }
        }
        let lists = &self.selection.namespaces;
        for name in lists.includes.iter().filter(|it| !is_pattern(it)) {
            if !found.iter().any(|it| name_of(it) == Some(name)) {
                let message = format!(
                    "fail to get the namespace {name} specified in backup.Spec.IncludedNamespaces"
                );
                self.journal.error(Place::Server, SOURCE, &message);
            }
        }
        found.retain(|it| {
            let is_active =
                it.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating");
            is_active && name_of(it).is_some_and(|name| lists.holds(name)) && !is_left_out(it)
        });
        found
    }

    async fn namespaced(&mut self, kind: &Kind, wanted: &[String]) -> Result<(), Unwanted> {
        self.first.clear();
        for place in self.ordered.get(&kind.resource()).cloned().unwrap_or_default() {
            self.take_first(kind, &place, wanted).await?;
        }
        if self.selection.namespaces.includes_everything() {
            let held: HashSet<&str> = wanted.iter().map(String::as_str).collect();
            return self.kind(kind, None, Some(&held)).await;
        }
        for namespace in wanted {
            self.kind(kind, Some(namespace), None).await?;
        }
        Ok(())
    }

    /// One that was asked for before the others of its kind.
    async fn take_first(
        &mut self,
        kind: &Kind,
        place: &str,
        wanted: &[String],
    ) -> Result<(), Unwanted> {
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        if !wanted.iter().any(|it| it == namespace) {
            return Ok(());
        }
        match self.door.get(kind, Some(namespace), name).await {
            Ok(Some(object)) if self.selection.matches(&object) => {
                self.stay_home().await?;
                self.first.insert(place.to_owned());
                self.take(kind, object).await
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => {
                let message = format!("Cannot find resource '{place}'.");
                self.journal.warn(Place::Namespace(namespace), SOURCE, &message);
                Ok(())
            }
        }
    }

    /// All objects of a kind that are wanted, page by page.
    async fn kind(
        &mut self,
        kind: &Kind,
        namespace: Option<&str>,
        among: Option<&HashSet<&str>>,
    ) -> Result<(), Unwanted> {
        let mut next: Option<Next> = None;
        // A list that ran out of time is begun again; what was taken is not taken twice.
        let mut taken = self.first.clone();
        let mut begun = 0;
        loop {
            let page = match self.door.list(kind, namespace, next.as_ref()).await {
                Ok(page) => page,
                Err(error) if code(&error) == Some(410) && begun < 5 => {
                    begun += 1;
                    next = None;
                    continue;
                }
                // The kind went away meanwhile, and its objects with it.
                Err(error) if matches!(code(&error), Some(404 | 405)) => return Ok(()),
                Err(error) => {
                    let message =
                        about(&kind.resource(), "", "Error listing items", Some(&words(&error)));
                    self.journal.error(Place::of(namespace), SOURCE, &message);
                    return Ok(());
                }
            };
            if !page.items.is_empty() {
                self.stay_home().await?;
            }
            for object in page.items {
                let is_wanted = self.selection.matches(&object)
                    && among.is_none_or(|it| namespace_of(&object).is_some_and(|n| it.contains(n)));
                let place = format!(
                    "{}/{}",
                    namespace_of(&object).unwrap_or(""),
                    name_of(&object).unwrap_or("")
                );
                if is_wanted && taken.insert(place) {
                    self.take(kind, object).await?;
                }
            }
            next = page.next;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    async fn namespace_objects(&mut self, namespaces: Vec<Value>) -> Result<(), Unwanted> {
        let Some(kind) = self.catalog.resource("namespaces") else { return Ok(()) };
        if !self.selection.takes_namespace_objects() {
            return Ok(());
        }
        let is_open = self.selection.namespaces.includes_everything();
        for object in namespaces {
            let is_touched = name_of(&object).is_some_and(|name| self.touched.contains(name));
            if !(is_open && self.selection.has_selectors())
                || is_touched
                || self.selection.matches(&object)
            {
                self.take(kind, object).await?;
            }
        }
        Ok(())
    }

    async fn related_objects(&mut self) -> Result<(), Unwanted> {
        let mounted = std::mem::take(&mut self.related.mounted);
        self.mounted(&mounted).await?;
        let related = std::mem::take(&mut self.related);
        self.volumes(&related.volumes).await?;
        self.named("priorityclasses.scheduling.k8s.io", &related.priorities).await?;
        self.bindings(&related.accounts).await?;
        self.named(DEFINITIONS, &related.kinds).await
    }

    /// The claims that pods mount which were taken, whatever their labels say: a pod that was chosen would
    /// come back without its data.
    async fn mounted(&mut self, wanted: &BTreeSet<String>) -> Result<(), Unwanted> {
        let Some(kind) = self.catalog.resource(CLAIMS) else { return Ok(()) };
        if !self.selection.takes_namespaced(kind) {
            return Ok(());
        }
        let taken: HashSet<String> = self.claims.iter().filter_map(claim_mark).collect();
        for place in wanted.iter().filter(|place| !taken.contains(*place)) {
            let Some((namespace, name)) = place.split_once('/') else { continue };
            match self.door.get(kind, Some(namespace), name).await {
                Ok(Some(claim)) if !is_left_out(&claim) => {
                    self.stay_home().await?;
                    self.take(kind, claim).await?;
                }
                Ok(_) => {}
                Err(error) => {
                    let message = about(CLAIMS, name, "Error getting item", Some(&words(&error)));
                    self.journal.error(Place::Namespace(namespace), SOURCE, &message);
                }
            }
        }
        Ok(())
    }

    /// The volumes of claims that were taken. A claim names any volume it likes: only one that says it is
    /// that claim's belongs to it.
    async fn volumes(&mut self, wanted: &BTreeSet<String>) -> Result<(), Unwanted> {
        const RESOURCE: &str = "persistentvolumes";
        let Some(kind) = self.catalog.resource(RESOURCE) else { return Ok(()) };
        if self.selection.takes_cluster(kind) != Cluster::Related {
            return Ok(());
        }
        let claims: HashSet<String> = self.claims.iter().filter_map(claim_mark).collect();
        for name in wanted {
            match self.door.get(kind, None, name).await {
                Ok(Some(volume)) if is_volume_of(&volume, &claims) && !is_left_out(&volume) => {
                    self.take(kind, volume).await?;
                }
                Ok(_) => {}
                Err(error) => {
                    let message = about(RESOURCE, name, "Error getting item", Some(&words(&error)));
                    self.journal.error(Place::Cluster, SOURCE, &message);
                }
            }
        }
        Ok(())
    }

    /// Objects of one kind by name, if that kind is taken where it is needed.
    async fn named(&mut self, resource: &str, wanted: &BTreeSet<String>) -> Result<(), Unwanted> {
        let Some(kind) = self.catalog.resource(resource) else { return Ok(()) };
        if self.selection.takes_cluster(kind) != Cluster::Related {
            return Ok(());
        }
        for name in wanted {
            match self.door.get(kind, None, name).await {
                Ok(Some(object)) if !is_left_out(&object) => self.take(kind, object).await?,
                Ok(_) => {}
                Err(error) => {
                    let message = about(resource, name, "Error getting item", Some(&words(&error)));
                    self.journal.error(Place::Cluster, SOURCE, &message);
                }
            }
        }
        Ok(())
    }

    /// What gives rights to the service accounts that were taken.
    async fn bindings(&mut self, accounts: &HashSet<String>) -> Result<(), Unwanted> {
        let Some(kind) = self.catalog.resource(BINDINGS) else { return Ok(()) };
        if accounts.is_empty() || self.selection.takes_cluster(kind) != Cluster::Related {
            return Ok(());
        }
        let mut roles = BTreeSet::new();
        let mut next: Option<Next> = None;
        loop {
            let page = match self.door.list(kind, None, next.as_ref()).await {
                Ok(page) => page,
                Err(error) => {
                    let message = about(BINDINGS, "", "Error listing items", Some(&words(&error)));
                    self.journal.error(Place::Cluster, SOURCE, &message);
                    return Ok(());
                }
            };
            for object in page.items {
                if binds(&object, accounts) && !is_left_out(&object) {
                    if let Some(role) = object.pointer("/roleRef/name").and_then(Value::as_str) {
                        roles.insert(role.to_owned());
                    }
                    self.take(kind, object).await?;
                }
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        self.named(ROLES, &roles).await
    }

    async fn take(&mut self, kind: &Kind, mut object: Value) -> Result<(), Unwanted> {
        let Some(name) = name_of(&object).map(str::to_owned) else { return Ok(()) };
        let namespace = namespace_of(&object).map(str::to_owned);
        let resource = kind.resource();
        if resource == CLAIMS {
            edit_claim(&mut object, &self.backup);
        }
        let bytes = serde_json::to_vec(&object).unwrap_or_default();
        let item = Item { resource: &resource, namespace: namespace.as_deref(), name: &name };
        let paths = layout::members(&item, &kind.version);
        if let Err(why) = self.admit(&paths, &bytes) {
            let message = about(
                &resource,
                &format!("{:?}", shown(&name)),
                "Error backing up item",
                Some(&why),
            );
            self.journal.error(Place::of(namespace.as_deref()), SOURCE, &message);
            return Ok(());
        }
        self.note(kind, &resource, &object, namespace.as_deref(), &name);
        for path in paths {
            self.packer.add(&path, &bytes).await?;
        }
        if resource == CLAIMS {
            self.claims.push(object);
        }
        let place = match &namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        };
        self.listed
            .entry(format!("{}/{}", kind.api_version(), kind.kind))
            .or_default()
            .insert(place);
        self.count.send_modify(|count| count.items += 1);
        let more = [
            ("resource", resource.as_str()),
            ("name", &name),
            ("namespace", namespace.as_deref().unwrap_or("")),
        ];
        self.journal.info(SOURCE, "Backed up item", &more);
        Ok(())
    }

    /// Whether a restore can read it: what it refuses is left out here, where somebody is told in time.
    fn admit(&mut self, paths: &[String], bytes: &[u8]) -> Result<(), String> {
        let parts = parts(bytes);
        if parts > self.parts_max {
            let max = self.parts_max;
            return Err(format!("it has {parts} parts; {max} are allowed in such an archive"));
        }
        let mut next = self.account.clone();
        for path in paths {
            next.admit(path, bytes.len() as u64).map_err(|error| error.to_string())?;
        }
        self.account = next;
        Ok(())
    }

    /// What this object needs that lives in no namespace.
    fn note(
        &mut self,
        kind: &Kind,
        resource: &str,
        object: &Value,
        namespace: Option<&str>,
        name: &str,
    ) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        if let Some(namespace) = namespace {
            self.touched.insert(namespace.to_owned());
        }
        if !kind.group.is_empty() {
            self.related.kinds.insert(resource.to_owned());
        }
        match resource {
            CLAIMS => {
                self.related.volumes.extend(text("/spec/volumeName").filter(|it| !it.is_empty()));
            }
            "pods" => {
                let namespace = namespace.unwrap_or_default();
                let claims = mounted_claims(object).map(|claim| format!("{namespace}/{claim}"));
                self.related.mounted.extend(claims);
                self.related
                    .priorities
                    .extend(text("/spec/priorityClassName").filter(|it| !it.is_empty()));
                let has_hook = |prefix: &str| {
                    crate::restore::edit::annotation(
                        object,
                        &format!("{prefix}hook.backup.velero.io/command"),
                    )
                    .is_some()
                };
                if has_hook("pre.") || has_hook("post.") || has_hook("") {
                    let message = about(
                        "pods",
                        name,
                        "hooks in annotations are not run by this server",
                        None,
                    );
                    self.journal.warn(Place::Namespace(namespace), SOURCE, &message);
                }
            }
            "serviceaccounts" => {
                self.related.accounts.insert(format!("{}/{name}", namespace.unwrap_or_default()));
            }
            _ => {}
        }
    }
}

fn binds(binding: &Value, accounts: &HashSet<String>) -> bool {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects.into_iter().flatten().any(|it| {
        let text = |name: &str| it.get(name).and_then(Value::as_str).unwrap_or_default();
        text("kind") == "ServiceAccount"
            && accounts.contains(&format!("{}/{}", text("namespace"), text("name")))
    })
}

/// The names of the claims that a pod mounts.
pub(crate) fn mounted_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    volumes.filter_map(|it| it.pointer("/persistentVolumeClaim/claimName")?.as_str())
}

/// `namespace/name` of a claim.
fn claim_mark(claim: &Value) -> Option<String> {
    Some(format!("{}/{}", namespace_of(claim)?, name_of(claim)?))
}

/// Whether a volume says that it is bound to one of these claims.
fn is_volume_of(volume: &Value, claims: &HashSet<String>) -> bool {
    let text = |name: &str| volume.pointer("/spec/claimRef")?.get(name)?.as_str();
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => claims.contains(&format!("{namespace}/{name}")),
        _ => false,
    }
}

/// A claim is kept without what bound it to where its contents once came from.
fn edit_claim(object: &mut Value, backup: &str) {
    let is_bound = object.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    if let (true, Some(spec)) = (is_bound, object.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.remove("dataSource");
        spec.remove("dataSourceRef");
        if spec.get("storageClassName").and_then(Value::as_str) != Some("") {
            spec.remove("selector");
        }
    }
    let labels = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.remove(names::RESTORE_NAME);
        labels.remove("velero.io/volume-snapshot-name");
        if labels.get(names::BACKUP_NAME).and_then(Value::as_str) != Some(backup) {
            labels.remove(names::BACKUP_NAME);
        }
    }
}

pub(crate) fn name_of(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("name")?.as_str()
}

pub(crate) fn namespace_of(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("namespace")?.as_str()
}

#[cfg(test)]
mod tests {
    use api::velero::BackupSpec;
    use serde_json::json;

    use super::*;
    use crate::backup::pack::Packer;
    use crate::catalog::tests::sample;

    /// A server that has these objects, by their paths.
    fn server(objects: &'static [(&'static str, &'static str)]) -> Client {
        let service = tower::service_fn(move |asked: http::Request<kube::client::Body>| {
            let found = objects.iter().find(|(path, _)| *path == asked.uri().path());
            let (code, body) = match found {
                Some((_, body)) => (200, (*body).to_owned()),
                None if asked.uri().query().is_some() => (200, r#"{"items":[]}"#.to_owned()),
                None => (404, r#"{"kind":"Status","code":404}"#.to_owned()),
            };
            let answer = http::Response::builder().status(code);
            let answer = answer.body(kube::client::Body::from(body.into_bytes())).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        Client::new(service, "default")
    }

    /// What a backup with this spec takes of it.
    async fn taken(client: Client, spec: Value) -> Vec<String> {
        let (door, catalog) = (Door::new(client), sample());
        let selection = Selection::of(&serde_json::from_value(spec).unwrap(), &catalog).unwrap();
        let (packer, mut body) = Packer::new(0);
        let journal = Journal::new("backup", "adm", "b");
        let limits = Limits::default();
        let mut collector =
            Collector::new(&door, &catalog, &selection, packer, journal, "b", limits);
        let drain = async { while futures::StreamExt::next(&mut body).await.is_some() {} };
        let work = async {
            collector.run().await.unwrap();
            let Collector { listed, journal, .. } = collector;
            assert_eq!(journal.errors.count, 0, "{:?}", journal.errors);
            listed.into_values().flatten().collect()
        };
        tokio::join!(work, drain).0
    }

    /// What is read back of a backup of pods, and its errors.
    async fn kept(pods: Vec<Value>, limits: Limits) -> (BTreeSet<String>, Vec<String>) {
        #[derive(Debug, Default)]
        struct Paths(BTreeSet<String>);
        impl crate::tarball::Sink for Paths {
            fn begin(&mut self, path: &str, _: u64) -> std::io::Result<bool> {
                self.0.insert(path.to_owned());
                Ok(false)
            }
            fn bytes(&mut self, _: &[u8]) -> std::io::Result<()> {
                Ok(())
            }
            fn end(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (door, catalog) = (Door::new(server(&[])), sample());
        let selection = Selection::of(&BackupSpec::default(), &catalog).unwrap();
        let (packer, mut body) = Packer::new(0);
        let journal = Journal::new("backup", "adm", "b");
        let mut collector =
            Collector::new(&door, &catalog, &selection, packer, journal, "b", limits);
        let read = async {
            let mut unpacker = crate::tarball::Unpacker::new(Paths::default(), limits);
            while let Some(piece) = futures::StreamExt::next(&mut body).await {
                unpacker.push(&piece.unwrap()).unwrap();
            }
            unpacker.finish().unwrap().0
        };
        let work = async {
            collector.packer.begin().await.unwrap();
            let kind = catalog.resource("pods").unwrap();
            for pod in pods {
                collector.take(kind, pod).await.unwrap();
            }
            let Collector { packer, journal, listed, .. } = collector;
            packer.finish().await.unwrap();
            assert!(listed.into_values().flatten().all(|it| it.starts_with("n/good")));
            journal.errors.namespaces.into_values().flatten().collect::<Vec<String>>()
        };
        let (errors, read) = tokio::join!(work, read);
        (read, errors)
    }

    #[tokio::test]
    async fn an_object_that_no_restore_could_read_is_left_out_and_told() {
        let pod = |name: &str| json!({"metadata": {"name": name, "namespace": "n"}});
        let long = "a".repeat(1000);
        for odd in ["a\nb", "r\\1", "\u{7f}", "\u{fffd}", "z\0q", &long] {
            let (read, errors) = kept(vec![pod(odd), pod("good")], Limits::default()).await;
            assert_eq!(read.len(), 3, "{odd:?}: {read:?}");
            assert!(read.contains("resources/pods/namespaces/n/good.json"));
            assert_eq!(errors.len(), 1, "{odd:?}: {errors:?}");
            assert!(errors[0].contains("Error backing up item") && errors[0].len() < 600);
        }
    }

    #[tokio::test]
    async fn what_passes_the_limits_of_its_place_is_told_when_it_is_taken() {
        let pod = |name: &str, data: Value| json!({"metadata": {"name": name, "namespace": "n"}, "data": data});
        let many = pod("many", vec![Value::Null; 40_000].into());
        let pods = vec![many, pod("good", Value::Null)];
        let (read, errors) = kept(pods.clone(), Limits::of_tenants()).await;
        assert_eq!((read.len(), errors.len()), (3, 1), "{errors:?}");
        assert!(errors[0].contains("parts; 30000 are allowed"), "{errors:?}");
        let few = Limits { members_max: 5, ..Limits::default() };
        let pods = (0..3).map(|it| pod(&format!("good{it}"), Value::Null)).collect();
        let (read, errors) = kept(pods, few).await;
        assert_eq!((read.len(), errors.len()), (5, 1), "{errors:?}");
    }

    #[tokio::test]
    async fn a_pod_that_is_chosen_brings_the_claims_it_mounts() {
        const SHOP: &[(&str, &str)] = &[
            ("/api/v1/namespaces", r#"{"items":[{"metadata":{"name":"shop"}}]}"#),
            (
                "/api/v1/namespaces/shop/pods",
                r#"{"items":[
                    {"metadata":{"name":"db","namespace":"shop","labels":{"app":"db"}},
                        "spec":{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"data"}},
                            {"name":"b","persistentVolumeClaim":{"claimName":"scratch"}},
                            {"name":"c","persistentVolumeClaim":{"claimName":"gone"}}]}},
                    {"metadata":{"name":"web","namespace":"shop"},
                        "spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"cache"}}]}}]}"#,
            ),
            (
                "/api/v1/namespaces/shop/persistentvolumeclaims/data",
                r#"{"metadata":{"name":"data","namespace":"shop"},"spec":{"volumeName":"pv"}}"#,
            ),
            (
                "/api/v1/namespaces/shop/persistentvolumeclaims/scratch",
                r#"{"metadata":{"name":"scratch","namespace":"shop",
                    "labels":{"velero.io/exclude-from-backup":"true"}}}"#,
            ),
            (
                "/api/v1/persistentvolumes/pv",
                r#"{"metadata":{"name":"pv"},
                    "spec":{"claimRef":{"namespace":"shop","name":"data"}}}"#,
            ),
        ];
        let spec = json!({"includedNamespaces": ["shop"],
            "labelSelector": {"matchLabels": {"app": "db"}}});
        let found = taken(server(SHOP), spec.clone()).await;
        assert_eq!(found, ["shop", "pv", "shop/data", "shop/db"]);
        let mut without = spec;
        without["excludedResources"] = json!(["pvc", "persistentvolumeclaims"]);
        assert_eq!(taken(server(SHOP), without).await, ["shop", "shop/db"]);
    }

    #[test]
    fn a_claim_does_not_get_a_volume_that_is_not_its_own() {
        let claims: HashSet<String> = [json!({"metadata": {"namespace": "a", "name": "x"}})]
            .iter()
            .filter_map(claim_mark)
            .collect();
        let volume = |claim: Value| json!({"spec": {"claimRef": claim}});
        assert!(is_volume_of(&volume(json!({"namespace": "a", "name": "x"})), &claims));
        assert!(!is_volume_of(&volume(json!({"namespace": "b", "name": "x"})), &claims));
        assert!(!is_volume_of(&volume(Value::Null), &claims));
    }
}
