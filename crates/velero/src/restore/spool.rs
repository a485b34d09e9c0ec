//! What a tarball holds, unpacked into one file without a name: checked whole before anything of it is
//! used, and read item by item in whatever order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::room::{Held, Room, Whose};
use crate::layout::{Member, member};
use crate::order;
use crate::tarball::{Limits, Sink, shown};

/// Where an object lies in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) name: Box<str>,
    at: u64,
    len: u64,
}

impl Entry {
    fn place(&self) -> (Option<&str>, &str) {
        (self.namespace.as_deref(), &self.name)
    }
}

/// An object of the archive that has no usable place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    /// As much of it as people read.
    pub(crate) name: String,
    pub(crate) why: &'static str,
}

/// More are not told one by one.
const LEFT_OUT_MAX: usize = 1000;

/// Takes members as they come.
#[derive(Debug)]
pub(crate) struct Spool {
    file: io::BufWriter<File>,
    written: u64,
    held: Held,
    left_out: Vec<LeftOut>,
    /// By `resource.group`.
    entries: BTreeMap<String, Vec<Entry>>,
}

impl Spool {
    /// For an archive that is this long as it is packed: unpacked it is no shorter.
    pub(crate) fn new(
        folder: &Path,
        room: &Room,
        whose: Whose,
        packed_bytes: u64,
    ) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        let mut held = room.begin(whose);
        held.reach(&file, packed_bytes)?;
        let file = io::BufWriter::with_capacity(256 * 1024, file);
        Ok(Self { file, written: 0, held, left_out: Vec::new(), entries: BTreeMap::new() })
    }

    /// The archive is whole.
    pub(crate) fn finish(self, limits: &Limits) -> io::Result<Contents> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let entries = self.entries.into_iter().map(|(resource, mut found)| {
            found.sort_unstable_by(|a, b| a.place().cmp(&b.place()));
            (resource, found.into())
        });
        let (entries, parts_max) = (entries.collect(), limits.parts_max);
        Ok(Contents { file, entries, left_out: self.left_out, parts_max, _held: self.held })
    }
}

impl Sink for Spool {
    fn begin(&mut self, path: &str, len_bytes: u64) -> io::Result<bool> {
        let Member::Item(item) = member(path) else { return Ok(false) };
        let entry = Entry {
            namespace: item.namespace.map(Into::into),
            name: item.name.into(),
            at: self.written,
            len: len_bytes,
        };
        self.entries.entry(item.resource.to_owned()).or_default().push(entry);
        Ok(true)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let next = self.written + bytes.len() as u64;
        self.held.reach(self.file.get_ref(), next)?;
        self.file.write_all(bytes)?;
        self.written = next;
        self.held.wrote(next);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn left_out(&mut self, path: &str, why: &'static str) {
        let Member::Item(item) = member(path) else { return };
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(LeftOut {
                resource: shown(item.resource),
                namespace: item.namespace.map(shown),
                name: shown(item.name),
                why,
            });
        }
    }
}

/// The objects of a backup.
#[derive(Debug)]
pub(crate) struct Contents {
    file: File,
    /// Each kind sorted by namespace and name, so that a restore does the same each time.
    entries: BTreeMap<String, Arc<[Entry]>>,
    left_out: Vec<LeftOut>,
    /// Of one object: [`Limits::parts_max`].
    parts_max: usize,
    /// The file's room on the disk, given back with it.
    _held: Held,
}

/// How many lists, objects and places in them a JSON text has: what it costs in memory goes by these, and
/// an object in it that is written in eight bytes takes hundreds.
pub(crate) fn parts(text: &[u8]) -> usize {
    let (mut count, mut is_quoted, mut is_escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'{' | b'[' | b',' if !is_quoted => count += 1,
            _ => {}
        }
    }
    count
}

impl Contents {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The kinds, in the order they are brought back.
    pub(crate) fn resources(&self) -> Vec<String> {
        let mut found: Vec<String> = self.entries.keys().cloned().collect();
        found.sort_by_key(|resource| order::rank(resource));
        found
    }

    pub(crate) fn of(&self, resource: &str) -> Arc<[Entry]> {
        self.entries.get(resource).map(Arc::clone).unwrap_or_default()
    }

