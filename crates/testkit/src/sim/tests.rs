use std::path::Path;
use std::time::Duration;

use durable::{Mode, on};
use proptest::prelude::*;

use super::*;

/// Counts what it gets, on disk, and answers each message once.
struct Counter {
    count: u64,
    ticks: u64,
}

const FILE: &str = "/count";

impl Counter {
    fn save(&self, context: &Context<'_, Self>) -> bool {
        let bytes = self.count.to_le_bytes();
        on::replace(context.disk(), Path::new(FILE), &bytes, Mode::PUBLIC).is_ok()
    }
}

impl Node for Counter {
    type Config = ();
    type Message = u64;
    type Timer = &'static str;

    fn start((): &(), context: &mut Context<'_, Self>) -> Self {
        let read = on::read_limited(context.disk(), Path::new(FILE), 8).ok();
        let count = read.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        context.set_timer(Duration::from_millis(10), "tick");
        Self { count, ticks: 0 }
    }

    fn on_message(&mut self, from: &str, hops: u64, context: &mut Context<'_, Self>) {
        self.count += 1;
        if self.save(context) && hops > 0 {
            context.send(from, hops - 1);
        }
    }

    fn on_timer(&mut self, timer: &'static str, context: &mut Context<'_, Self>) {
        self.ticks += 1;
        context.set_timer(Duration::from_millis(10), timer);
    }
}

fn pair(seed: u64, link: Link) -> World<Counter> {
    let mut world = World::new(seed, link);
    world.add("a", ());
    world.add("b", ());
    world
}

fn count(world: &World<Counter>, name: &str) -> u64 {
    world.node(name).unwrap().count
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn on_a_good_link_every_message_arrives_once() {
    let mut world = pair(1, Link::good());
    world.send("a", "b", &9);
    world.run(SECOND).unwrap();
    assert_eq!((count(&world, "a"), count(&world, "b")), (5, 5));
    assert_eq!(world.clock().now(), SECOND);
    assert_eq!(world.node("a").unwrap().ticks, 100);
}

#[test]
fn links_lose_repeat_and_reorder() {
    let lost = Link { loss_permille: 1000, ..Link::good() };
    let twice = Link { duplicate_permille: 1000, ..Link::good() };
    for (link, expected) in [(lost, 0), (twice, 2)] {
        let mut world = pair(1, link);
        world.send("a", "b", &0);
        world.run(SECOND).unwrap();
        assert_eq!(count(&world, "b"), expected);
    }
    let mut world = pair(1, Link { loss_permille: 0, ..Link::bad() });
    for number in 0..20 {
        world.send("a", "b", &number);
    }
    world.run(SECOND / 4).unwrap();
    let arrived: Vec<_> = world.trace().filter(|line| line.contains("a -> b")).collect();
    assert!(
        !arrived.is_sorted_by_key(|line| line
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse::<u64>().ok())),
        "{arrived:?}"
    );
}

#[test]
fn a_cut_is_one_way_until_it_heals() {
    let mut world = pair(1, Link::good());
    world.network().cut_one_way("a", "b");
    world.send("a", "b", &0);
    world.send("b", "a", &0);
    world.run(SECOND).unwrap();
    assert_eq!((count(&world, "a"), count(&world, "b")), (1, 0));
    world.network().heal();
    world.send("a", "b", &0);
    world.run(2 * SECOND).unwrap();
    assert_eq!(count(&world, "b"), 1);
}

#[test]
fn a_crash_loses_memory_and_timers_and_keeps_the_disk() {
    let mut world = pair(1, Link::good());
    world.send("a", "b", &0);
    world.at(SECOND, "crash b", |world| world.crash("b"));
    world.at(2 * SECOND, "a message to the dead", |world| world.send("a", "b", &0));
    world.at(3 * SECOND, "start b", |world| world.start("b"));
    world.run(2 * SECOND).unwrap();
    assert!(world.node("b").is_none());
    world.run(4 * SECOND).unwrap();
    assert_eq!(count(&world, "b"), 1);
    assert_eq!(world.node("b").unwrap().ticks, 100, "one timer, not two");
}

#[test]
fn a_node_that_dies_in_a_disk_call_sends_nothing() {
    for nth in 1..10 {
        let mut world = pair(nth, Link::good());
        world.crash_at_disk_call("b", nth);
        world.send("a", "b", &1);
        world.run(SECOND).unwrap();
        let survived = world.node("b").is_some();
        assert_eq!(count(&world, "a"), u64::from(survived), "call {nth}");
        world.start("b");
        assert!(count(&world, "b") <= 1);
    }
}

#[test]
fn a_violation_tells_the_seed_the_time_and_the_history() {
    let mut world = pair(42, Link::good());
    world.always(|world| match world.node("b") {
        Some(node) if node.count > 1 => Err("two is too many".to_owned()),
        _ => Ok(()),
    });
    world.send("a", "b", &0);
    world.send("a", "b", &0);
    let violation = world.run(SECOND).unwrap_err();
    assert_eq!((violation.seed, violation.at), (42, Duration::from_millis(1)));
    let text = violation.to_string();
    assert!(text.starts_with("seed 42, after 1ms: two is too many\n"), "{text}");
    assert!(text.contains("1ms a -> b: 0"), "{text}");
}

#[test]
fn chaos_strikes_and_ends_in_a_healed_world() {
    for_seeds(30, |seed| {
        let mut world = pair(seed, Link::bad());
        world.unleash(&Chaos {
            until: 10 * SECOND,
            every: Duration::from_millis(50)..=Duration::from_millis(500),
            lasts: Duration::from_millis(10)..=SECOND,
        });
        world.run(10 * SECOND).unwrap();
        assert_eq!(world.nodes().count(), 2);
        assert!(!world.network().is_cut("a", "b"));
        assert!(world.node("a").unwrap().ticks < 900, "it was struck");
    });
}

proptest! {
    /// The same seed is the same history, to the last event.
    #[test]
    fn a_seed_is_a_history(seed in any::<u64>()) {
        let history = || {
            let mut world = pair(seed, Link::bad());
            world.unleash(&Chaos {
                until: SECOND,
                every: Duration::from_millis(20)..=Duration::from_millis(90),
                lasts: Duration::from_millis(5)..=Duration::from_millis(50),
            });
            world.send("a", "b", &30);
            world.run(2 * SECOND).unwrap();
            let trace: Vec<String> = world.trace().map(str::to_owned).collect();
            (world.handled(), trace)
        };
        prop_assert_eq!(history(), history());
    }
}
