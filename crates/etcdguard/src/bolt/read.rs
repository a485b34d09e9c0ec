//! Reads a database by page, in order of keys, whatever its size.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use super::error::{BoltError, Fault};
use super::format::{META_END, Meta, PageHeader};
use super::page::{self, Kind, Page, Root};

/// Levels a walk goes down. Half a dozen hold all an etcd can.
pub(super) const DEPTH_MAX: usize = 16;
/// The longest run of a branch page. Its keys are revisions and short names.
const BRANCH_MAX: u64 = 1 << 20;
/// The longest run of a leaf page: far above the largest request an etcd can be told to take.
pub(super) const LEAF_MAX: u64 = 128 << 20;
/// Exponents of the places a second header may be at when the first does not say.
const SECOND_META: std::ops::Range<u32> = 10..17;

/// A database, open for reading only.
#[derive(Debug)]
pub struct Bolt {
    file: File,
    meta: Meta,
}

impl Bolt {
    /// Opens the file and reads its header; nothing else of it is trusted yet.
    pub fn open(path: &Path) -> Result<Self, BoltError> {
        Self::from_file(File::open(path).map_err(BoltError::io("open"))?)
    }

    /// As [`Bolt::open`], of a file that is open already (and perhaps locked).
    pub fn from_file(file: File) -> Result<Self, BoltError> {
        let length = file.metadata().map_err(BoltError::io("read"))?.len();
        let meta = newest_meta(&file)?.ok_or(BoltError::NoMeta)?;
        let expected = u64::try_from(meta.page_size)
            .ok()
            .and_then(|size| size.checked_mul(meta.high_water))
            .unwrap_or(u64::MAX);
        if expected > length {
            return Err(BoltError::Short { length, expected });
        }
        Ok(Self { file, meta })
    }

    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How many bytes of the file are in use.
    pub fn size(&self) -> u64 {
        self.offset(self.meta.high_water)
    }

    fn offset(&self, page: u64) -> u64 {
        // Bounded by the length of the file, which was compared when it was opened.
        page.saturating_mul(u64::try_from(self.meta.page_size).unwrap_or(u64::MAX))
    }

    /// The names of all buckets, in order.
    pub fn buckets(&self) -> Result<Vec<Bytes>, BoltError> {
        self.entries()?.map(|entry| entry.map(|entry| entry.0)).collect()
    }

    /// The bucket called `name`.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_>>, BoltError> {
        for entry in self.entries()? {
            let (found, root, sequence) = entry?;
            if found == name {
                return Ok(Some(Bucket { bolt: self, root, sequence }));
            }
        }
        Ok(None)
    }

    /// Every bucket with its tree. The walk ends at what is not a bucket.
    fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<(Bytes, Root, u64), BoltError>> + '_, BoltError> {
        let walk = Walk::first(self, &Root::Page(self.meta.root))?;
        Ok(walk.map(|element| {
            let (page, index, element) = element?;
            let fault = |fault| BoltError::page(page, fault);
            if !element.is_bucket {
                return Err(fault(Fault::NotABucket { index }));
            }
            let (root, sequence) =
                page::bucket(&element.value).ok_or_else(|| fault(Fault::BucketHeader { index }))?;
            Ok((element.key, root, sequence))
        }))
    }

    /// Every bucket with its value as it is: header, and perhaps the page that lies in it.
    pub(super) fn bucket_values(
        &self,
    ) -> Result<impl Iterator<Item = Result<(Bytes, Bytes), BoltError>> + '_, BoltError> {
        let walk = Walk::first(self, &Root::Page(self.meta.root))?;
        Ok(walk.map(|element| element.map(|(_, _, element)| (element.key, element.value))))
    }

    /// Reads one page of a tree with all that runs on from it.
    pub(super) fn page(&self, id: u64) -> Result<Page, BoltError> {
        let fault = |fault| BoltError::page(id, fault);
        let first = self.read(id, 1)?;
        let header = PageHeader::decode(&first).ok_or_else(|| fault(Fault::Empty))?;
        if header.id != id {
            return Err(fault(Fault::WrongId { found: header.id }));
        }
        let kind = page::kind(header).map_err(fault)?;
        let pages = u64::from(header.overflow) + 1;
        let limit = match kind {
            Kind::Branch => BRANCH_MAX,
            Kind::Leaf => LEAF_MAX,
        };
        if pages > 1 && self.offset(pages) > limit {
            return Err(fault(Fault::TooLong { pages }));
        }
        let bytes = if pages == 1 { first } else { self.read(id, pages)? };
        Page::new(header, bytes.into()).map_err(fault)
    }

    pub(super) fn header(&self, id: u64) -> Result<PageHeader, BoltError> {
        let bytes = self.read(id, 1)?;
        PageHeader::decode(&bytes).ok_or(BoltError::page(id, Fault::Empty))
    }

    /// Reads pages below the high-water mark, which is inside the file.
    pub(super) fn read(&self, id: u64, pages: u64) -> Result<Vec<u8>, BoltError> {
        let limit = self.meta.high_water;
        if id.checked_add(pages).is_none_or(|end| end > limit) {
            return Err(BoltError::page(id, Fault::AboveHighWater { limit }));
        }
        let length = usize::try_from(self.offset(pages))
            .map_err(|_| BoltError::page(id, Fault::TooLong { pages }))?;
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, self.offset(id))
            .map_err(BoltError::io("read a page of"))?;
        Ok(bytes)
    }
}

