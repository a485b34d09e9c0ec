//! Adds rows at the end of a bucket, and replaces whole small buckets, in a database that exists.
//!
//! Pages already there are never overwritten: new ones go behind them, and the headers that lead to
//! the new trees are written last. Cut off at any moment, the file holds what it held before.

use std::fs::{File, OpenOptions};
use std::path::Path;

use bytes::Bytes;

use super::error::{BoltError, WriteError};
use super::format::{Meta, NO_FREELIST};
use super::page;
use super::read::{Bolt, Row};
use super::tree::{Pages, Tree};
use super::write;

/// A database being added to. Nothing is seen of it before [`Editor::commit`].
#[derive(Debug)]
pub struct Editor {
    bolt: Bolt,
    pages: Pages,
    buckets: Vec<Entry>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Entry {
    name: Bytes,
    /// The bucket's header, with the page that may lie in it.
    value: Bytes,
}

#[derive(Debug)]
struct Open {
    name: Bytes,
    sequence: u64,
    tree: Tree,
}

impl Editor {
    /// The database must have been checked: only what is added is.
    pub fn open(path: &Path) -> Result<Self, WriteError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(WriteError::io("open"))?;
        Self::from_file(file)
    }

    fn from_file(file: File) -> Result<Self, WriteError> {
        let bolt = Bolt::from_file(file.try_clone().map_err(WriteError::io("open"))?)?;
        let Meta { page_size, high_water, .. } = *bolt.meta();
        // What lies behind the last page is not part of the database: a checksum, or free space.
        file.set_len(bolt.size()).map_err(WriteError::io("cut"))?;
        let buckets = entries(&bolt)?;
        Ok(Self { bolt, pages: Pages::new(file, page_size, high_water), buckets, open: None })
    }

    /// Further rows go behind the last one of this bucket.
    pub fn append_to(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.close()?;
        let (root, sequence) = self
            .buckets
            .iter()
            .find(|entry| entry.name == name)
            .and_then(|entry| page::bucket(&entry.value))
            .ok_or_else(|| WriteError::NoBucket(String::from_utf8_lossy(name).into_owned()))?;
        let tree = Tree::after(&self.bolt.spine(&root)?)?;
        self.open = Some(Open { name: Bytes::copy_from_slice(name), sequence, tree });
        Ok(())
    }

    /// Adds a row to the bucket chosen last; its key is above all there.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        let Some(open) = &mut self.open else {
            return Err(WriteError::NoBucket(String::new()));
        };
        open.tree.put(&mut self.pages, key, value)
    }

    /// The bucket holds exactly these ascending rows from now on; it is made if need be.
    pub fn replace_bucket(&mut self, name: &[u8], rows: &[Row]) -> Result<(), WriteError> {
        self.close()?;
        let mut tree = Tree::new();
        for row in rows {
            tree.put(&mut self.pages, &row.key, &row.value)?;
        }
        let value = tree.finish_bucket(&mut self.pages, 0)?;
        self.set(Bytes::copy_from_slice(name), value);
        Ok(())
    }

    fn set(&mut self, name: Bytes, value: Bytes) {
        match self.buckets.binary_search_by(|entry| entry.name.cmp(&name)) {
            Ok(at) => self.buckets.get_mut(at).into_iter().for_each(|it| it.value = value.clone()),
            Err(at) => self.buckets.insert(at, Entry { name, value }),
        }
    }

    fn close(&mut self) -> Result<(), WriteError> {
        if let Some(open) = self.open.take() {
            let value = open.tree.finish_bucket(&mut self.pages, open.sequence)?;
            self.set(open.name, value);
        }
        Ok(())
    }

    /// Makes all of it durable and visible. Appending goes on with [`Editor::append_to`].
    pub fn commit(&mut self) -> Result<(), WriteError> {
        self.close()?;
        let mut root = Tree::new();
        for entry in &self.buckets {
            root.put_bucket(&mut self.pages, &entry.name, &entry.value)?;
        }
        let root = root.finish(&mut self.pages)?;
        let before = *self.bolt.meta();
        let meta = Meta {
            root,
            freelist: NO_FREELIST,
            high_water: self.pages.next,
            transaction: before.transaction + 1,
            ..before
        };
        // Both, so that no reader falls back to what was there before.
        write::seal(&mut self.pages, &[meta, Meta { transaction: meta.transaction + 1, ..meta }])?;
        let file = self.pages.file().try_clone().map_err(WriteError::io("open"))?;
        self.bolt = Bolt::from_file(file)?;
        Ok(())
    }
}

/// Every bucket's entry as it is. Etcd has a dozen; a file with very many is not one of its own.
fn entries(bolt: &Bolt) -> Result<Vec<Entry>, BoltError> {
    bolt.bucket_values()?.map(|entry| entry.map(|(name, value)| Entry { name, value })).collect()
}
