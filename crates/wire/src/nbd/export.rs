//! What is exported, and which ranges of it a request may name.
//!
//! Owns: the rules on sizes and alignment, kept by construction.
//! Never: knows where the bytes of an export are.

use super::numbers::{MAX_PAYLOAD, MAX_STRING_LEN};
use super::{Command, Errno, Request, TransmissionFlags};

/// The sizes a client must keep to (`minimum`, `maximum`) and does well to use (`preferred`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    minimum: u32,
    preferred: u32,
    maximum: u32,
}

impl Default for BlockSize {
    /// Any byte may be named, whole pages are best, and a request carries what every server takes.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096, maximum: MAX_PAYLOAD }
    }
}

impl BlockSize {
    /// # Errors
    /// [`ExportError::BlockSize`] unless the protocol's rules hold: `minimum` is a power of two up
    /// to 64 KiB, `preferred` is a power of two, at least 512 and `minimum`, and `maximum` is a
    /// multiple of `minimum`, at least `preferred` and at most [`MAX_PAYLOAD`].
    pub fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<Self, ExportError> {
        let valid = minimum.is_power_of_two()
            && minimum <= 64 << 10
            && preferred.is_power_of_two()
            && preferred >= minimum.max(512)
            && maximum >= preferred
            && maximum <= MAX_PAYLOAD
            && maximum.is_multiple_of(minimum);
        if valid {
            Ok(Self { minimum, preferred, maximum })
        } else {
            Err(ExportError::BlockSize { minimum, preferred, maximum })
        }
    }

    pub const fn minimum(self) -> u32 {
        self.minimum
    }

    pub const fn preferred(self) -> u32 {
        self.preferred
    }

    /// Most bytes one request may carry or ask back.
    pub const fn maximum(self) -> u32 {
        self.maximum
    }

    const fn divides(self, value: u64) -> bool {
        value.is_multiple_of(self.minimum as u64)
    }
}

/// Why something cannot be exported as described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("export text is longer than {MAX_STRING_LEN} bytes or holds a NUL")]
    Text,
    #[error("export size {0} is beyond what clients can address")]
    Size(u64),
    #[error("export size {size_bytes} is not a multiple of the minimum block size {minimum}")]
    Unaligned { size_bytes: u64, minimum: u32 },
    #[error("block sizes {minimum}/{preferred}/{maximum} do not fit together")]
    BlockSize { minimum: u32, preferred: u32, maximum: u32 },
}

/// A volume as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    name: String,
    description: String,
    size_bytes: u64,
    flags: TransmissionFlags,
    block_size: BlockSize,
}

impl Export {
    /// # Errors
    /// If name, size and block size break the protocol's rules.
    pub fn new(
        name: impl Into<String>,
        size_bytes: u64,
        flags: TransmissionFlags,
        block_size: BlockSize,
    ) -> Result<Self, ExportError> {
        let name = checked_text(name.into())?;
        checked_size(size_bytes, block_size)?;
        let flags = flags.with(TransmissionFlags::HAS_FLAGS);
        Ok(Self { name, description: String::new(), size_bytes, flags, block_size })
    }

    /// # Errors
    /// [`ExportError::Text`] if the description is too long or holds a NUL.
    pub fn described(self, description: impl Into<String>) -> Result<Self, ExportError> {
        Ok(Self { description: checked_text(description.into())?, ..self })
    }

    /// The export after its volume grew or shrank.
    ///
    /// # Errors
    /// If the size breaks the protocol's rules.
    pub fn resized(self, size_bytes: u64) -> Result<Self, ExportError> {
        checked_size(size_bytes, self.block_size)?;
        Ok(Self { size_bytes, ..self })
    }

