//! Tells the log once when a replica is no longer used, and why; lets work that needs a replica end
//! when it is.

use std::collections::HashSet;
use std::sync::Arc;

use crate::core::{Member, Mode, ReplicaId};

use super::engine::Engine;

/// Members that turned ERR since the last look. Calls nobody: what is at fault may not answer.
fn newly_failed<'m>(
    members: &'m [Member],
    known: &HashSet<ReplicaId>,
) -> impl Iterator<Item = &'m Member> {
    members.iter().filter(|member| member.mode == Mode::Err && !known.contains(&member.id))
}

impl Engine {
    pub(super) fn watch_members(self: &Arc<Self>) {
        // Not an `Arc` kept for ever: the task would keep alive what it watches.
        let mut members = self.volume.members();
        let engine = Arc::downgrade(self);
        self.tasks.spawn("members", async move {
            let mut known = HashSet::new();
            loop {
                let now = members.borrow_and_update().clone();
                let Some(engine) = engine.upgrade() else { return };
                for member in newly_failed(&now, &known) {
                    engine.tell_failed(member);
                }
                drop(engine);
                known = failed(&now);
                if members.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Ends when any of `members` has failed or is gone, so that nobody goes on waiting for it.
    pub(super) async fn any_failed(&self, members: &[ReplicaId]) {
        let mut all = self.volume.members();
        // Without a data path there is nothing left to wait for either.
        let _ = all.wait_for(|now| members.iter().any(|one| !is_used(now, *one))).await;
    }

    /// What comes of a call to a member, or none if the member fails first.
    pub(super) async fn unless_failed<T>(
        &self,
        member: ReplicaId,
        call: impl Future<Output = T>,
    ) -> Option<T> {
        let members = [member];
        tokio::select! {
            done = call => Some(done),
            () = self.any_failed(&members) => None,
        }
    }

    fn tell_failed(&self, member: &Member) {
        let address = self.address_of(member.id).unwrap_or_default();
        let reason = member.reason.as_deref().unwrap_or("no reason given");
        tracing::error!(replica = address, reason, "replica {address} is now ERR: {reason}");
    }

    fn address_of(&self, member: ReplicaId) -> Option<String> {
        let state = self.state();
        let entry = state.entries.iter().find(|entry| entry.member == Some(member));
        entry.map(|entry| entry.address.clone())
    }
}

fn is_used(members: &[Member], one: ReplicaId) -> bool {
    members.iter().any(|member| member.id == one && member.mode != Mode::Err)
}

fn failed(members: &[Member]) -> HashSet<ReplicaId> {
    members.iter().filter(|member| member.mode == Mode::Err).map(|member| member.id).collect()
}

#[cfg(test)]
mod tests {
    use rpc::Features;

    use super::*;

    #[test]
    fn a_failure_is_news_once() {
        let member =
            |id, mode| Member { id: ReplicaId(id), mode, features: Features::NONE, reason: None };
        let members = [member(1, Mode::Err), member(2, Mode::Err), member(3, Mode::Rw)];
        let known = HashSet::from([ReplicaId(1)]);
        let news: Vec<_> = newly_failed(&members, &known).map(|member| member.id).collect();
        assert_eq!(news, [ReplicaId(2)]);
        assert_eq!(failed(&members), HashSet::from([ReplicaId(1), ReplicaId(2)]));
        assert!(is_used(&members, ReplicaId(3)));
        assert!(!is_used(&members, ReplicaId(1)));
        assert!(!is_used(&members, ReplicaId(4)), "one that was removed");
    }
}
