//! The store in memory: tables, indexes and the bounded history. Pure: no lock, no file, no clock.
//!
//! Owns the rules of what a revision, a snapshot and a history floor are. Changes come in only
//! through [`State::apply`], in revision order, after they are durable.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::error::TooOld;
use super::object::{Event, EventKind, Key, Stored};

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub events: usize,
    pub bytes: usize,
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub objects: usize,
    /// Of their encoded forms.
    pub bytes: usize,
}

impl Size {
    pub(super) fn add(&mut self, object: &Stored) {
        self.objects = self.objects.saturating_add(1);
        self.bytes = self.bytes.saturating_add(object.body.len());
    }

    pub(super) fn subtract(&mut self, object: &Stored) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(object.body.len());
    }
}

/// Objects in order, and the revision at which they were all there.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub items: Vec<Arc<Stored>>,
}

/// A part of a snapshot, and how many objects follow it.
#[derive(Debug, Clone)]
pub struct Page {
    pub revision: u64,
    pub items: Vec<Arc<Stored>>,
    pub remaining: usize,
}

/// Which part of a table a page covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    pub(super) namespace: Option<&'a str>,
    /// Namespace and name of the last object before the page.
    pub(super) after: Option<(&'a str, &'a str)>,
    pub(super) limit: usize,
}

impl Range<'_> {
    fn holds(&self, place: (&str, &str)) -> bool {
        self.namespace.is_none_or(|namespace| namespace == place.0)
            && self.after.is_none_or(|after| place > after)
    }
}

/// Events in revision order. Everything newer than `floor` is there.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Arc<Event>>,
    floor: u64,
    bytes: usize,
}

impl Log {
    fn new(floor: u64) -> Self {
        Self { events: VecDeque::new(), floor, bytes: 0 }
    }

    fn push(&mut self, event: Arc<Event>) {
        self.bytes = self.bytes.saturating_add(event.cost_bytes());
        self.events.push_back(event);
    }

    fn evict(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(event.cost_bytes());
        self.floor = event.revision;
        Some(event)
    }

    fn is_over(&self, budget: Budget) -> bool {
        self.events.len() > budget.events || self.bytes > budget.bytes
    }

    /// The events newer than `revision`.
    pub(super) fn since(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Event>>, TooOld> {
        if revision < self.floor {
            return Err(TooOld { requested: revision, oldest: self.floor });
        }
        let start = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.range(start..))
    }
}

#[derive(Debug)]
struct Table {
    namespaces: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Stored>>>,
    size: Size,
    log: Log,
    /// The revision of the last change.
    changed_at: u64,
    changed: Arc<watch::Sender<u64>>,
}

impl Table {
    fn new(floor: u64) -> Self {
        Self {
            namespaces: BTreeMap::new(),
            size: Size::default(),
            log: Log::new(floor),
            changed_at: floor,
            changed: Arc::new(watch::Sender::new(floor)),
        }
    }

    fn insert(&mut self, object: Arc<Stored>) {
        let names = self.namespaces.entry(Arc::clone(&object.key.namespace)).or_default();
        self.size.add(&object);
        if let Some(before) = names.insert(Arc::clone(&object.key.name), object) {
            self.size.subtract(&before);
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(names) = self.namespaces.get_mut(&key.namespace) else { return };
        if let Some(before) = names.remove(&key.name) {
            self.size.subtract(&before);
        }
        if names.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
    }

    /// The objects of a range, its limit aside, in order.
    fn scan<'a>(&'a self, range: Range<'a>) -> impl Iterator<Item = &'a Arc<Stored>> {
        let bounds = match (range.namespace, range.after) {
            (Some(namespace), _) => (Bound::Included(namespace), Bound::Included(namespace)),
            (None, Some((namespace, _))) => (Bound::Included(namespace), Bound::Unbounded),
            (None, None) => (Bound::Unbounded, Bound::Unbounded),
        };
        self.namespaces
            .range::<str, _>(bounds)
            .filter(move |(namespace, _)| {
                range.after.is_none_or(|(after, _)| ***namespace >= *after)
            })
            .flat_map(move |(namespace, names)| {
                let start = match range.after {
                    Some((after, name)) if **namespace == *after => Bound::Excluded(name),
                    _ => Bound::Unbounded,
                };
                names.range::<str, _>((start, Bound::Unbounded)).map(|(_, object)| object)
            })
    }

    /// The objects that were different at `revision`, as they were then.
    fn undo(&self, revision: u64) -> Result<Undone<'_>, TooOld> {
        // The oldest event of an object decides: walking backwards, it is inserted last.
        Ok(self
            .log
            .since(revision)?
            .rev()
            .map(|event| (place(&event.object), event.previous.as_ref()))
            .collect())
    }
}

