//! Delete: at once, or marked and left to whoever holds a finalizer.
//!
//! [`decide`] is the whole policy as a pure function; the rest reads, writes and answers.

use axum::response::Response;
use futures::StreamExt;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::options::{DeleteOptions, Propagation};
use super::select::Selection;
use super::view::{self, RowObject};
use super::{Call, admit, decode, list, read};
use crate::clock;
use crate::definitions;
use crate::failure::{Failure, Subject};
use crate::registry::Resource;
use crate::server::{Company, Server, write_failure};
use crate::store::{Change, Expected, Key, Stored, Write, WriteError};

/// How often a deletion may be overtaken by other writers.
const RACE_TRIES: usize = 32;
/// Deletions of a collection in flight at once: enough to share commits.
const PARALLEL_DELETES: usize = 64;
/// How long a scheduled pod may take to stop.
const POD_GRACE_SECONDS: i64 = 30;
/// Keeps a definition until its objects are gone.
pub(crate) const DEFINITION_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Keeps a namespace until its contents are gone.
pub(crate) const NAMESPACE_FINALIZER: &str = "kubernetes";
pub(crate) const ORPHAN: &str = "orphan";
pub(crate) use crate::store::FOREGROUND;

/// What a delete request does to an object.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It goes now.
    Remove,
    /// It stays, marked; this is its new state.
    Mark(Box<Value>),
    /// It is marked already and nothing changes.
    Keep,
}

/// What of a type matters for its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    Plain,
    Namespace,
    Pod,
    Definition,
}

impl Habit {
    pub(crate) fn of(resource: &Resource) -> Self {
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Namespace") => Self::Namespace,
            ("", "Pod") => Self::Pod,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definition,
            _ => Self::Plain,
        }
    }
}

/// The deletion policy.
pub(crate) fn decide(
    habit: Habit,
    counts_generations: bool,
    object: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Outcome {
    let before: Vec<&str> = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|all| all.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut finalizers: Vec<&str> = before.clone();
    match options.propagation {
        Some(Propagation::Orphan) => swap(&mut finalizers, FOREGROUND, Some(ORPHAN)),
        Some(Propagation::Foreground) => swap(&mut finalizers, ORPHAN, Some(FOREGROUND)),
        Some(Propagation::Background) => {
            swap(&mut finalizers, FOREGROUND, None);
            swap(&mut finalizers, ORPHAN, None);
        }
        None => {}
    }
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    if habit == Habit::Definition && !deleting {
        swap(&mut finalizers, "", Some(DEFINITION_FINALIZER));
    }
    let own = object.pointer("/spec/finalizers").and_then(Value::as_array).map(Vec::as_slice);
    let mut own: Vec<&str> = own.unwrap_or_default().iter().filter_map(Value::as_str).collect();
    if habit == Habit::Namespace && !deleting {
        // Whoever took it off before: the contents go first.
        swap(&mut own, "", Some(NAMESPACE_FINALIZER));
    }
    let held_namespace = habit == Habit::Namespace && !own.is_empty();
    let grace = grace_seconds(habit, object, options);
    if finalizers.is_empty() && grace == 0 && !held_namespace {
        return Outcome::Remove;
    }
    let left = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    if deleting && finalizers == before && left.is_none_or(|left| grace >= left) {
        return Outcome::Keep;
    }
    let mut marked = object.clone();
    let finalizers: Vec<Value> = finalizers.into_iter().map(Value::from).collect();
    mark(&mut marked, deleting, finalizers, grace, counts_generations, now);
    if habit == Habit::Namespace {
        let whole = admit::object_mut(&mut marked);
        let mut set = |part: &str, member: &str, value: Value| {
            let part = whole.entry(part).or_insert_with(|| json!({}));
            admit::object_mut(part).insert(member.to_owned(), value);
        };
        set("spec", "finalizers", own.into());
        set("status", "phase", "Terminating".into());
    }
    Outcome::Mark(Box::new(marked))
}

/// Takes one finalizer out and puts another in.
fn swap<'a>(finalizers: &mut Vec<&'a str>, out: &str, into: Option<&'a str>) {
    finalizers.retain(|one| *one != out);
    if let Some(into) = into
        && !finalizers.contains(&into)
    {
        finalizers.push(into);
    }
}

/// Only pods that run somewhere get time to stop.
fn grace_seconds(habit: Habit, object: &Value, options: &DeleteOptions) -> i64 {
    let scheduled = object
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty());
    let finished = matches!(
        object.pointer("/status/phase").and_then(Value::as_str),
        Some("Succeeded" | "Failed")
    );
    if habit != Habit::Pod || !scheduled || finished {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace_period_seconds.or(own).unwrap_or(POD_GRACE_SECONDS).max(0)
}

