//! The faults of one history, drawn from its seed; after the last everything is well again.

use std::rc::Rc;
use std::time::Duration;

use testkit::sim::{Rng, World};

use crate::message::Message;
use crate::party::{ENGINES, NAMES, Party, Shared};
use crate::store::Ailment;

pub(crate) fn unleash(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    rng: &mut Rng,
    until: Duration,
) {
    let mut time = Duration::from_millis(300);
    while time < until {
        let lasts = Duration::from_millis(20 + rng.below(700) as u64);
        let end = (time + lasts).min(until);
        strike(world, shared, rng, time, end);
        time += Duration::from_millis(60 + rng.below(900) as u64);
    }
    let shared = Rc::clone(shared);
    world.at(until, "all faults end", move |world| {
        world.network().heal();
        for peer in 0..NAMES.len() {
            shared.stores[peer].borrow_mut().ailment = Ailment::Nothing;
            reset(world, &shared, peer);
        }
        for name in world.names() {
            if name == ENGINES[1] {
                end_process(world, &shared, 1);
            } else {
                world.start(&name);
            }
        }
    });
}

fn strike(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    rng: &mut Rng,
    time: Duration,
    end: Duration,
) {
    let peer = rng.below(NAMES.len());
    let subset: Vec<usize> = (0..NAMES.len()).filter(|_| rng.permille(600)).collect();
    if shared.all_claim() && rng.permille(200) {
        return rival(world, shared, rng, (time, end));
    }
    match rng.below(14) {
        0 | 1 => end_replicas(world, shared, rng, vec![peer], (time, end)),
        2 => end_replicas(world, shared, rng, subset, (time, end)),
        3 | 4 => end_engine(world, shared, time, end),
        5 => {
            end_engine(world, shared, time, end);
            end_replicas(world, shared, rng, subset, (time, end));
        }
        6 => {
            end_engine(world, shared, time, end);
            end_replicas(world, shared, rng, vec![0, 1, 2], (time, end));
        }
        7..10 => part(world, shared, rng, peer, (time, end)),
        10 | 11 => ail(world, shared, vec![peer], Ailment::Slow, (time, end)),
        12 => {
            let kinds = [Ailment::Lying, Ailment::Full, Ailment::Broken];
            let ailment = *rng.choose(&kinds).unwrap();
            ail(world, shared, vec![peer], ailment, (time, end));
        }
        _ => ail(world, shared, vec![0, 1, 2], Ailment::Full, (time, end)),
    }
}

/// Replicas die, of the power or alone.
fn end_replicas(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    rng: &mut Rng,
    peers: Vec<usize>,
    (time, end): (Duration, Duration),
) {
    let power = rng.permille(600);
    let mut rng = rng.split();
    let shared = Rc::clone(shared);
    let what = if power { "power fails" } else { "replicas are killed" };
    let back = peers.clone();
    world.at(time, what, move |world| {
        for peer in peers {
            world.kill(NAMES[peer]);
            let mut store = shared.stores[peer].borrow_mut();
            if power {
                store.lose_power(&mut rng);
                shared.oracle.borrow_mut().lose_power();
            } else {
                store.end_process();
                drop(store);
                reset(world, &shared, peer);
            }
        }
    });
    world.at(end, "replicas come back", move |world| {
        for peer in back {
            world.start(NAMES[peer]);
        }
    });
}

fn end_engine(world: &mut World<Party>, shared: &Rc<Shared>, time: Duration, end: Duration) {
    let shared = Rc::clone(shared);
    world.at(time, "the engine is killed", move |world| end_process(world, &shared, 0));
    world.at(end, "the engine comes back", |world| world.start(ENGINES[0]));
}

fn end_process(world: &mut World<Party>, shared: &Shared, engine: usize) {
    if world.node(ENGINES[engine]).is_some() {
        world.kill(ENGINES[engine]);
        shared.oracle.borrow_mut().engine_gone(engine);
    }
}

/// A second engine is started beside the first, which knows nothing of it, and may be away from
/// some replicas or all of them meanwhile.
fn rival(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    rng: &mut Rng,
    (time, end): (Duration, Duration),
) {
    let away: Vec<usize> = match rng.below(3) {
        0 => vec![0, 1, 2],
        1 => vec![rng.below(NAMES.len())],
        _ => vec![],
    };
    world.at(time, "a rival is started", move |world| {
        world.start(ENGINES[1]);
        for peer in away {
            world.network().cut(ENGINES[0], NAMES[peer]);
        }
    });
    let shared = Rc::clone(shared);
    world.at(end, "the rival is killed", move |world| {
        end_process(world, &shared, 1);
        world.network().heal();
        for peer in 0..NAMES.len() {
            reset(world, &shared, peer);
        }
    });
}

/// Requests, answers or both are lost; then the connection is found to be broken.
fn part(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    rng: &mut Rng,
    peer: usize,
    (time, end): (Duration, Duration),
) {
    let name = NAMES[peer];
    let kind = rng.below(3);
    world.at(time, "the network parts", move |world| match kind {
        0 => world.network().cut_one_way(name, ENGINES[0]),
        1 => world.network().cut_one_way(ENGINES[0], name),
        _ => world.network().cut(ENGINES[0], name),
    });
    let shared = Rc::clone(shared);
    world.at(end, "the network is whole", move |world| {
        world.network().heal();
        // Whoever lost something in any of the partings that end here.
        for peer in 0..NAMES.len() {
            reset(world, &shared, peer);
        }
    });
}

/// The engines learn that their connections to the replica are gone.
fn reset(world: &mut World<Party>, shared: &Shared, peer: usize) {
    for engine in ENGINES {
        let Some(Party::Engine(node)) = world.node(engine) else { continue };
        let session = node.peers[peer].session;
        shared.stores[peer].borrow_mut().session.take_if(|open| *open == session);
        world.send(NAMES[peer], engine, &Message::Reset { session });
    }
}

fn ail(
    world: &mut World<Party>,
    shared: &Rc<Shared>,
    peers: Vec<usize>,
    ailment: Ailment,
    (time, end): (Duration, Duration),
) {
    let (sick, well) = (Rc::clone(shared), Rc::clone(shared));
    let both = peers.clone();
    world.at(time, "replicas ail", move |_| {
        for peer in peers {
            sick.stores[peer].borrow_mut().ailment = ailment;
        }
    });
    world.at(end, "replicas are well", move |_| {
        for peer in both {
            well.stores[peer].borrow_mut().ailment = Ailment::Nothing;
        }
    });
}
