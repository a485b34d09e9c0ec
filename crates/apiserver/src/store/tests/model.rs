//! The store against a list of changes kept by hand: whatever is written in whatever order,
//! snapshots, pages and watches say what the list says.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const RESOURCES: [&str; 2] = ["things", "leases"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: Key,
        value: String,
    },
    Delete {
        key: Key,
    },
    /// Several at once, so that they meet in one batch.
    Together {
        keys: Vec<Key>,
    },
    Reopen,
}

fn keys() -> impl Strategy<Value = Key> {
    let pick = prop::sample::select;
    (pick(&RESOURCES[..]), pick(&NAMESPACES[..]), pick(&NAMES[..]))
        .prop_map(|(resource, namespace, name)| Key::new(resource, namespace, name))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (keys(), "[a-z]{0,40}").prop_map(|(key, value)| Step::Put { key, value }),
        3 => keys().prop_map(|key| Step::Delete { key }),
        2 => prop::collection::vec(keys(), 2..6).prop_map(|keys| Step::Together { keys }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..25)
}

type Objects = BTreeMap<Key, (u64, Value)>;

struct Model {
    objects: Objects,
    /// The state after every revision since the store was last opened.
    past: BTreeMap<u64, Objects>,
    /// Every change since then.
    changes: Vec<(u64, EventKind, Key)>,
}

impl Model {
    fn new(revision: u64) -> Self {
        let past = BTreeMap::from([(revision, Objects::new())]);
        Self { objects: Objects::new(), past, changes: Vec::new() }
    }

    fn expected(&self, key: &Key) -> Expected {
        self.objects
            .get(key)
            .map_or(Expected::Absent, |(revision, _)| Expected::Revision(*revision))
    }

    fn put(&mut self, stored: &Stored) {
        self.objects.insert(stored.key.clone(), (stored.revision, stored.value().unwrap()));
        self.changed(stored.revision, EventKind::Put, &stored.key);
    }

    fn delete(&mut self, stored: &Stored) {
        self.objects.remove(&stored.key);
        self.changed(stored.revision, EventKind::Delete, &stored.key);
    }

    fn changed(&mut self, revision: u64, kind: EventKind, key: &Key) {
        assert!(self.past.keys().all(|past| *past < revision), "revisions only go up");
        self.past.insert(revision, self.objects.clone());
        self.changes.push((revision, kind, key.clone()));
    }

    fn reopened(&mut self, revision: u64) {
        assert_eq!(self.past.keys().next_back(), Some(&revision), "the counter is kept");
        self.past = BTreeMap::from([(revision, self.objects.clone())]);
        self.changes.clear();
    }

    fn at(&self, revision: u64, resource: &str, namespace: Option<&str>) -> Vec<(u64, Value)> {
        let (_, objects) = self.past.range(..=revision).next_back().unwrap();
        let held = objects.iter().filter(|(key, _)| {
            &*key.resource == resource && namespace.is_none_or(|wanted| wanted == &*key.namespace)
        });
        held.map(|(_, object)| object.clone()).collect()
    }
}

fn plain(items: &[Arc<Stored>]) -> Vec<(u64, Value)> {
    items.iter().map(|item| (item.revision, item.value().unwrap())).collect()
}

fn value_of(key: &Key, value: &str) -> Value {
    json!({"metadata": {"name": &*key.name, "namespace": &*key.namespace}, "value": value})
}

