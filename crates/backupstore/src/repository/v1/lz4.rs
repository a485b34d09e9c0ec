//! Chunks packed with LZ4, byte for byte as v1 engines pack them: which repetitions are found, and
//! where they end, decides what an object holds and how much a backup says it uploaded. It owns
//! that choice and the sequences it is written as. It never reads what is packed, and knows nothing
//! of frames.

/// The shortest repetition that is worth a sequence.
const MATCH_MIN: usize = 4;
/// No search begins in the last bytes of a chunk.
const TAIL: usize = 14;
/// How many literals in a row make the search step wider by one byte, as a power of two.
const SKIP_SHIFT: u32 = 7;
const SLOTS: usize = 1 << 16;

/// The bytes at `start` are those at `start - distance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    start: usize,
    end: usize,
    distance: u16,
}

/// Adds `chunk` to `out`, packed, and says in how many bytes. Where that takes no fewer than the
/// chunk has, `out` stays as it is.
pub(super) fn pack(chunk: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let begin = out.len();
    let packed = sequences(chunk, out);
    if packed.is_none() {
        out.truncate(begin);
    }
    packed
}

fn sequences(chunk: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let begin = out.len();
    let mut slots = vec![0; SLOTS];
    let slots = slots.first_chunk_mut()?;
    let mut finder = Finder { chunk, limit: chunk.len().saturating_sub(TAIL), slots };
    let mut anchor = 0;
    while let Some(found) = finder.find(anchor) {
        emit(chunk.get(anchor..)?, found.start - anchor, found, out);
        anchor = found.end;
        if out.len() - begin >= chunk.len() {
            return None;
        }
        finder.remember_end_of(found);
    }
    let literals = chunk.get(anchor..)?;
    out.push(nibble(literals.len()) << 4);
    put_length(literals.len(), out);
    let packed = out.len() - begin + literals.len();
    if packed >= chunk.len() {
        return None;
    }
    out.extend_from_slice(literals);
    Some(packed)
}

struct Finder<'a> {
    chunk: &'a [u8],
    /// Where the search ends.
    limit: usize,
    /// Where each hash was seen last: the low 16 bits of the position. A slot that nobody entered
    /// is that of position 0, and of every 64 KiB after it.
    slots: &'a mut [u16; SLOTS],
}

