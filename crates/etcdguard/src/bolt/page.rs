//! One page of a tree, with the pages that run on from it: its elements, each within bounds.

use bytes::Bytes;

use super::error::Fault;
use super::format::{self, BRANCH, BUCKET, BUCKET_HEADER, ELEMENT, LEAF, PAGE_HEADER, PageHeader};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Branch,
    Leaf,
}

/// A page in memory; its kind is known, its elements are checked one by one as they are asked for.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// 0 for a page that lies inside a bucket's value.
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) count: usize,
    /// How many pages run on from it.
    pub(super) overflow: u32,
    bytes: Bytes,
}

#[derive(Debug)]
pub(super) struct LeafElement {
    pub(super) is_bucket: bool,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

#[derive(Debug)]
pub(super) struct BranchElement {
    pub(super) key: Bytes,
    pub(super) child: u64,
}

/// Where a bucket's tree is.
#[derive(Debug, Clone)]
pub(super) enum Root {
    Page(u64),
    Inline(Page),
}

pub(super) const fn kind(header: PageHeader) -> Result<Kind, Fault> {
    match header.flags {
        BRANCH => Ok(Kind::Branch),
        LEAF => Ok(Kind::Leaf),
        flags => Err(Fault::WrongKind { flags }),
    }
}

impl Page {
    /// `bytes` begin with the page's header and end with its run.
    pub(super) fn new(header: PageHeader, bytes: Bytes) -> Result<Self, Fault> {
        let PageHeader { id, count, overflow, .. } = header;
        Ok(Self { id, kind: kind(header)?, count: count.into(), overflow, bytes })
    }

    pub(super) fn leaf(&self, index: usize) -> Result<LeafElement, Fault> {
        self.leaf_element(index).ok_or(Fault::Element { index })
    }

    pub(super) fn branch(&self, index: usize) -> Result<BranchElement, Fault> {
        self.branch_element(index).ok_or(Fault::Element { index })
    }

    fn element_at(&self, index: usize) -> Option<usize> {
        (index < self.count).then_some(PAGE_HEADER + index * ELEMENT)
    }

    fn leaf_element(&self, index: usize) -> Option<LeafElement> {
        let at = self.element_at(index)?;
        let flags = format::u32_at(&self.bytes, at)?;
        let start = at.checked_add(format::index(format::u32_at(&self.bytes, at + 4)?))?;
        let middle = start.checked_add(format::index(format::u32_at(&self.bytes, at + 8)?))?;
        let end = middle.checked_add(format::index(format::u32_at(&self.bytes, at + 12)?))?;
        (end <= self.bytes.len()).then(|| LeafElement {
            is_bucket: flags & BUCKET != 0,
            key: self.bytes.slice(start..middle),
            value: self.bytes.slice(middle..end),
        })
    }

    fn branch_element(&self, index: usize) -> Option<BranchElement> {
        let at = self.element_at(index)?;
        let start = at.checked_add(format::index(format::u32_at(&self.bytes, at)?))?;
        let end = start.checked_add(format::index(format::u32_at(&self.bytes, at + 4)?))?;
        let child = format::u64_at(&self.bytes, at + 8)?;
        (end <= self.bytes.len())
            .then(|| BranchElement { key: self.bytes.slice(start..end), child })
    }
}

/// Reads the value of an element that is a bucket; gives its tree and its sequence.
pub(super) fn bucket(value: &Bytes) -> Option<(Root, u64)> {
    let root = format::u64_at(value, 0)?;
    let sequence = format::u64_at(value, 8)?;
    if root != 0 {
        return Some((Root::Page(root), sequence));
    }
    let image = value.slice_ref(value.get(BUCKET_HEADER..)?);
    let header = PageHeader { id: 0, ..PageHeader::decode(&image)? };
    let page = Page::new(header, image).ok().filter(|page| page.kind == Kind::Leaf)?;
    Some((Root::Inline(page), sequence))
}
