//! A union of byte ranges that stays small: what would grow beyond bounds is made coarser, never
//! forgotten.

/// Ranges that are told of in any order.
#[derive(Debug)]
pub(super) struct Extents {
    /// Start and end; sorted and apart only after [`Extents::tidy`].
    ranges: Vec<(u64, u64)>,
    /// Ranges this close to each other are taken for one.
    gap: u64,
    most: usize,
}

const MOST: usize = 1 << 18;

impl Extents {
    pub(super) fn new() -> Self {
        Self::bounded(MOST)
    }

    fn bounded(most: usize) -> Self {
        Self { ranges: Vec::new(), gap: 0, most }
    }

    pub(super) fn add(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if offset < end {
            self.ranges.push((offset, end));
        }
        if self.ranges.len() >= self.most {
            self.tidy();
            while self.ranges.len() > self.most / 2 {
                self.gap = (self.gap * 2).max(4096);
                self.tidy();
            }
        }
    }

    fn tidy(&mut self) {
        self.ranges.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        for (start, end) in self.ranges.drain(..) {
            match apart.last_mut() {
                Some((_, last)) if start <= last.saturating_add(self.gap) => *last = end.max(*last),
                Some(_) | None => apart.push((start, end)),
            }
        }
        self.ranges = apart;
    }

    /// The same in whole `unit`s, within a volume of `size` bytes.
    pub(super) fn within(mut self, size: u64, unit: u64) -> Self {
        for (start, end) in &mut self.ranges {
            *start -= *start % unit;
            *end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX).min(size);
        }
        self.ranges.retain(|(start, end)| start < end);
        self.tidy();
        self
    }

    /// Bytes covered; exact after [`Extents::within`].
    pub(super) fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Offset and length of what is covered, cut into pieces of at most `longest` bytes.
    pub(super) fn into_pieces(self, longest: u32) -> impl Iterator<Item = (u64, u32)> + Send {
        self.ranges.into_iter().flat_map(move |(start, end)| {
            let starts = (start..end).step_by(longest as usize);
            starts.map(move |at| (at, u32::try_from(end - at).unwrap_or(u32::MAX).min(longest)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(told: &[(u64, u64)], size: u64, longest: u32) -> Vec<(u64, u32)> {
        let mut extents = Extents::new();
        for (offset, len) in told {
            extents.add(*offset, *len);
        }
        let extents = extents.within(size, 4096);
        let total = extents.total();
        let pieces: Vec<_> = extents.into_pieces(longest).collect();
        assert_eq!(total, pieces.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
        pieces
    }

    #[test]
    fn overlaps_are_told_once_and_in_whole_units() {
        let told = [(8192, 4096), (0, 100), (9000, 8192), (0, 0)];
        assert_eq!(pieces(&told, 1 << 20, 1 << 20), [(0, 4096), (8192, 12288)]);
    }

    #[test]
    fn pieces_are_short_and_inside_the_volume() {
        assert_eq!(pieces(&[(0, u64::MAX)], 10_240, 4096), [(0, 4096), (4096, 4096), (8192, 2048)]);
        assert_eq!(pieces(&[(1 << 40, 5)], 8192, 4096), []);
    }

    #[test]
    fn too_many_ranges_become_coarser_and_none_is_lost() {
        let mut extents = Extents::bounded(64);
        let at = |n: u64| n * 1_000_003 % 10_000_000;
        for n in 0..10_000 {
            extents.add(at(n), 1);
        }
        assert!(extents.ranges.len() <= 64);
        let pieces: Vec<_> = extents.within(1 << 30, 4096).into_pieces(1 << 20).collect();
        for n in 0..10_000 {
            let inside =
                |(start, len): &(u64, u32)| (*start..start + u64::from(*len)).contains(&at(n));
            assert!(pieces.iter().any(inside), "{n}");
        }
    }
}