impl Finder<'_> {
    /// The next match, with `anchor` the end of the one before. Three positions in a row are looked
    /// at, then some are passed over, the more the longer nothing was found.
    fn find(&mut self, anchor: usize) -> Option<Match> {
        let mut at = anchor;
        while at < self.limit {
            let word = word_at(self.chunk, at)?;
            let (first, second, third) = (slot(word), slot(word >> 8), slot(word >> 16));
            // Both are looked up before one of them is entered: the second never finds the first.
            let (back, back_second) = (self.distance(first, at), self.distance(second, at + 1));
            self.enter(first, at);
            self.enter(second, at + 1);
            if self.repeats(word, at, back) {
                return Some(self.extend(anchor, at, back));
            }
            let back_third = self.distance(third, at + 2);
            if self.repeats(word >> 8, at + 1, back_second) {
                return Some(self.extend(anchor, at + 1, back_second));
            }
            self.enter(third, at + 2);
            if self.repeats(word >> 16, at + 2, back_third) {
                return Some(self.extend(anchor, at + 2, back_third));
            }
            at += 4 + ((at + 2 - anchor) >> SKIP_SHIFT);
        }
        None
    }

    /// So that what repeats across the end of a match is found.
    fn remember_end_of(&mut self, found: Match) {
        let at = found.end - 2;
        if let Some(word) = word_at(self.chunk, at) {
            self.enter(slot(word), at);
        }
    }

    /// How far before `at` the slot's position is, at most 65535; 0 where it is none.
    fn distance(&self, slot: u16, at: usize) -> u16 {
        let seen = self.slots.get(usize::from(slot)).copied().unwrap_or_default();
        low_bits(at).wrapping_sub(seen)
    }

    fn enter(&mut self, slot: u16, at: usize) {
        if let Some(seen) = self.slots.get_mut(usize::from(slot)) {
            *seen = low_bits(at);
        }
    }

    /// Whether the first four bytes of `word`, which are those at `at`, are also `back` before it.
    fn repeats(&self, word: u64, at: usize, back: u16) -> bool {
        let before = at.checked_sub(usize::from(back)).and_then(|before| self.chunk.get(before..));
        let four = before.and_then(|bytes| bytes.first_chunk::<4>());
        back != 0
            && four.is_some_and(|four| u64::from(u32::from_le_bytes(*four)) == word & 0xffff_ffff)
    }

    /// Backwards to the first difference or the anchor. Forwards in whole words that end before
    /// the limit: a few equal bytes there begin the next match, if any.
    fn extend(&self, anchor: usize, at: usize, distance: u16) -> Match {
        let source = at - usize::from(distance);
        let literals = self.chunk.get(anchor..at).unwrap_or_default();
        let before = self.chunk.get(..source).unwrap_or_default();
        let pairs = literals.iter().rev().zip(before.iter().rev());
        let start = at - pairs.take_while(|(one, other)| one == other).count();
        let ahead = self.chunk.get(at + MATCH_MIN..self.limit - 1).unwrap_or_default();
        let behind = self.chunk.get(source + MATCH_MIN..).unwrap_or_default();
        Match { start, end: at + MATCH_MIN + equal_in_words(ahead, behind), distance }
    }
}

