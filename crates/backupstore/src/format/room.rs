//! Memory for blocks and their objects, used again and again while an operation runs, and placed so
//! that a disk can take it from there without a copy.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// What disks want the places of memory and file to be multiples of.
pub(crate) const DISK_ALIGN: usize = 4096;

/// Rooms that are free. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rooms(Arc<Mutex<Vec<Vec<u8>>>>);

impl Rooms {
    /// For `len` bytes; what is in it may be anything, and is to be overwritten.
    pub(crate) fn room(&self, len: usize) -> Room {
        let mut room = self.begin(len);
        let end = room.start + len;
        room.bytes.resize(end, 0);
        room
    }

    /// An empty one, which has to grow only beyond `capacity`.
    pub(crate) fn empty(&self, capacity: usize) -> Room {
        let mut room = self.begin(capacity);
        room.bytes.truncate(room.start);
        room
    }

    fn begin(&self, capacity: usize) -> Room {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let whole = capacity.saturating_add(DISK_ALIGN);
        let mut bytes = free.filter(|bytes| bytes.capacity() >= whole).unwrap_or_default();
        bytes.reserve_exact(whole.saturating_sub(bytes.len()));
        // Where the place cannot be found out, any will do: it is only slower.
        let start = bytes.as_ptr().align_offset(DISK_ALIGN).min(DISK_ALIGN);
        if bytes.len() < start {
            bytes.resize(start, 0);
        }
        Room { bytes, start, rooms: self.clone() }
    }
}

/// Goes back to the others when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    /// Its contents begin here.
    start: usize,
    rooms: Rooms,
}

impl Room {
    /// What is added to its contents; nothing may be taken away.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.rooms.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Room> for Bytes {
    /// Without a copy.
    fn from(room: Room) -> Self {
        Self::from_owner(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(DISK_ALIGN) == 0
    }

    #[test]
    fn rooms_lie_where_disks_can_take_them_and_are_used_again() {
        let rooms = Rooms::default();
        for len in [1, 4096, 2 << 20, 5] {
            let mut room = rooms.room(len);
            assert!(is_aligned(&room) && room.len() == len);
            room.fill(7);
            let place = room.as_ptr();
            let bytes = Bytes::from(room);
            assert!(bytes.as_ptr() == place && bytes == vec![7; len]);
            assert!(rooms.0.lock().unwrap().is_empty());
            drop(bytes);
            assert_eq!(rooms.0.lock().unwrap().len(), 1);
        }
        let mut room = rooms.empty(100);
        assert!(room.is_empty());
        room.tail().extend_from_slice(b"abc");
        assert!(is_aligned(&room) && *room == *b"abc");
        let larger = rooms.empty(3 << 20);
        assert!(larger.is_empty() && is_aligned(&larger));
    }
}
