//! Looks after replicas that are being filled, so that none is left without an owner when the
//! command that fills it is killed.
//!
//! A command adds the replica, has its files copied, and asks for it to be verified. The copying
//! goes on without the command. If nobody asks then, the engine verifies the replica itself; if
//! nothing is being copied to it, it is given up, for a volume takes only one such replica at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::membership::Filling;

use crate::core::Mode;

use super::engine::{CALL_LIMIT, Engine, Replica};
use super::link::CallError;
use super::probe;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long nothing may come to a replica that is to be filled, as a multiple of the timeout of
/// one that only has to be verified.
const EMPTY_FACTOR: u32 = 10;

/// What is seen of a replica that is being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct View {
    filling: Filling,
    /// It is filled by copying, not by a restore.
    rebuilding: bool,
    /// Something is being copied or restored to it.
    busy: bool,
    idle: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    Wait,
    Verify,
    GiveUp,
}

fn decide(view: View, timeout: Duration) -> Care {
    let View { filling, rebuilding, busy, idle } = view;
    match filling {
        _ if busy => Care::Wait,
        Filling::Copied if rebuilding && idle >= timeout => Care::Verify,
        Filling::Wanted if rebuilding && idle >= timeout.saturating_mul(EMPTY_FACTOR) => {
            Care::GiveUp
        }
        // Who restores to it comes when a backup is there, and says when it is enough.
        Filling::Wanted | Filling::Copied | Filling::No => Care::Wait,
    }
}

impl Engine {
    pub(super) fn tend_replicas(self: &Arc<Self>) {
        // Not an `Arc` kept for ever: the task would keep alive what it looks after.
        let engine = Arc::downgrade(self);
        self.tasks.spawn("tend", async move {
            let mut idle_since = HashMap::new();
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(engine) = engine.upgrade() else { return };
                engine.tend(&mut idle_since).await;
            }
        });
    }

    async fn tend(&self, idle_since: &mut HashMap<String, Instant>) {
        let mut filling = self.live();
        // What this engine fills has an owner.
        let ours = self.filling.borrow().clone();
        filling.retain(|replica| {
            let waits = replica.mode == Mode::Wo && replica.link.file().is_none();
            waits && ours.as_ref() != Some(&replica.address)
        });
        idle_since.retain(|address, _| filling.iter().any(|replica| replica.address == *address));
        for replica in &filling {
            let address = &replica.address;
            let since = *idle_since.entry(address.clone()).or_insert_with(Instant::now);
            // Of another kind, or gone: then its connection is, too.
            let Ok(Some(view)) = self.view(replica, since.elapsed()).await else { continue };
            if view.busy {
                idle_since.insert(address.clone(), Instant::now());
            }
            match decide(view, self.options.rebuild_timeout) {
                Care::Wait => {}
                Care::GiveUp => self.fail(replica, "nobody copies the volume to it").await,
                Care::Verify => {
                    tracing::info!(replica = address, "nobody verifies replica {address}");
                    if let Err(error) = self.verify_filled(replica).await {
                        tracing::warn!(replica = address, "replica {address}: {error}");
                        idle_since.insert(address.clone(), Instant::now());
                    }
                }
            }
        }
    }

    async fn view(&self, replica: &Replica, idle: Duration) -> Result<Option<View>, CallError> {
        let limit = self.hold_limit();
        let seen = replica.link.get(limit).await?;
        let Ok(Some(standing)) = probe::standing(&seen) else { return Ok(None) };
        let copying = replica.link.rebuild_status(limit).await?.is_rebuilding;
        let restoring = replica.link.restore_status(limit).await?.is_restoring;
        let (filling, rebuilding) = (standing.filling, seen.rebuilding);
        Ok(Some(View { filling, rebuilding, busy: copying || restoring, idle }))
    }

    /// What the command would have done after the copying.
    async fn verify_filled(&self, replica: &Replica) -> Result<(), String> {
        replica.link.reload(CALL_LIMIT).await.map_err(|error| error.to_string())?;
        let verified = self.verify_and_unmark(replica).await;
        verified.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_verified_and_what_nobody_fills_is_given_up() {
        let timeout = Duration::from_secs(30);
        let view = View { filling: Filling::Copied, rebuilding: true, busy: false, idle: timeout };
        assert_eq!(decide(view, timeout), Care::Verify);
        assert_eq!(decide(View { busy: true, ..view }, timeout), Care::Wait);
        assert_eq!(decide(View { idle: Duration::ZERO, ..view }, timeout), Care::Wait);
        let empty = View { filling: Filling::Wanted, ..view };
        assert_eq!(decide(empty, timeout), Care::Wait, "the copying may be about to begin");
        let empty = View { idle: timeout * EMPTY_FACTOR, ..empty };
        assert_eq!(decide(empty, timeout), Care::GiveUp);
        let restored = View { rebuilding: false, ..empty };
        assert_eq!(decide(restored, timeout), Care::Wait, "it waits for a backup");
        let restored = View { filling: Filling::Copied, ..restored };
        assert_eq!(decide(restored, timeout), Care::Wait, "whoever restores decides");
    }
}
