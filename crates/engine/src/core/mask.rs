//! Sets of replicas as bits of their places in the table: cheap to keep with every request.

/// Bit `n` is the replica in place `n`.
pub(super) type Mask = u64;

/// Replicas a volume can have at a time.
pub(super) const PLACES: usize = 64;

/// The set of the replica in place `index`; nothing for a place beyond the last.
pub(super) fn bit(index: usize) -> Mask {
    u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0)
}

/// The places in `mask`, lowest first.
pub(super) fn places(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask.wrapping_sub(1);
        Some(place)
    })
}

/// The first place of `mask` at or after `from`, else its first.
pub(super) fn next_place(mask: Mask, from: usize) -> Option<usize> {
    let after = mask & !bit(from).wrapping_sub(1);
    places(if bit(from) != 0 && after != 0 { after } else { mask }).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_bits() {
        assert_eq!(places(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(places(0).count(), 0);
        assert_eq!(places(u64::MAX).count(), PLACES);
        assert_eq!(bit(PLACES), 0);
    }

    #[test]
    fn the_next_place_goes_round() {
        for (from, expected) in [(0, 1), (1, 1), (2, 3), (3, 3), (4, 1), (63, 1), (64, 1), (99, 1)]
        {
            assert_eq!(next_place(0b1010, from), Some(expected), "from {from}");
        }
        assert_eq!(next_place(0, 3), None);
    }
}
