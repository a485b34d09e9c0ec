//! The state of a running API server and the one door through which everything is written.
//!
//! [`Server::commit`] is the only caller of the store's `write`. What depends on stored objects
//! hangs on no caller: the access rules follow the store's writer, the served types are followed
//! whenever somebody asks for them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use crate::access::{Access, rbac_kind};
use crate::addresses::{self, Addresses, Reservation, ServiceRanges};
use crate::auth::rbac::{
    Attributes, EscalationError, Kind as RbacKind, RbacIndex, check_binding, check_role,
};
use crate::auth::service_account::{Accounts, BoundKind, ObjectRef};
use crate::auth::{self, Authenticator, User, audit::AuditLog};
use crate::definitions::{self, Names};
use crate::failure::{Failure, Subject};
use crate::flow::Flow;
use crate::heavy::Lanes;
use crate::metrics::Metrics;
use crate::registry::{CustomTypes, Registry, Resource};
use crate::rest::{Call, admit};
use crate::store::{Exceeded, Key, Store, Stored, Write, WriteError};

/// What else the task does that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Nothing: it is there for this request.
    Alone,
    /// It writes more at the same time, or has other work that must not wait for the disk.
    Others,
}

pub struct Server {
    pub store: Store,
    pub authenticator: Authenticator,
    pub tasks: tasks::Tasks,
    pub metrics: Metrics,
    pub audit: Option<AuditLog>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) lanes: Lanes,
    /// Shown in discovery documents.
    pub address: String,
    addresses: Arc<Addresses>,
    registry: RwLock<Arc<Registry>>,
    customs: Mutex<BTreeMap<String, CustomTypes>>,
    /// The last change of a definition that `customs` knows of.
    customs_at: AtomicU64,
    registry_changed: watch::Sender<u64>,
    access: Arc<Access>,
    /// Writes of definitions go one by one: their names must not collide.
    pub(crate) definitions: tokio::sync::Mutex<()>,
    /// Definitions of kinds that no controller acts on.
    unattended: OnceLock<BTreeSet<String>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// The first word counts: it is said once, at the start.
    pub(crate) fn declare_unattended(&self, definitions: BTreeSet<String>) {
        self.unattended.get_or_init(|| definitions);
    }

    /// What to say of a new object that nothing acts on.
    pub(crate) fn unattended(&self, resource: &Resource) -> Option<String> {
        let name = format!("{}.{}", resource.plural, resource.group);
        self.unattended.get()?.contains(&name).then(|| {
            format!(
                "no controller of this Holdfast acts on {} yet: the object is stored, and nothing \
                 else happens",
                resource.kind
            )
        })
    }

    pub fn new(
        store: Store,
        authenticator: Authenticator,
        tasks: tasks::Tasks,
        metrics: Metrics,
        audit: Option<AuditLog>,
        address: String,
        services: ServiceRanges,
    ) -> Self {
        let server = Self {
            store,
            authenticator,
            tasks,
            metrics,
            audit,
            flow: Arc::new(Flow::default()),
            lanes: Lanes::default(),
            address,
            addresses: Addresses::new(services),
            registry: RwLock::new(Arc::new(Registry::new(&BTreeMap::new()))),
            customs: Mutex::new(BTreeMap::new()),
            customs_at: AtomicU64::new(0),
            registry_changed: watch::Sender::new(0),
            access: Arc::new(Access::new()),
            definitions: tokio::sync::Mutex::new(()),
            unattended: OnceLock::new(),
        };
        let access = Arc::clone(&server.access);
        server.store.follow(move |event| access.follow(event));
        server.access.load(&server.store);
        server.follow_definitions();
        server
    }

    /// The served types. Whoever has seen a definition finds its type here, and whoever has seen
    /// it gone does not: the definitions are followed before the answer, not after the write.
    pub fn registry(&self) -> Arc<Registry> {
        let changed_at = self.store.changed_at(definitions::ID);
        if self.customs_at.load(Ordering::Acquire) < changed_at {
            self.follow_definitions();
            self.customs_at.fetch_max(changed_at, Ordering::AcqRel);
        }
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes whenever the set of served types does.
    pub fn registry_changes(&self) -> watch::Receiver<u64> {
        self.registry_changed.subscribe()
    }

    /// Definitions that wait until another one gives up a name.
    pub fn definitions_without_names(&self) -> Vec<String> {
        let customs = self.customs.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = customs.iter().filter(|(_, types)| types.waits_for_names);
        waiting.map(|(name, _)| name.clone()).collect()
    }

    /// The names of all types in a group but those of one definition.
    fn taken_names(&self, group: &str, except: &str) -> Names {
        let customs = self.customs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Names::built_in(group);
        for (_, types) in customs.iter().filter(|(name, _)| name.as_str() != except) {
            if types.group == group {
                taken.add(&types.names);
            }
        }
        taken
    }

    /// Changes whenever rights may have.
    pub(crate) fn access_changes(&self) -> watch::Receiver<u64> {
        self.access.changes()
    }

    /// Where those changes stand.
    pub(crate) fn access_state(&self) -> u64 {
        self.access.state()
    }

    pub fn rbac(&self) -> RwLockReadGuard<'_, RbacIndex> {
        self.access.rules()
    }

    /// Writes; the type that a definition makes is served when this returns.
    pub async fn commit(
        &self,
        write: impl Borrow<Write>,
        company: Company,
    ) -> Result<Arc<Stored>, WriteError> {
        let is_definition = *write.borrow().key.resource == *definitions::ID;
        let result = match company {
            Company::Alone => self.store.write_here(write).await,
            Company::Others => self.store.write(write).await,
        };
        if is_definition {
            self.registry();
        }
        result
    }

    /// Re-reads definitions and serves what they say now.
    fn follow_definitions(&self) {
        let mut customs = self.customs.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the newest state wins whatever the order.
        let stored = self.store.list(definitions::ID, None).items;
        let count = customs.len();
        customs.retain(|name, _| stored.iter().any(|one| *one.key.name == **name));
        let mut changed = customs.len() != count;
        for one in &stored {
            let name = &*one.key.name;
            let before = customs.get(name);
            if before.is_some_and(|before| before.revision == one.revision) {
                continue;
            }
            match definitions::types(one, before) {
                Some(types) => {
                    changed = true;
                    customs.insert(name.to_owned(), types);
                }
                None => changed |= customs.remove(name).is_some(),
            }
        }
        if changed {
            let next = Arc::new(Registry::new(&customs));
            *self.registry.write().unwrap_or_else(PoisonError::into_inner) = next;
            self.registry_changed.send_modify(|count| *count += 1);
        }
    }

    /// Writing roles must not hand out rights the writer does not have.
    pub fn guard_grants(
        &self,
        user: &User,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let Some(kind) = rbac_kind(resource) else { return Ok(()) };
        let index = self.rbac();
        let checked = match kind {
            RbacKind::Role | RbacKind::ClusterRole => check_role(&index, user, kind, new, old),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                check_binding(&index, user, new, old)
            }
        };
        let subject = admit::subject(resource, admit::metadata_text(new, "name"));
        checked.map_err(|error| match error {
            EscalationError::NotHeld(text) => {
                let text =
                    format!("{} {:?} is forbidden: {text}", subject.qualified(), subject.name);
                Failure::forbidden(text).about(subject)
            }
            EscalationError::NoSuchRole { kind, name } => {
                Failure::not_found(Subject::new(auth::rbac::GROUP, kind.resource(), &name))
            }
        })
    }

    pub fn authorize(&self, wanted: &Attributes<'_>) -> Result<(), Failure> {
        if self.rbac().authorize(wanted).allowed {
            return Ok(());
        }
        let mut failure = Failure::forbidden(auth::forbidden_message(wanted));
        if wanted.path.is_none() {
            failure = failure.about(Subject::new(wanted.group, wanted.resource, wanted.name));
        } else {
            failure = failure.about(Subject::default());
        }
        Err(failure)
    }

    /// Applying or putting what does not exist is creating it.
    pub fn authorize_create(&self, call: &Call, name: &str) -> Result<(), Failure> {
        self.authorize(&Attributes {
            verb: "create",
            group: &call.resource.group,
            resource: &call.resource.plural,
            namespace: call.namespace().unwrap_or_default(),
            name,
            ..Attributes::of(&call.user)
        })
    }

    /// Takes from a status that was sent what it is not for the sender to say.
    pub(crate) fn keep(resource: &Resource, object: &mut Value, old: &Value) {
        if *resource.id == *definitions::ID {
            definitions::keep_names(object, old);
        }
    }

    /// Definitions get their status in the write itself.
    pub fn settle(&self, resource: &Resource, object: &mut Value, now: Timestamp) {
        if *resource.id == *definitions::ID {
            let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
            let taken = self.taken_names(group, admit::metadata_text(object, "name"));
            definitions::settle(object, &taken, now);
        }
    }

    /// Services get addresses and node ports of their own; to be settled after the write.
    pub(crate) fn reserve(
        &self,
        resource: &Resource,
        key: &Key,
        object: &mut Value,
    ) -> Result<Option<Reservation>, Failure> {
        if *resource.id != *addresses::ID {
            return Ok(None);
        }
        let reserved = self.addresses.reserve(&self.store, key, object);
        reserved.map(Some).map_err(|causes| admit::invalid(resource, &key.name, &causes))
    }

    /// A definition must not take the place of a type of the server's own. Names that were there
    /// before are let be: such a definition is not served, and must be deletable.
    pub fn guard_names(
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Failure> {
        let names = |object: &Value| object.pointer("/spec/names").cloned();
        if *resource.id != *definitions::ID || old.is_some_and(|old| names(old) == names(new)) {
            return Ok(());
        }
        let causes = definitions::collisions(new);
        if causes.is_empty() {
            return Ok(());
        }
        Err(admit::invalid(resource, admit::metadata_text(new, "name"), &causes))
    }

    /// Held while a definition is judged and written, so that two cannot take one name.
    pub async fn one_definition_at_a_time(
        &self,
        resource: &Resource,
    ) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if *resource.id == *definitions::ID { Some(self.definitions.lock().await) } else { None }
    }
}

