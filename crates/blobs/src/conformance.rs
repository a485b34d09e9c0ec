//! The suite that every store must pass. It panics where a store does not, as a test would, and
//! keeps to a folder of its own, which it empties.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{TryStreamExt, stream};

use crate::error::Error;
use crate::key::{Key, Prefix};
use crate::store::{Permit, Store, delete_all, get_limited, list_all};
use crate::stream::{Body, Parts};

/// More than a page of the listing would be slow on a real service; this is enough to see order.
const LISTED: usize = 25;
/// Writers that race for one object.
const RACERS: usize = 8;

/// Runs all of it under `folder`.
///
/// # Panics
///
/// Where the store does not do what [`Store`] promises.
pub async fn run(store: &dyn Store, folder: &Prefix) {
    let suite = Suite { store, folder };
    clean(store, folder).await;
    suite.creates_once().await;
    suite.swaps_only_what_was_read().await;
    suite.reads_ranges().await;
    suite.says_what_is_not_there().await;
    suite.lists_in_order_and_by_whole_parts().await;
    suite.replaces_whatever_is_there().await;
    suite.takes_long_objects_whole_or_not_at_all().await;
    suite.lists_one_level().await;
    suite.deletes_one_object().await;
    suite.deletes_many_while_it_may().await;
    suite.deletes_a_folder_and_no_sibling().await;
    suite.keeps_names_as_they_are().await;
    suite.lets_one_of_many_create().await;
    suite.loses_no_swap().await;
    clean(store, folder).await;
}

async fn clean(store: &dyn Store, folder: &Prefix) {
    delete_all(store, folder).await.expect("the folder of the suite can be emptied");
    let left = list_all(store, folder).await.expect("the folder can be listed");
    assert!(left.is_empty(), "left after removal: {left:?}");
}

struct Suite<'s> {
    store: &'s dyn Store,
    folder: &'s Prefix,
}

