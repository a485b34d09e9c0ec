//! The objects of one kind as a watch tells of them: read without waiting, found by key or by index.
//!
//! Every object is decoded by itself. One that cannot be decoded is kept aside with the reason, and
//! the others go on. What was just written is put in at once ([`Cache::put`]), so that the next pass
//! does not decide on what it has changed itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::key::Key;

/// A kind that can be cached and written.
pub trait Object:
    kube::Resource<DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// An object that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub key: Key,
    pub uid: String,
    pub version: String,
    pub why: String,
}

pub(crate) type Indexer<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;
type Listener<K> = Box<dyn Fn(&Key, Option<&K>, Option<&K>) + Send + Sync>;

pub(crate) struct Cache<K> {
    state: RwLock<State<K>>,
    indexers: Vec<(&'static str, Indexer<K>)>,
    /// Called with the key, the object before and the object now.
    listeners: Mutex<Vec<Listener<K>>>,
    ready: watch::Sender<bool>,
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// By the name of the index and the value.
    index: HashMap<(&'static str, String), BTreeSet<Key>>,
    broken: BTreeMap<Key, Broken>,
    /// The newest version the watch has told of.
    seen: u64,
    /// What a list that is under way has told so far.
    listing: Option<Vec<DynamicObject>>,
    /// What was put in since that list began.
    put: BTreeSet<Key>,
}

impl<K: Object> State<K> {
    fn version(&self, key: &Key) -> Option<u64> {
        self.objects.get(key).map(|known| version(known.as_ref()))
    }
}

/// What an object is found to be.
enum Found<K> {
    Object(Arc<K>),
    Broken(Broken),
    Nothing,
}

impl<K: Object> Cache<K> {
    pub(crate) fn new(indexers: Vec<(&'static str, Indexer<K>)>) -> Self {
        let state = State {
            objects: BTreeMap::new(),
            index: HashMap::new(),
            broken: BTreeMap::new(),
            seen: 0,
            listing: None,
            put: BTreeSet::new(),
        };
        Self {
            state: RwLock::new(state),
            indexers,
            listeners: Mutex::default(),
            ready: watch::Sender::new(false),
        }
    }

    pub(crate) fn listen(&self, listener: Listener<K>) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Waits until the first list is in.
    pub(crate) async fn ready(&self) {
        // The sender is part of self, so this cannot fail.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|state| state.objects.get(key).cloned())
    }

    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        self.read(|state| state.objects.values().cloned().collect())
    }

    pub(crate) fn by(&self, index: &'static str, value: &str) -> Vec<Arc<K>> {
        self.read(|state| {
            let keys = state.index.get(&(index, value.to_owned()));
            keys.into_iter().flatten().filter_map(|key| state.objects.get(key).cloned()).collect()
        })
    }

    pub(crate) fn broken(&self) -> Vec<Broken> {
        self.read(|state| state.broken.values().cloned().collect())
    }

    pub(crate) fn is_broken(&self, key: &Key) -> bool {
        self.read(|state| state.broken.contains_key(key))
    }

    /// One event of the watch. Says what could not be decoded.
    pub(crate) fn event(&self, event: Event<DynamicObject>) -> Vec<Broken> {
        match event {
            Event::Init => {
                self.write(|state| {
                    state.listing = Some(Vec::new());
                    state.put.clear();
                });
                Vec::new()
            }
            Event::InitApply(object) => {
                self.write(|state| {
                    if let Some(listing) = &mut state.listing {
                        listing.push(object);
                    }
                });
                Vec::new()
            }
            Event::InitDone => {
                let broken = self.replace();
                self.ready.send_replace(true);
                broken
            }
            Event::Apply(object) => self.apply(object).into_iter().collect(),
            Event::Delete(object) => {
                let key = Key::of(&object);
                let version = version(&object);
                self.change(&key, Found::Nothing, |state| {
                    state.seen = state.seen.max(version);
                    // One that was made anew since then is another.
                    version == 0 || state.version(&key).is_none_or(|known| known <= version)
                });
                Vec::new()
            }
        }
    }

    /// Puts in what the server has just answered to a write.
    pub(crate) fn put(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        let key = Key::of(object.as_ref());
        let version = version(object.as_ref());
        // Versions that are no numbers cannot be compared: then the watch alone is believed.
        self.change(&key, Found::Object(Arc::clone(&object)), |state| {
            if state.listing.is_some() {
                state.put.insert(key.clone());
            }
            version > 0
                && match state.version(&key) {
                    Some(known) => known < version,
                    // The watch is past this version and the object is not there: it was deleted
                    // since.
                    None => state.seen < version,
                }
        });
        object
    }

    /// Takes out what the server says is not there.
    pub(crate) fn forget(&self, key: &Key) {
        self.change(key, Found::Nothing, |_| true);
    }

    fn apply(&self, object: DynamicObject) -> Option<Broken> {
        self.apply_if(object, |_, _| false)
    }

    /// Also what is older than what is known, where `is_believed` says so of its key.
    fn apply_if(
        &self,
        object: DynamicObject,
        is_believed: impl FnOnce(&State<K>, &Key) -> bool,
    ) -> Option<Broken> {
        let key = Key::of(&object);
        let version = version(&object);
        let found = match decode(object) {
            Ok(object) => Found::Object(Arc::new(object)),
            Err(broken) => Found::Broken(broken),
        };
        let broken = match &found {
            Found::Broken(broken) => Some(broken.clone()),
            Found::Object(_) | Found::Nothing => None,
        };
        let is_news = self.change(&key, found, |state| {
            state.seen = state.seen.max(version);
            // As it was put in already, or older.
            let known = state.version(&key);
            version == 0
                || known.is_none_or(|known| known < version)
                || (known != Some(version) && is_believed(state, &key))
        });
        broken.filter(|_| is_news)
    }

    /// The list is whole: what is not in it is gone, unless it was put in after the list was made. What is
    /// older in it than it is known to be was put back: to an earlier day, with the server's whole store.
    fn replace(&self) -> Vec<Broken> {
        let (listed, known) = self.write(|state| {
            let listed = state.listing.take().unwrap_or_default();
            let known: Vec<Key> = state.objects.keys().cloned().collect();
            (listed, known)
        });
        let newest = listed.iter().map(version).max().unwrap_or_default();
        let names: BTreeSet<Key> = listed.iter().map(Key::of).collect();
        self.write(|state| state.broken.retain(|key, _| names.contains(key)));
        for key in known.iter().filter(|key| !names.contains(key)) {
            self.change(key, Found::Nothing, |state| {
                let version = state.version(key).unwrap_or_default();
                !state.put.contains(key) || version <= newest.max(state.seen)
            });
        }
        let went_back = |state: &State<K>, key: &Key| !state.put.contains(key);
        let broken = listed.into_iter().filter_map(|it| self.apply_if(it, went_back)).collect();
        self.write(|state| state.put.clear());
        broken
    }

    /// Writes what was found, if that is `news` to the state as it is at that very moment: what the
    /// watch tells and what writes are answered come in by different threads. Says whether it was.
    fn change(&self, key: &Key, found: Found<K>, news: impl FnOnce(&mut State<K>) -> bool) -> bool {
        let change = self.write(|state| {
            if !news(state) {
                return None;
            }
            state.broken.remove(key);
            let now = match found {
                Found::Object(object) => Some(object),
                Found::Nothing => None,
                Found::Broken(broken) => {
                    state.broken.insert(key.clone(), broken);
                    None
                }
            };
            let before = match &now {
                Some(object) => state.objects.insert(key.clone(), Arc::clone(object)),
                None => state.objects.remove(key),
            };
            for (name, indexer) in &self.indexers {
                for value in before.as_deref().map(indexer).unwrap_or_default() {
                    let place = (*name, value);
                    let keys = state.index.entry(place.clone()).or_default();
                    keys.remove(key);
                    if keys.is_empty() {
                        state.index.remove(&place);
                    }
                }
                for value in now.as_deref().map(indexer).unwrap_or_default() {
                    state.index.entry((*name, value)).or_default().insert(key.clone());
                }
            }
            Some((before, now))
        });
        let Some((before, now)) = change else { return false };
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(key, before.as_deref(), now.as_deref());
        }
        true
    }

    fn read<T>(&self, look: impl FnOnce(&State<K>) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, act: impl FnOnce(&mut State<K>) -> T) -> T {
        act(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The version as a number; 0 if it is none.
fn version(object: &impl ResourceExt) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(crate) fn decode<K: Object>(mut object: DynamicObject) -> Result<K, Broken> {
    let data = mem::take(&mut object.data);
    // Who wrote which field is often longer than the fields, and nobody here asks for it.
    object.metadata.managed_fields = None;
    let broken = |why: serde_json::Error| Broken {
        key: Key::of(&object),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        version: object.metadata.resource_version.clone().unwrap_or_default(),
        why: why.to_string(),
    };
    let Value::Object(mut fields) = data else {
        return Err(broken(serde::de::Error::custom("the object has no fields")));
    };
    let metadata = serde_json::to_value(&object.metadata).map_err(broken)?;
    fields.insert("metadata".to_owned(), metadata);
    fields.insert("apiVersion".to_owned(), Value::String(K::api_version(&()).into_owned()));
    fields.insert("kind".to_owned(), Value::String(K::kind(&()).into_owned()));
    serde_json::from_value(Value::Object(fields)).map_err(broken)
}

#[cfg(test)]
mod tests {
    use api::longhorn::Replica;
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: u64, volume: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
            "metadata": {"name": name, "namespace": "ns", "uid": name,
                "resourceVersion": version.to_string()},
            "spec": {"volumeName": volume},
        }))
        .unwrap()
    }

