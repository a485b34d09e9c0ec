//! Block status: which parts of an export are allocated, and which read as zeroes.

use super::flags::flag_word;

/// Most extents in one reply. A client that wants to know more asks from where the reply ends.
pub const MAX_EXTENTS: usize = 4096;

flag_word! {
    /// The state of an extent in the context `base:allocation`. No bit: allocated data.
    ExtentFlags: u32 {
        /// Not allocated.
        HOLE = 0,
        /// Reads as zeroes.
        ZERO = 1,
    }
}

/// A run of bytes of one state; where it begins follows from those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub len: u32,
    pub flags: ExtentFlags,
}

/// Shapes what a volume knows about the `len` bytes from a request's offset into what one reply may
/// say: neighbours of one state joined, no empty extent, nothing past the range, at most `most`
/// extents (1 for a request with `REQ_ONE`), never more than [`MAX_EXTENTS`].
///
/// Takes only as much from `known` as it needs, so a lazy source is not walked to its end.
pub fn shape(
    known: impl IntoIterator<Item = (u64, ExtentFlags)>,
    len: u32,
    most: usize,
) -> Vec<Extent> {
    let (most, mut left) = (most.min(MAX_EXTENTS), len);
    let mut extents: Vec<Extent> = Vec::new();
    if left == 0 {
        return extents;
    }
    for (run, flags) in known {
        let run = u32::try_from(run).unwrap_or(u32::MAX).min(left);
        let full = extents.len() >= most;
        match extents.last_mut() {
            _ if run == 0 => continue,
            // Cannot overflow: together they are at most `len`.
            Some(last) if last.flags == flags => last.len = last.len.saturating_add(run),
            _ if full => break,
            _ => extents.push(Extent { len: run, flags }),
        }
        left = left.saturating_sub(run);
        if left == 0 {
            break;
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATA: ExtentFlags = ExtentFlags::NONE;
    const HOLE: ExtentFlags = ExtentFlags::HOLE;

    fn extent(len: u32, flags: ExtentFlags) -> Extent {
        Extent { len, flags }
    }

    #[test]
    fn runs_are_joined_cut_and_counted() {
        let known = [(0, HOLE), (4, DATA), (4, DATA), (0, HOLE), (8, HOLE), (1 << 40, DATA)];
        let all = shape(known, 20, MAX_EXTENTS);
        assert_eq!(all, [extent(8, DATA), extent(8, HOLE), extent(4, DATA)]);
        assert_eq!(shape(known, 20, 1), [extent(8, DATA)]);
        assert_eq!(shape(known, 6, 9), [extent(6, DATA)]);
        assert_eq!(shape(known, 0, 9), []);
        assert_eq!(shape([(u64::MAX, HOLE)], u32::MAX, 9), [extent(u32::MAX, HOLE)]);
    }

    #[test]
    fn the_number_of_extents_is_bounded() {
        let known = (0u64..).map(|i| (1, if i % 2 == 0 { DATA } else { HOLE }));
        assert_eq!(shape(known, u32::MAX, usize::MAX).len(), MAX_EXTENTS);
    }

    proptest! {
        #[test]
        fn every_byte_keeps_its_state(
            known in prop::collection::vec((0u64..9, 0u32..3), 0..20),
            len in 0u32..80,
            most in 1usize..9,
        ) {
            let known: Vec<_> =
                known.into_iter().map(|(n, bits)| (n, ExtentFlags::from_bits(bits))).collect();
            let bytes: Vec<_> =
                known.iter().flat_map(|(n, flags)| (0..*n).map(|_| *flags)).collect();
            let shaped = shape(known, len, most);
            prop_assert!(shaped.len() <= most);
            prop_assert!(shaped.iter().all(|e| e.len > 0));
            prop_assert!(shaped.windows(2).all(|pair| pair[0].flags != pair[1].flags));
            let said: Vec<_> =
                shaped.iter().flat_map(|e| (0..e.len).map(|_| e.flags)).collect();
            prop_assert!(said.len() <= len as usize);
            prop_assert!(bytes.starts_with(&said));
            if shaped.len() < most {
                prop_assert_eq!(said.len(), bytes.len().min(len as usize));
            }
        }
    }
}
