//! What a tarball holds, unpacked into one file without a name: checked whole before anything of it is
//! used, and read item by item in whatever order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use super::room::{Held, Room, Whose};
use crate::layout::{Member, member};
use crate::order;
use crate::tarball::Sink;

/// Where an object lies in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) name: Box<str>,
    at: u64,
    len: u64,
}

/// Takes members as they come.
#[derive(Debug)]
pub(crate) struct Spool {
    file: io::BufWriter<File>,
    written: u64,
    held: Held,
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
        Ok(Self { file, written: 0, held, entries: BTreeMap::new() })
    }

    /// The archive is whole.
    pub(crate) fn finish(self) -> io::Result<Contents> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Contents { file, entries: self.entries, _held: self.held })
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
}

/// The objects of a backup.
#[derive(Debug)]
pub(crate) struct Contents {
    file: File,
    entries: BTreeMap<String, Vec<Entry>>,
    /// The file's room on the disk, given back with it.
    _held: Held,
}

impl Contents {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The kinds, in the order they are brought back.
    pub(crate) fn resources(&self) -> Vec<String> {
        let mut found: Vec<String> = self.entries.keys().cloned().collect();
        found.sort_by_key(|resource| order::rank(resource));
        found
    }

    /// Sorted by namespace and name, so that a restore does the same each time.
    pub(crate) fn of(&self, resource: &str) -> Vec<Entry> {
        let mut found = self.entries.get(resource).cloned().unwrap_or_default();
        found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        found
    }

    pub(crate) fn find(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&Entry> {
        let entries = self.entries.get(resource)?;
        entries.iter().find(|it| it.namespace.as_deref() == namespace && *it.name == *name)
    }

    /// One object, which must be what its path says.
    pub(crate) fn read(&self, entry: &Entry) -> Result<Value, String> {
        let len = usize::try_from(entry.len).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, entry.at).map_err(|error| error.to_string())?;
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
mod tests {
    use super::*;
    use crate::tarball::{Limits, Members, write_end, write_member};

    fn contents(members: &[(&str, &str)]) -> Contents {
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
            Limits::default(),
        );
        read.push(&bytes).unwrap();
        read.finish().unwrap().finish().unwrap()
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
