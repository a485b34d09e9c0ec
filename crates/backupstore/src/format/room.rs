//! Memory for one block, placed so that a disk can take it from there without a copy.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

/// What disks want the places of memory and file to be multiples of.
pub(crate) const DISK_ALIGN: usize = 4096;

/// Zeros at first.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Room {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + DISK_ALIGN];
        // Where the place cannot be found out, any will do: it is only faster.
        let start = bytes.as_ptr().align_offset(DISK_ALIGN).min(DISK_ALIGN);
        Self { bytes, start, len }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl From<Room> for Bytes {
    /// Without a copy.
    fn from(room: Room) -> Self {
        Self::from(room.bytes).slice(room.start..room.start + room.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_where_disks_can_take_them() {
        for len in [0, 1, 4096, 2 << 20] {
            let mut room = Room::new(len);
            assert_eq!((room.len(), room.as_ptr().align_offset(DISK_ALIGN)), (len, 0));
            room.fill(7);
            let place = room.as_ptr();
            let bytes = Bytes::from(room);
            assert!(bytes.as_ptr() == place && bytes == vec![7; len]);
        }
    }
}
