//! Under which number an engine claims a volume.

use wire::membership::Standing;

/// The volume was given to a later engine than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this engine was given claim generation {given}, and its replicas were claimed with {found} already: \
     the volume has moved on. If its resources were put back to an earlier day, set claimGeneration of \
     the volume's status above {found}"
)]
pub struct Superseded {
    given: u64,
    found: u64,
}

/// Bits of a generation that engines count in by themselves. What a manager gives is above them: a claim
/// under a later one is higher than all that were made under the ones before.
const COUNTED_BITS: u32 = 30;

/// By how much a claim rises that leaves copies behind which were claimed later than the rest, perhaps:
/// further than any of those claims can be, so that what it records outranks theirs.
const GIVES_UP_STEP: u64 = 1 << 20;

/// The generation of the next claim on copies with these standings, above all that were made, those by the
/// engine itself among them.
///
/// # Errors
/// If a manager has given the volume to another since it gave this one its number.
pub fn next(given: Option<u64>, own: u64, standings: &[&Standing]) -> Result<u64, Superseded> {
    let highest = standings.iter().map(|it| it.claim.generation).max().unwrap_or(0);
    let step = if gives_up(standings) { GIVES_UP_STEP } else { 1 };
    above(given, highest.max(own), step)
}

fn above(given: Option<u64>, highest: u64, step: u64) -> Result<u64, Superseded> {
    let Some(given) = given else { return Ok(highest.saturating_add(step)) };
    let found = highest >> COUNTED_BITS;
    if found > given {
        return Err(Superseded { given, found });
    }
    let least = given.saturating_mul(1 << COUNTED_BITS);
    Ok(highest.max(least).saturating_add(step))
}

/// Whether a copy that held the volume is not among these.
fn gives_up(standings: &[&Standing]) -> bool {
    let is_there = |member: &String| standings.iter().any(|it| it.id == *member);
    let records = standings.iter().filter_map(|it| it.record.as_ref());
    records.flat_map(|record| &record.members).any(|member| !is_there(member))
}

#[cfg(test)]
mod tests {
    use wire::membership::Record;

    use super::*;

    #[test]
    fn a_later_right_is_above_all_claims_of_the_ones_before() {
        let bit = 1 << COUNTED_BITS;
        // Nobody gives numbers: the next one.
        assert_eq!(above(None, 41, 1), Ok(42));
        // The first that is given is above all that were counted before.
        assert_eq!(above(Some(3), 41, 1), Ok(3 * bit + 1));
        // Under the same right engines count on, and one that gives copies up leaps.
        assert_eq!(above(Some(3), 3 * bit + 1, 1), Ok(3 * bit + 2));
        assert_eq!(above(Some(3), 3 * bit + 1, 1 << 20), Ok(3 * bit + 1 + (1 << 20)));
        assert_eq!(above(Some(4), 3 * bit + 7, 1), Ok(4 * bit + 1));
        // A lower one comes too late.
        let late = Superseded { given: 3, found: 4 };
        assert_eq!(above(Some(3), 4 * bit + 1, 1), Err(late));
        // Whoever starts one by hand takes the next number.
        assert_eq!(above(None, 4 * bit + 1, 1), Ok(4 * bit + 2));
    }

    #[test]
    fn whoever_leaves_a_copy_behind_leaps() {
        let members = vec!["a".to_owned(), "b".to_owned()];
        let record = Record { serial: 1, generation: 7, members, reader: None };
        let standing = |id: &str| Standing {
            id: id.to_owned(),
            record: Some(record.clone()),
            ..Standing::default()
        };
        let (one, other) = (standing("a"), standing("b"));
        assert_eq!(next(None, 9, &[&one, &other]), Ok(10));
        assert_eq!(next(None, 9, &[&one]), Ok(9 + GIVES_UP_STEP));
        assert_eq!(next(None, 0, &[]), Ok(1));
    }
}
