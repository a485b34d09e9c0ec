//! Schedules drawn at random, each from one number: who does what and when, and what befalls whom.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::actor::{Actor, ActorBuilder, What, When};
use super::peer::{Peer, data};
use super::world::{Conditions, Kind, Stamps, Tags, World};
use super::{Ours, states};
use crate::world::Volume;

const SEEDS: u64 = 500;
/// A call that was sent is done by then, or never: what the protocol assumes.
const LATE_MAX_SECONDS: u64 = 19;
const MACHINES_MAX: usize = 4;

fn kind(random: &mut StdRng) -> Kind {
    let conditions = [
        Conditions::Kept,
        Conditions::Kept,
        Conditions::ByTheClient,
        Conditions::KeptOfWhatIsThere,
        Conditions::Ignored,
        Conditions::Unsupported,
    ];
    let lag = u64::from(random.random_ratio(1, 3));
    Kind {
        conditions: *conditions.choose(random).unwrap(),
        tags: if random.random() { Tags::OfContents } else { Tags::OfWrites },
        stamps: if random.random_ratio(1, 4) { Stamps::ByTheWriter } else { Stamps::ByTheStore },
        lag: Duration::from_secs(lag),
        page_max: if random.random() { 2 } else { 999 },
    }
}

/// What befalls a machine of ours.
fn fate(random: &mut StdRng) -> What {
    let long = [5, 60, 120, 140, 151, 170, 250, 700];
    let time = Duration::from_secs(*long.choose(random).unwrap());
    match random.random_range(0..9) {
        0 | 1 => What::Stop(time),
        2 => What::Suspend(time),
        3 | 4 => What::StopAfter(time),
        5 => What::Lost,
        6 => What::AnswerLost,
        7 => What::Late(Duration::from_secs(random.random_range(0..LATE_MAX_SECONDS))),
        _ => match random.random_range(0..3) {
            0 => What::Down(time),
            1 => What::Die,
            _ => What::DieLate(Duration::from_secs(random.random_range(0..LATE_MAX_SECONDS))),
        },
    }
}

fn machine(world: &Arc<World>, index: usize, random: &mut StdRng) -> ActorBuilder {
    let host = format!("host-{}", random.random_range(0..2));
    let mut actor = Actor::build(world, &format!("machine-{index}"), random.random()).on(&host);
    if world.kind.stamps == Stamps::ByTheWriter {
        actor = actor.skewed(random.random_range(-400..400));
    }
    for _ in 0..random.random_range(0..3) {
        let when = match random.random_range(0..5) {
            0 => When::Named("delete", "/blocks/", random.random_range(1..5)),
            1 => When::Named("list", "/blocks", random.random_range(1..4)),
            2 => When::Named("put", "/backups/", random.random_range(1..4)),
            _ => When::Call(random.random_range(1..60)),
        };
        actor = actor.befalls(when, fate(random));
    }
    actor
}

/// Who shares the store.
#[derive(Debug, Clone, Copy)]
enum Others {
    Ours,
    /// It publishes whatever becomes of the volume: that is not deleted then.
    Peer,
}

/// What one machine of ours does, one after the other.
async fn ours(actor: Arc<Actor>, of: Volume, mut random: StdRng, others: Others) {
    let mut ours = Ours::new(actor).await;
    for _ in 0..random.random_range(1..4) {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..250_000))).await;
        let backup = format!("backup-{}", random.random_range(1..4));
        let called_off = Duration::from_millis(random.random_range(0..20_000));
        ours.cancelled_after = Some(called_off).filter(|_| random.random_ratio(1, 6));
        match (random.random_range(0..11), others) {
            (0..=3, _) => drop(ours.back_up(&of, random.random_range(0..3), &backup).await),
            (4..=7, _) => drop(ours.delete(&backup).await),
            (8, Others::Ours) => drop(ours.delete_volume().await),
            _ => drop(ours.collect().await),
        }
        if ours.actor.killed.is_cancelled() {
            return;
        }
    }
}