    pub(crate) fn find(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&Entry> {
        let entries = self.entries.get(resource)?;
        let at = entries.binary_search_by(|it| it.place().cmp(&(namespace, name))).ok()?;
        entries.get(at)
    }

    /// One object, which must be what its path says.
    pub(crate) fn read(&self, entry: &Entry) -> Result<Value, String> {
        let len = usize::try_from(entry.len).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, entry.at).map_err(|error| error.to_string())?;
        let parts = parts(&bytes);
        if parts > self.parts_max {
            let max = self.parts_max;
            return Err(format!("it has {parts} parts; {max} are allowed in such an archive"));
        }
        let object: Value =
            serde_json::from_slice(&bytes).map_err(|error| format!("it is not JSON: {error}"))?;
        let text = |name: &str| object.get("metadata")?.get(name)?.as_str();
        if text("name") != Some(&*entry.name) {
            return Err("its name is not that of its path".to_owned());
        }
        if text("namespace").filter(|it| !it.is_empty()) != entry.namespace.as_deref() {
            return Err("its namespace is not that of its path".to_owned());
        }
        Ok(object)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tarball::{Members, write_end, write_member};

    pub(crate) fn contents(members: &[(&str, &str)]) -> Contents {
        within(members, Limits::default())
    }

    fn within(members: &[(&str, &str)], limits: Limits) -> Contents {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        for (path, text) in members {
            write_member(&mut bytes, path, text.as_bytes(), 0).unwrap();
        }
        write_end(&mut bytes).unwrap();
        let mut read = Members::new(
            {
                let room = Room::default();
                Spool::new(folder.path(), &room, Whose::Administrators, 0).unwrap()
            },
            limits,
        );
        read.push(&bytes).unwrap();
        read.finish().unwrap().finish(&limits).unwrap()
    }

    #[test]
    fn an_object_with_an_odd_name_is_told_once_and_the_others_are_there() {
        let held = contents(&[
            ("resources/roles/namespaces/a/r\\1.json", "{}"),
            ("resources/roles/v1-preferredversion/namespaces/a/r\\1.json", "{}"),
            ("resources/roles/namespaces/a/s.json", "{}"),
        ]);
        let told: Vec<_> = held.left_out().iter().map(|it| (&*it.resource, &*it.name)).collect();
        assert_eq!(told, [("roles", "r\\1")]);
        assert_eq!(held.left_out()[0].namespace.as_deref(), Some("a"));
        assert_eq!(held.of("roles").len(), 1);
    }

    #[test]
    fn objects_are_found_in_the_order_they_are_brought_back() {
        let held = contents(&[
            ("metadata/version", "1.1.0\n"),
            (
                "resources/services/namespaces/a/s.json",
                r#"{"metadata":{"name":"s","namespace":"a"}}"#,
            ),
            ("resources/services/v1-preferredversion/namespaces/a/s.json", "{}"),
            ("resources/namespaces/cluster/a.json", r#"{"metadata":{"name":"a"}}"#),
        ]);
        assert_eq!(held.resources(), ["namespaces", "services"]);
        let entry = held.find("services", Some("a"), "s").unwrap();
        assert_eq!(held.read(entry).unwrap()["metadata"]["name"], "s");
        assert_eq!(held.of("services").len(), 1);
    }

    #[test]
    fn an_object_of_a_tenants_archive_takes_no_more_memory_than_objects_do() {
        let object =
            |data: &str| format!(r#"{{"metadata":{{"name":"x","namespace":"n"}},"data":{data}}}"#);
        // Of a megabyte, this would take a hundred in memory.
        let many = object(&format!("[{}0]", r#"{"":0},"#.repeat(140_000)));
        // Nothing is known of what stands in a text.
        let text = object(&format!(r#"{{"key":"{}"}}"#, r#"[{\"a\":0},"#.repeat(100_000)));
        let member = |object: &str| {
            let held = within(
                &[("resources/configmaps/namespaces/n/x.json", object)],
                Limits::of_tenants(),
            );
            held.read(&held.of("configmaps")[0])
        };
        let refused = member(&many).unwrap_err();
        assert!(refused.contains("parts; 30000 are allowed"), "{refused}");
        assert!(member(&text).is_ok());
    }

    #[test]
    fn an_object_is_found_among_many() {
        let paths: Vec<String> = (0..100)
            .flat_map(|number| {
                ["b", "a"].map(|it| format!("resources/pods/namespaces/{it}/p{number}.json"))
            })
            .chain(["resources/pods/cluster/p1.json".to_owned()])
            .collect();
        let members: Vec<(&str, &str)> = paths.iter().map(|it| (it.as_str(), "{}")).collect();
        let held = contents(&members);
        for (namespace, name) in [(Some("a"), "p0"), (Some("b"), "p99"), (None, "p1")] {
            let found = held.find("pods", namespace, name).map(Entry::place);
            assert_eq!(found, Some((namespace, name)));
        }
        assert!(held.find("pods", Some("a"), "p100").is_none());
        assert!(held.of("pods").iter().is_sorted_by_key(|it| it.place()));
        assert!(held.of("services").is_empty());
    }

    #[test]
    fn objects_that_are_not_what_their_path_says_are_refused() {
        let held = contents(&[
            ("resources/a/namespaces/n/x.json", r#"{"metadata":{"name":"y","namespace":"n"}}"#),
            ("resources/b/namespaces/n/x.json", r#"{"metadata":{"name":"x","namespace":"m"}}"#),
            ("resources/c/cluster/x.json", r#"{"metadata":{"name":"x","namespace":"m"}}"#),
            ("resources/d/cluster/x.json", "garbage"),
        ]);
        for resource in ["a", "b", "c", "d"] {
            assert!(held.read(&held.of(resource)[0]).is_err(), "{resource}");
        }
    }
}
