//! CRC-64 with the ISO polynomial, as snapshot checksums use it: bits reflected, register and
//! result inverted. Long runs of zeros are skipped by algebra, so that hashing a sparse image
//! costs what its data costs.

use std::sync::OnceLock;

const POLYNOMIAL: u64 = 0xd800_0000_0000_0000;
/// Shorter runs of zeros are fed like data.
const SKIP_MIN_BYTES: u64 = 4096;

static TABLES: [[u64; 256]; 8] = tables();

#[expect(clippy::indexing_slicing, reason = "const evaluation: out of bounds does not compile")]
const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc64(u64);

impl Default for Crc64 {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl Crc64 {
    pub fn update(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let mixed = (self.0 ^ u64::from_le_bytes(*chunk)).to_le_bytes();
            self.0 = mixed
                .iter()
                .zip(TABLES.iter().rev())
                .fold(0, |sum, (byte, table)| sum ^ entry(table, *byte));
        }
        for byte in rest {
            self.feed(*byte);
        }
    }

    /// The same as feeding this many zeros.
    pub fn update_zeros(&mut self, count: u64) {
        if count < SKIP_MIN_BYTES {
            (0..count).for_each(|_| self.feed(0));
            return;
        }
        let powers = POWERS.get_or_init(powers);
        for (bit, power) in (0u32..).zip(powers.iter()) {
            if count.checked_shr(bit).is_some_and(|shifted| shifted & 1 == 1) {
                self.0 = apply(power, self.0);
            }
        }
    }

    pub fn finish(self) -> u64 {
        !self.0
    }

    fn feed(&mut self, byte: u8) {
        let [low, ..] = self.0.to_le_bytes();
        self.0 = (self.0 >> 8) ^ TABLES.first().map_or(0, |table| entry(table, low ^ byte));
    }
}

#[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
fn entry(table: &[u64; 256], byte: u8) -> u64 {
    table[usize::from(byte)]
}

/// A linear map of the register: where each of its bits goes.
type Matrix = [u64; 64];

/// The maps of 1, 2, 4, … zero bytes.
static POWERS: OnceLock<Vec<Matrix>> = OnceLock::new();

fn powers() -> Vec<Matrix> {
    let mut one = [0; 64];
    for (bit, column) in (0u32..).zip(one.iter_mut()) {
        let mut fed = Crc64(1u64 << bit);
        fed.feed(0);
        *column = fed.0;
    }
    let square = |last: &Matrix| Some(last.map(|column| apply(last, column)));
    std::iter::successors(Some(one), square).take(64).collect()
}

fn apply(matrix: &Matrix, value: u64) -> u64 {
    matrix
        .iter()
        .enumerate()
        .filter(|(bit, _)| value >> bit & 1 == 1)
        .fold(0, |sum, (_, column)| sum ^ column)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn crc(bytes: &[u8]) -> u64 {
        let mut crc = Crc64::default();
        crc.update(bytes);
        crc.finish()
    }

    #[test]
    fn the_published_check_value_comes_out() {
        assert_eq!(crc(b"123456789"), 0xb909_56c7_75a4_1001);
        assert_eq!(crc(b""), 0);
    }

    proptest! {
        #[test]
        fn any_split_and_any_skip_give_the_same(
            front in prop::collection::vec(any::<u8>(), 0..40),
            zeros in 0usize..20_000,
            back in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut whole = front.clone();
            whole.resize(front.len() + zeros, 0);
            whole.extend(&back);
            let mut parts = Crc64::default();
            parts.update(&front);
            parts.update_zeros(zeros as u64);
            parts.update(&back);
            prop_assert_eq!(parts.finish(), crc(&whole));
        }
    }
}