impl Suite<'_> {
    fn key(&self, name: &str) -> Key {
        let key = self.folder.folder().map_or_else(|| name.to_owned(), |f| format!("{f}/{name}"));
        Key::parse(&key).expect("names of the suite are keys")
    }

    async fn put(&self, name: &str) -> Key {
        let key = self.key(name);
        self.store.put_new(&key, Bytes::from(name.to_owned())).await.expect("it is created");
        key
    }

    async fn names_under(&self, name: &str) -> Vec<String> {
        let prefix = Prefix::from(self.key(name));
        let found = list_all(self.store, &prefix).await.expect("it is listed");
        let start = self.folder.folder().map_or(0, |folder| folder.as_str().len() + 1);
        let name = |key: &Key| key.as_str().get(start..).unwrap_or_default().to_owned();
        found.iter().map(|meta| name(&meta.key)).collect()
    }

    async fn creates_once(&self) {
        let key = self.key("once/object");
        let version = self.store.put_new(&key, "one".into()).await.expect("it is created");
        let again = self.store.put_new(&key, "two".into()).await;
        assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        let found = get_limited(self.store, &key, 100).await.expect("it is there");
        assert_eq!(found.bytes, "one");
        assert_eq!(found.meta.version, version, "a put gives the version that a get shows");
        let empty = self.key("once/empty");
        self.store.put_new(&empty, Bytes::new()).await.expect("an empty object is an object");
        assert_eq!(self.store.head(&empty).await.expect("it is there").len_bytes, 0);
    }

    async fn takes_long_objects_whole_or_not_at_all(&self) {
        let key = self.key("long/object");
        let piece = Bytes::from(vec![7; 700_000]);
        let parts = Parts { part_bytes: 5 << 20, first_pause: Duration::ZERO, ..Parts::default() };
        let body = |pieces: usize, end: Option<io::Error>| -> Body {
            let pieces = (0..pieces).map(|_| Ok(piece.clone())).collect::<Vec<_>>();
            Box::pin(stream::iter(pieces.into_iter().chain(end.map(Err))))
        };
        for (pieces, failing) in [(0, 9), (1, 0), (9, 20), (17, 1)] {
            self.store.put_stream(&key, body(pieces, None), &parts).await.expect("it is written");
            let len_bytes = (pieces * piece.len()) as u64;
            let head = self.store.head(&key).await.expect("it is there");
            assert_eq!(head.len_bytes, len_bytes);
            let broken = body(failing, Some(io::ErrorKind::UnexpectedEof.into()));
            let refused = self.store.put_stream(&key, broken, &parts).await;
            assert!(matches!(refused, Err(Error::Body { .. })), "{refused:?}");
            let kept = self.store.head(&key).await.expect("it is still there");
            assert_eq!(kept.version, head.version, "a body that fails changes nothing");
        }
        let middle = self.store.get_range(&key, 5_242_000..5_243_000).await.expect("it is there");
        assert_eq!(middle.bytes, vec![7; 1000]);
        assert_eq!(self.names_under("long").await, ["long/object"]);
        let (meta, body) = self.store.get_stream(&key).await.expect("it is there");
        let pieces: Vec<Bytes> = body.try_collect().await.expect("it is read to its end");
        assert_eq!(pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), meta.len_bytes);
        let missing = self.store.get_stream(&self.key("long/none")).await.map(|(meta, _)| meta);
        assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    }

    async fn swaps_only_what_was_read(&self) {
        let key = self.key("swap/object");
        let first = self.store.put_new(&key, "one".into()).await.expect("it is created");
        let second = self.store.put_if_match(&key, "two".into(), &first).await.expect("it swaps");
        assert_ne!(first, second);
        let stale = self.store.put_if_match(&key, "three".into(), &first).await;
        assert!(matches!(stale, Err(Error::Changed { .. })), "{stale:?}");
        let meta = self.store.head(&key).await.expect("it is there");
        assert_eq!((meta.version.clone(), meta.len_bytes), (second, 3));
        self.store.put_if_match(&key, "four".into(), &meta.version).await.expect("by head's too");
        self.store.delete(&key).await.expect("it is removed");
        let gone = self.store.put_if_match(&key, "five".into(), &meta.version).await;
        assert!(matches!(gone, Err(Error::Changed { .. })), "{gone:?}");
        assert!(self.store.head(&key).await.is_err_and(|error| error.is_not_found()));
    }

    async fn replaces_whatever_is_there(&self) {
        let key = self.key("put/object");
        let first = self.store.put(&key, "one".into()).await.expect("it is made");
        let second = self.store.put(&key, "two".into()).await.expect("it is replaced");
        assert_ne!(first, second);
        let found = get_limited(self.store, &key, 100).await.expect("it is there");
        assert_eq!((found.bytes.as_ref(), found.meta.version), (b"two".as_slice(), second));
    }

    async fn lists_one_level(&self) {
        for name in ["level/b/1", "level/b/c/2", "level/d/3", "level/a", "level/z", "levels/x"] {
            self.put(name).await;
        }
        let level = Prefix::from(self.key("level"));
        let found = self.store.list_level(&level).await.expect("it is listed");
        assert_eq!(found.folders, [self.key("level/b"), self.key("level/d")]);
        let objects: Vec<_> = found.objects.iter().map(|meta| meta.key.clone()).collect();
        assert_eq!(objects, [self.key("level/a"), self.key("level/z")]);
        for name in ["level/b/1", "level/b/c/2"] {
            self.store.delete(&self.key(name)).await.expect("it is removed");
        }
        let found = self.store.list_level(&level).await.expect("it is listed");
        assert_eq!(found.folders, [self.key("level/d")], "a folder without objects is none");
        let none = self.store.list_level(&Prefix::from(self.key("nothing"))).await;
        assert_eq!(none.expect("nothing is listed"), crate::store::Level::default());
    }

    async fn reads_ranges(&self) {
        let key = self.key("range/object");
        self.store.put_new(&key, "0123456789".into()).await.expect("it is created");
        for (range, expected) in [
            (0..10, "0123456789"),
            (0..1, "0"),
            (3..7, "3456"),
            (8..100, "89"),
            (9..10, "9"),
            (10..20, ""),
            (50..60, ""),
            (4..4, ""),
        ] {
            let found = self.store.get_range(&key, range.clone()).await.expect("it is read");
            assert_eq!(found.bytes, expected, "{range:?}");
            assert_eq!(found.meta.len_bytes, 10);
        }
        let long = get_limited(self.store, &key, 9).await;
        assert!(matches!(long, Err(Error::TooLong { len_bytes: 10, .. })), "{long:?}");
        let empty = self.key("range/empty");
        self.store.put_new(&empty, Bytes::new()).await.expect("it is created");
        let found = self.store.get_range(&empty, 0..10).await.expect("it is read");
        assert!(found.bytes.is_empty());
    }

    async fn says_what_is_not_there(&self) {
        let key = self.key("missing/object");
        let got = self.store.get_range(&key, 0..1).await.map(drop);
        let empty = self.store.get_range(&key, 0..0).await.map(drop);
        let headed = self.store.head(&key).await.map(drop);
        for answer in [got, empty, headed] {
            assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        }
        self.store.delete(&key).await.expect("what is not there is removed already");
        assert_eq!(self.names_under("missing").await, Vec::<String>::new());
    }

    async fn lists_in_order_and_by_whole_parts(&self) {
        // In the order of bytes: a full stop and a minus come before a slash, a letter after.
        let names = ["list/a-b", "list/a.b", "list/a/0", "list/a/b/c", "list/ab", "list/b"];
        for name in names.iter().rev() {
            self.put(name).await;
        }
        self.put("lista").await;
        assert_eq!(self.names_under("list").await, names);
        assert_eq!(self.names_under("list/a").await, ["list/a/0", "list/a/b/c"]);
        assert_eq!(self.names_under("list/b").await, Vec::<String>::new());
        let prefix = Prefix::from(self.key("list"));
        for (index, name) in names.iter().enumerate() {
            let after = self.key(name);
            let page = self.store.list(&prefix, Some(&after)).await.expect("it is listed");
            let rest: Vec<Key> = page.objects.into_iter().map(|meta| meta.key).collect();
            let expected: Vec<Key> =
                names.iter().skip(index + 1).map(|name| self.key(name)).collect();
            assert_eq!(rest, expected, "after {name}");
            assert!(page.is_last);
        }
        let none = self.store.list(&prefix, Some(&self.key("list/a/a"))).await.expect("listed");
        let next = none.objects.first().map(|meta| meta.key.clone());
        assert_eq!(next, Some(self.key("list/a/b/c")), "after a key that is not there");
    }

    async fn deletes_one_object(&self) {
        let key = self.put("delete/a").await;
        self.put("delete/a.b").await;
        self.put("delete/ab").await;
        self.store.delete(&key).await.expect("it is removed");
        self.store.delete(&key).await.expect("it is removed already");
        let (never, always) = (Permit::new(|| false), Permit::new(|| true));
        let kept = self.put("delete/kept").await;
        let ended = self.store.delete_within(&kept, &never).await;
        assert!(matches!(ended, Err(Error::PermitEnded)), "{ended:?}");
        self.store.head(&kept).await.expect("it is not removed without leave");
        self.store.delete_within(&kept, &always).await.expect("it is removed");
        assert_eq!(self.names_under("delete").await, ["delete/a.b", "delete/ab"]);
        self.put("delete/a").await;
    }

    async fn deletes_many_while_it_may(&self) {
        let mut keys = Vec::new();
        for index in 0..LISTED {
            keys.push(self.put(&format!("many/{index:02}")).await);
        }
        let kept = keys.split_off(LISTED - 1);
        keys.push(self.key("many/nothing"));
        let never = Permit::new(|| false);
        let ended = self.store.delete_many(&keys, &never).await;
        assert!(matches!(ended, Err(Error::PermitEnded)), "{ended:?}");
        assert_eq!(self.names_under("many").await.len(), LISTED, "none is removed without leave");
        let always = Permit::new(|| true);
        self.store.delete_many(&keys, &always).await.expect("what is not there is removed already");
        assert_eq!(self.names_under("many").await.len(), kept.len());
        self.store.delete_many(&kept, &always).await.expect("the last is removed");
        assert!(self.names_under("many").await.is_empty());
    }

    async fn deletes_a_folder_and_no_sibling(&self) {
        for name in ["tree/a/b/1", "tree/a/b/c/2", "tree/a/bc", "tree/a/b-c/3", "tree/a/B/4"] {
            self.put(name).await;
        }
        let folder = Prefix::from(self.key("tree/a/b"));
        assert_eq!(delete_all(self.store, &folder).await.expect("it is emptied"), 2);
        assert_eq!(delete_all(self.store, &folder).await.expect("it is empty"), 0);
        assert_eq!(self.names_under("tree").await, ["tree/a/B/4", "tree/a/b-c/3", "tree/a/bc"]);
    }

    async fn keeps_names_as_they_are(&self) {
        let mut names: Vec<String> = ["a b", "a+b", "100%", "é", "a:b", "a=b&c", ".hidden", "..."]
            .map(|name| format!("names/{name}"))
            .into();
        names.sort();
        for name in &names {
            let key = self.put(name).await;
            let found = get_limited(self.store, &key, 100).await.expect("it is there");
            assert_eq!(found.bytes, name);
        }
        assert_eq!(self.names_under("names").await, names);
    }

    async fn lets_one_of_many_create(&self) {
        let key = self.key("race/create");
        let racers = (0..RACERS).map(|number| {
            let key = &key;
            async move { self.store.put_new(key, number.to_string().into()).await.is_ok() }
        });
        let won = join_all(racers).await;
        let winners: Vec<usize> =
            won.iter().enumerate().filter(|(_, won)| **won).map(|(number, _)| number).collect();
        let [winner] = winners.as_slice() else { panic!("one creates, not {winners:?}") };
        let found = get_limited(self.store, &key, 100).await.expect("it is there");
        assert_eq!(found.bytes, winner.to_string());
    }

    /// Every writer adds one; the sum is there at the end.
    async fn loses_no_swap(&self) {
        let key = self.key("race/swap");
        self.store.put_new(&key, "0".into()).await.expect("it is created");
        join_all((0..RACERS).map(|_| self.add_one(&key))).await;
        let found = get_limited(self.store, &key, 100).await.expect("it is there");
        assert_eq!(found.bytes, RACERS.to_string());
    }

    async fn add_one(&self, key: &Key) {
        // Each failure is another's success, so this many are enough.
        for _ in 0..=RACERS {
            let found = get_limited(self.store, key, 100).await.expect("it is there");
            let text = std::str::from_utf8(&found.bytes).expect("a number is text");
            let number: usize = text.parse().expect("it holds a number");
            let more = (number + 1).to_string().into();
            match self.store.put_if_match(key, more, &found.meta.version).await {
                Ok(_) => return,
                Err(Error::Changed { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("somebody must win each round");
    }
}

/// Fills more than one page and reads all of it; slow on a service, so not a part of [`run`].
///
/// # Panics
///
/// As [`run`].
pub async fn run_pages(store: Arc<dyn Store>, folder: &Key) {
    let count = crate::store::LIST_PAGE_MAX + LISTED;
    let mut keys: Vec<Key> = (0..count)
        .map(|number| {
            let name = format!("{folder}/{}/{number}", number % 7);
            Key::parse(&name).expect("names of the suite are keys")
        })
        .collect();
    for key in &keys {
        store.put_new(key, Bytes::new()).await.expect("it is created");
    }
    keys.sort();
    let prefix = Prefix::from(folder.clone());
    let first = store.list(&prefix, None).await.expect("it is listed");
    assert_eq!((first.objects.len(), first.is_last), (crate::store::LIST_PAGE_MAX, false));
    let all = list_all(store.as_ref(), &prefix).await.expect("it is listed");
    assert!(all.into_iter().map(|meta| meta.key).eq(keys));
    clean(store.as_ref(), &prefix).await;
}
