//! The regular expressions of schemas: compiled once, within a size, and with a known price.
//!
//! Whoever may make definitions chooses them, and everybody's objects are matched with them on the
//! threads that serve all. The library matches in time proportional to the text, but the factor is
//! the size of the expression, and a short expression can be a large automaton (`(a{1,99}){1,99}`).

use regex::{Regex, RegexBuilder};

/// What a compiled expression may take, tried from the smallest on: the first that is enough is its
/// size.
const SIZES_BYTES: [usize; 7] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// All patterns of one schema together.
pub(crate) const MAX_ALL_BYTES: usize = 32 << 20;
/// What matching keeps in memory beside it, at least.
const MIN_CACHE_BYTES: usize = 64 << 10;
/// One state of an automaton, about.
const STATE_BYTES: usize = 32;

#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
    size_bytes: usize,
}

/// Why an expression is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadPattern {
    Syntax,
    TooLarge,
}

impl Pattern {
    /// Compiles `text` into no more than `most_bytes`.
    pub(crate) fn compile(text: &str, most_bytes: usize) -> Result<Self, BadPattern> {
        for size_bytes in SIZES_BYTES.into_iter().filter(|size| *size <= most_bytes) {
            let built = RegexBuilder::new(text)
                .size_limit(size_bytes)
                .dfa_size_limit(size_bytes.max(MIN_CACHE_BYTES))
                .build();
            match built {
                Ok(regex) => return Ok(Self { text: text.to_owned(), regex, size_bytes }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => return Err(BadPattern::Syntax),
            }
        }
        Err(BadPattern::TooLarge)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The most steps it can take to match a text of this length.
    pub(crate) fn steps(&self, text_bytes: usize) -> u64 {
        let states = self.size_bytes / STATE_BYTES;
        u64::try_from(text_bytes.saturating_mul(states)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_a_size_and_a_price() {
        let base64 = Pattern::compile("^[A-Za-z0-9+/=]*$", MAX_ALL_BYTES).unwrap();
        assert!(base64.is_match("aGk=") && !base64.is_match("a b"));
        assert!(base64.size_bytes() <= 4 << 10, "{}", base64.size_bytes());
        let many = Pattern::compile("^(a{1,90}b?){1,90}$", MAX_ALL_BYTES).unwrap();
        assert!(many.size_bytes() > 64 << 10, "{}", many.size_bytes());
        assert!(many.steps(1000) > 16 * base64.steps(1000));
    }

    #[test]
    fn what_is_no_pattern_or_too_large_is_told_apart() {
        let bad = |text: &str, most| Pattern::compile(text, most).unwrap_err();
        assert_eq!(bad("(", MAX_ALL_BYTES), BadPattern::Syntax);
        assert_eq!(bad("((a{1,99}){1,99}){1,99}", MAX_ALL_BYTES), BadPattern::TooLarge);
        assert_eq!(bad("^[a-z]{1,500}$", 1 << 10), BadPattern::TooLarge);
    }
}
