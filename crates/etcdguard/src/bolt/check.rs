//! The whole structure of a database: every page reached once or free, every key in its place.

use bytes::Bytes;

use super::error::{BoltError, Fault};
use super::format::{self, FREELIST, NO_FREELIST, PAGE_HEADER};
use super::page::{self, Kind, LeafElement, Page, Root};
use super::read::{Bolt, DEPTH_MAX};

/// Findings after which a check has seen enough.
const FINDINGS_MAX: usize = 100;
/// A list of this length names 8 million free pages.
const FREELIST_MAX: usize = 64 << 20;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("page {page}: {fault}")]
pub struct Finding {
    pub page: u64,
    pub fault: Fault,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Empty when all is well. A check stops after a hundred.
    pub findings: Vec<Finding>,
    /// Pages that trees lead to, the headers included.
    pub used_pages: u64,
    pub rows: u64,
}

/// Checks all of a database. An `Err` says that it could not be read, not that it is damaged.
pub fn check(bolt: &Bolt) -> Result<Checked, BoltError> {
    check_rows(bolt, |_, _, _| {})
}

/// As [`check`], and shows every row (bucket, key, value) in order on the way.
///
/// Rows of a damaged database are shown as far as they can be read.
pub fn check_rows(
    bolt: &Bolt,
    visit: impl FnMut(&[u8], &Bytes, &Bytes),
) -> Result<Checked, BoltError> {
    let mut check = Check { bolt, visit, used: Marks::new(bolt), findings: Vec::new(), rows: 0 };
    check.used.mark(0);
    check.used.mark(1);
    let buckets = check.buckets()?;
    for (name, root) in buckets {
        check.walk(root, &mut |check, page, index, element| {
            if element.is_bucket {
                return check.find(page, Fault::Nested { index });
            }
            check.rows += 1;
            (check.visit)(&name, &element.key, &element.value);
        })?;
    }
    check.free_pages()?;
    let Check { used, findings, rows, .. } = check;
    Ok(Checked { findings, used_pages: used.count, rows })
}

/// One bit a page. The high-water mark is within the length of the file, so this is small.
struct Marks {
    bits: Vec<u64>,
    limit: u64,
    count: u64,
}

impl Marks {
    fn new(bolt: &Bolt) -> Self {
        let limit = bolt.meta().high_water;
        let words = usize::try_from(limit.div_ceil(64)).unwrap_or_default();
        Self { bits: vec![0; words], limit, count: 0 }
    }

    fn word(&mut self, page: u64) -> Option<(&mut u64, u64)> {
        let at = usize::try_from(page / 64).ok().filter(|_| page < self.limit)?;
        Some((self.bits.get_mut(at)?, 1 << (page % 64)))
    }

    /// Whether it was not marked before.
    fn mark(&mut self, page: u64) -> bool {
        let Some((word, bit)) = self.word(page) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    fn is_marked(&mut self, page: u64) -> bool {
        self.word(page).is_some_and(|(word, bit)| *word & bit != 0)
    }
}

struct Check<'a, V> {
    bolt: &'a Bolt,
    visit: V,
    used: Marks,
    findings: Vec<Finding>,
    rows: u64,
}

/// The keys a page's parent allows in it.
#[derive(Default)]
struct Bounds {
    low: Option<Bytes>,
    high: Option<Bytes>,
}

/// A page on the way down.
struct Frame {
    page: Page,
    next: usize,
    bounds: Bounds,
}

/// Told of each element of a leaf: page, index, element.
type Seen<'f, 'a, V> = &'f mut dyn FnMut(&mut Check<'a, V>, u64, usize, LeafElement);

impl<'a, V: FnMut(&[u8], &Bytes, &Bytes)> Check<'a, V> {
    fn find(&mut self, page: u64, fault: Fault) {
        if !self.is_full() {
            self.findings.push(Finding { page, fault });
        }
    }

    const fn is_full(&self) -> bool {
        self.findings.len() >= FINDINGS_MAX
    }

    fn buckets(&mut self) -> Result<Vec<(Bytes, Root)>, BoltError> {
        let mut buckets = Vec::new();
        let root = Root::Page(self.bolt.meta().root);
        self.walk(root, &mut |check, page, index, element| match (
            element.is_bucket,
            page::bucket(&element.value),
        ) {
            (false, _) => check.find(page, Fault::NotABucket { index }),
            (true, None) => check.find(page, Fault::BucketHeader { index }),
            (true, Some((root, _))) => buckets.push((element.key, root)),
        })?;
        Ok(buckets)
    }

    /// No page is entered twice, so this ends however the pages point at each other.
    fn walk(&mut self, root: Root, seen: Seen<'_, 'a, V>) -> Result<(), BoltError> {
        let first = match root {
            Root::Page(id) => self.load(id)?,
            Root::Inline(page) => Some(page),
        };
        let mut stack: Vec<Frame> = Vec::new();
        stack.extend(first.map(|page| Frame { page, next: 0, bounds: Bounds::default() }));
        while let Some(mut frame) = stack.pop() {
            if self.is_full() {
                return Ok(());
            }
            match frame.page.kind {
                Kind::Leaf => self.leaf(&frame, seen),
                Kind::Branch if stack.len() >= DEPTH_MAX => {
                    self.find(frame.page.id, Fault::TooDeep { limit: DEPTH_MAX });
                }
                Kind::Branch => {
                    let Some((child, bounds)) = self.next_child(&mut frame) else { continue };
                    stack.push(frame);
                    let page = self.load(child)?;
                    stack.extend(page.map(|page| Frame { page, next: 0, bounds }));
                }
            }
        }
        Ok(())
    }

