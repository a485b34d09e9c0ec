//! One object of a backup, brought back.

use serde_json::{Map, Value, json};

use super::edit::{self, Rules};
use crate::catalog::{Catalog, Kind};
use crate::door::{Door, code, words};
use crate::lists::Lists;
use crate::names;

/// What happens to an object that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    /// The same, and it was asked for.
    KeepAsAsked,
    Update,
}

impl Existing {
    pub(crate) fn of(policy: Option<&str>) -> Self {
        match policy {
            Some("update") => Self::Update,
            Some("none") => Self::KeepAsAsked,
            _ => Self::Keep,
        }
    }
}

/// What became of an object, as the list of a restore says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Created,
    Updated,
    Failed,
    Skipped,
}

impl Fate {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// With what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) fate: Fate,
    pub(crate) warnings: Vec<String>,
    pub(crate) errors: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(fate: Fate) -> Self {
        Self { fate, warnings: Vec::new(), errors: Vec::new() }
    }

    pub(crate) fn failed(message: String) -> Self {
        Self { fate: Fate::Failed, warnings: Vec::new(), errors: vec![message] }
    }

    fn warned(fate: Fate, message: String) -> Self {
        Self { fate, warnings: vec![message], errors: Vec::new() }
    }
}

/// How objects are made in this restore.
#[derive(Debug)]
pub(crate) struct Maker<'m> {
    pub(crate) door: &'m Door,
    /// With the rights of the executor: for looking only.
    pub(crate) own: &'m Door,
    pub(crate) catalog: &'m Catalog,
    pub(crate) rules: &'m Rules,
    pub(crate) existing: Existing,
    /// Kinds whose status is brought back too.
    pub(crate) status: Option<&'m Lists>,
    /// Whether an object of the archive may ask for its status itself. Who writes the archive then
    /// writes the status, so not where that is more than who asked for the restore may do.
    pub(crate) heeds_marks: bool,
}

impl Maker<'_> {
    /// The kind of an object, which must be that of the folder it lay in.
    pub(crate) fn kind(&self, resource: &str, object: &Value) -> Result<&Kind, String> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match self.catalog.served(version, kind) {
            Some(found) if found.resource() == resource => Ok(found),
            Some(_) => Err(format!("{version} {kind} does not belong to {resource}")),
            None => Err(format!("the server does not know {kind} of {version}")),
        }
    }

    /// Makes `object` again; `original` is what the backup holds.
    pub(crate) async fn make(
        &self,
        resource: &str,
        kind: &Kind,
        object: &Value,
        original: &Value,
    ) -> Outcome {
        let namespace = text(object, "namespace");
        let name = text(object, "name").unwrap_or_default();
        let mut outcome = match self.door.create(kind, namespace, object).await {
            Ok(_) => Outcome::new(Fate::Created),
            Err(error) if is_there(&error) => match self.door.get(kind, namespace, name).await {
                Ok(Some(existing)) => self.meet(kind, object, &existing).await,
                Ok(None) => Outcome::failed(place(resource, namespace, name, &words(&error))),
                Err(error) => Outcome::failed(place(resource, namespace, name, &words(&error))),
            },
            Err(error) if code(&error) == Some(403) && self.stands(kind, object).await => {
                Outcome::new(Fate::Skipped)
            }
            Err(error) if is_without_right(&error) => {
                Outcome::failed(place(resource, namespace, name, &words(&error)))
            }
            // A full quota is told before that the object is there, and an answer may be lost.
            Err(error) => match self.door.get(kind, namespace, name).await {
                Ok(Some(existing)) => self.meet(kind, object, &existing).await,
                Ok(None) | Err(_) => {
                    Outcome::failed(place(resource, namespace, name, &words(&error)))
                }
            },
        };
        if outcome.fate == Fate::Created
            && wants_status(self.status, self.heeds_marks, resource, original)
        {
            outcome.warnings.extend(self.make_status(kind, object, original).await);
        }
        outcome
    }

    /// Whether an object that may not be made is there as it is wanted: nothing is to be done then. A
    /// namespace holds the very binding that gives a tenant its rights, which it could not make again.
    async fn stands(&self, kind: &Kind, wanted: &Value) -> bool {
        let (namespace, name) =
            (text(wanted, "namespace"), text(wanted, "name").unwrap_or_default());
        let found = self.own.get(kind, namespace, name).await;
        let found = found.ok().flatten();
        found.is_some_and(|it| edit::same_but_for_the_server(&it, wanted, self.rules))
    }

    /// The object is there already.
    async fn meet(&self, kind: &Kind, wanted: &Value, existing: &Value) -> Outcome {
        let name = text(wanted, "name").unwrap_or_default();
        if edit::same_but_for_the_server(existing, wanted, self.rules) {
            if self.existing == Existing::Update {
                let _ = self.patch(kind, wanted, &self.labels()).await;
            }
            return Outcome::new(Fate::Skipped);
        }
        if kind.kind == "ServiceAccount" && kind.group.is_empty() {
            return match merged_account(existing, wanted) {
                None => Outcome::new(Fate::Skipped),
                Some(patch) => match self.patch(kind, wanted, &patch).await {
                    Ok(()) => Outcome::new(Fate::Updated),
                    Err(error) => Outcome::warned(Fate::Failed, error),
                },
            };
        }
        let shown = match self.existing {
            Existing::Keep => format!("{}:{name}", kind.kind),
            Existing::KeepAsAsked => format!("{} \"{name}\"", kind.kind),
            Existing::Update => return self.update(kind, wanted, existing).await,
        };
        Outcome::warned(
            Fate::Skipped,
            format!(
                "could not restore, {shown} already exists. Warning: the in-cluster version is \
                 different than the backed-up version"
            ),
        )
    }

    async fn update(&self, kind: &Kind, wanted: &Value, existing: &Value) -> Outcome {
        let mut wanted_now = edit::comparable(wanted, self.rules);
        keep_what_the_server_chose(kind, &mut wanted_now, existing);
        let now = edit::comparable(existing, self.rules);
        let mut patch = difference(&now, &wanted_now).unwrap_or_else(|| json!({}));
        merge_into(&mut patch, self.labels());
        match self.patch(kind, wanted, &patch).await {
            Ok(()) => Outcome::new(Fate::Updated),
            Err(error) => {
                let name = text(wanted, "name").unwrap_or_default();
                let _ = self.patch(kind, wanted, &self.labels()).await;
                let message = format!("could not update {}:{name}: {error}", kind.kind);
                Outcome::warned(Fate::Failed, message)
            }
        }
    }

    fn labels(&self) -> Value {
        let mut marked = json!({"metadata": {}});
        edit::mark(&mut marked, self.rules);
        marked
    }

    async fn patch(&self, kind: &Kind, object: &Value, patch: &Value) -> Result<(), String> {
        let (namespace, name) =
            (text(object, "namespace"), text(object, "name").unwrap_or_default());
        let done = self.door.merge(kind, namespace, name, patch, None).await;
        done.map(drop).map_err(|error| words(&error))
    }

    async fn make_status(&self, kind: &Kind, object: &Value, original: &Value) -> Option<String> {
        let (namespace, name) =
            (text(object, "namespace"), text(object, "name").unwrap_or_default());
        let patch = json!({"status": original.get("status")});
        let done = self.door.merge(kind, namespace, name, &patch, Some("status")).await;
        done.err().map(|error| {
            format!("could not restore the status of {}:{name}: {}", kind.kind, words(&error))
        })
    }
}

