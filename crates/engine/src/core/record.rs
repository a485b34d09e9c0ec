//! Records: which replicas hold all that was acknowledged, told to each of them.
//!
//! A record goes out where a mark does (see `barrier`): after a replica failed nothing completes
//! before those that remain have it on disk. So whoever finds records later knows by the newest of
//! them which copies are complete. `docs/decisions/0028-generations-and-membership.md`.

use bytes::Bytes;
use wire::membership::Record;

use super::barrier::Cause;
use super::op::Step;
use super::slab::Slot;
use super::{Core, Done, Effect, Now, ReplicaId};

/// How the engine numbers its records; with generation 0 it keeps none.
#[derive(Debug, Default)]
pub(super) struct Records {
    generation: u64,
    serial: u64,
}

impl Core {
    /// From now on replicas are told who holds the volume, in records above `serial`.
    pub fn keep_records(&mut self, generation: u64, serial: u64) {
        self.records = Records { generation, serial };
    }

    /// What a replica is called in records: its id, or its address if it has none.
    pub fn set_name(&mut self, id: ReplicaId, name: String) {
        self.members.set_name(id, name);
    }

    /// Another engine has the volume: this one is done with it, for good.
    pub fn cut_off(&mut self, now: Now, generation: u64, out: &mut Vec<Effect>) {
        let reason = format!("cut off: an engine with generation {generation} has this volume now");
        for place in self.members.cut_off() {
            self.fail(place, &reason, out);
        }
        self.run(now, out);
    }

    pub(super) fn next_record(&mut self) -> Option<Bytes> {
        let Records { generation, serial } = &mut self.records;
        if *generation == 0 {
            return None;
        }
        *serial = serial.saturating_add(1);
        let (members, reader) = self.members.names();
        let record = Record { serial: *serial, generation: *generation, members, reader };
        Some(record.to_text().into())
    }

    /// Completes when a mark that is sent from now on is over.
    pub(super) fn enter_record(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        let live = self.members.live();
        let epoch = self.barrier.join();
        let Some(op) = self.ops.get_mut(slot) else { return };
        (op.epoch, op.targets, op.step) = (epoch, live, Step::Parked);
        op.result = Some(Ok(Done::Count(0)));
        self.barrier.close(Cause::Record);
        if self.barrier.leave(epoch, slot) {
            self.finish_change(slot, out);
        }
    }
}
