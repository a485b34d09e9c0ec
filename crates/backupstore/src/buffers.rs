//! Memory for blocks and their objects, used again and again while an operation runs, and placed so
//! that a disk can take it from there without a copy.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// What disks want the places of memory and file to be multiples of.
pub(crate) const DISK_ALIGN: usize = 4096;

/// Buffers that are free. Clones are the same pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

impl BufferPool {
    /// For `len` bytes; what is in it may be anything, and is to be overwritten.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        let mut buffer = self.begin(len);
        let end = buffer.start + len;
        buffer.bytes.resize(end, 0);
        buffer
    }

    /// An empty one, which has to grow only beyond `capacity`.
    pub(crate) fn empty(&self, capacity: usize) -> Buffer {
        let mut buffer = self.begin(capacity);
        buffer.bytes.truncate(buffer.start);
        buffer
    }

    fn begin(&self, capacity: usize) -> Buffer {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let whole = capacity.saturating_add(DISK_ALIGN);
        let mut bytes = free.filter(|bytes| bytes.capacity() >= whole).unwrap_or_default();
        bytes.reserve_exact(whole.saturating_sub(bytes.len()));
        // Where the place cannot be found out, any will do: it is only slower.
        let start = bytes.as_ptr().align_offset(DISK_ALIGN).min(DISK_ALIGN);
        if bytes.len() < start {
            bytes.resize(start, 0);
        }
        Buffer { bytes, start, pool: self.clone() }
    }
}

/// Goes back to the others when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Its contents begin here.
    start: usize,
    pool: BufferPool,
}

impl Buffer {
    /// What is added to its contents; nothing may be taken away.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.pool.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    /// Without a copy.
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(DISK_ALIGN) == 0
    }

    #[test]
    fn buffers_lie_where_disks_can_take_them_and_are_used_again() {
        let pool = BufferPool::default();
        for len in [1, 4096, 2 << 20, 5] {
            let mut buffer = pool.buffer(len);
            assert!(is_aligned(&buffer) && buffer.len() == len);
            buffer.fill(7);
            let place = buffer.as_ptr();
            let bytes = Bytes::from(buffer);
            assert!(bytes.as_ptr() == place && bytes == vec![7; len]);
            assert!(pool.0.lock().unwrap().is_empty());
            drop(bytes);
            assert_eq!(pool.0.lock().unwrap().len(), 1);
        }
        let mut buffer = pool.empty(100);
        assert!(buffer.is_empty());
        buffer.tail().extend_from_slice(b"abc");
        assert!(is_aligned(&buffer) && *buffer == *b"abc");
        let larger = pool.empty(3 << 20);
        assert!(larger.is_empty() && is_aligned(&larger));
    }
}