/// The valid header with the newest transaction.
fn newest_meta(file: &File) -> Result<Option<Meta>, BoltError> {
    let first = meta_at(file, 0)?;
    let second = match first {
        Some(meta) => meta_at(file, u64::try_from(meta.page_size).unwrap_or(u64::MAX))?,
        None => SECOND_META
            .map(|exponent| meta_at(file, 1 << exponent))
            .find_map(Result::transpose)
            .transpose()?,
    };
    Ok(first.into_iter().chain(second).max_by_key(|meta| meta.transaction))
}

fn meta_at(file: &File, offset: u64) -> Result<Option<Meta>, BoltError> {
    let mut page = [0; META_END];
    match file.read_exact_at(&mut page, offset) {
        Ok(()) => Ok(Meta::decode(&page)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(source) => Err(BoltError::Io { what: "read the header of", source }),
    }
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: Bytes,
    pub value: Bytes,
}

/// One bucket of a database.
#[derive(Debug)]
pub struct Bucket<'a> {
    bolt: &'a Bolt,
    root: Root,
    sequence: u64,
}

impl<'a> Bucket<'a> {
    /// A number users of the database may keep with a bucket; etcd does not.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// All rows in order. A row that is a bucket, or not above the one before, is an error.
    pub fn rows(&self) -> Result<Rows<'a>, BoltError> {
        Ok(Rows { walk: Walk::first(self.bolt, &self.root)? })
    }

    /// All rows from the first whose key is not below `key`.
    pub fn rows_from(&self, key: &[u8]) -> Result<Rows<'a>, BoltError> {
        Ok(Rows { walk: Walk::seek(self.bolt, &self.root, key)? })
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BoltError> {
        let row = self.rows_from(key)?.next().transpose()?;
        Ok(row.filter(|row| row.key == key).map(|row| row.value))
    }

    /// The row with the greatest key.
    pub fn last(&self) -> Result<Option<Row>, BoltError> {
        let spine = self.bolt.spine(&self.root)?;
        let Some(index) = spine.leaf.count.checked_sub(1) else { return Ok(None) };
        let found = spine.leaf.leaf(index);
        let element = found.map_err(|fault| BoltError::page(spine.leaf.id, fault))?;
        Ok(Some(Row { key: element.key, value: element.value }))
    }
}

/// The pages from a root down to the last leaf.
#[derive(Debug)]
pub(super) struct Spine {
    /// From the root down.
    pub(super) branches: Vec<Page>,
    pub(super) leaf: Page,
}

impl Bolt {
    fn root_page(&self, root: &Root) -> Result<Page, BoltError> {
        match root {
            Root::Page(id) => self.page(*id),
            Root::Inline(page) => Ok(page.clone()),
        }
    }

    /// Where rows above all others would go.
    pub(super) fn spine(&self, root: &Root) -> Result<Spine, BoltError> {
        let mut branches = Vec::new();
        let mut page = self.root_page(root)?;
        while page.kind == Kind::Branch {
            let fault = |fault| BoltError::page(page.id, fault);
            let last = page.count.checked_sub(1).ok_or_else(|| fault(Fault::Empty))?;
            let child = page.branch(last).map_err(fault)?.child;
            if branches.len() == DEPTH_MAX {
                return Err(BoltError::page(child, Fault::TooDeep { limit: DEPTH_MAX }));
            }
            branches.push(page);
            page = self.page(child)?;
        }
        Ok(Spine { branches, leaf: page })
    }
}

