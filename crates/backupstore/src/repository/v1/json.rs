//! JSON as the first writers of this format put it: keys in the order of the fields, no blanks, and
//! `<`, `>`, `&` and two line separators escaped inside strings; numbers as strings; and, for some
//! fields, strings that hold a string in JSON once more.

use std::collections::BTreeMap;
use std::io;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

pub(crate) type Labels = Option<BTreeMap<String, String>>;

/// Longer ones are refused before they are read: the cfg of the largest volume that we serve (64 TiB
/// in blocks of 16 MiB, 5 TiB in blocks of 2 MiB) is shorter.
pub(crate) const CFG_MAX_BYTES: u64 = 512 << 20;

/// What no list of blocks is in: a whole record of a volume, and what the others have beside their blocks.
/// Two bytes of text may cost some tens in memory, unless they are those of a block.
pub(crate) const SHORT_MAX_BYTES: u64 = 1 << 20;

/// Refuses a record that has more than that beside its blocks.
pub(crate) fn check_length(bytes: &[u8]) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Long<'t> {
        #[serde(borrow, default)]
        blocks: Option<&'t RawValue>,
    }

    let len_bytes = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    if len_bytes(bytes.len()) <= SHORT_MAX_BYTES {
        return Ok(());
    }
    let found: Long<'_> = from_bytes(bytes).map_err(|error| error.to_string())?;
    let of_blocks = found.blocks.map_or(0, |blocks| blocks.get().len());
    let others = len_bytes(bytes.len().saturating_sub(of_blocks));
    if others <= SHORT_MAX_BYTES {
        return Ok(());
    }
    Err(format!("it has {others} bytes beside its blocks; {SHORT_MAX_BYTES} are allowed"))
}

struct Compact;

impl Formatter for Compact {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut plain_from = 0;
        let special = |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        for (at, found) in fragment.match_indices(special) {
            writer.write_all(fragment.get(plain_from..at).unwrap_or_default().as_bytes())?;
            let code = found.chars().next().map_or(0, u32::from);
            write!(writer, "\\u{code:04x}")?;
            plain_from = at + found.len();
        }
        writer.write_all(fragment.get(plain_from..).unwrap_or_default().as_bytes())
    }
}

pub(crate) fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Compact))?;
    Ok(bytes)
}

/// A number written as a string of decimal digits. Absent, null and empty are 0.
pub(crate) mod number {
    use super::{Deserialize, Deserializer, Serializer};
    use serde::de::Error as _;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(crate) fn serialize<S: Serializer>(number: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(number)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        // The first writers keep it signed.
        let number: i64 = text.parse().map_err(D::Error::custom)?;
        u64::try_from(number).map_err(D::Error::custom)
    }
}

/// A string that holds a string in JSON. One that holds plain text is read as that text.
pub(crate) mod quoted {
    use super::{Deserialize, Deserializer, Serializer, read_quoted, write_quoted};

    pub(crate) fn serialize<S: Serializer>(text: &str, out: S) -> Result<S::Ok, S::Error> {
        write_quoted(text, out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        read_quoted(text)
    }
}

pub(crate) fn write_quoted<S: Serializer>(text: &str, out: S) -> Result<S::Ok, S::Error> {
    let inner = to_bytes(&text).map_err(S::Error::custom)?;
    out.serialize_str(std::str::from_utf8(&inner).map_err(S::Error::custom)?)
}

pub(crate) fn read_quoted<E: serde::de::Error>(text: String) -> Result<String, E> {
    if text.starts_with('"') { serde_json::from_str(&text).map_err(E::custom) } else { Ok(text) }
}

/// A string; null is empty.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(from)?.unwrap_or_default())
}

pub(crate) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(from)?.unwrap_or_default())
}

/// A size in bytes as people write it: `2097152`, `2Mi`, `16M`.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Refuses what is not one JSON object from end to end.
pub(crate) fn from_bytes<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
) -> Result<T, serde_json::Error> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(serde::de::Error::custom("it is not an object"));
    }
    serde_json::from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_the_first_writers_do() {
        let text = "a<b>&\u{2028}\u{2029}\"\\\n\u{1}é";
        let expected = "\"a\\u003cb\\u003e\\u0026\\u2028\\u2029\\\"\\\\\\n\\u0001é\"";
        assert_eq!(to_bytes(&text).unwrap(), expected.as_bytes());
    }

    #[test]
    fn quantities_are_read() {
        for (text, bytes) in [("2097152", 2_097_152), ("2Mi", 2_097_152), ("16M", 16_000_000)] {
            assert_eq!(quantity(text), Some(bytes));
        }
        for bad in
            ["", "Mi", "-1", "1.5Mi", "2 Mi", "99999999999999999999", "18446744073709551615Gi"]
        {
            assert_eq!(quantity(bad), None, "{bad}");
        }
    }
}
