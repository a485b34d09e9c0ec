//! The protobuf wire format: keys, numbers and length-delimited bytes, all borrowed from the input.

use super::ProtoError;

/// The largest field number protobuf allows.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// One value as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Wire<'a> {
    pub(super) const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32(_) => None,
        }
    }

    pub(super) fn text(self, message: &'static str, field: u32) -> Result<&'a str, ProtoError> {
        let bytes = self.bytes().ok_or(ProtoError::WireType { message, field })?;
        std::str::from_utf8(bytes).map_err(|error| ProtoError::Value {
            message,
            field,
            reason: error.to_string(),
        })
    }
}

/// Takes fields off the front of a message.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field number and value; `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        let field = u32::try_from(number).ok().filter(|_| (1..=MAX_FIELD).contains(&number));
        let field = field.ok_or(ProtoError::Key(key))?;
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| ProtoError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            // Groups: no Kubernetes type ever had one.
            _ => return Err(ProtoError::Key(key)),
        };
        Ok(Some((field, wire)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtoError::Truncated)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(ProtoError::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtoError::Varint)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
}