    pub(super) fn without(self, flags: TransmissionFlags) -> Self {
        Self { flags: self.flags.without(flags), ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub const fn flags(&self) -> TransmissionFlags {
        self.flags
    }

    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }
}

fn checked_text(text: String) -> Result<String, ExportError> {
    if text.len() > MAX_STRING_LEN || text.contains('\0') {
        return Err(ExportError::Text);
    }
    Ok(text)
}

fn checked_size(size_bytes: u64, block_size: BlockSize) -> Result<(), ExportError> {
    // Clients keep offsets in signed numbers.
    if i64::try_from(size_bytes).is_err() {
        return Err(ExportError::Size(size_bytes));
    }
    if !block_size.divides(size_bytes) {
        return Err(ExportError::Unaligned { size_bytes, minimum: block_size.minimum });
    }
    Ok(())
}

/// Whether `request` names a range that `export` has and may be touched.
///
/// # Errors
/// `Perm` for a change to a read-only export, `NoSpc` for a write past the end, `Overflow` for a
/// read longer than one reply may be, `Inval` for any other range past the end, for one off the
/// block grid, and for a size an export cannot have.
pub fn check_range(request: &Request, export: &Export) -> Result<(), Errno> {
    let (offset, len, past_end) = match &request.command {
        Command::Read { offset, len } | Command::Cache { offset, len } => {
            (*offset, u64::from(*len), Errno::Inval)
        }
        // A reply to it has at least one extent, and an extent is never empty.
        Command::BlockStatus { len: 0, .. } => return Err(Errno::Inval),
        Command::BlockStatus { offset, len } => (*offset, u64::from(*len), Errno::Inval),
        Command::Write { offset, data } => (*offset, data.len() as u64, Errno::NoSpc),
        Command::WriteZeroes { offset, len } => (*offset, u64::from(*len), Errno::NoSpc),
        Command::Trim { offset, len } => (*offset, u64::from(*len), Errno::Inval),
        Command::Resize { size_bytes } => {
            writable(export)?;
            return checked_size(*size_bytes, export.block_size).map_err(|_| Errno::Inval);
        }
        Command::Flush | Command::Disconnect | Command::Unknown(_) => return Ok(()),
    };
    if matches!(
        request.command,
        Command::Write { .. } | Command::WriteZeroes { .. } | Command::Trim { .. }
    ) {
        writable(export)?;
    }
    if offset.checked_add(len).is_none_or(|end| end > export.size_bytes) {
        return Err(past_end);
    }
    if !export.block_size.divides(offset) || !export.block_size.divides(len) {
        return Err(Errno::Inval);
    }
    let longest = u64::from(export.block_size.maximum);
    match &request.command {
        Command::Read { .. } if len > longest => Err(Errno::Overflow),
        Command::Write { .. } if len > longest => Err(Errno::Inval),
        _ => Ok(()),
    }
}

fn writable(export: &Export) -> Result<(), Errno> {
    if export.flags.contains(TransmissionFlags::READ_ONLY) { Err(Errno::Perm) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::CommandFlags;
    use bytes::Bytes;

    fn export(minimum: u32) -> Export {
        let block = BlockSize::new(minimum, 4096, 8192).unwrap();
        Export::new("v", 1 << 20, TransmissionFlags::VOLUME, block).unwrap()
    }

    fn request(command: Command) -> Request {
        Request { cookie: 1, flags: CommandFlags::NONE, command }
    }

    fn write(offset: u64, len: usize) -> Command {
        Command::Write { offset, data: Bytes::from(vec![0; len]) }
    }

    #[test]
    fn ranges_are_judged_as_the_protocol_document_asks() {
        use Command as C;
        let end = 1 << 20;
        let table = [
            (C::Read { offset: 0, len: 512 }, Ok(())),
            (C::Read { offset: end, len: 0 }, Ok(())),
            (C::Read { offset: end - 512, len: 512 }, Ok(())),
            (C::Read { offset: end, len: 512 }, Err(Errno::Inval)),
            (C::Read { offset: u64::MAX, len: 512 }, Err(Errno::Inval)),
            (C::Read { offset: 1, len: 512 }, Err(Errno::Inval)),
            (C::Read { offset: 0, len: 511 }, Err(Errno::Inval)),
            (C::Read { offset: 0, len: 8192 }, Ok(())),
            (C::Read { offset: 0, len: 8704 }, Err(Errno::Overflow)),
            (write(0, 8192), Ok(())),
            (write(0, 8704), Err(Errno::Inval)),
            (write(end - 512, 1024), Err(Errno::NoSpc)),
            (write(u64::MAX, 512), Err(Errno::NoSpc)),
            (C::WriteZeroes { offset: 0, len: 1 << 20 }, Ok(())),
            (C::WriteZeroes { offset: 512, len: 1 << 20 }, Err(Errno::NoSpc)),
            (C::Trim { offset: 0, len: 1 << 20 }, Ok(())),
            (C::Trim { offset: 512, len: 1 << 20 }, Err(Errno::Inval)),
            (C::Trim { offset: 0, len: 100 }, Err(Errno::Inval)),
            (C::Cache { offset: 0, len: 1 << 20 }, Ok(())),
            (C::Cache { offset: end, len: 512 }, Err(Errno::Inval)),
            (C::BlockStatus { offset: 0, len: 1 << 20 }, Ok(())),
            (C::BlockStatus { offset: 0, len: 0 }, Err(Errno::Inval)),
            (C::BlockStatus { offset: end, len: 512 }, Err(Errno::Inval)),
            (C::Resize { size_bytes: 1 << 30 }, Ok(())),
            (C::Resize { size_bytes: 100 }, Err(Errno::Inval)),
            (C::Resize { size_bytes: u64::MAX - 511 }, Err(Errno::Inval)),
            (C::Flush, Ok(())),
            (C::Disconnect, Ok(())),
        ];
        for (command, expected) in table {
            let request = request(command);
            assert_eq!(check_range(&request, &export(512)), expected, "{:?}", request.command);
        }
        let odd = request(C::Read { offset: 3, len: 5 });
        assert_eq!(check_range(&odd, &export(1)), Ok(()));
    }

    #[test]
    fn a_read_only_export_refuses_every_change_and_no_read() {
        let flags = TransmissionFlags::READ_ONLY;
        let export = Export::new("v", 4096, flags, BlockSize::default()).unwrap();
        let check = |command| check_range(&request(command), &export);
        assert_eq!(check(write(0, 1)), Err(Errno::Perm));
        assert_eq!(check(Command::Trim { offset: 0, len: 1 }), Err(Errno::Perm));
        assert_eq!(check(Command::WriteZeroes { offset: 0, len: 1 }), Err(Errno::Perm));
        assert_eq!(check(Command::Resize { size_bytes: 1 }), Err(Errno::Perm));
        assert_eq!(check(Command::Read { offset: 0, len: 1 }), Ok(()));
        assert_eq!(check(Command::Flush), Ok(()));
    }

    #[test]
    fn an_export_that_exists_keeps_the_rules() {
        let flags = TransmissionFlags::NONE;
        let make = |name: &str, size| Export::new(name, size, flags, BlockSize::default());
        assert!(make("v", 0).unwrap().flags().contains(TransmissionFlags::HAS_FLAGS));
        assert_eq!(make("a\0b", 0), Err(ExportError::Text));
        assert_eq!(make(&"a".repeat(4097), 0), Err(ExportError::Text));
        assert_eq!(make("v", u64::MAX), Err(ExportError::Size(u64::MAX)));
        let unaligned = Err(ExportError::Unaligned { size_bytes: 513, minimum: 512 });
        assert_eq!(export(512).resized(513), unaligned);
        assert_eq!(export(512).resized(1024).unwrap().size_bytes(), 1024);
        for (minimum, preferred, maximum) in [
            (0, 512, 512),
            (3, 512, 513),
            (512, 256, 512),
            (1, 256, 512),
            (4096, 512, 8192),
            (512, 4096, 512),
            (512, 4096, 5000),
            (1 << 17, 1 << 17, 1 << 20),
            (1, 4096, MAX_PAYLOAD + 1),
        ] {
            assert!(BlockSize::new(minimum, preferred, maximum).is_err(), "{minimum}");
        }
    }
}
