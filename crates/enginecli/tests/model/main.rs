//! A whole volume against plain byte vectors, as a state machine: real replicas with their agents,
//! a real engine and the command line, in one process. [`plan`] says which steps may follow one
//! another, [`oracle`] what must be read after them, [`world`] takes the steps and looks.
//!
//! `PROPTEST_CASES` asks for more histories; one that fails is made short and printed.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected should stop there"
)]

use proptest::prelude::ProptestConfig;
use proptest_state_machine::{StateMachineTest, prop_state_machine};

use crate::plan::{Histories, Plan, Step};
use crate::world::World;

mod engines;
mod node;
mod oracle;
mod plan;
mod world;

struct Whole;

impl StateMachineTest for Whole {
    type SystemUnderTest = World;
    type Reference = Histories;

    fn init_test(plan: &Plan) -> World {
        World::new(plan)
    }

    fn apply(mut world: World, plan: &Plan, step: Step) -> World {
        world.take(plan, step);
        world
    }

    fn teardown(world: World, plan: Plan) {
        world.end(&plan);
    }
}

fn config(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig { max_shrink_iters: 150, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return asked;
    }
    ProptestConfig { cases, ..asked }
}

prop_state_machine! {
    #![proptest_config(config(14))]
    #[test]
    fn a_volume_reads_what_the_model_reads(sequential 1..25 => Whole);
}