    /// Reads a page that something leads to. `None` when that is already a finding.
    fn load(&mut self, id: u64) -> Result<Option<Page>, BoltError> {
        let page = match self.bolt.page(id) {
            Ok(page) => page,
            Err(BoltError::Page { page, fault }) => {
                self.find(page, fault);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let ids = id..=id.saturating_add(page.overflow.into());
        let twice: Vec<u64> = ids.filter(|id| !self.used.mark(*id)).collect();
        for id in &twice {
            self.find(*id, Fault::UsedTwice);
        }
        Ok(twice.is_empty().then_some(page))
    }

    fn leaf(&mut self, frame: &Frame, seen: Seen<'_, 'a, V>) {
        let mut before: Option<Bytes> = None;
        if frame.page.count == 0 && frame.bounds.low.is_some() {
            self.find(frame.page.id, Fault::Empty);
        }
        for index in 0..frame.page.count {
            match frame.page.leaf(index) {
                Ok(element) => {
                    self.order(frame, index, before.as_ref(), &element.key);
                    before = Some(element.key.clone());
                    seen(self, frame.page.id, index, element);
                }
                Err(fault) => self.find(frame.page.id, fault),
            }
        }
    }

    fn order(&mut self, frame: &Frame, index: usize, before: Option<&Bytes>, key: &Bytes) {
        let id = frame.page.id;
        if before.is_some_and(|before| before >= key) {
            self.find(id, Fault::KeyOrder { index });
        }
        if frame.bounds.low.as_ref().is_some_and(|low| key < low) {
            self.find(id, Fault::BelowParent { index });
        }
        if frame.bounds.high.as_ref().is_some_and(|high| key >= high) {
            self.find(id, Fault::AboveParent { index });
        }
    }

    /// The next child of a branch that can be followed, with the bounds for its keys.
    fn next_child(&mut self, frame: &mut Frame) -> Option<(u64, Bounds)> {
        let id = frame.page.id;
        if frame.page.count == 0 {
            self.find(id, Fault::Empty);
        }
        while frame.next < frame.page.count {
            let index = frame.next;
            frame.next += 1;
            let element = match frame.page.branch(index) {
                Ok(element) => element,
                Err(fault) => {
                    self.find(id, fault);
                    continue;
                }
            };
            let before = index.checked_sub(1).and_then(|index| frame.page.branch(index).ok());
            self.order(frame, index, before.as_ref().map(|before| &before.key), &element.key);
            let after = frame.page.branch(frame.next).ok().map(|after| after.key);
            let high = after.or_else(|| frame.bounds.high.clone());
            return Some((element.child, Bounds { low: Some(element.key), high }));
        }
        None
    }

    /// Where a list of free pages is stored, it names exactly the pages that are not used.
    fn free_pages(&mut self) -> Result<(), BoltError> {
        let list = self.bolt.meta().freelist;
        if list == NO_FREELIST || self.is_full() {
            return Ok(());
        }
        let Some((pages, start, count)) = self.freelist(list)? else {
            self.find(list, Fault::Freelist);
            return Ok(());
        };
        for id in list..list.saturating_add(pages) {
            if !self.used.mark(id) {
                self.find(id, Fault::UsedTwice);
            }
        }
        let mut free = Marks::new(self.bolt);
        let ids = self.bolt.read(list, pages)?;
        for at in (start..).step_by(8).take(count) {
            let Some(id) = format::u64_at(&ids, at) else { break };
            let fault = match (id < free.limit, self.used.is_marked(id)) {
                (false, _) => Fault::AboveHighWater { limit: free.limit },
                (true, true) => Fault::UsedAndFree,
                (true, false) if free.mark(id) => continue,
                (true, false) => Fault::FreedTwice,
            };
            self.find(id, fault);
        }
        self.lost_pages(&mut free);
        Ok(())
    }

    fn lost_pages(&mut self, free: &mut Marks) {
        for id in 0..free.limit {
            if !free.is_marked(id) && !self.used.is_marked(id) {
                self.find(id, Fault::Lost);
                if self.is_full() {
                    return;
                }
            }
        }
    }

    /// Pages of the list, where its ids begin, and how many there are; `None` when damaged.
    fn freelist(&self, id: u64) -> Result<Option<(u64, usize, usize)>, BoltError> {
        let Ok(header) = self.bolt.header(id) else { return Ok(None) };
        let pages = u64::from(header.overflow) + 1;
        let fits = id.checked_add(pages).is_some_and(|end| end <= self.bolt.meta().high_water);
        let page_size = self.bolt.meta().page_size;
        let is_short = usize::try_from(pages).is_ok_and(|it| it <= FREELIST_MAX / page_size);
        if header.flags != FREELIST || header.id != id || !fits || !is_short {
            return Ok(None);
        }
        let bytes = self.bolt.read(id, pages)?;
        let (start, count) = match header.count {
            // A count that does not fit its field is the first number of the list.
            u16::MAX => (PAGE_HEADER + 8, format::u64_at(&bytes, PAGE_HEADER)),
            count => (PAGE_HEADER, Some(count.into())),
        };
        let count = count.and_then(|count| usize::try_from(count).ok());
        let room = bytes.len().saturating_sub(start) / 8;
        Ok(count.filter(|count| *count <= room).map(|count| (pages, start, count)))
    }
}