fn wants_status(asked: Option<&Lists>, heeds_marks: bool, resource: &str, object: &Value) -> bool {
    let asked = match edit::annotation(object, names::RESTORE_STATUS) {
        Some("true") if heeds_marks => true,
        Some("false") => false,
        _ => asked.is_some_and(|lists| lists.holds(resource)),
    };
    asked && object.get("status").is_some_and(Value::is_object)
}

fn place(resource: &str, namespace: Option<&str>, name: &str, error: &str) -> String {
    match namespace {
        Some(namespace) => format!("error restoring {resource}/{namespace}/{name}: {error}"),
        None => format!("error restoring {resource}/{name}: {error}"),
    }
}

pub(crate) fn text<'o>(object: &'o Value, name: &str) -> Option<&'o str> {
    object.get("metadata")?.get(name)?.as_str()
}

fn is_there(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            (status.code == 409 && status.reason == "AlreadyExists")
                || status.message.contains("provided port is already allocated")
        }
        _ => code(error) == Some(409),
    }
}

/// Whether it was never looked at what was to be made.
fn is_without_right(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 403 && status.message.contains("cannot create resource"))
}

/// Fields that cannot be taken away once the server has filled them.
fn keep_what_the_server_chose(kind: &Kind, wanted: &mut Value, existing: &Value) {
    if !matches!(kind.kind.as_str(), "Service" | "PersistentVolumeClaim" | "Pod") {
        return;
    }
    let (Some(spec), Some(now)) = (
        wanted.get_mut("spec").and_then(Value::as_object_mut),
        existing.get("spec").and_then(Value::as_object),
    ) else {
        return;
    };
    for (key, value) in now {
        spec.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

/// What a service account lacks of what the backup had.
fn merged_account(existing: &Value, wanted: &Value) -> Option<Value> {
    let mut patch = Map::new();
    for list in ["secrets", "imagePullSecrets"] {
        let of = |it: &Value| it.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut all = of(existing);
        let missing: Vec<Value> = of(wanted).into_iter().filter(|it| !all.contains(it)).collect();
        if !missing.is_empty() {
            all.extend(missing);
            patch.insert(list.to_owned(), Value::Array(all));
        }
    }
    let mut metadata = Map::new();
    for map in ["labels", "annotations"] {
        let of = |it: &Value| {
            it.pointer(&format!("/metadata/{map}"))
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let has = of(existing);
        let missing: Map<String, Value> =
            of(wanted).into_iter().filter(|(key, _)| !has.contains_key(key)).collect();
        if !missing.is_empty() {
            metadata.insert(map.to_owned(), Value::Object(missing));
        }
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The merge patch that turns one document into the other.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in after {
        let change = match before.get(key) {
            Some(earlier) => difference(earlier, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

fn merge_into(patch: &mut Value, more: Value) {
    match (patch, more) {
        (Value::Object(patch), Value::Object(more)) => {
            for (key, value) in more {
                merge_into(patch.entry(key).or_insert(Value::Null), value);
            }
        }
        (patch, more) => *patch = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that refuses to make anything, with these words, and has this object.
    fn refusing(code: u16, words: &'static str, there: Option<Value>) -> Door {
        let service = tower::service_fn(move |asked: http::Request<kube::client::Body>| {
            let refused = json!({"kind": "Status", "message": words, "code": code});
            let missing = json!({"kind": "Status", "message": "not found", "code": 404});
            let (code, body) = match (asked.method(), &there) {
                (&http::Method::GET, Some(there)) => (200, there.clone()),
                (&http::Method::GET, None) => (404, missing),
                _ => (code, refused),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        });
        Door::new(kube::Client::new(service, "default"))
    }

    #[tokio::test]
    async fn an_object_that_is_there_is_met_whatever_else_stands_in_the_way_of_making_it() {
        const QUOTA: &str = "configmaps \"c\" is forbidden: exceeded quota: q";
        const RIGHT: &str = "configmaps is forbidden: User \"u\" cannot create resource";
        let catalog = crate::catalog::tests::sample();
        let kind = catalog.resource("configmaps").unwrap();
        let object =
            |data: &str| json!({"metadata": {"name": "c", "namespace": "n"}, "data": data});
        let cases = [
            (403, QUOTA, Some("a"), Fate::Skipped, 0, 0),
            (403, QUOTA, Some("b"), Fate::Skipped, 1, 0),
            (403, QUOTA, None, Fate::Failed, 0, 1),
            (403, RIGHT, Some("a"), Fate::Skipped, 0, 0),
            (403, RIGHT, Some("b"), Fate::Failed, 0, 1),
            (504, "the answer came too late", Some("a"), Fate::Skipped, 0, 0),
        ];
        for (code, words, there, fate, warnings, errors) in cases {
            let door = refusing(code, words, there.map(object));
            let rules = Rules::default();
            let maker = Maker {
                door: &door,
                own: &door,
                catalog: &catalog,
                rules: &rules,
                existing: Existing::Keep,
                status: None,
                heeds_marks: true,
            };
            let wanted = edit::prepare("configmaps", object("a"), &rules);
            let outcome = maker.make("configmaps", kind, &wanted, &object("a")).await;
            let found = (outcome.fate, outcome.warnings.len(), outcome.errors.len());
            assert_eq!(found, (fate, warnings, errors), "{words}, {there:?}");
        }
    }

    #[test]
    fn a_service_account_gains_and_never_loses() {
        let existing = json!({"metadata": {"labels": {"a": "1"}}, "secrets": [{"name": "x"}]});
        let wanted = json!({"metadata": {"labels": {"a": "2", "b": "3"}},
            "secrets": [{"name": "y"}]});
        assert_eq!(
            merged_account(&existing, &wanted),
            Some(json!({"secrets": [{"name": "x"}, {"name": "y"}],
                "metadata": {"labels": {"b": "3"}}}))
        );
        assert_eq!(merged_account(&existing, &existing), None);
    }

    #[test]
    fn an_archive_that_a_tenant_holds_does_not_say_whose_status_is_written() {
        let marked = |mark: &str| {
            json!({"metadata": {"annotations": {"velero.io/restore-status": mark}},
                "status": {"loadBalancer": {}}})
        };
        let all = Lists::new(Some(&vec!["*".to_owned()]), None);
        assert!(wants_status(None, true, "services", &marked("true")));
        assert!(!wants_status(None, false, "services", &marked("true")));
        assert!(wants_status(Some(&all), false, "services", &marked("true")), "it was asked for");
        assert!(!wants_status(Some(&all), false, "services", &marked("false")));
    }

    #[test]
    fn only_what_differs_is_sent() {
        let (old, new) = (json!({"a": 1, "b": {"c": 2}}), json!({"b": {"c": 3}}));
        assert_eq!(difference(&old, &new), Some(json!({"a": null, "b": {"c": 3}})));
        assert_eq!(difference(&old, &old), None);
    }
}
