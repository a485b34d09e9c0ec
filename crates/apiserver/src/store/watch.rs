//! Following changes. A watcher is a position in the shared history, nothing more: it has no
//! buffer, so a slow one costs nothing and learns that it is too late instead of missing events.

use std::sync::Arc;

use tokio::sync::watch;

use super::Shared;
use super::error::TooOld;
use super::object::Event;
use super::state::{Log, State};

/// Bounds of what one call of [`Watcher::next`] returns.
const MAX_BATCH_EVENTS: usize = 256;
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Delivers every change after a revision exactly once, in order.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    scope: Scope,
    changed: watch::Receiver<u64>,
    /// Everything up to here was delivered, or lies outside the scope.
    position: u64,
}

#[derive(Debug)]
enum Scope {
    All,
    Resource { resource: Box<str>, namespace: Option<Box<str>> },
}

impl Scope {
    fn holds(&self, event: &Event) -> bool {
        match self {
            Self::All | Self::Resource { namespace: None, .. } => true,
            Self::Resource { namespace: Some(namespace), .. } => {
                **namespace == *event.object.key.namespace
            }
        }
    }

    fn log<'a>(&self, state: &'a State) -> Option<&'a Log> {
        match self {
            Self::All => Some(state.feed()),
            Self::Resource { resource, .. } => state.log(resource),
        }
    }
}

impl Watcher {
    pub(super) fn of_resource(
        shared: Arc<Shared>,
        resource: &str,
        namespace: Option<&str>,
        from: u64,
    ) -> Result<Self, TooOld> {
        let known = shared.read().announcements(resource);
        let changed = known.unwrap_or_else(|| shared.change().announcements_of_new(resource));
        let scope =
            Scope::Resource { resource: resource.into(), namespace: namespace.map(Box::from) };
        Self { shared, scope, changed, position: from }.checked()
    }

    pub(super) fn of_all(shared: Arc<Shared>, from: u64) -> Result<Self, TooOld> {
        let changed = shared.revision.subscribe();
        Self { shared, scope: Scope::All, changed, position: from }.checked()
    }

    /// Says at the start, not at the first change, that the history does not reach back.
    fn checked(self) -> Result<Self, TooOld> {
        {
            let state = self.shared.read();
            if let Scope::Resource { namespace, .. } = &self.scope {
                state.check_end(namespace.as_deref(), self.position)?;
            }
            if let Some(log) = self.scope.log(&state) {
                let _reachable = log.since(self.position)?;
            }
        }
        Ok(self)
    }

    /// Waits for changes, and returns some of those that are there, at least one.
    ///
    /// # Errors
    ///
    /// When the watcher was so slow that the history has moved past it.
    ///
    /// # Cancel safety
    ///
    /// An event counts as delivered only when it is returned.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, TooOld> {
        loop {
            // Marked as seen before looking, so that what comes in between wakes us.
            self.changed.borrow_and_update();
            let events = self.take()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.changed.changed().await.is_err() {
                // The sender lives in `shared`, which we hold.
                std::future::pending::<()>().await;
            }
        }
    }

    fn take(&mut self) -> Result<Vec<Arc<Event>>, TooOld> {
        let state = self.shared.read();
        let Some(log) = self.scope.log(&state) else { return Ok(Vec::new()) };
        let mut events = Vec::new();
        let mut bytes = 0_usize;
        for event in log.since(self.position)? {
            if events.len() >= MAX_BATCH_EVENTS || bytes >= MAX_BATCH_BYTES {
                return Ok(events);
            }
            self.position = event.revision;
            if self.scope.holds(event) {
                bytes = bytes.saturating_add(event.object.body.len());
                events.push(Arc::clone(event));
            }
        }
        // There is nothing more, so everything up to now is delivered.
        self.position = self.position.max(state.revision());
        Ok(events)
    }

    /// The revision up to which everything in scope was returned by [`Self::next`]: what a
    /// bookmark may say.
    pub fn progress(&self) -> u64 {
        let state = self.shared.read();
        let Some(log) = self.scope.log(&state) else { return self.position };
        let Ok(mut events) = log.since(self.position) else { return self.position };
        if events.any(|event| self.scope.holds(event)) {
            self.position
        } else {
            self.position.max(state.revision())
        }
    }
}
