//! Builds a tree from ascending rows, page by page, holding one page a level.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::error::{BoltError, WriteError};
use super::format::{BRANCH, BUCKET, BUCKET_HEADER, ELEMENT, LEAF, PAGE_HEADER, PageHeader};
use super::page::Kind;
use super::read::{LEAF_MAX, Spine};

/// Pages are handed to the file in pieces of about this size.
const BUFFER: usize = 1 << 20;
/// The longest key of a leaf; a branch holds several of them.
const KEY_MAX: usize = 32 << 10;
/// With its key and headers a row must fit a run readers accept.
const VALUE_MAX: usize = 120 << 20;
/// An element count is 16 bits, and its greatest value is reserved.
const COUNT_MAX: usize = 0xFFFE;

const _: () = assert!((VALUE_MAX + KEY_MAX + (64 << 10)) as u64 <= LEAF_MAX);

/// Appends pages to a file.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    pub(super) page_size: usize,
    /// The next page to be given out.
    pub(super) next: u64,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    offset: u64,
}

impl Pages {
    /// Pages are written from `first` on; what lies there is overwritten.
    pub(super) fn new(file: File, page_size: usize, first: u64) -> Self {
        let offset = first.saturating_mul(u64::try_from(page_size).unwrap_or(u64::MAX));
        Self { file, page_size, next: first, buffer: Vec::with_capacity(2 * BUFFER), offset }
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    fn write(&mut self, image: &Image) -> Result<u64, WriteError> {
        let id = self.next;
        let pages = image.size().div_ceil(self.page_size).max(1);
        let start = self.buffer.len();
        image.encode(id, pages, &mut self.buffer);
        self.buffer.resize(start + pages * self.page_size, 0);
        self.next += u64::try_from(pages).unwrap_or(u64::MAX);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(id)
    }

    /// Hands to the file what is still held back.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        let written = self.file.write_all_at(&self.buffer, self.offset);
        written.map_err(WriteError::io("write"))?;
        self.offset += u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        self.buffer.clear();
        // A single huge row must not keep its memory for the rest of the file.
        self.buffer.shrink_to(2 * BUFFER);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Leaf { flags: u32, value: usize },
    Branch { child: u64 },
}

/// A page being filled.
#[derive(Debug)]
struct Image {
    kind: Kind,
    /// Length of the key, and the rest of the element.
    slots: Vec<(usize, Slot)>,
    bytes: Vec<u8>,
}

impl Image {
    const fn new(kind: Kind) -> Self {
        Self { kind, slots: Vec::new(), bytes: Vec::new() }
    }

    fn size(&self) -> usize {
        PAGE_HEADER + self.slots.len() * ELEMENT + self.bytes.len()
    }

    fn has_room(&self, more: usize, page_size: usize) -> bool {
        self.slots.is_empty()
            || (self.slots.len() < COUNT_MAX && self.size() + ELEMENT + more <= page_size)
    }

    fn first_key(&self) -> Vec<u8> {
        let length = self.slots.first().map_or(0, |(key, _)| *key);
        self.bytes.get(..length).unwrap_or_default().to_vec()
    }

    fn push_row(&mut self, flags: u32, key: &[u8], value: &[u8]) {
        self.slots.push((key.len(), Slot::Leaf { flags, value: value.len() }));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn push_child(&mut self, key: &[u8], child: u64) {
        self.slots.push((key.len(), Slot::Branch { child }));
        self.bytes.extend_from_slice(key);
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER);
    }

    fn encode(&self, id: u64, pages: usize, into: &mut Vec<u8>) {
        let flags = match self.kind {
            Kind::Branch => BRANCH,
            Kind::Leaf => LEAF,
        };
        // In bounds: rows are limited, and so are the elements of a page.
        let count = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        let overflow = u32::try_from(pages.saturating_sub(1)).unwrap_or(u32::MAX);
        into.extend_from_slice(&PageHeader { id, flags, count, overflow }.encode());
        let mut position = self.slots.len() * ELEMENT;
        for (key, slot) in &self.slots {
            let [at, key_size] = [position, *key].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
            match slot {
                Slot::Leaf { flags, value } => {
                    let value_size = u32::try_from(*value).unwrap_or(u32::MAX);
                    let fields = [*flags, at, key_size, value_size];
                    for field in fields {
                        into.extend_from_slice(&field.to_le_bytes());
                    }
                    position += value;
                }
                Slot::Branch { child } => {
                    into.extend_from_slice(&at.to_le_bytes());
                    into.extend_from_slice(&key_size.to_le_bytes());
                    into.extend_from_slice(&child.to_le_bytes());
                }
            }
            // Positions count from the element itself.
            position = position + key - ELEMENT;
        }
        into.extend_from_slice(&self.bytes);
    }
}

/// A tree being built; rows come in ascending order.
#[derive(Debug)]
pub(super) struct Tree {
    leaf: Image,
    /// From the level above the leaves upwards.
    branches: Vec<Image>,
    last: Option<Vec<u8>>,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { leaf: Image::new(Kind::Leaf), branches: Vec::new(), last: None }
    }

