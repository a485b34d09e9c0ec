//! All copies begin to restore a backup: they are looked at first, so that nothing stands in the way of
//! any of them, then asked together. One that did not begin while others did is out: it would show
//! what the volume was before.
//!
//! Each copy then goes on by itself, whatever becomes of its engine. [`unfinished`] says until when
//! nothing of them may be shown; the next engine finds out by it which of them were not asked any more.

use std::collections::BTreeMap;

use replica::DiskName;

use crate::core::{Mode, ReplicaId};

use super::outcome::{Asked, Left, Outcome, settle};

/// What is to be restored, and to which volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the backup.
    pub backup: String,
    /// The volume it was made of, and how large a volume must be for it.
    pub backup_volume: String,
    pub backup_bytes: u64,
    pub volume: String,
    pub volume_bytes: u64,
    /// For the disk that it is restored to, if there is none yet.
    pub fresh_disk: String,
}

/// What a copy shows of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Which copy it is, and how often it was filled; none if it keeps no account of that.
    pub identity: Option<String>,
    pub is_rebuilding: bool,
    pub is_purging: bool,
    pub head: String,
    /// What the head sits on, if it sits on anything.
    pub parent: String,
    /// The head and all snapshots, and what it has besides.
    pub disks: Vec<String>,
    pub restored: Restored,
}

impl View {
    /// A backing file is none of them.
    fn disks(&self) -> impl Iterator<Item = &String> {
        self.disks.iter().filter(|name| DiskName::parse(name).is_ok())
    }
}

/// What a copy says of backups that were restored to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The backup that it holds, if it holds one whole.
    pub last: String,
    /// The identities of those that were asked for that one.
    pub companions: Vec<String>,
    /// The backup whose restore was begun and has not ended well.
    pub unfinished: String,
    /// The backup that it restores now.
    pub running: Option<String>,
    pub has_failed: bool,
    /// The disk that was restored to.
    pub disk: String,
}

impl Restored {
    fn follows(&self, backup: &str) -> bool {
        self.last == backup || self.running.as_deref() == Some(backup)
    }

    fn is_half(&self) -> bool {
        self.last.is_empty() && (self.has_failed || !self.unfinished.is_empty())
    }
}

/// A copy and what it says of backups, or why it says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub address: String,
    /// As in [`View`].
    pub identity: Option<String>,
    pub restored: Result<Restored, String>,
}

/// Why what these copies hold is not to be shown to anybody yet, if so.
pub fn unfinished(told: &[Told]) -> Option<String> {
    let silent = told.iter().find_map(|it| Some((&it.address, it.restored.as_ref().err()?)));
    if let Some((address, why)) = silent {
        return Some(format!(
            "replica {address} does not say whether it holds a backup that was restored in part: {why}; \
             try again when its agent answers"
        ));
    }
    let seen = || told.iter().filter_map(|it| Some((it, it.restored.as_ref().ok()?)));
    for (Told { address, .. }, restored) in seen() {
        if restored.running.is_some() || restored.is_half() {
            let names = [restored.running.as_ref(), Some(&restored.unfinished)];
            let backup = names.into_iter().flatten().find(|name| !name.is_empty());
            let backup = backup.map_or("a backup", String::as_str);
            return Some(format!("replica {address} has not finished to restore {backup}"));
        }
    }
    let mut whole = seen().filter(|(_, restored)| !restored.last.is_empty());
    let (first, wanted) = whole.next()?;
    if let Some((other, has)) = whole.find(|(_, restored)| restored.last != wanted.last) {
        return Some(format!(
            "replica {} holds backup {}, replica {} backup {}",
            first.address, wanted.last, other.address, has.last
        ));
    }
    // One that was rebuilt from another since says nothing either, but is not what it was.
    let is_asked = |it: &Told| {
        let mut all = seen().flat_map(|(_, restored)| &restored.companions);
        it.identity.as_ref().is_some_and(|own| all.any(|companion| companion == own))
    };
    let (left, _) = seen().find(|(it, restored)| restored.last.is_empty() && is_asked(it))?;
    Some(format!(
        "replica {} holds backup {}, replica {} was to be restored with it and was not: restore it again",
        first.address, wanted.last, left.address
    ))
}