/// A v1 engine writes and cannot refresh, or deletes and is not disturbed: one that is stopped between
/// its look and its deletes is lost, whoever shares the store with it.
async fn peer(world: Arc<World>, of: Volume, mut random: StdRng) {
    let mut actor = Actor::build(&world, "peer", random.random());
    let writes = random.random();
    if writes {
        let from = random.random_range(2..5);
        for nth in from..from + 8 {
            actor = actor.befalls(When::Named("put", "/locks/", nth), What::Lost);
        }
    }
    let peer = Peer::new(&actor.start(), if writes { 1 } else { 2 });
    tokio::time::sleep(Duration::from_millis(random.random_range(0..250_000))).await;
    // One that is deleted by name while it is made is deleted: nobody else does that here.
    let backup = if writes {
        "backup-peer".to_owned()
    } else {
        format!("backup-{}", random.random_range(2..4))
    };
    if writes {
        let pause = Duration::from_secs(random.random_range(0..400));
        let _ = peer.back_up(&data(&of, random.random_range(0..3)), &backup, pause).await;
    } else {
        let _ = peer.delete(&backup).await;
    }
}

/// Says how many records were published and how many blocks removed; or what went wrong.
async fn run(seed: u64) -> Result<(u64, u64), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new(kind(&mut random));
    let of = states();
    Ours::new(Actor::build(&world, "first", 1).start()).await.back_up(&of, 0, "backup-1").await;
    if random.random() {
        // So that blocks are old enough to be removed from any store.
        tokio::time::sleep(Duration::from_hours(2)).await;
    }
    // An engine that knows neither conditions nor late listings, nor clocks that differ.
    let is_mixed = world.kind.stamps == Stamps::ByTheStore && world.kind.lag.is_zero();
    let has_peer = is_mixed && random.random_ratio(1, 3);
    let others = if has_peer { Others::Peer } else { Others::Ours };
    let mut running = tokio::task::JoinSet::new();
    for index in 0..random.random_range(2..=MACHINES_MAX) {
        let actor = machine(&world, index, &mut random).start();
        running.spawn(ours(actor, of.clone(), StdRng::seed_from_u64(random.random()), others));
    }
    if has_peer {
        running.spawn(peer(Arc::clone(&world), of.clone(), StdRng::seed_from_u64(random.random())));
    } else if random.random_ratio(1, 5) {
        let world = Arc::clone(&world);
        let (after, by) = (random.random_range(0..300), random.random_range(-4000..4000));
        running.spawn(async move {
            tokio::time::sleep(Duration::from_secs(after)).await;
            world.jump(SignedDuration::from_secs(by));
        });
    }
    running.join_all().await;
    // What was sent last is done.
    tokio::time::sleep(Duration::from_secs(LATE_MAX_SECONDS)).await;
    world
        .violation()
        .map_or_else(|| Ok(world.counts()), |what| Err(format!("{:?}\n{what}", world.kind)))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn five_hundred_seeds_keep_every_block_of_complete_backups() {
    let only = number("BACKUP_SIM_SEED");
    let more = number("BACKUP_SIM_SEEDS").unwrap_or(SEEDS);
    let (mut published, mut removed, mut failed) = (0, 0, Vec::new());
    for seed in only.map_or(0..more, |seed| seed..seed + 1) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        match runtime.block_on(run(seed)) {
            Ok((records, blocks)) => (published, removed) = (published + records, removed + blocks),
            Err(what) => {
                println!("seed {seed}: {what}");
                failed.push(seed);
            }
        }
    }
    println!("{published} records published, {removed} blocks removed");
    assert_eq!(failed, [0_u64; 0], "run one again with BACKUP_SIM_SEED");
    assert!(only.is_some() || (published > SEEDS && removed > SEEDS / 2), "too little happened");
}