/// A refused write as the client should hear of it.
pub(crate) fn write_failure(resource: &Resource, name: &str, error: WriteError) -> Failure {
    let subject = admit::subject(resource, name);
    match error {
        WriteError::Exists => Failure::already_exists(subject, false),
        WriteError::Conflict { current: None } => Failure::not_found(subject),
        WriteError::Conflict { current: Some(_) } | WriteError::RequirementChanged => {
            Failure::stale(subject)
        }
        WriteError::Full => Failure::storage_full(),
        WriteError::Quota(limit @ Exceeded::Total(_)) => Failure::quota_used_up(&limit.to_string()),
        WriteError::Quota(limit) => {
            let text = format!(
                "{} {:?} is forbidden: exceeded quota: {limit}",
                subject.qualified(),
                subject.name
            );
            Failure::forbidden(text).about(subject)
        }
        WriteError::Stopped => Failure::unavailable("the server is shutting down"),
        WriteError::TooLarge { limit_bytes, .. } => Failure::too_large(limit_bytes),
        WriteError::Invalid(text) => {
            Failure::bad_request(format!("the object cannot be stored: {text}"))
        }
        WriteError::Storage(error) => {
            tracing::error!(
                error = %telemetry::Chain(&*error),
                resource = %resource.id,
                name,
                "write to the object store failed"
            );
            Failure::internal("the object store could not write; the server log says why")
        }
    }
}

/// Looks service accounts up for the authenticator.
#[derive(Debug, Clone)]
pub(crate) struct StoredAccounts(pub Store);

impl Accounts for StoredAccounts {
    fn account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        let account = self.0.get("/serviceaccounts", namespace, name)?;
        Some(account.meta.uid.to_string())
    }

    fn bound_object_exists(&self, kind: BoundKind, namespace: &str, object: &ObjectRef) -> bool {
        let (plural, scope) = bound_place(kind, namespace);
        self.0
            .get(&format!("/{plural}"), scope, &object.name)
            .is_some_and(|found| *found.meta.uid == *object.uid && !found.meta.deleting)
    }
}

/// Where objects that tokens may be bound to are kept.
pub(crate) fn bound_place(kind: BoundKind, namespace: &str) -> (&'static str, &str) {
    match kind {
        BoundKind::Pod => ("pods", namespace),
        BoundKind::Secret => ("secrets", namespace),
        BoundKind::Node => ("nodes", ""),
    }
}