fn mark(
    object: &mut Value,
    deleting: bool,
    finalizers: Vec<Value>,
    grace: i64,
    counts_generations: bool,
    now: Timestamp,
) {
    let metadata = admit::metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    if !deleting || grace == 0 {
        metadata.entry("deletionTimestamp").or_insert_with(|| clock::seconds(at).into());
    }
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if !deleting && counts_generations {
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// What became of an object.
pub(crate) enum Deleted {
    Gone(std::sync::Arc<Stored>),
    Marked(Value),
}

pub(crate) async fn delete(server: &Server, call: &Call, name: &str) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let options = delete_options(call)?;
    let key = resource.key(call.namespace(), name);
    let deleted = delete_object(server, resource, &key, &options, call.now, Company::Alone).await?;
    match deleted {
        Deleted::Gone(last) if returns_object(resource) => view::stored_response(
            resource,
            StatusCode::OK,
            &last,
            call.answer,
            call.now,
            RowObject::Metadata,
        ),
        Deleted::Gone(last) => {
            Ok(view::deleted_response(resource, name, &last.meta.uid, call.answer))
        }
        Deleted::Marked(object) => view::object_response(
            resource,
            StatusCode::OK,
            &object,
            call.answer,
            call.now,
            RowObject::Metadata,
        ),
    }
}

fn returns_object(resource: &Resource) -> bool {
    resource.built_in().is_some_and(|kind| kind.delete_returns_object)
}

fn delete_options(call: &Call) -> Result<DeleteOptions, Failure> {
    let body = decode::sent(decode::DELETE_OPTIONS, &call.resource, &call.headers, &call.body)?;
    DeleteOptions::parse(&call.query, &body)
}

/// Deletes one object, whoever asks: a client, the garbage collector, a namespace that goes.
pub(crate) async fn delete_object(
    server: &Server,
    resource: &Resource,
    key: &Key,
    options: &DeleteOptions,
    now: Timestamp,
    company: Company,
) -> Result<Deleted, Failure> {
    delete_if(server, resource, key, options, now, company, |_| true).await
}

/// [`delete_object`], if it is the one that is meant when it goes; else it is not found.
async fn delete_if(
    server: &Server,
    resource: &Resource,
    key: &Key,
    options: &DeleteOptions,
    now: Timestamp,
    company: Company,
    is_meant: impl Fn(&Stored) -> bool,
) -> Result<Deleted, Failure> {
    for _ in 0..RACE_TRIES {
        let stored = read::find(server, resource, Some(&key.namespace), &key.name)?;
        if !is_meant(&stored) {
            return Err(Failure::not_found(admit::subject(resource, &key.name)));
        }
        check_preconditions(resource, &stored, options)?;
        check_protected(resource, &key.name)?;
        let object = view::value(resource, &stored)?;
        let counts = stored.meta.generation.is_some();
        let (change, marked) = match decide(Habit::of(resource), counts, &object, options, now) {
            Outcome::Keep => return Ok(Deleted::Marked(object)),
            Outcome::Remove => (Change::Delete(view::to_stored(resource, object)), false),
            Outcome::Mark(object) => {
                let object = match Habit::of(resource) {
                    Habit::Definition => definitions::terminating(*object, now),
                    Habit::Plain | Habit::Namespace | Habit::Pod => *object,
                };
                if options.dry_run {
                    return Ok(Deleted::Marked(object));
                }
                (Change::Put(view::to_stored(resource, object)), true)
            }
        };
        if options.dry_run {
            return Ok(Deleted::Gone(stored));
        }
        let expected = Expected::Revision(stored.revision);
        let write = Write { key: stored.key.clone(), expected, require: Vec::new(), change };
        match server.commit(write, company).await {
            Ok(written) if marked => return Ok(Deleted::Marked(view::value(resource, &written)?)),
            // Clients are shown the object as it was, not with the revision of its end.
            Ok(_) => return Ok(Deleted::Gone(stored)),
            Err(WriteError::Conflict { .. }) if options.resource_version.is_none() => {}
            Err(error) => return Err(write_failure(resource, &key.name, error)),
        }
    }
    Err(Failure::stale(admit::subject(resource, &key.name)))
}

fn check_preconditions(
    resource: &Resource,
    stored: &Stored,
    options: &DeleteOptions,
) -> Result<(), Failure> {
    let subject = || Subject::new(&resource.group, &resource.kind, &stored.key.name);
    if let Some(uid) = &options.uid
        && **uid != *stored.meta.uid
    {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            stored.meta.uid
        );
        return Err(Failure::conflict(subject(), &why));
    }
    if let Some(version) = &options.resource_version
        && *version != stored.revision.to_string()
    {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in \
             object meta: {}",
            stored.revision
        );
        return Err(Failure::conflict(subject(), &why));
    }
    Ok(())
}