/// Rows of a bucket in order.
#[derive(Debug)]
pub struct Rows<'a> {
    walk: Walk<'a>,
}

impl Iterator for Rows<'_> {
    type Item = Result<Row, BoltError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.walk.next()? {
            Ok((page, index, element)) if element.is_bucket => {
                self.walk.stack.clear();
                Err(BoltError::page(page, Fault::Nested { index }))
            }
            Ok((_, _, element)) => Ok(Row { key: element.key, value: element.value }),
            Err(error) => Err(error),
        })
    }
}

/// Elements of a tree from left to right, each above the one before. Ends after the first error.
#[derive(Debug)]
struct Walk<'a> {
    bolt: &'a Bolt,
    /// From the root down: each page with its next element.
    stack: Vec<(Page, usize)>,
    before: Option<Bytes>,
}

type Element = (u64, usize, page::LeafElement);

impl<'a> Walk<'a> {
    fn first(bolt: &'a Bolt, root: &Root) -> Result<Self, BoltError> {
        Ok(Self { bolt, stack: vec![(bolt.root_page(root)?, 0)], before: None })
    }

    /// Stands before the first element whose key is not below `key`.
    fn seek(bolt: &'a Bolt, root: &Root, key: &[u8]) -> Result<Self, BoltError> {
        let mut walk = Self { bolt, stack: Vec::new(), before: None };
        let mut page = bolt.root_page(root)?;
        loop {
            let position = position(&page, key).map_err(|fault| BoltError::page(page.id, fault))?;
            match page.kind {
                Kind::Leaf => {
                    walk.stack.push((page, position));
                    return Ok(walk);
                }
                Kind::Branch => {
                    let next = walk.descend(page, position)?;
                    page = next;
                }
            }
        }
    }

    /// Puts the branch on the stack, to go on after `index`, and gives that child.
    fn descend(&mut self, page: Page, index: usize) -> Result<Page, BoltError> {
        let found = page.branch(index).map_err(|fault| BoltError::page(page.id, fault));
        let child = found?.child;
        if self.stack.len() >= DEPTH_MAX {
            return Err(BoltError::page(child, Fault::TooDeep { limit: DEPTH_MAX }));
        }
        self.stack.push((page, index + 1));
        let child = self.bolt.page(child)?;
        // Empty pages below a root would let a small file keep us walking for ever.
        if child.count == 0 {
            return Err(BoltError::page(child.id, Fault::Empty));
        }
        Ok(child)
    }

    fn step(&mut self) -> Result<Option<Element>, BoltError> {
        while let Some((page, index)) = self.stack.pop() {
            if index >= page.count {
                continue;
            }
            match page.kind {
                Kind::Leaf => {
                    let id = page.id;
                    let element = self.take(&page, index);
                    let element = element.map_err(|fault| BoltError::page(id, fault))?;
                    self.stack.push((page, index + 1));
                    return Ok(Some((id, index, element)));
                }
                Kind::Branch => {
                    let child = self.descend(page, index)?;
                    self.stack.push((child, 0));
                }
            }
        }
        Ok(None)
    }

    fn take(&mut self, page: &Page, index: usize) -> Result<page::LeafElement, Fault> {
        let element = page.leaf(index)?;
        // Without this, a tree that leads into itself would never end.
        if self.before.as_ref().is_some_and(|before| *before >= element.key) {
            return Err(Fault::KeyOrder { index });
        }
        self.before = Some(element.key.clone());
        Ok(element)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Element, BoltError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.stack.clear();
        }
        step.transpose()
    }
}

/// In a leaf the first element not below `key`, in a branch the child that may hold it.
fn position(page: &Page, key: &[u8]) -> Result<usize, Fault> {
    let (mut low, mut high) = (0, page.count);
    while low < high {
        let middle = low.midpoint(high);
        let is_before = match page.kind {
            Kind::Leaf => page.leaf(middle)?.key < key,
            Kind::Branch => page.branch(middle)?.key <= key,
        };
        (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
    }
    Ok(match page.kind {
        Kind::Leaf => low,
        Kind::Branch => low.saturating_sub(1),
    })
}
