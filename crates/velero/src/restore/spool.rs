//! What a tarball holds, unpacked into one file without a name: checked whole before anything of it is
//! used, and read item by item in whatever order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::layout::{Member, member};
use crate::order;
use crate::tarball::Sink;

/// What others keep of the disk that archives are unpacked on.
const LEFT_FREE_BYTES: u64 = 64 << 20;
/// How much is written before it is looked how much is left.
const LOOK_EVERY_BYTES: u64 = 16 << 20;

/// How much can be written beside a file.
type Free = fn(&File) -> io::Result<u64>;

fn free_bytes(file: &File) -> io::Result<u64> {
    let found = rustix::fs::fstatvfs(file)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn room_for(needed: u64, free: u64) -> io::Result<()> {
    if free.saturating_sub(LEFT_FREE_BYTES) >= needed {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "the disk for unpacking has {} MiB free, of which {} MiB stay so, and at least {} MiB are \
             needed; make room there and restore again",
            free >> 20,
            LEFT_FREE_BYTES >> 20,
            needed.div_ceil(1 << 20)
        ),
    ))
}

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
    looked_at: u64,
    free: Free,
    /// By `resource.group`.
    entries: BTreeMap<String, Vec<Entry>>,
}

impl Spool {
    /// For an archive that is this long as it is packed: unpacked it is no shorter.
    pub(crate) fn new(folder: &Path, packed_bytes: u64) -> io::Result<Self> {
        Self::on(folder, packed_bytes, free_bytes)
    }

    fn on(folder: &Path, packed_bytes: u64, free: Free) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        room_for(packed_bytes, free(&file)?)?;
        let file = io::BufWriter::with_capacity(256 * 1024, file);
        Ok(Self { file, written: 0, looked_at: 0, free, entries: BTreeMap::new() })
    }

    /// The archive is whole.
    pub(crate) fn finish(self) -> io::Result<Contents> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Contents { file, entries: self.entries })
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
        self.written += bytes.len() as u64;
        if self.written - self.looked_at >= LOOK_EVERY_BYTES {
            room_for(LOOK_EVERY_BYTES, (self.free)(self.file.get_ref())?)?;
            self.looked_at = self.written;
        }
        self.file.write_all(bytes)
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
        let mut read = Members::new(Spool::new(folder.path(), 0).unwrap(), Limits::default());
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

    #[test]
    fn a_disk_is_not_filled_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let some: Free = |_| Ok(LEFT_FREE_BYTES + (8 << 20));
        let refused = Spool::on(folder.path(), 9 << 20, some).unwrap_err();
        assert!(refused.to_string().contains("has 72 MiB free"), "{refused}");
        // It fits packed, and grows.
        let mut spool = Spool::on(folder.path(), 1 << 20, some).unwrap();
        let piece = vec![0; 1 << 20];
        let written = (0..64).take_while(|_| spool.bytes(&piece).is_ok()).count();
        assert!(written < 16, "{written} MiB were written");
        assert!(free_bytes(spool.file.get_ref()).unwrap() > 0, "the disk is asked");
    }
}
