//! What clients put into the options of the negotiation, read from a whole option's bytes.
//!
//! Owns: the layout of option data. Never: decides what an option leads to.

use super::numbers::{INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_NAME, MAX_STRING_LEN};
use bytes::Buf;

/// Why an option's data makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadOption {
    /// Lengths and bytes do not fit together, or a text is not one.
    Invalid,
    /// A text is longer than the protocol allows.
    TooBig,
}

/// The data of `INFO` and `GO`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    pub(super) name: &'a str,
    pub(super) wants_name: bool,
    pub(super) wants_description: bool,
    pub(super) wants_block_size: bool,
}

impl<'a> InfoRequest<'a> {
    pub(super) fn parse(mut data: &'a [u8]) -> Result<Self, BadOption> {
        let name = take_string(&mut data)?;
        let count = data.try_get_u16().map_err(|_| BadOption::Invalid)?;
        if data.len() != usize::from(count).saturating_mul(2) {
            return Err(BadOption::Invalid);
        }
        let wants = |kind: u16| data.chunks_exact(2).any(|item| item == kind.to_be_bytes());
        Ok(Self {
            name,
            wants_name: wants(INFO_NAME),
            wants_description: wants(INFO_DESCRIPTION),
            wants_block_size: wants(INFO_BLOCK_SIZE),
        })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextRequest<'a> {
    pub(super) name: &'a str,
    pub(super) queries: Vec<&'a str>,
}

impl<'a> ContextRequest<'a> {
    pub(super) fn parse(mut data: &'a [u8]) -> Result<Self, BadOption> {
        let name = take_string(&mut data)?;
        let count = data.try_get_u32().map_err(|_| BadOption::Invalid)?;
        // Every query takes four bytes at least, so the count cannot make us reserve much.
        if u64::from(count).saturating_mul(4) > data.len() as u64 {
            return Err(BadOption::Invalid);
        }
        let queries = (0..count).map(|_| take_string(&mut data)).collect::<Result<_, _>>()?;
        if data.is_empty() { Ok(Self { name, queries }) } else { Err(BadOption::Invalid) }
    }
}

/// A text that fills `data`.
pub(super) fn string(data: &[u8]) -> Result<&str, BadOption> {
    if data.len() > MAX_STRING_LEN {
        return Err(BadOption::TooBig);
    }
    let text = str::from_utf8(data).map_err(|_| BadOption::Invalid)?;
    if text.contains('\0') { Err(BadOption::Invalid) } else { Ok(text) }
}

/// A text behind its length.
fn take_string<'a>(data: &mut &'a [u8]) -> Result<&'a str, BadOption> {
    let len = data.try_get_u32().map_err(|_| BadOption::Invalid)?;
    let (text, rest) = data.split_at_checked(len as usize).ok_or(BadOption::Invalid)?;
    *data = rest;
    string(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_request_is_read_whole_or_not_at_all() {
        let data = b"\0\0\0\x03vol\0\x02\0\x03\0\x01";
        let expected = InfoRequest {
            name: "vol",
            wants_name: true,
            wants_description: false,
            wants_block_size: true,
        };
        assert_eq!(InfoRequest::parse(data), Ok(expected));
        for end in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..end]), Err(BadOption::Invalid), "{end}");
        }
        assert!(InfoRequest::parse(b"\0\0\0\0\0\0").is_ok());
        assert_eq!(InfoRequest::parse(b"\0\0\0\0\0\0!"), Err(BadOption::Invalid));
        assert_eq!(InfoRequest::parse(b"\xff\xff\xff\xff\0\0"), Err(BadOption::Invalid));
        assert_eq!(InfoRequest::parse(b"\0\0\0\x01\xff\0\0"), Err(BadOption::Invalid));
        assert_eq!(InfoRequest::parse(b"\0\0\0\x01\0\0\0"), Err(BadOption::Invalid));
    }

    #[test]
    fn a_context_request_is_read_whole_or_not_at_all() {
        let data = b"\0\0\0\x01v\0\0\0\x02\0\0\0\x05base:\0\0\0\0";
        let expected = ContextRequest { name: "v", queries: vec!["base:", ""] };
        assert_eq!(ContextRequest::parse(data), Ok(expected));
        for end in 0..data.len() {
            assert_eq!(ContextRequest::parse(&data[..end]), Err(BadOption::Invalid), "{end}");
        }
        let longer = [data.as_slice(), b"!"].concat();
        assert_eq!(ContextRequest::parse(&longer), Err(BadOption::Invalid));
        let greedy = b"\0\0\0\0\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(ContextRequest::parse(greedy), Err(BadOption::Invalid));
    }

    #[test]
    fn a_text_beyond_the_limit_is_too_big() {
        assert!(string(&[b'a'; 4096]).is_ok());
        assert_eq!(string(&[b'a'; 4097]), Err(BadOption::TooBig));
    }
}
