//! Headers of pages and of the file: bytes in, values out, and back.

/// First four bytes of a meta page's body.
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// "No list of free pages is stored": every reader works it out from the trees.
pub(super) const NO_FREELIST: u64 = u64::MAX;

pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;
/// Flag of a leaf element whose value is a bucket.
pub(super) const BUCKET: u32 = 1;

pub(super) const PAGE_HEADER: usize = 16;
/// Size of an element of a branch page and of a leaf page.
pub(super) const ELEMENT: usize = 16;
/// Size of the header a bucket's value starts with.
pub(super) const BUCKET_HEADER: usize = 16;
const META_BODY: usize = 64;
pub(super) const META_END: usize = PAGE_HEADER + META_BODY;

/// What etcd writes on every machine with pages of 4 KiB.
pub const DEFAULT_PAGE_SIZE: usize = 4096;
const PAGE_SIZE_MIN: u32 = 1024;
/// The largest page of any machine etcd runs on.
const PAGE_SIZE_MAX: u32 = 64 << 10;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An offset or length of the file as an index: lossless, since the crate is for 64-bit machines.
pub(super) fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The first 16 bytes of every page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) id: u64,
    pub(super) flags: u16,
    pub(super) count: u16,
    /// How many pages follow that belong to this one.
    pub(super) overflow: u32,
}

impl PageHeader {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: u64_at(bytes, 0)?,
            flags: u16_at(bytes, 8)?,
            count: u16_at(bytes, 10)?,
            overflow: u32_at(bytes, 12)?,
        })
    }

    pub(super) fn encode(self) -> [u8; PAGE_HEADER] {
        let mut bytes = [0; PAGE_HEADER];
        let fields = self.id.to_le_bytes().into_iter().chain(self.flags.to_le_bytes());
        let fields = fields.chain(self.count.to_le_bytes()).chain(self.overflow.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// One of the two headers of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub page_size: usize,
    pub root: u64,
    pub sequence: u64,
    pub(super) freelist: u64,
    /// How many pages of the file are in use.
    pub high_water: u64,
    pub transaction: u64,
}

impl Meta {
    /// Reads the page that starts at `page`; `None` when it is not a valid meta page.
    pub(super) fn decode(page: &[u8]) -> Option<Self> {
        let body = page.get(PAGE_HEADER..META_END)?;
        let sum = fnv1a(body.get(..META_BODY - 8)?);
        let page_size = u32_at(body, 8)?;
        let is_ours = u32_at(body, 0)? == MAGIC
            && u32_at(body, 4)? == VERSION
            && u64_at(body, 56)? == sum
            && page_size.is_power_of_two()
            && (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size);
        is_ours.then_some(Self {
            page_size: index(page_size),
            root: u64_at(body, 16)?,
            sequence: u64_at(body, 24)?,
            freelist: u64_at(body, 32)?,
            high_water: u64_at(body, 40)?,
            transaction: u64_at(body, 48)?,
        })
    }

    /// The whole page; its place in the file follows from the transaction.
    pub(super) fn encode(&self) -> Vec<u8> {
        let header = PageHeader { id: self.place(), flags: META, count: 0, overflow: 0 };
        let mut page = header.encode().to_vec();
        page.extend_from_slice(&MAGIC.to_le_bytes());
        page.extend_from_slice(&VERSION.to_le_bytes());
        let page_size = u32::try_from(self.page_size).unwrap_or(PAGE_SIZE_MAX);
        page.extend_from_slice(&page_size.to_le_bytes());
        page.extend_from_slice(&0u32.to_le_bytes());
        let fields = [self.root, self.sequence, self.freelist, self.high_water, self.transaction];
        for field in fields {
            page.extend_from_slice(&field.to_le_bytes());
        }
        let sum = fnv1a(page.get(PAGE_HEADER..).unwrap_or_default());
        page.extend_from_slice(&sum.to_le_bytes());
        page.resize(self.page_size, 0);
        page
    }

    /// The page this meta belongs on: transactions take turns.
    pub(super) const fn place(&self) -> u64 {
        self.transaction % 2
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}