/// Whether one of them holds a part of a backup, and so must not be written over: it goes on from what it
/// has noted as done.
pub fn is_under_way(told: &[Told]) -> bool {
    let is_begun = |restored: &Restored| !restored.unfinished.is_empty();
    unfinished(told).is_some() || told.iter().flat_map(|it| &it.restored).any(is_begun)
}

/// Why no copy was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    Plain(String),
    /// For reasons of these.
    Copies(Vec<Left>),
    /// Snapshots that nobody needs have to go first.
    Purge(String),
}

/// To which disk all of them restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub disk: String,
    /// There is a backup below.
    pub is_incremental: bool,
}

/// Where a backup can be restored to: the only snapshot there is, or a new one.
///
/// # Errors
/// If copies are rebuilt or purge, or have none or too many snapshots.
pub fn target(seen: &[(Asked, View)], fresh_disk: &str) -> Result<Target, Rejection> {
    let left = |asked: &Asked, message: &str| Left {
        address: asked.address.clone(),
        message: message.to_owned(),
    };
    let rebuilding: Vec<Left> = seen
        .iter()
        .filter(|(_, view)| view.is_rebuilding)
        .map(|(asked, _)| left(asked, "cannot do restore for normal rebuilding replica"))
        .collect();
    if !rebuilding.is_empty() {
        return Err(Rejection::Copies(rebuilding));
    }
    let refused = |text: &str| Err(Rejection::Plain(text.to_owned()));
    if seen.iter().any(|(_, view)| view.is_purging) {
        return refused("cannot do restore now since replicas are purging snapshots");
    }
    let is_incremental = seen.iter().any(|(_, view)| !view.restored.last.is_empty());
    let names = || seen.iter().map(|(it, _)| it.address.as_str()).collect::<Vec<_>>().join(", ");
    let readable = seen.iter().filter(|(asked, _)| asked.mode == Mode::Rw);
    let widest = readable.map(|(_, view)| view).max_by_key(|view| view.disks().count());
    let disk = match (widest, widest.map_or(0, |view| view.disks().count())) {
        (None, _) | (_, 0) => {
            return refused(&format!(
                "BUG: replicas {} do not contain any snapshots and volume head",
                names()
            ));
        }
        (_, 1) if is_incremental => {
            return refused(&format!(
                "BUG: replicas {} of DR volume should contains at least 2 disk files: the volume head \
                 and a snapshot storing restore data",
                names()
            ));
        }
        (_, 1) => {
            // One that is being restored already, or was begun, has its name.
            let begun = seen.iter().map(|(_, view)| &view.restored.disk);
            let begun = begun.filter(|name| !name.is_empty()).min().cloned();
            begun.unwrap_or_else(|| fresh_disk.to_owned())
        }
        // Cut short before the head was put on what was restored.
        (Some(view), 2) if view.parent.is_empty() => {
            match view.disks().find(|name| **name != view.head) {
                Some(below) => below.clone(),
                None => return refused("the replica has two heads"),
            }
        }
        (Some(view), 2) => view.parent.clone(),
        (Some(_), _) => {
            let text = "found more than 1 snapshot in the replicas, hence started to purge snapshots \
                        before the restore";
            return Err(Rejection::Purge(text.to_owned()));
        }
    };
    Ok(Target { disk, is_incremental })
}

/// A volume follows its backup in size, and never leads.
///
/// # Errors
/// If it has another size.
pub fn check_size(wanted: &Wanted, is_incremental: bool) -> Result<(), Rejection> {
    let Wanted { backup_volume: from, volume: name, backup_bytes: backup, .. } = wanted;
    let size = wanted.volume_bytes;
    let text = if *backup < size {
        format!(
            "BUG: The backup volume {from} size {backup} cannot be smaller than the DR volume \
             {name} size {size}"
        )
    } else if *backup == size {
        return Ok(());
    } else if is_incremental {
        format!(
            "need to expand the DR volume {name} to size {backup} before incremental restoration"
        )
    } else {
        format!(
            "BUG: The backup volume {from} size {backup} cannot be larger than normal restore \
             volume {name} size {size}"
        )
    };
    Err(Rejection::Plain(text))
}

