//! Which copies are the newest, by the records they keep, and how far they can differ.
//!
//! Pure; see `docs/decisions/0028-generations-and-membership.md`.

use wire::membership::{Filling, Record};

use super::start::{Found, NoBackend, Seen, Verdicts, refuse};

/// The newest record, if records decide: of the highest generation, since whoever gives copies up
/// goes on from the records of the rest and may not know how far those had counted. Not if one of its members was in the hands of an engine
/// that keeps none, for that may have more.
pub(super) fn newest(seen: &[Seen]) -> Option<&Record> {
    let standings = || seen.iter().filter_map(Seen::standing);
    let newest = standings()
        .filter_map(|it| it.record.as_ref())
        .max_by_key(|it| (it.generation, it.serial))?;
    let forgotten = standings()
        .any(|it| it.record.is_none() && it.filling == Filling::No && newest.names(&it.id));
    (!forgotten).then_some(newest)
}

/// Why those that are there may lack something: a member of the newest record is not there, and an
/// address of which it could be does not answer, or not with what it holds. One that nobody names any
/// more was given up.
pub(super) fn missing(seen: &[Seen], record: &Record) -> Option<String> {
    let is_there = |member: &String| {
        seen.iter().any(|seen| {
            let by_address = matches!(seen, Seen::Opened(found) if found.address == *member);
            by_address || seen.standing().is_some_and(|standing| standing.id == *member)
        })
    };
    let gone = record.members.iter().filter(|member| !is_there(member)).count();
    let silent: Vec<&str> = seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Unreachable(why) | Seen::Failed { why, standing: None } => Some(why.as_str()),
            Seen::Failed { standing: Some(_), .. } | Seen::Opened(_) => None,
        })
        .collect();
    (gone > 0 && !silent.is_empty()).then(|| {
        format!(
            "{gone} of the {} replicas that held the volume last are not reached and may have \
             newer data: {}; start them, or leave them out to give them up, or ask for a salvage",
            record.members.len(),
            silent.join("; ")
        )
    })
}

/// Which copies a live upgrade must not take, and why, by what they said while the old engine was still at
/// work and before it lost the first of them: later the records of the rest lack those that were taken first,
/// though they have all that was acknowledged before, and are mended from the rest.
///
/// # Errors
/// If one that may hold more is not reached: then nothing is taken from the old engine.
pub(crate) fn passed_over(seen: &[Seen], salvage: bool) -> Result<Vec<Option<String>>, NoBackend> {
    let Some(record) = newest(seen) else { return Ok(vec![None; seen.len()]) };
    if let Some(why) = missing(seen, record).filter(|_| !salvage) {
        return Err(NoBackend::Unavailable(why));
    }
    let why = |seen: &Seen| match seen {
        Seen::Opened(found) if !record.names(found.name()) => Some(not_named(record)),
        Seen::Opened(found) => found.unfilled(),
        Seen::Unreachable(_) | Seen::Failed { .. } => None,
    };
    Ok(seen.iter().map(why).collect())
}

pub(super) fn not_named(record: &Record) -> String {
    format!("was not among those that hold the volume as of record {}", record.serial)
}

/// What the copies that are left have in common.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) reader: Option<usize>,
    pub(super) base: Option<String>,
}

/// Refuses copies whose snapshots say that they took part in something the others did not, or the
/// other way round: a revert or a snapshot that was under way when everything stopped. The one that
/// is `recorded` as what the others are made equal to decides, else the one most agree with.
pub(super) fn agree(verdicts: &mut Verdicts<'_>, recorded: Option<&str>) -> Agreed {
    let left: Vec<(usize, &Found)> = verdicts
        .iter()
        .enumerate()
        .filter_map(|(place, verdict)| Some((place, *verdict.as_ref().ok()?)))
        .collect();
    let chosen = left.iter().find(|(_, found)| recorded == Some(found.name()));
    let followers =
        |found: &Found| left.iter().filter(|(_, other)| are_alike(found, other)).count();
    // Of equals the first: `max_by_key` would give the last.
    let most = || left.iter().rev().max_by_key(|(_, found)| followers(found));
    let Some(&(place, reader)) = chosen.or_else(most) else { return Agreed::default() };
    refuse(verdicts, |found| {
        (!are_alike(found, reader)).then(|| {
            format!("has other snapshots than {}, which more replicas agree with", reader.address)
        })
    });
    let everywhere = |name: &str| {
        let keeps = |found: &&Found| found.layers.iter().any(|it| it.kept && it.name == name);
        verdicts.iter().flatten().all(keeps)
    };
    let base = reader.layers.iter().find(|layer| everywhere(&layer.name));
    Agreed { reader: Some(place), base: base.map(|layer| layer.name.clone()) }
}

/// Purges and removals run at each copy by themselves: only what a user keeps counts.
fn are_alike(one: &Found, other: &Found) -> bool {
    let within = |one: &Found, other: &Found| {
        let has = |name: &str| other.layers.iter().any(|layer| layer.name == name);
        one.layers.iter().filter(|layer| layer.kept).all(|layer| has(&layer.name))
    };
    within(one, other) && within(other, one)
}

#[cfg(test)]
mod tests;