/// Namespaces the system itself lives in.
fn check_protected(resource: &Resource, name: &str) -> Result<(), Failure> {
    let protected = Habit::of(resource) == Habit::Namespace
        && matches!(name, "default" | "kube-system" | "kube-public");
    if protected {
        let text = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        return Err(Failure::forbidden(text).about(admit::subject(resource, name)));
    }
    Ok(())
}

pub(crate) async fn delete_collection(server: &Server, call: &Call) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let options = delete_options(call)?;
    let selection = Selection::parse(resource, &call.query)?;
    // What a list with these options shows is what goes: a limit limits.
    let (items, meta) = read::select(server, call, &selection).await?;
    let is_selected = |one: &Stored| selection.matches(resource, one);
    delete_all(server, resource, &items, &options, call.now, is_selected).await?;
    list::respond(server, call, items, &meta, RowObject::Metadata).await
}

/// Deletes many objects side by side. The first real failure is returned, after all were tried.
pub(crate) async fn delete_all(
    server: &Server,
    resource: &Resource,
    items: &[std::sync::Arc<Stored>],
    options: &DeleteOptions,
    now: Timestamp,
    is_selected: impl Fn(&Stored) -> bool,
) -> Result<(), Failure> {
    let is_selected = &is_selected;
    let results: Vec<Result<Deleted, Failure>> = futures::stream::iter(items.to_vec())
        .map(|item| async move {
            // Another may have its name by now, or it may be one that was not asked for any more.
            let is_meant = |found: &Stored| {
                found.meta.uid == item.meta.uid
                    && (found.revision == item.revision || is_selected(found))
            };
            let company = Company::Others;
            delete_if(server, resource, &item.key, options, now, company, is_meant).await
        })
        .buffer_unordered(PARALLEL_DELETES)
        .collect()
        .await;
    results
        .into_iter()
        .filter_map(Result::err)
        .find(|failure| failure.code() != StatusCode::NOT_FOUND)
        .map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn plain(object: &Value, options: &DeleteOptions) -> Outcome {
        decide(Habit::Plain, true, object, options, now())
    }

    fn marked(outcome: Outcome) -> Value {
        match outcome {
            Outcome::Mark(object) => *object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_object_nobody_holds_goes_at_once() {
        let object = json!({"metadata": {"name": "a"}});
        assert_eq!(plain(&object, &DeleteOptions::default()), Outcome::Remove);
    }

    #[test]
    fn a_held_object_is_marked_once_and_its_generation_moves() {
        let object = json!({"metadata": {"finalizers": ["x.io/a"], "generation": 3}});
        let object = marked(plain(&object, &DeleteOptions::default()));
        assert_eq!(object["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(object["metadata"]["generation"], 4);
        assert_eq!(plain(&object, &DeleteOptions::default()), Outcome::Keep);
    }

    #[test]
    fn policies_hold_the_object_for_the_collector() {
        let object = json!({"metadata": {"generation": 1}});
        for (policy, finalizer) in
            [(Propagation::Orphan, ORPHAN), (Propagation::Foreground, FOREGROUND)]
        {
            let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() };
            let object = marked(plain(&object, &options));
            assert_eq!(object["metadata"]["finalizers"], json!([finalizer]));
        }
    }

    #[test]
    fn a_scheduled_pod_gets_its_grace_and_a_second_delete_ends_it() {
        let pod = json!({"metadata": {}, "spec": {"nodeName": "n"}});
        let decide =
            |pod: &Value, options: &DeleteOptions| decide(Habit::Pod, true, pod, options, now());
        let pod = marked(decide(&pod, &DeleteOptions::default()));
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
        assert_eq!(decide(&pod, &DeleteOptions::default()), Outcome::Keep);
        let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        assert_eq!(decide(&pod, &now), Outcome::Remove);
    }

    #[test]
    fn a_namespace_waits_for_its_contents() {
        let decide = |namespace: &Value| {
            decide(Habit::Namespace, false, namespace, &DeleteOptions::default(), now())
        };
        // Also one whose finalizer somebody took off before.
        for spec in [json!({"finalizers": ["kubernetes"]}), json!({})] {
            let mut namespace = marked(decide(&json!({"metadata": {}, "spec": spec})));
            assert_eq!(namespace["status"]["phase"], "Terminating");
            assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
            assert_eq!(decide(&namespace), Outcome::Keep);
            namespace["spec"]["finalizers"] = json!([]);
            assert_eq!(decide(&namespace), Outcome::Remove);
        }
    }
}
