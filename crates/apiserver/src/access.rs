//! The access rules in force: an index of the stored roles and bindings.
//!
//! It follows the store's writer, change by change and before anyone can see the change: rights
//! that were taken away are gone when the deletion can be read, whether or not the one who asked
//! for it waited for the answer.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;

use crate::auth;
use crate::auth::rbac::{Kind, RbacIndex};
use crate::registry::Resource;
use crate::store::{Event, EventKind, Store, Stored};

/// Where namespaces are kept.
const NAMESPACES: &str = "/namespaces";

#[derive(Debug)]
pub(crate) struct Access {
    index: RwLock<RbacIndex>,
    /// Moves with every change, for those whose requests last.
    changes: watch::Sender<u64>,
}

impl Access {
    pub(crate) fn new() -> Self {
        Self { index: RwLock::new(RbacIndex::default()), changes: watch::Sender::new(0) }
    }

    /// Takes in what is stored.
    pub(crate) fn load(&self, store: &Store) {
        for kind in Kind::ALL {
            for stored in store.list(&id_of(kind), None).items {
                self.put(kind, &stored);
            }
        }
        let is_there = |name: &str| store.get(NAMESPACES, "", name).is_some();
        self.always(|index| index.only_in(is_there));
    }

    /// Takes in one change.
    pub(crate) fn follow(&self, event: &Event) {
        let key = &event.object.key;
        if *key.resource == *NAMESPACES {
            return match event.kind {
                EventKind::Put if event.is_creation() => self.always(|it| it.enter(&key.name)),
                EventKind::Put => {}
                EventKind::Delete => self.always(|it| it.leave(&key.name)),
            };
        }
        let Some(kind) = kind_of(&key.resource) else { return };
        match event.kind {
            EventKind::Put => self.put(kind, &event.object),
            EventKind::Delete => self.remove(kind, &event.object),
        }
    }

    fn put(&self, kind: Kind, stored: &Stored) {
        match stored.value() {
            Ok(object) => self.change(|index| index.upsert(kind, &object)),
            Err(error) => {
                // Nobody can tell what it grants, so it grants nothing.
                tracing::error!(%error, name = %stored.key.name, "a stored access rule is not readable");
                self.remove(kind, stored);
            }
        }
    }

    fn remove(&self, kind: Kind, stored: &Stored) {
        self.always(|index| index.remove(kind, &stored.key.namespace, &stored.key.name));
    }

    fn always(&self, act: impl FnOnce(&mut RbacIndex)) {
        self.change(|index| {
            act(index);
            true
        });
    }

    /// Everybody whose request lasts is asked for its rights again, so only if they may be others.
    fn change(&self, act: impl FnOnce(&mut RbacIndex) -> bool) {
        if act(&mut self.index.write().unwrap_or_else(PoisonError::into_inner)) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Another number after every change.
    pub(crate) fn state(&self) -> u64 {
        *self.changes.borrow()
    }

    pub(crate) fn rules(&self) -> RwLockReadGuard<'_, RbacIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a type has to say about rights. By where it is stored, not by what it calls itself.
pub(crate) fn rbac_kind(resource: &Resource) -> Option<Kind> {
    kind_of(&resource.id)
}

fn kind_of(id: &str) -> Option<Kind> {
    let plural = id.strip_prefix(auth::rbac::GROUP)?.strip_prefix('/')?;
    Kind::ALL.into_iter().find(|kind| kind.resource() == plural)
}

fn id_of(kind: Kind) -> String {
    format!("{}/{}", auth::rbac::GROUP, kind.resource())
}