type Undone<'a> = BTreeMap<(&'a str, &'a str), Option<&'a Arc<Stored>>>;

fn place(object: &Stored) -> (&str, &str) {
    (&object.key.namespace, &object.key.name)
}

/// An object in the index by uid; stands for its uid without a copy of it.
#[derive(Debug)]
struct ByUid(Arc<Stored>);

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        &self.0.meta.uid
    }
}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.meta.uid.hash(state);
    }
}

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        self.0.meta.uid == other.0.meta.uid
    }
}

impl Eq for ByUid {}

/// Where namespaces are kept. What was in one that ended is not history of the next of its name.
const NAMESPACES: &str = "/namespaces";
/// Ends of namespaces that are told apart.
const MAX_ENDS: usize = 1024;

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    opened_at: u64,
    tables: BTreeMap<Arc<str>, Table>,
    uids: HashSet<ByUid>,
    owners: HashMap<Box<str>, BTreeSet<Key>>,
    /// What each namespace holds, that of the cluster's own objects (empty) included.
    sizes: HashMap<Arc<str>, Size>,
    all: Size,
    /// The revisions at which namespaces ended.
    ends: HashMap<Arc<str>, u64>,
    /// The same for all whose ends are no longer told apart.
    ended_before: u64,
    /// All events, for those who follow every resource.
    feed: Log,
    feed_budget: Budget,
    history_budget: Budget,
    /// Sums over the logs of all tables.
    history_bytes: usize,
    history_events: usize,
}

impl State {
    pub(super) fn new(revision: u64, history_budget: Budget, feed_budget: Budget) -> Self {
        Self {
            revision,
            opened_at: revision,
            tables: BTreeMap::new(),
            uids: HashSet::new(),
            owners: HashMap::new(),
            sizes: HashMap::new(),
            all: Size::default(),
            ends: HashMap::new(),
            ended_before: 0,
            feed: Log::new(revision),
            feed_budget,
            history_budget,
            history_bytes: 0,
            history_events: 0,
        }
    }

    /// Takes in an object that was there when the store was opened.
    pub(super) fn load(&mut self, object: Stored) {
        let object = Arc::new(object);
        self.index(&object);
        self.count_in(&object);
        self.table(&object.key.resource).insert(object);
    }

    /// Takes in a committed change; what falls out of the history goes to `evicted`, so that it
    /// can be freed when the lock is gone. Returns whom to tell.
    pub(super) fn apply(
        &mut self,
        event: Arc<Event>,
        evicted: &mut Vec<Arc<Event>>,
    ) -> Arc<watch::Sender<u64>> {
        if let Some(previous) = &event.previous {
            self.unindex(previous, &event);
            self.count_out(previous);
        }
        if event.kind == EventKind::Put {
            self.count_in(&event.object);
        }
        self.revision = event.revision;
        let table = self.table(&event.object.key.resource);
        match event.kind {
            EventKind::Put => table.insert(Arc::clone(&event.object)),
            EventKind::Delete => table.remove(&event.object.key),
        }
        table.log.push(Arc::clone(&event));
        table.changed_at = event.revision;
        let changed = Arc::clone(&table.changed);
        if event.kind == EventKind::Put {
            self.index(&event.object);
        }
        if event.kind == EventKind::Delete && **event.resource() == *NAMESPACES {
            self.end(&event.object.key.name, event.revision);
        }
        self.history_bytes = self.history_bytes.saturating_add(event.cost_bytes());
        self.history_events = self.history_events.saturating_add(1);
        self.feed.push(event);
        self.trim(evicted);
        changed
    }

    fn count_in(&mut self, object: &Stored) {
        self.sizes.entry(Arc::clone(&object.key.namespace)).or_default().add(object);
        self.all.add(object);
    }