/// The hash of the first six bytes.
fn slot(word: u64) -> u16 {
    let [high, low, ..] = (word << 16).wrapping_mul(227_718_039_650_203).to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[expect(clippy::cast_possible_truncation, reason = "the table holds no more")]
fn low_bits(at: usize) -> u16 {
    at as u16
}

fn word_at(chunk: &[u8], at: usize) -> Option<u64> {
    chunk.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// How many bytes are equal, of the words that both hold.
fn equal_in_words(one: &[u8], other: &[u8]) -> usize {
    let ((one, _), (other, _)) = (one.as_chunks(), other.as_chunks());
    let mut len = 0;
    for (one, other) in one.iter().zip(other) {
        let difference = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len
}

/// Writes one sequence: the first of `rest` as they are, then the match.
fn emit(rest: &[u8], literals: usize, found: Match, out: &mut Vec<u8>) {
    let more = found.end - found.start - MATCH_MIN;
    out.push(nibble(literals) << 4 | nibble(more));
    put_length(literals, out);
    let end = out.len() + literals;
    // Most are few: a copy of fixed length is the faster one, also if some of it is thrown away.
    match rest.first_chunk::<16>() {
        Some(wide) if literals <= wide.len() => out.extend_from_slice(wide),
        _ => out.extend_from_slice(rest.get(..literals).unwrap_or_default()),
    }
    out.truncate(end);
    out.extend_from_slice(&found.distance.to_le_bytes());
    put_length(more, out);
}

/// What of a length fits into half of a token.
fn nibble(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(15).min(15)
}

/// What of it does not.
fn put_length(len: usize, out: &mut Vec<u8>) {
    let Some(mut rest) = len.checked_sub(15) else { return };
    while rest >= 255 {
        out.push(255);
        rest -= 255;
    }
    out.push(u8::try_from(rest).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use lz4_flex::block::decompress;
    use proptest::prelude::*;

    use super::super::frame::checksum;
    use super::*;

    /// A stream of numbers (splitmix64).
    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        })
    }

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        numbers(seed).flat_map(u64::to_le_bytes).take(len).collect()
    }

    fn text(seed: u64, len: usize) -> Vec<u8> {
        const WORDS: [&str; 7] = ["the ", "request ", "took ", "snapshot ", "id=", "200 ", "\n"];
        let words = numbers(seed).map(|number| match WORDS.get((number % 8) as usize) {
            Some(word) => (*word).to_owned(),
            None => format!("{} ", number >> 44),
        });
        words.flat_map(String::into_bytes).take(len).collect()
    }

    /// Noise, and the same noise `distance` later, with zeros between and behind.
    fn repeated(seed: u64, distance: usize) -> Vec<u8> {
        let mut bytes = noise(seed, 4096);
        bytes.resize(distance, 0);
        bytes.extend(noise(seed, 4096));
        bytes.resize(distance + 4096 + 50, 0);
        bytes
    }

    fn pages(count: usize) -> Vec<u8> {
        let page = |page| format!("page {page:06} ").into_bytes().into_iter().cycle().take(4096);
        (0..count).flat_map(page).collect()
    }

    fn packed(chunk: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![7];
        let len = pack(chunk, &mut out);
        assert_eq!(out.len(), 1 + len.unwrap_or(0));
        len.map(|_| out.split_off(1))
    }

    /// The run is found at once, as if position 0 had been entered; it ends with the last word
    /// before the limit, 26; then the position two before the end is what is found, each time.
    #[test]
    fn a_run_ends_in_short_matches() {
        let expected: &[&[u8]] = &[&[0x1f, 0, 1, 0, 1], &[0, 2, 0], &[0, 2, 0], &[0xb0], &[0; 11]];
        assert_eq!(packed(&[0; 40]), Some(expected.concat()));
    }

    #[test]
    fn a_short_chunk_is_not_searched() {
        for len in 0..=TAIL {
            assert_eq!(packed(&vec![0; len]), None);
        }
    }

    /// Lengths and checksums from a plain implementation of the same rules, which is checked, as
    /// this one, against the blocks of a v1 engine.
    #[test]
    fn matches_are_chosen_as_ever() {
        for (bytes, expected) in [
            (text(1, 300), Some((221, 0xd636_bfc4))),
            (text(2, 200_000), Some((81_355, 0xaebf_668e))),
            (noise(3, 70_000), None),
            (noise(9, 40).repeat(5000), Some((851, 0x7bb0_4553))),
            (repeated(4, 65_535), Some((4399, 0x6fee_04a3))),
            // Too far.
            (repeated(4, 65_536), Some((8494, 0x4e79_14a7))),
            (repeated(4, 65_537), Some((8494, 0xc150_aad0))),
            (
                [text(5, 2000), noise(5, 100_000), text(6, 2000)].concat(),
                Some((103_414, 0x44e9_7048)),
            ),
            ([text(7, 2000), noise(7, 100_000)].concat(), Some((101_411, 0x6490_45f6))),
            // What the text saves, the length of the noise costs.
            ([text(7, 700), noise(7, 100_000)].concat(), None),
            (pages(64), Some((1639, 0x23eb_e81b))),
        ] {
            let found = packed(&bytes);
            assert_eq!(found.map(|packed| (packed.len(), checksum(&packed))), expected);
        }
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            (any::<u8>(), 1_usize..2000).prop_map(|(byte, len)| vec![byte; len]),
            (0_u64..4, 0_usize..3000).prop_map(|(seed, len)| text(seed, len)),
            (0_u64..4, 0_usize..70_000).prop_map(|(seed, len)| noise(seed, len)),
            (prop::collection::vec(any::<u8>(), 1..40), 1_usize..60)
                .prop_map(|(bytes, times)| bytes.repeat(times)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_contents_come_back_from_fewer_bytes(
            pieces in prop::collection::vec(piece(), 0..12)
        ) {
            let chunk = pieces.concat();
            if let Some(packed) = packed(&chunk) {
                prop_assert!(packed.len() < chunk.len());
                prop_assert!(decompress(&packed, chunk.len()).unwrap() == chunk);
            }
        }
    }
}
