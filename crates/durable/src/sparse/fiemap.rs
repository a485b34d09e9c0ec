//! The extent map of a file, asked from the kernel with `FS_IOC_FIEMAP`. Owns the layout of the
//! request and the one unsafe call of this crate. It is needed because a preallocated range is
//! data for some (it hides what lies below), and `SEEK_DATA` calls it a hole.

use std::fs::File;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const EXTENTS_PER_CALL: usize = 128;
const ROOM: u32 = 128;
const FLAG_SYNC: u32 = 1;
pub(super) const EXTENT_LAST: u32 = 1;
pub(super) const EXTENT_UNWRITTEN: u32 = 0x800;

/// `struct fiemap` without its extents: what the size in the request number counts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Head {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawExtent {
    pub(super) logical: u64,
    physical: u64,
    pub(super) len: u64,
    reserved64: [u64; 2],
    pub(super) flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    head: Head,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

const FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);

/// A reusable buffer for extent maps.
#[derive(Debug)]
pub(super) struct Fiemap(Box<Request>);

impl Fiemap {
    pub(super) fn new() -> Self {
        let head = Head { start: 0, len: 0, flags: 0, mapped: 0, room: 0, reserved: 0 };
        Self(Box::new(Request { head, extents: [RawExtent::default(); EXTENTS_PER_CALL] }))
    }

    /// The first extents that touch `start..start + len`, in order; none left means no more.
    pub(super) fn ask(
        &mut self,
        file: &File,
        start: u64,
        len: u64,
        sync: bool,
    ) -> Result<&[RawExtent], Errno> {
        self.0.head = Head {
            start,
            len,
            flags: if sync { FLAG_SYNC } else { 0 },
            mapped: 0,
            room: ROOM,
            reserved: 0,
        };
        ask_kernel(file, &mut self.0)?;
        let mapped = (self.0.head.mapped as usize).min(EXTENTS_PER_CALL);
        Ok(self.0.extents.get(..mapped).unwrap_or_default())
    }
}

#[expect(unsafe_code, reason = "rustix has no safe call for FIEMAP")]
fn ask_kernel(file: &File, request: &mut Request) -> Result<(), Errno> {
    // SAFETY: the opcode is that of FS_IOC_FIEMAP, whose argument is a `struct fiemap` followed by
    // as many `struct fiemap_extent` as `room` says. `Request` is `repr(C)` with exactly those
    // layouts (asserted below) and `room` is the length of its array, so the kernel writes inside
    // it; every bit pattern is a valid value of its integer fields.
    unsafe { ioctl(file, Updater::<FIEMAP, Request>::new(request)) }
}

const _: () = assert!(size_of::<Head>() == 32 && size_of::<RawExtent>() == 56);
const _: () = assert!(ROOM as usize == EXTENTS_PER_CALL);
const _: () = assert!(size_of::<Request>() == 32 + EXTENTS_PER_CALL * 56);
