//! The little DER and PEM that the certificate library does not offer.
//!
//! It holds one value for each kind of name part, but a client certificate has one organization for
//! each group. So a certificate is made with its library and then given the full subject here,
//! which the authority signs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// 2.5.4.3 and 2.5.4.10
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Position of the subject in a version 3 `TBSCertificate`: version, serial number, signature
/// algorithm, issuer, validity, subject.
const SUBJECT_AT: usize = 5;
const ALGORITHM_AT: usize = 2;

/// A certificate whose subject is replaced and which waits for its signature.
pub(super) struct Unsigned {
    pub(super) to_be_signed: Vec<u8>,
    algorithm: Vec<u8>,
}

impl Unsigned {
    /// Takes a whole certificate; `None` if it is not one of version 3.
    pub(super) fn with_subject(certificate: &[u8], subject: &[u8]) -> Option<Self> {
        let outer = elements(content(certificate)?)?;
        let inner = elements(content(outer.first()?)?)?;
        let algorithm = inner.get(ALGORITHM_AT)?.to_vec();
        inner.get(SUBJECT_AT)?;
        let mut body = Vec::with_capacity(certificate.len() + subject.len());
        for (at, element) in inner.iter().enumerate() {
            body.extend_from_slice(if at == SUBJECT_AT { subject } else { element });
        }
        Some(Self { to_be_signed: element(SEQUENCE, &body), algorithm })
    }

    pub(super) fn finish(self, signature: &[u8]) -> Vec<u8> {
        let mut bits = vec![0];
        bits.extend_from_slice(signature);
        let mut body = self.to_be_signed;
        body.extend(self.algorithm);
        body.extend(element(BIT_STRING, &bits));
        element(SEQUENCE, &body)
    }
}

/// The subject: all organizations, then the common name.
pub(super) fn subject(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let part = |kind: &[u8], value: &str| {
        let mut pair = element(OBJECT_IDENTIFIER, kind);
        pair.extend(element(UTF8_STRING, value.as_bytes()));
        element(SET, &element(SEQUENCE, &pair))
    };
    let mut parts = Vec::new();
    for organization in organizations {
        parts.extend(part(ORGANIZATION, organization));
    }
    parts.extend(part(COMMON_NAME, common_name));
    element(SEQUENCE, &parts)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = content.len().to_be_bytes();
            let bytes: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            // At most eight bytes of length: the count fits in the low bits.
            out.push(0x80 | u8::try_from(bytes.len()).unwrap_or(8));
            out.extend(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

/// Cuts the first element off: (whole element, its content, what follows).
fn cut(input: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = usize::from(*input.get(1)?);
    let (header, len) = if first < 0x80 {
        (2, first)
    } else {
        let count = first & 0x7f;
        if count == 0 || count > 4 {
            return None;
        }
        let bytes = input.get(2..2 + count)?;
        (2 + count, bytes.iter().fold(0, |len, byte| (len << 8) | usize::from(*byte)))
    };
    let end = header.checked_add(len)?;
    Some((input.get(..end)?, input.get(header..end)?, input.get(end..)?))
}

fn content(input: &[u8]) -> Option<&[u8]> {
    cut(input).map(|(_, content, _)| content)
}

fn elements(mut input: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !input.is_empty() {
        let (whole, _, rest) = cut(input)?;
        all.push(whole);
        input = rest;
    }
    Some(all)
}

/// PEM with lines of 64 characters.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let (mut lines, mut rest) = (vec![format!("-----BEGIN {label}-----")], text.as_str());
    while !rest.is_empty() {
        // Base64 is ASCII, so every position is a character boundary.
        let (line, more) = rest.split_at(rest.len().min(64));
        lines.push(line.to_owned());
        rest = more;
    }
    lines.push(format!("-----END {label}-----\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Unsigned::with_subject(&bytes, &[]);
        }

        #[test]
        fn an_element_is_cut_as_it_was_made(content in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let made = element(SEQUENCE, &content);
            let (whole, inside, rest) = cut(&made).unwrap();
            prop_assert_eq!(whole, &made[..]);
            prop_assert_eq!(inside, &content[..]);
            prop_assert!(rest.is_empty());
        }
    }
}