    fn count_out(&mut self, object: &Stored) {
        self.all.subtract(object);
        if let Some(size) = self.sizes.get_mut(&object.key.namespace) {
            size.subtract(object);
            if size.objects == 0 {
                self.sizes.remove(&object.key.namespace);
            }
        }
    }

    /// What is stored in a namespace.
    pub(super) fn size_in(&self, namespace: &str) -> Size {
        self.sizes.get(namespace).copied().unwrap_or_default()
    }

    /// What is stored.
    pub(super) fn all(&self) -> Size {
        self.all
    }

    /// Keeps the history within its budgets. The longest log gives way first, so that the
    /// renewals of leases do not push out what little happens elsewhere.
    fn trim(&mut self, evicted: &mut Vec<Arc<Event>>) {
        while self.feed.is_over(self.feed_budget) {
            evicted.extend(self.feed.evict());
        }
        while self.history_events > self.history_budget.events
            || self.history_bytes > self.history_budget.bytes
        {
            let longest = self.tables.values_mut().max_by_key(|table| table.log.bytes);
            let Some(event) = longest.and_then(|table| table.log.evict()) else { return };
            self.history_bytes = self.history_bytes.saturating_sub(event.cost_bytes());
            self.history_events = self.history_events.saturating_sub(1);
            evicted.push(event);
        }
    }

    fn end(&mut self, namespace: &Arc<str>, revision: u64) {
        self.ends.insert(Arc::clone(namespace), revision);
        if self.ends.len() > MAX_ENDS {
            let mut all: Vec<u64> = self.ends.values().copied().collect();
            all.sort_unstable();
            self.ended_before = all.get(all.len() / 2).copied().unwrap_or(revision);
            let before = self.ended_before;
            self.ends.retain(|_, end| *end > before);
        }
    }

    /// Reads of a namespace must not go back before this revision.
    pub(super) fn check_end(&self, namespace: Option<&str>, revision: u64) -> Result<(), TooOld> {
        let Some(namespace) = namespace.filter(|it| !it.is_empty()) else { return Ok(()) };
        let end = self.ends.get(namespace).copied().unwrap_or(self.ended_before);
        if revision < end { Err(TooOld { requested: revision, oldest: end }) } else { Ok(()) }
    }

    fn table(&mut self, resource: &Arc<str>) -> &mut Table {
        // A table that was never there has no history to miss since the store was opened.
        let floor = self.opened_at;
        self.tables.entry(Arc::clone(resource)).or_insert_with(|| Table::new(floor))
    }

    fn index(&mut self, object: &Arc<Stored>) {
        if !object.meta.uid.is_empty() {
            self.uids.replace(ByUid(Arc::clone(object)));
        }
        for owner in &object.meta.owners {
            match self.owners.get_mut(owner) {
                Some(keys) => {
                    keys.insert(object.key.clone());
                }
                None => {
                    self.owners.insert(owner.clone(), BTreeSet::from([object.key.clone()]));
                }
            }
        }
    }

    /// Takes `previous` out of the indexes, as far as its successor will not put it back.
    fn unindex(&mut self, previous: &Stored, event: &Event) {
        let successor = (event.kind == EventKind::Put).then_some(&event.object.meta);
        let is_same_uid = successor.is_some_and(|meta| meta.uid == previous.meta.uid);
        if !is_same_uid
            && self.uids.get(&*previous.meta.uid).is_some_and(|found| found.0.key == previous.key)
        {
            self.uids.remove(&*previous.meta.uid);
        }
        for owner in &previous.meta.owners {
            if successor.is_some_and(|meta| meta.owners.contains(owner)) {
                continue;
            }
            if let Some(keys) = self.owners.get_mut(owner) {
                keys.remove(&previous.key);
                if keys.is_empty() {
                    self.owners.remove(owner);
                }
            }
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.tables.get(resource)?.namespaces.get(namespace)?.get(name)
    }

    pub(super) fn get_key(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.get(&key.resource, &key.namespace, &key.name)
    }

    /// The same key, sharing the texts that are in memory already.
    pub(super) fn intern(&self, key: Key) -> Key {
        let Some((resource, table)) = self.tables.get_key_value(&key.resource) else { return key };
        let namespace = table
            .namespaces
            .get_key_value(&key.namespace)
            .map_or(key.namespace, |(namespace, _)| Arc::clone(namespace));
        Key { resource: Arc::clone(resource), namespace, name: key.name }
    }

    pub(super) fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let range = Range { namespace, after: None, limit: usize::MAX };
        let items =
            self.tables.get(resource).map(|table| table.scan(range).cloned().collect::<Vec<_>>());
        Snapshot { revision: self.revision, items: items.unwrap_or_default() }
    }

