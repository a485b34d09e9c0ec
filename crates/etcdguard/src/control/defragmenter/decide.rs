//! Which member is defragmented next, if any. Pure.
//!
//! Desired: every member has been defragmented since the last planned time. How much a member has
//! to gain is not asked: what etcd says of it lags behind until the next write. One member at a
//! time and only while all are well; the leader last, and not as the leader if another can lead
//! meanwhile.

use jiff::Timestamp;

use super::agenda::Slot;

/// What is known of one member now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) is_learner: bool,
    pub(super) answers: bool,
    /// When it was last defragmented, as far as is known.
    pub(super) done: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) members: Vec<Seen>,
    pub(super) leader: u64,
    /// The last planned time that has passed.
    pub(super) slot: Slot,
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

impl Seen {
    /// A member of which nothing is known waits for the next planned time.
    fn is_due(&self, slot: Slot) -> bool {
        self.answers && self.done.map_or(!slot.is_earlier, |done| done < slot.at)
    }
}

pub(super) fn decide(facts: &Facts) -> Step {
    let (leader, others): (Vec<&Seen>, Vec<&Seen>) =
        facts.members.iter().partition(|member| member.id == facts.leader);
    if facts.is_alarmed {
        return Step::Wait("a member raised an alarm");
    }
    // A learner that has not started counts for no quorum.
    if facts.members.iter().any(|member| !member.is_learner && !member.answers) {
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(id: u64, answers: bool) -> Seen {
        Seen { id, is_learner: false, answers, done: None }
    }

    fn facts(members: Vec<Seen>) -> Facts {
        let slot = Slot { at: at(100), is_earlier: false };
        Facts { members, leader: 1, slot, is_alarmed: false, has_room: true }
    }

    #[test]
    fn followers_come_first_and_the_leader_last_and_elsewhere() {
        let mut now = facts(vec![member(1, true), member(2, true), member(3, true)]);
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
        let now = facts(vec![member(1, true)]);
        assert_eq!(decide(&now), Step::DefragmentLeader { hand_to: None });
    }

    #[test]
    fn nothing_is_done_twice() {
        let mut done = member(1, true);
        done.done = Some(at(100));
        assert_eq!(decide(&facts(vec![done.clone()])), Step::Rest);
        done.done = Some(at(99));
        assert_eq!(decide(&facts(vec![done])), Step::DefragmentLeader { hand_to: None });
    }

    /// A sidecar that was just started, and leads: what it missed is told by the leases alone.
    #[test]
    fn what_was_planned_before_the_start_is_made_up_for_where_somebody_tells_of_it() {
        let mut now = facts(vec![member(1, true)]);
        now.slot.is_earlier = true;
        assert_eq!(decide(&now), Step::Rest, "nobody tells");
        now.members[0].done = Some(at(99));
        assert_eq!(decide(&now), Step::DefragmentLeader { hand_to: None });
    }

    #[test]
    fn nothing_is_done_while_a_member_is_not_well() {
        let waits = |facts: &Facts| matches!(decide(facts), Step::Wait(_));
        assert!(waits(&facts(vec![member(1, true), member(2, false)])));
        let mut alarmed = facts(vec![member(1, true)]);
        alarmed.is_alarmed = true;
        assert!(waits(&alarmed));
        let mut full = facts(vec![member(1, true), member(2, true)]);
        full.has_room = false;
        assert_eq!(decide(&full), Step::Defragment(2), "its disk is another");
        full.members.truncate(1);
        assert!(waits(&full));
        let mut learner = member(2, false);
        learner.is_learner = true;
        let now = facts(vec![member(1, true), learner]);
        assert_eq!(decide(&now), Step::DefragmentLeader { hand_to: None });
    }
}
