//! What is done to a volume in one round, chosen at random and replayable.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

/// What else goes on while the volume is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    Snapshot,
    Purge,
    /// This replica is away for a while and then rebuilt.
    Rebuild(usize),
}

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Engine,
    EngineAndReplicas,
    Replicas,
    /// Every replica, the engine stays.
    AllReplicas,
    /// As when the power goes.
    Everything,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) meanwhile: Meanwhile,
    pub(crate) victims: Vec<usize>,
    /// Writing before the kill, and after it if the engine lives.
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    /// The directory of the first victim is lost too.
    pub(crate) wipe: bool,
    pub(crate) seed: u64,
}

impl Plan {
    /// `counters`: the replicas can tell which of them is newest. Without, only somebody who saw
    /// them fail can, so all of them failing one after the other is out of scope.
    pub(crate) fn choose(random: &mut StdRng, replicas: usize, counters: bool) -> Self {
        let kind = match random.random_range(0..100) {
            0..25 => Kind::Engine,
            25..45 => Kind::EngineAndReplicas,
            45..75 => Kind::Replicas,
            75..85 if counters => Kind::AllReplicas,
            _ => Kind::Everything,
        };
        let meanwhile = match random.random_range(0..100) {
            0..40 => Meanwhile::Nothing,
            40..65 => Meanwhile::Snapshot,
            65..80 => Meanwhile::Purge,
            _ => Meanwhile::Rebuild(random.random_range(0..replicas)),
        };
        let mut order: Vec<usize> = (0..replicas).collect();
        for index in (1..replicas).rev() {
            order.swap(index, random.random_range(0..=index));
        }
        // One that is being rebuilt is no copy to fall back on, so another must live.
        let most = match meanwhile {
            Meanwhile::Rebuild(away) => {
                order.retain(|index| *index != away);
                order.insert(0, away);
                replicas - 1
            }
            Meanwhile::Nothing | Meanwhile::Snapshot | Meanwhile::Purge => replicas - 1,
        };
        let count = match kind {
            Kind::Engine => 0,
            Kind::EngineAndReplicas | Kind::Replicas => random.random_range(1..=most),
            Kind::AllReplicas | Kind::Everything => replicas,
        };
        order.truncate(count);
        Self {
            kind,
            meanwhile,
            wipe: kind == Kind::Replicas && random.random_ratio(1, 4),
            victims: order,
            before: Duration::from_millis(random.random_range(20..250)),
            after: Duration::from_millis(random.random_range(20..150)),
            seed: random.random(),
        }
    }

    pub(crate) fn kills_engine(&self) -> bool {
        match self.kind {
            Kind::Engine | Kind::EngineAndReplicas | Kind::Everything => true,
            Kind::Replicas | Kind::AllReplicas => false,
        }
    }
}