async fn take(store: &mut Store, home: &Home, options: &Options, model: &mut Model, step: Step) {
    match step {
        Step::Put { key, value } => {
            let change = Change::Put(value_of(&key, &value));
            let expected = model.expected(&key);
            let write = Write { key, expected, require: Vec::new(), change };
            model.put(&store.write(write).await.unwrap());
        }
        Step::Delete { key } => {
            let last = model.objects.get(&key).map(|(_, value)| value.clone());
            let change = Change::Delete(last.clone().unwrap_or_else(|| value_of(&key, "")));
            let expected = model.expected(&key);
            let write = Write { key, expected, require: Vec::new(), change };
            match (store.write(write).await, last) {
                (Ok(stored), Some(_)) => model.delete(&stored),
                (Err(WriteError::Conflict { current: None }), None) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
        Step::Together { keys } => {
            let writes = keys.iter().map(|key| {
                let change = Change::Put(value_of(key, "together"));
                let expected = model.expected(key);
                store.write(Write { key: key.clone(), expected, require: Vec::new(), change })
            });
            let results = join_all(writes.collect::<Vec<_>>()).await;
            let mut made: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
            let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(made.len(), distinct.len(), "one write a key wins");
            made.sort_by_key(|stored| stored.revision);
            for stored in &made {
                model.put(stored);
            }
        }
        Step::Reopen => {
            store.close().await;
            *store = home.open_with(options);
            model.reopened(store.revision());
        }
    }
}

async fn check(store: &Store, model: &Model) {
    let newest = store.revision();
    let oldest = *model.past.keys().next().unwrap();
    for resource in RESOURCES {
        for namespace in [None, Some("a"), Some("b"), Some("c")] {
            let listed = store.list(resource, namespace);
            assert_eq!(listed.revision, newest);
            assert_eq!(plain(&listed.items), model.at(newest, resource, namespace));
            for revision in oldest.saturating_sub(1)..=newest + 1 {
                check_past(store, model, resource, namespace, revision);
                check_watch(store, model, resource, namespace, revision).await;
            }
        }
    }
}

fn check_past(
    store: &Store,
    model: &Model,
    resource: &str,
    namespace: Option<&str>,
    revision: u64,
) {
    let snapshot = match store.list_at(resource, namespace, revision) {
        Ok(snapshot) => snapshot,
        Err(too_old) => {
            assert!(too_old.oldest > revision);
            store.list_at(resource, namespace, too_old.oldest).unwrap();
            return;
        }
    };
    let expected = model.at(revision, resource, namespace);
    assert_eq!(plain(&snapshot.items), expected);
    let mut paged = Vec::new();
    let mut after: Option<Arc<Stored>> = None;
    loop {
        let cursor = after.as_ref().map(|last| (&*last.key.namespace, &*last.key.name));
        let page = store.list_page_at(resource, namespace, revision, cursor, 2).unwrap();
        assert_eq!(page.revision, snapshot.revision);
        paged.extend(plain(&page.items));
        assert_eq!(page.remaining, expected.len() - paged.len());
        after = page.items.last().cloned();
        if page.remaining == 0 {
            break;
        }
    }
    assert_eq!(paged, expected);
}

async fn check_watch(
    store: &Store,
    model: &Model,
    resource: &str,
    namespace: Option<&str>,
    from: u64,
) {
    let mut watcher = match store.watch(resource, namespace, from) {
        Ok(watcher) => watcher,
        Err(too_old) => {
            assert!(too_old.oldest > from);
            store.watch(resource, namespace, too_old.oldest).unwrap();
            return;
        }
    };
    let expected: Vec<_> = model
        .changes
        .iter()
        .filter(|(revision, _, key)| {
            *revision > from
                && &*key.resource == resource
                && namespace.is_none_or(|wanted| wanted == &*key.namespace)
        })
        .cloned()
        .collect();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        assert!(watcher.progress() <= expected[seen.len()].0);
        for event in watcher.next().await.unwrap() {
            let before = model.at(event.revision - 1, resource, Some(&event.object.key.namespace));
            let before = before
                .into_iter()
                .find(|(_, value)| value["metadata"]["name"] == *event.object.key.name);
            let previous =
                event.previous.as_ref().map(|stored| (stored.revision, stored.value().unwrap()));
            assert_eq!(previous, before);
            seen.push((event.revision, event.kind, event.object.key.clone()));
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(watcher.progress(), from.max(store.revision()));
    let silence = tokio::time::timeout(Duration::ZERO, watcher.next()).await;
    assert!(silence.is_err(), "nothing comes twice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_a_map(
        steps in steps(),
        events in prop_oneof![Just(usize::MAX), 0_usize..12],
        bytes in prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..4000],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let home = Home::new();
            let options =
                Options { history: Budget { events, bytes }, ..Options::default() };
            let mut store = home.open_with(&options);
            let mut model = Model::new(store.revision());
            for step in steps {
                take(&mut store, &home, &options, &mut model, step).await;
            }
            check(&store, &model).await;
            store.close().await;
            let store = home.open_with(&options);
            model.reopened(store.revision());
            check(&store, &model).await;
        });
    }
}
