//! Writes a new database from ascending buckets of ascending rows, in one pass.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::error::WriteError;
use super::format::{Meta, NO_FREELIST};
use super::tree::{Pages, Tree};

/// The first two pages are the headers.
const FIRST_PAGE: u64 = 2;

/// A database being written. Until [`Writer::finish`] the file has no header and opens nowhere.
#[derive(Debug)]
pub struct Writer {
    pages: Pages,
    done: Vec<(Vec<u8>, Bytes)>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    name: Vec<u8>,
    sequence: u64,
    tree: Tree,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
}

impl Writer {
    /// `file` is empty and open for writing.
    pub fn new(file: File, page_size: usize) -> Self {
        Self { pages: Pages::new(file, page_size, FIRST_PAGE), done: Vec::new(), open: None }
    }

    /// Begins the next bucket; names ascend.
    pub fn bucket(&mut self, name: &[u8], sequence: u64) -> Result<(), WriteError> {
        self.close()?;
        if self.done.last().is_some_and(|(last, _)| last.as_slice() >= name) {
            return Err(WriteError::Order);
        }
        self.open = Some(Open { name: name.to_vec(), sequence, tree: Tree::new() });
        Ok(())
    }

    /// Adds a row to the bucket begun last; keys ascend.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let Some(open) = &mut self.open else {
            return Err(WriteError::NoBucket(String::new()));
        };
        open.tree.put(&mut self.pages, key, value)
    }

    fn close(&mut self) -> Result<(), WriteError> {
        if let Some(open) = self.open.take() {
            let value = open.tree.finish_bucket(&mut self.pages, open.sequence)?;
            self.done.push((open.name, value));
        }
        Ok(())
    }

    /// Writes the rest, makes it durable, and only then the headers.
    pub fn finish(mut self) -> Result<Written, WriteError> {
        self.close()?;
        let mut root = Tree::new();
        for (name, value) in &self.done {
            root.put_bucket(&mut self.pages, name, value)?;
        }
        let root = root.finish(&mut self.pages)?;
        let high_water = self.pages.next;
        let meta = Meta {
            page_size: self.pages.page_size,
            root,
            sequence: 0,
            freelist: NO_FREELIST,
            high_water,
            transaction: 0,
        };
        seal(&mut self.pages, &[meta, Meta { transaction: 1, ..meta }])?;
        let size = u64::try_from(self.pages.page_size).unwrap_or(u64::MAX);
        Ok(Written { bytes: high_water.saturating_mul(size) })
    }
}

/// Makes the pages durable, then the headers that lead to them.
pub(super) fn seal(pages: &mut Pages, metas: &[Meta]) -> Result<(), WriteError> {
    pages.flush()?;
    pages.file().sync_data().map_err(WriteError::io("sync"))?;
    for meta in metas {
        let offset = meta.place() * u64::try_from(meta.page_size).unwrap_or(u64::MAX);
        let written = pages.file().write_all_at(&meta.encode(), offset);
        written.map_err(WriteError::io("write the header of"))?;
    }
    pages.file().sync_data().map_err(WriteError::io("sync"))
}