/// What a copy is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub disk: String,
    /// Those that are asked, as they can help each other.
    pub together: Vec<ReplicaId>,
    /// Their identities, as far as they have one.
    pub companions: Vec<String>,
}

/// To be done next, in the order in which they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Each is answered by [`Event::Looked`].
    Look(ReplicaId),
    /// Answered by [`Event::Purging`].
    Purge,
    /// Each is answered by [`Event::Answered`].
    Ask(ReplicaId, Order),
    /// What one holds that has not said that it began; each is answered by [`Event::LookedAgain`].
    LookAgain(ReplicaId),
    Fail(ReplicaId, String),
    /// Answered by [`Event::Recorded`].
    Record,
    End(Result<Vec<Left>, Rejection>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Looked(ReplicaId, Result<View, String>),
    /// A purge was begun, or why not.
    Purging(Result<(), String>),
    /// It has begun, or why not, as far as is known.
    Answered(ReplicaId, Result<(), String>),
    LookedAgain(ReplicaId, Result<Restored, String>),
    Recorded(Result<(), String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Looking { seen: BTreeMap<ReplicaId, Result<View, String>> },
    Purging { text: String },
    Asking { order: Order, taken: BTreeMap<ReplicaId, Taken> },
    Recording { left: Vec<Left> },
    Over,
}

/// How one took it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Taken {
    Begun,
    /// It did not say that it began, and is looked at.
    Unclear(String),
    /// It did not begin now, since it has or restores the backup already.
    Follows(String),
    Refused(String),
    /// It may have begun or not.
    Silent(String),
}

impl Taken {
    /// None while that is not known.
    fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Begun | Self::Follows(_) => Some(Outcome::Done),
            Self::Unclear(_) => None,
            Self::Refused(why) => Some(Outcome::Refused(why.clone())),
            Self::Silent(why) => Some(Outcome::Lost(why.clone())),
        }
    }

    fn message(self) -> Option<String> {
        match self {
            Self::Begun => None,
            Self::Unclear(why) | Self::Follows(why) | Self::Refused(why) | Self::Silent(why) => {
                Some(why)
            }
        }
    }
}

/// The same backup on all copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    wanted: Wanted,
    /// All that are in use.
    members: Vec<Asked>,
    stage: Stage,
}

impl Restore {
    pub fn begin(wanted: Wanted, members: Vec<Asked>) -> (Self, Vec<Step>) {
        let steps: Vec<Step> = members.iter().map(|asked| Step::Look(asked.id)).collect();
        let mut machine = Self { wanted, members, stage: Stage::Looking { seen: BTreeMap::new() } };
        let steps = if steps.is_empty() { machine.seen() } else { steps };
        (machine, steps)
    }

    /// What follows from an event. One that is not waited for changes nothing.
    pub fn on(&mut self, event: Event) -> Vec<Step> {
        match (&mut self.stage, event) {
            (Stage::Looking { seen }, Event::Looked(id, view)) => {
                seen.entry(id).or_insert(view);
                self.seen()
            }
            (Stage::Purging { text }, Event::Purging(begun)) => {
                let text = begun.err().unwrap_or_else(|| std::mem::take(text));
                self.end(Err(Rejection::Plain(text)))
            }
            (Stage::Asking { taken, .. }, Event::Answered(id, answer))
                if !taken.contains_key(&id) =>
            {
                match answer {
                    Ok(()) => {
                        taken.insert(id, Taken::Begun);
                        self.settle()
                    }
                    // It may have begun, now or before.
                    Err(why) => {
                        taken.insert(id, Taken::Unclear(why));
                        vec![Step::LookAgain(id)]
                    }
                }
            }
            (Stage::Asking { taken, .. }, Event::LookedAgain(id, seen)) => {
                if let Some(Taken::Unclear(why)) = taken.get(&id) {
                    let why = why.clone();
                    let known = match seen {
                        Ok(restored) if restored.follows(&self.wanted.backup) => {
                            Taken::Follows(why)
                        }
                        Ok(_) => Taken::Refused(why),
                        Err(_) => Taken::Silent(why),
                    };
                    taken.insert(id, known);
                }
                self.settle()
            }
            (Stage::Recording { left }, Event::Recorded(Ok(()))) => {
                let left = std::mem::take(left);
                self.end(Ok(left))
            }
            (Stage::Recording { .. }, Event::Recorded(Err(why))) => {
                let text = format!("the replicas cannot be told who holds the volume: {why}");
                self.end(Err(Rejection::Plain(text)))
            }
            (_, _) => vec![],
        }
    }

