//! The drawings of volumes that come from a backup or from another volume, compared with what walks see.

use super::*;

type Edges = BTreeSet<(String, String)>;

/// Where a volume that comes from a backup is, as the document names it.
fn phase(world: &World) -> &'static str {
    let status = world.volume.status.clone().unwrap_or_default();
    let is_faulted = status.robustness == Some(Robustness::Faulted);
    match (status.restore_initiated, status.restore_required, status.is_standby) {
        (Some(true), Some(true), _) if is_faulted => "faulted",
        (Some(true), Some(true), Some(true)) if world.volume.spec.standby == Some(true) => {
            "following"
        }
        (Some(true), Some(true), Some(true)) => "activating",
        (Some(true), Some(true), _) => "restoring",
        (Some(true), _, _) => "restored",
        _ => "pending",
    }
}

/// Where a volume that is a copy is.
fn copying(world: &World) -> &'static str {
    let status = world.volume.status.clone().unwrap_or_default();
    match status.clone_status.and_then(|it| it.state).unwrap_or(CloneState::Unset) {
        CloneState::Initiated => "initiated",
        CloneState::CopyCompletedAwaitingHealthy => "awaiting",
        CloneState::Completed => "completed",
        CloneState::Failed => "failed",
        CloneState::Unset | CloneState::Other(_) => "unset",
    }
}

#[derive(Debug, Clone, Copy)]
enum Happens {
    Calm,
    KillFirst,
    KillAll,
    KillEngine,
    /// No copy can be filled from now on.
    Break,
    /// A standby volume is to be activated.
    Activate,
    /// A pause is over.
    Wait,
}

const ALL: [Happens; 7] = [
    Happens::Calm,
    Happens::KillFirst,
    Happens::KillAll,
    Happens::KillEngine,
    Happens::Break,
    Happens::Activate,
    Happens::Wait,
];

fn happen(world: &mut World, what: Happens) {
    let runs = |it: &Replica| address_of(it).is_some();
    match what {
        Happens::Calm => {}
        Happens::KillFirst => {
            if let Some(index) = world.replicas.iter().position(runs) {
                world.kill(index);
            }
        }
        Happens::KillAll => {
            for index in 0..world.replicas.len() {
                if runs(&world.replicas[index]) {
                    world.kill(index);
                }
            }
        }
        Happens::KillEngine => {
            let status = world.engine.as_mut().and_then(|it| it.status.as_mut());
            if let Some(status) = status {
                status.instance.current_state = Some(InstanceState::Error);
            }
        }
        Happens::Break => {
            world.broken = (0..99).map(|serial| format!("v-r-{serial:08x}")).collect();
            world.copying_fails = true;
        }
        Happens::Activate => world.volume.spec.standby = Some(false),
        Happens::Wait => world.now += SignedDuration::from_mins(6),
    }
}

/// What is seen in every order of three, from every place that a volume comes by on its way.
fn seen(begin: impl Fn() -> World, of: impl Fn(&World) -> &'static str, edges: &mut Edges) {
    for first in 0..10 {
        for second in ALL {
            for third in ALL {
                let mut world = begin();
                let mut at = of(&world);
                let mut run = |world: &mut World, passes: usize| {
                    for _ in 0..passes {
                        world.run(1);
                        let now = of(world);
                        if now != at {
                            edges.insert((at.to_owned(), now.to_owned()));
                            at = now;
                        }
                    }
                };
                run(&mut world, first);
                happen(&mut world, second);
                run(&mut world, 4);
                happen(&mut world, third);
                run(&mut world, 24);
                happen(&mut world, Happens::Wait);
                run(&mut world, 8);
            }
        }
    }
}

fn drawn(heading: &str) -> Edges {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machines.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, part) = page.split_once(heading).unwrap();
    let drawing = part.split_once("\n## ").map_or(part, |(drawing, _)| drawing);
    let lines = drawing.lines().filter_map(|line| line.trim().split_once(" --> "));
    let name = |to: &str| to.split(':').next().unwrap_or(to).trim().to_owned();
    lines.map(|(from, to)| (from.to_owned(), name(to))).collect()
}

#[test]
fn the_drawing_of_restores_has_every_edge_and_no_other() {
    let mut edges = Edges::new();
    for standby in [false, true] {
        seen(|| World::from_backup(standby), phase, &mut edges);
    }
    assert_eq!(drawn("## A volume that comes from a backup"), edges);
}

#[test]
fn the_drawing_of_copies_has_every_edge_and_no_other() {
    let mut edges = Edges::new();
    seen(cloned, copying, &mut edges);
    let never = || {
        let mut world = cloned();
        world.original = Original::Impossible("names nothing".into());
        world
    };
    seen(never, copying, &mut edges);
    assert_eq!(drawn("## A volume that is a copy of another"), edges);
}