    fn broken(name: &str, version: u64) -> DynamicObject {
        let mut object = object(name, version, "v");
        object.data = json!({"spec": {"active": "perhaps"}});
        object
    }

    fn cache() -> Cache<Replica> {
        let volume =
            |replica: &Replica| replica.spec.instance.volume_name.clone().into_iter().collect();
        let cache = Cache::new(vec![("volume", Box::new(volume) as Indexer<Replica>)]);
        cache.event(Event::Init);
        for (name, version) in [("a", 1), ("b", 2)] {
            cache.event(Event::InitApply(object(name, version, "v")));
        }
        cache.event(Event::InitDone);
        cache
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn names(found: &[Arc<Replica>]) -> Vec<&str> {
        found.iter().filter_map(|it| it.metadata.name.as_deref()).collect()
    }

    #[test]
    fn one_bad_object_leaves_the_others_and_comes_back_when_it_is_put_right() {
        let cache = cache();
        let told = cache.event(Event::Apply(broken("a", 3)));
        assert_eq!(told.len(), 1);
        assert!(told[0].why.contains("perhaps") || told[0].why.contains("bool"), "{told:?}");
        assert!(cache.is_broken(&key("a")) && cache.get(&key("a")).is_none());
        assert_eq!(names(&cache.list()), ["b"]);
        cache.event(Event::Apply(object("a", 4, "v")));
        assert!(!cache.is_broken(&key("a")) && cache.get(&key("a")).is_some());
    }

    #[test]
    fn indexes_follow_changes() {
        let cache = cache();
        assert_eq!(names(&cache.by("volume", "v")), ["a", "b"]);
        cache.event(Event::Apply(object("a", 3, "w")));
        assert_eq!(names(&cache.by("volume", "v")), ["b"]);
        assert_eq!(names(&cache.by("volume", "w")), ["a"]);
        cache.event(Event::Delete(object("a", 4, "w")));
        assert!(cache.by("volume", "w").is_empty());
    }

    #[test]
    fn a_list_removes_what_is_gone_and_keeps_what_was_written_after_it() {
        let cache = cache();
        cache.event(Event::Init);
        cache.event(Event::InitApply(object("b", 2, "v")));
        let written: Replica = decode(object("c", 9, "v")).unwrap();
        cache.put(written);
        cache.event(Event::InitDone);
        assert_eq!(names(&cache.list()), ["b", "c"]);
    }

    /// Its end was told to nobody: it would be taken to be there until something else is written.
    #[test]
    fn what_was_written_before_a_list_and_is_not_in_it_is_gone() {
        let cache = cache();
        cache.put(decode(object("c", 9, "v")).unwrap());
        cache.event(Event::Init);
        for (name, version) in [("a", 1), ("b", 2)] {
            cache.event(Event::InitApply(object(name, version, "v")));
        }
        cache.event(Event::InitDone);
        assert_eq!(names(&cache.list()), ["a", "b"]);
    }

    /// A server whose store was put back to an earlier copy counts on above all that it ever gave out, and has
    /// its objects as they were then. Who goes on with the later ones writes against them for ever.
    #[test]
    fn a_list_of_an_earlier_day_is_believed_unless_it_was_overtaken_by_a_write() {
        let cache = cache();
        cache.event(Event::Apply(object("a", 50, "later")));
        cache.event(Event::Apply(object("b", 51, "later")));
        cache.event(Event::Init);
        cache.event(Event::InitApply(object("a", 1, "v")));
        cache.event(Event::InitApply(object("b", 2, "v")));
        // Written while the list was under way, and answered.
        cache.put(decode(object("b", 90, "written")).unwrap());
        cache.event(Event::InitDone);
        assert_eq!(names(&cache.by("volume", "v")), ["a"]);
        assert_eq!(names(&cache.by("volume", "written")), ["b"]);
        assert!(cache.by("volume", "later").is_empty());
    }

    #[test]
    fn an_answer_to_a_write_counts_unless_the_watch_is_past_it() {
        let cache = cache();
        cache.put(decode(object("a", 5, "w")).unwrap());
        assert_eq!(names(&cache.by("volume", "w")), ["a"]);
        // An older event does not bring the old state back.
        cache.event(Event::Apply(object("a", 4, "v")));
        assert_eq!(names(&cache.by("volume", "w")), ["a"]);
        cache.event(Event::Delete(object("a", 6, "w")));
        // The answer to an earlier write, late.
        cache.put(decode(object("a", 5, "w")).unwrap());
        assert!(cache.get(&key("a")).is_none());
    }

    /// A write is answered while the watch tells of a later one, or of the end: the later one stays.
    #[test]
    fn an_answer_and_an_event_at_the_same_time_leave_what_is_newer() {
        let cache = cache();
        for round in 0..20_000_u64 {
            let (answer, event) = (10 + round * 10, 15 + round * 10);
            let ends = round % 2 == 0;
            let start = std::sync::Barrier::new(2);
            let written: Replica = decode(object("a", answer, "answered")).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    cache.put(written);
                });
                scope.spawn(|| {
                    let told = object("a", event, "told");
                    let told = if ends { Event::Delete(told) } else { Event::Apply(told) };
                    start.wait();
                    cache.event(told);
                });
            });
            let found = cache.get(&key("a")).and_then(|it| it.metadata.resource_version.clone());
            let wanted = (!ends).then(|| event.to_string());
            assert_eq!(found, wanted, "round {round}");
        }
    }

    #[test]
    fn the_end_of_an_object_does_not_take_out_its_successor() {
        let cache = cache();
        cache.put(decode(object("a", 9, "new")).unwrap());
        cache.event(Event::Delete(object("a", 8, "v")));
        assert_eq!(names(&cache.by("volume", "new")), ["a"]);
    }

    #[test]
    fn listeners_see_before_and_after() {
        let cache = cache();
        let (send, seen) = std::sync::mpsc::channel();
        cache.listen(Box::new(move |key, before, now| {
            send.send((key.name.to_string(), before.is_some(), now.is_some())).unwrap();
        }));
        cache.event(Event::Apply(object("n", 7, "v")));
        cache.event(Event::Delete(object("n", 8, "v")));
        let seen: Vec<_> = seen.try_iter().collect();
        assert_eq!(seen, [("n".to_owned(), false, true), ("n".to_owned(), true, false)]);
    }
}