    fn end(&mut self, ended: Result<Vec<Left>, Rejection>) -> Vec<Step> {
        self.stage = Stage::Over;
        vec![Step::End(ended)]
    }

    /// What follows once all were looked at.
    fn seen(&mut self) -> Vec<Step> {
        let Stage::Looking { seen } = &mut self.stage else { return vec![] };
        if seen.len() < self.members.len() {
            return vec![];
        }
        let mut seen = std::mem::take(seen);
        let views: Result<Vec<_>, String> = self
            .members
            .iter()
            .filter_map(|asked| Some(seen.remove(&asked.id)?.map(|view| (asked.clone(), view))))
            .collect();
        let views = match views {
            Ok(views) => views,
            Err(why) => return self.end(Err(Rejection::Plain(why))),
        };
        match self.plan(&views) {
            Ok(order) => {
                let ask = |id: &ReplicaId| Step::Ask(*id, order.clone());
                let steps = order.together.iter().map(ask).collect();
                self.stage = Stage::Asking { order, taken: BTreeMap::new() };
                steps
            }
            Err(Rejection::Purge(text)) => {
                self.stage = Stage::Purging { text };
                vec![Step::Purge]
            }
            Err(rejection) => self.end(Err(rejection)),
        }
    }

    fn plan(&self, views: &[(Asked, View)]) -> Result<Order, Rejection> {
        let Target { disk, is_incremental } = target(views, &self.wanted.fresh_disk)?;
        check_size(&self.wanted, is_incremental)?;
        let other = |view: &View| {
            view.restored.running.as_ref().is_some_and(|running| *running != self.wanted.backup)
        };
        let busy = views.iter().filter(|(_, view)| other(view)).map(|(asked, _)| Left {
            address: asked.address.clone(),
            message: format!("{}: {IN_PROGRESS}", doing(&asked.address)),
        });
        let busy: Vec<Left> = busy.collect();
        if !busy.is_empty() {
            // The others would have another one then.
            return Err(Rejection::Copies(busy));
        }
        Ok(Order {
            disk,
            together: views.iter().map(|(asked, _)| asked.id).collect(),
            companions: views.iter().filter_map(|(_, view)| view.identity.clone()).collect(),
        })
    }

    /// What follows once it is known of all of them whether they have begun.
    fn settle(&mut self) -> Vec<Step> {
        let Stage::Asking { order, taken } = &self.stage else { return vec![] };
        if taken.len() < order.together.len() {
            return vec![];
        }
        let all =
            self.members.iter().filter_map(|asked| Some((asked.clone(), taken.get(&asked.id)?)));
        let outcomes: Option<Vec<(Asked, Outcome)>> =
            all.clone().map(|(asked, taken)| Some((asked, taken.outcome()?))).collect();
        let Some(outcomes) = outcomes else { return vec![] };
        let left = all.filter_map(|(Asked { address, .. }, taken)| {
            Some(Left { address, message: taken.clone().message()? })
        });
        let left: Vec<Left> = left.collect();
        let settled = settle(&outcomes);
        if settled.out.is_empty() && !settled.is_done {
            return self.end(Ok(left));
        }
        self.stage = Stage::Recording { left };
        let fail = settled.out.into_iter().map(|(id, why)| Step::Fail(id, why));
        fail.chain([Step::Record]).collect()
    }
}

/// How callers are told which of them did not begin.
pub fn doing(address: &str) -> String {
    format!("failed to restore backup on replica {address}")
}

/// What an agent says that restores another one.
const IN_PROGRESS: &str = "rpc error: code = Unknown desc = cannot initiate backup restore as there is one \
                           already in progress";

#[cfg(test)]
mod tests;