    /// Goes on where a tree ends: its last leaf and the branches above it are written anew.
    pub(super) fn after(spine: &Spine) -> Result<Self, BoltError> {
        let mut tree = Self::new();
        for index in 0..spine.leaf.count {
            let element = spine.leaf.leaf(index);
            let element = element.map_err(|fault| BoltError::page(spine.leaf.id, fault))?;
            let flags = if element.is_bucket { BUCKET } else { 0 };
            tree.leaf.push_row(flags, &element.key, &element.value);
            tree.last = Some(element.key.to_vec());
        }
        for page in spine.branches.iter().rev() {
            let mut image = Image::new(Kind::Branch);
            for index in 0..page.count.saturating_sub(1) {
                let element = page.branch(index);
                let element = element.map_err(|fault| BoltError::page(page.id, fault))?;
                image.push_child(&element.key, element.child);
            }
            tree.branches.push(image);
        }
        Ok(tree)
    }

    pub(super) fn put(
        &mut self,
        pages: &mut Pages,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        self.add(pages, 0, key, value)
    }

    /// Adds a bucket whose value is `value`, to the tree of buckets.
    pub(super) fn put_bucket(
        &mut self,
        pages: &mut Pages,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        self.add(pages, BUCKET, name, value)
    }

    fn add(
        &mut self,
        pages: &mut Pages,
        flags: u32,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), WriteError> {
        if key.len() > KEY_MAX {
            return Err(WriteError::KeyTooLong { length: key.len(), limit: KEY_MAX });
        }
        if value.len() > VALUE_MAX {
            return Err(WriteError::ValueTooLong { length: value.len(), limit: VALUE_MAX });
        }
        if self.last.as_deref().is_some_and(|last| last >= key) {
            return Err(WriteError::Order);
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if !self.leaf.has_room(key.len() + value.len(), pages.page_size) {
            self.flush_leaf(pages)?;
        }
        self.leaf.push_row(flags, key, value);
        Ok(())
    }

    fn flush_leaf(&mut self, pages: &mut Pages) -> Result<(), WriteError> {
        let child = pages.write(&self.leaf)?;
        let key = self.leaf.first_key();
        self.leaf.clear();
        self.add_child(pages, 0, key, child)
    }

    /// Enters a finished page in the branch of `level`, which may finish branches in turn.
    fn add_child(
        &mut self,
        pages: &mut Pages,
        mut level: usize,
        mut key: Vec<u8>,
        mut child: u64,
    ) -> Result<(), WriteError> {
        loop {
            let Some(branch) = self.branches.get_mut(level) else {
                let mut branch = Image::new(Kind::Branch);
                branch.push_child(&key, child);
                self.branches.push(branch);
                return Ok(());
            };
            if branch.has_room(key.len(), pages.page_size) {
                branch.push_child(&key, child);
                return Ok(());
            }
            let finished = (branch.first_key(), pages.write(branch)?);
            branch.clear();
            branch.push_child(&key, child);
            (key, child) = finished;
            level += 1;
        }
    }

    /// Writes what is left and gives the root page.
    pub(super) fn finish(mut self, pages: &mut Pages) -> Result<u64, WriteError> {
        if self.branches.is_empty() {
            return pages.write(&self.leaf);
        }
        self.flush_leaf(pages)?;
        let mut level = 0;
        loop {
            let Some(branch) = self.branches.get(level) else { return Ok(pages.next - 1) };
            let (key, child) = (branch.first_key(), pages.write(branch)?);
            level += 1;
            if level == self.branches.len() {
                return Ok(child);
            }
            self.add_child(pages, level, key, child)?;
        }
    }

    /// As [`Tree::finish`], and gives the bucket's value: small ones lie in the value itself.
    pub(super) fn finish_bucket(
        self,
        pages: &mut Pages,
        sequence: u64,
    ) -> Result<Bytes, WriteError> {
        let is_inline = self.branches.is_empty() && self.leaf.size() <= pages.page_size / 4;
        let mut value = Vec::with_capacity(BUCKET_HEADER);
        if is_inline {
            value.extend_from_slice(&0u64.to_le_bytes());
            value.extend_from_slice(&sequence.to_le_bytes());
            self.leaf.encode(0, 1, &mut value);
        } else {
            value.extend_from_slice(&self.finish(pages)?.to_le_bytes());
            value.extend_from_slice(&sequence.to_le_bytes());
        }
        Ok(value.into())
    }
}
