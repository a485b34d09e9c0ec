//! Which member is defragmented next, if any. Pure.
//!
//! Desired: since the last planned time, every member has been defragmented that has much to gain.
//! One member at a time and only while all are well; the leader last, and not as the leader if
//! another can lead meanwhile.

use jiff::Timestamp;

/// What is known of one member now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) is_learner: bool,
    /// None if it does not answer.
    pub(super) sizes: Option<Sizes>,
    /// When it was last defragmented by this process.
    pub(super) done: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) file_bytes: i64,
    pub(super) used_bytes: i64,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) members: Vec<Seen>,
    pub(super) leader: u64,
    /// The last planned time that has passed.
    pub(super) slot: Timestamp,
    /// A member is damaged: nothing is done that is not needed.
    pub(super) is_alarmed: bool,
    /// Whether the disk of the leader, which is this sidecar's, has room for a copy.
    pub(super) has_room: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All is as it should be until the next planned time.
    Rest,
    /// Look again later.
    Wait(&'static str),
    Defragment(u64),
    /// Defragment the leader, after the leadership has been handed on.
    DefragmentLeader {
        hand_to: Option<u64>,
    },
}

/// A member with less to gain, both as a share and in bytes, is left alone.
const GAIN_MIN_SHARE: i64 = 10;
const GAIN_MIN_BYTES: i64 = 1 << 20;

impl Seen {
    fn is_due(&self, slot: Timestamp) -> bool {
        let gain = self.sizes.is_some_and(|sizes| {
            let free = sizes.file_bytes.saturating_sub(sizes.used_bytes);
            free >= GAIN_MIN_BYTES || free.saturating_mul(GAIN_MIN_SHARE) >= sizes.file_bytes
        });
        gain && self.done.is_none_or(|done| done < slot)
    }
}

pub(super) fn decide(facts: &Facts) -> Step {
    let (leader, others): (Vec<&Seen>, Vec<&Seen>) =
        facts.members.iter().partition(|member| member.id == facts.leader);
    if facts.is_alarmed {
        return Step::Wait("a member raised an alarm");
    }
    // A learner that has not started counts for no quorum.
    if facts.members.iter().any(|member| !member.is_learner && member.sizes.is_none()) {
        return Step::Wait("a member does not answer");
    }
    let [leader] = leader.as_slice() else { return Step::Wait("the leader is not a member") };
    if let Some(due) = others.iter().find(|member| member.is_due(facts.slot)) {
        return Step::Defragment(due.id);
    }
    if !leader.is_due(facts.slot) {
        return Step::Rest;
    }
    if !facts.has_room {
        return Step::Wait("the disk has no room for a copy of the database");
    }
    let hand_to = others.iter().find(|member| !member.is_learner).map(|member| member.id);
    Step::DefragmentLeader { hand_to }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: Option<Sizes> = Some(Sizes { file_bytes: 100 << 20, used_bytes: 10 << 20 });
    const TIGHT: Option<Sizes> = Some(Sizes { file_bytes: 100 << 10, used_bytes: 95 << 10 });

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(id: u64, sizes: Option<Sizes>) -> Seen {
        Seen { id, is_learner: false, sizes, done: None }
    }

    fn facts(members: Vec<Seen>) -> Facts {
        Facts { members, leader: 1, slot: at(100), is_alarmed: false, has_room: true }
    }

    #[test]
    fn followers_come_first_and_the_leader_last_and_elsewhere() {
        let mut now = facts(vec![member(1, LARGE), member(2, LARGE), member(3, LARGE)]);
        let mut steps = Vec::new();
        for _ in 0..4 {
            let step = decide(&now);
            let id = match step {
                Step::Defragment(id) => id,
                Step::DefragmentLeader { .. } => 1,
                Step::Rest | Step::Wait(_) => 0,
            };
            now.members.iter_mut().filter(|seen| seen.id == id).for_each(|seen| {
                seen.done = Some(at(101));
            });
            steps.push(step);
        }
        let leader = Step::DefragmentLeader { hand_to: Some(2) };
        assert_eq!(steps, [Step::Defragment(2), Step::Defragment(3), leader, Step::Rest]);
    }

    #[test]
    fn a_member_alone_leads_on() {
        let now = facts(vec![member(1, LARGE)]);
        assert_eq!(decide(&now), Step::DefragmentLeader { hand_to: None });
    }

    #[test]
    fn nothing_is_done_for_little_or_twice() {
        let mut done = member(1, LARGE);
        done.done = Some(at(100));
        assert_eq!(decide(&facts(vec![done.clone(), member(2, TIGHT)])), Step::Rest);
        done.done = Some(at(99));
        assert_eq!(
            decide(&facts(vec![done, member(2, TIGHT)])),
            Step::DefragmentLeader { hand_to: Some(2) }
        );
    }

    #[test]
    fn nothing_is_done_while_a_member_is_not_well() {
        let waits = |facts: &Facts| matches!(decide(facts), Step::Wait(_));
        assert!(waits(&facts(vec![member(1, LARGE), member(2, None)])));
        let mut alarmed = facts(vec![member(1, LARGE)]);
        alarmed.is_alarmed = true;
        assert!(waits(&alarmed));
        let mut full = facts(vec![member(1, LARGE), member(2, LARGE)]);
        full.has_room = false;
        assert_eq!(decide(&full), Step::Defragment(2), "its disk is another");
        full.members.truncate(1);
        assert!(waits(&full));
        let mut learner = member(2, None);
        learner.is_learner = true;
        let now = facts(vec![member(1, LARGE), learner]);
        assert_eq!(decide(&now), Step::DefragmentLeader { hand_to: None });
    }
}
