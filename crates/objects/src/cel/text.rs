//! From source text to the parser's tree.
//!
//! The parser visits the operand of a doubled sign twice, so that nested ones cost exponential time
//! (and it then drops one of the signs). Nobody writes those: they are refused before parsing.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::parser::Parser;

use super::MAX_SOURCE;

/// Nesting of brackets; the parser has its own limit, this one keeps its stack shallow.
const MAX_NESTING: usize = 60;

pub(super) fn parse(source: &str) -> Result<IdedExpr, String> {
    if source.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if source.len() > MAX_SOURCE {
        return Err(format!("must not be longer than {MAX_SOURCE} bytes"));
    }
    screen(source)?;
    let parsed = std::panic::catch_unwind(|| {
        Parser::new().enable_optional_syntax(true).parse(source).map_err(|errors| {
            let lines = errors
                .errors
                .iter()
                .map(|one| format!("{} (line {}, column {})", one.msg, one.pos.0, one.pos.1));
            lines.take(3).collect::<Vec<_>>().join("; ")
        })
    });
    match parsed {
        Ok(Ok(expr)) => Ok(expr),
        Ok(Err(text)) => Err(format!("does not compile: {text}")),
        Err(_) => Err("does not compile".to_owned()),
    }
}

/// What stood before a sign decides whether it is unary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Operand,
    Operator,
    /// A sign that may only be followed by an operand.
    Sign,
}

fn screen(source: &str) -> Result<(), String> {
    let bytes = source.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let (mut index, mut nesting, mut before) = (0, 0_usize, Before::Operator);
    while index < bytes.len() {
        let byte = at(index);
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => index += 1,
            b'/' if at(index + 1) == b'/' => index = line_end(bytes, index),
            b'"' | b'\'' | b'`' => {
                index = literal_end(bytes, index, false);
                before = Before::Operand;
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                let end = word_end(bytes, index);
                let quoted = matches!(at(end), b'"' | b'\'');
                index = match bytes.get(index..end) {
                    Some(prefix) if quoted && is_prefix(prefix) => {
                        literal_end(bytes, end, prefix.contains(&b'r') || prefix.contains(&b'R'))
                    }
                    _ => end,
                };
                before = Before::Operand;
            }
            b'!' if at(index + 1) == b'=' => {
                index += 2;
                before = Before::Operator;
            }
            b'!' | b'-' => {
                before = match before {
                    Before::Sign => return Err("doubled signs are not supported".to_owned()),
                    Before::Operand if byte == b'-' => Before::Operator,
                    Before::Operand | Before::Operator => Before::Sign,
                };
                index += 1;
            }
            b'(' | b'[' | b'{' => {
                nesting += 1;
                if nesting > MAX_NESTING {
                    return Err(format!("is nested more than {MAX_NESTING} levels deep"));
                }
                before = Before::Operator;
                index += 1;
            }
            b')' | b']' | b'}' => {
                nesting = nesting.saturating_sub(1);
                before = Before::Operand;
                index += 1;
            }
            _ => {
                before = Before::Operator;
                index += 1;
            }
        }
    }
    Ok(())
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes.iter().skip(from).position(|byte| *byte == b'\n').map_or(bytes.len(), |len| from + len)
}

fn word_end(bytes: &[u8], from: usize) -> usize {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    from + bytes.iter().skip(from).take_while(|byte| word(byte)).count()
}

/// Prefixes of string literals: raw, bytes, or both.
fn is_prefix(word: &[u8]) -> bool {
    word.len() <= 2 && word.iter().all(|byte| b"rRbB".contains(byte))
}

/// The end of the literal whose opening quote is at `from`.
fn literal_end(bytes: &[u8], from: usize, raw: bool) -> usize {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let quote = at(from);
    let triple = quote != b'`' && at(from + 1) == quote && at(from + 2) == quote;
    let mut index = from + if triple { 3 } else { 1 };
    while index < bytes.len() {
        let byte = at(index);
        if byte == b'\\' && !raw {
            index += 2;
        } else if byte == quote && !triple {
            return index + 1;
        } else if byte == quote && at(index + 1) == quote && at(index + 2) == quote {
            return index + 3;
        } else {
            index += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_signs_and_deep_nesting_are_refused_before_the_parser_sees_them() {
        for bad in ["!!self", "! !self", "--1", "1 - - -1", "-!1", "(--(--(1)))"] {
            assert!(screen(bad).is_err(), "{bad}");
        }
        for good in [
            "!self",
            "1 - -1",
            "a != !b",
            "'--' == \"!!\"",
            "r'\\' + '--'",
            "'''--''' + '\\'--'",
            "a // --\n && !b",
            "self[-1] - 2",
            "(-1) - (-2)",
        ] {
            assert_eq!(screen(good), Ok(()), "{good}");
        }
        let deep = format!("{}1{}", "(".repeat(100), ")".repeat(100));
        assert!(parse(&deep).is_err());
        assert!(parse(&"x".repeat(MAX_SOURCE + 1)).is_err());
        assert!(parse(" ").is_err());
    }
}