    pub(super) fn page(&self, resource: &str, range: Range<'_>) -> Page {
        let Some(table) = self.tables.get(resource) else {
            return Page { revision: self.revision, items: Vec::new(), remaining: 0 };
        };
        cut(self.revision, range.limit, table.scan(range))
    }

    /// A page as it was at `revision`; a revision that is yet to come gives the newest state,
    /// under its own revision.
    pub(super) fn page_at(
        &self,
        resource: &str,
        range: Range<'_>,
        revision: u64,
    ) -> Result<Page, TooOld> {
        self.check_end(range.namespace, revision)?;
        let Some(table) = self.tables.get(resource) else {
            if revision < self.opened_at {
                return Err(TooOld { requested: revision, oldest: self.opened_at });
            }
            let revision = revision.min(self.revision);
            return Ok(Page { revision, items: Vec::new(), remaining: 0 });
        };
        let undone = table.undo(revision)?;
        let unchanged =
            table.scan(range).filter(|object| !undone.contains_key(&place(object))).peekable();
        let changed = undone
            .iter()
            .filter(|(place, _)| range.holds(**place))
            .filter_map(|(_, object)| *object)
            .peekable();
        Ok(cut(revision.min(self.revision), range.limit, merge(unchanged, changed)))
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<&Arc<Stored>> {
        self.uids.get(uid).map(|found| &found.0)
    }

    pub(super) fn dependents(&self, owner_uid: &str) -> Vec<Arc<Stored>> {
        let keys = self.owners.get(owner_uid).into_iter().flatten();
        keys.filter_map(|key| self.get_key(key).cloned()).collect()
    }

    /// The resources of which there are objects.
    pub(super) fn resources(&self) -> Vec<Arc<str>> {
        let used = self.tables.iter().filter(|(_, table)| table.size.objects > 0);
        used.map(|(resource, _)| Arc::clone(resource)).collect()
    }

    pub(super) fn changed_at(&self, resource: &str) -> u64 {
        self.tables.get(resource).map_or(self.opened_at, |table| table.changed_at)
    }

    pub(super) fn size(&self, resource: &str) -> Size {
        self.tables.get(resource).map_or_else(Size::default, |table| table.size)
    }

    pub(super) fn count(&self, resource: &str) -> usize {
        self.size(resource).objects
    }

    pub(super) fn total(&self) -> usize {
        self.tables.values().map(|table| table.size.objects).sum()
    }

    pub(super) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    pub(super) fn history_events(&self) -> usize {
        self.history_events
    }

    pub(super) fn log(&self, resource: &str) -> Option<&Log> {
        self.tables.get(resource).map(|table| &table.log)
    }

    pub(super) fn feed(&self) -> &Log {
        &self.feed
    }

    /// Where changes of a resource are announced, if it has a table.
    pub(super) fn announcements(&self, resource: &str) -> Option<watch::Receiver<u64>> {
        self.tables.get(resource).map(|table| table.changed.subscribe())
    }

    /// The same, making the table.
    pub(super) fn announcements_of_new(&mut self, resource: &str) -> watch::Receiver<u64> {
        self.table(&Arc::from(resource)).changed.subscribe()
    }
}

fn cut<'a>(revision: u64, limit: usize, objects: impl Iterator<Item = &'a Arc<Stored>>) -> Page {
    let mut objects = objects;
    let items: Vec<_> = objects.by_ref().take(limit).cloned().collect();
    Page { revision, items, remaining: objects.count() }
}

/// Two ordered sequences as one.
fn merge<'a>(
    mut left: std::iter::Peekable<impl Iterator<Item = &'a Arc<Stored>>>,
    mut right: std::iter::Peekable<impl Iterator<Item = &'a Arc<Stored>>>,
) -> impl Iterator<Item = &'a Arc<Stored>> {
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(l), Some(r)) if place(r) < place(l) => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}
