//! Guards beside the members of a real cluster of three.

use std::time::Duration;

use etcdguard::control::membership::{Tries, add_as_learner, is_member, remove};
use etcdguard::control::metrics::Unmetered;
use etcdguard::etcd::{ConnectionConfig, Etcd, Member as Listed};
use testkit::etcd::{Member, Seat, data_dir, program};
use testkit::process::Scratch;

use crate::guard::{Running, Settings, assert_whole};
use crate::member::{Alone, TIMEOUT};

const LOOK_AGAIN: Duration = Duration::from_millis(50);

struct Cluster {
    members: Vec<Option<Member>>,
    seats: Vec<Seat>,
    scratch: Scratch,
}

impl Cluster {
    fn start() -> Option<Self> {
        if let Err(why) = program("etcd") {
            eprintln!("skipped: {why}");
            return None;
        }
        let scratch = Scratch::new().unwrap();
        let seats: Vec<Seat> = ["a", "b", "c"].map(|name| Seat::new(name).unwrap()).into();
        let mut cluster = Self { members: vec![None, None, None], seats, scratch };
        (0..3).for_each(|index| cluster.run(index, "new"));
        for member in cluster.members.iter_mut().flatten() {
            member.wait_until_ready().unwrap();
        }
        Some(cluster)
    }

    fn run(&mut self, index: usize, state: &str) {
        let all: Vec<String> = self.seats.iter().map(Seat::listed).collect();
        let member =
            Member::start(&self.seats[index], self.scratch.path(), &all.join(","), state, &[]);
        self.members[index] = Some(member.unwrap());
    }

    fn kill(&mut self, index: usize) {
        self.members[index].take().unwrap().process.kill().unwrap();
    }

    fn connection(&self, index: usize) -> ConnectionConfig {
        ConnectionConfig {
            endpoints: vec![self.seats[index].client.clone()],
            service_endpoints: self.seats.iter().map(|seat| seat.client.clone()).collect(),
            connection_timeout: Duration::from_secs(10),
            ..ConnectionConfig::default()
        }
    }

    fn settings(&self, index: usize) -> Settings {
        Settings::new(self.connection(index), self.scratch.path())
    }

    fn guards(&self) -> Vec<Running> {
        (0..3).map(|index| Running::start(&self.settings(index))).collect()
    }

    /// Any of the members.
    fn etcd(&self) -> Etcd {
        Etcd::of_cluster(&self.connection(0)).unwrap()
    }

    async fn listed(&self, name: &str) -> Option<Listed> {
        let members = self.etcd().members(TIMEOUT).await.ok()?;
        members.into_iter().find(|member| member.name == name)
    }
}

/// Looks until there is something to see.
async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(TIMEOUT, looking).await.unwrap_or_else(|_| panic!("no {what}"))
}

/// The one guard that serves, other than `not`.
async fn serving(guards: &[Running], not: Option<usize>) -> usize {
    wait_for("guard that serves", || async {
        let serving: Vec<usize> = (0..guards.len()).filter(|at| guards[*at].is_serving()).collect();
        match serving.as_slice() {
            [one] if Some(*one) != not => Some(*one),
            _ => None,
        }
    })
    .await
}

async fn write(etcd: &Etcd, count: u32) -> i64 {
    let mut last = 0;
    for round in 0..count {
        let key = format!("k/{}", round % 5);
        last = wait_for("member that takes a write", || async {
            etcd.put(key.clone(), vec![b'v'; 1000]).await.ok()
        })
        .await;
    }
    last
}

/// A delta by whoever serves, once it is active.
async fn delta(guards: &[Running], at: usize) {
    let ask = guards[at].snapshotter();
    wait_for("delta", || async { ask.delta().await.ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_follow_the_leader_without_a_gap() {
    let Some(mut cluster) = Cluster::start() else { return };
    let guards = cluster.guards();
    let etcd = cluster.etcd();
    let first = serving(&guards, None).await;
    write(&etcd, 10).await;
    delta(&guards, first).await;

    // Handed on in the middle of what would be the next delta.
    write(&etcd, 5).await;
    let next = (first + 1) % 3;
    let target = cluster.listed(&cluster.seats[next].name).await.unwrap().id;
    let leading = Etcd::connect(&cluster.connection(first)).unwrap();
    leading.move_leader(target).await.unwrap();
    assert_eq!(serving(&guards, Some(first)).await, next);
    let last = write(&etcd, 5).await;
    delta(&guards, next).await;
    assert_whole(&guards[next], last).await;

    // Lost in the middle of the next.
    write(&etcd, 5).await;
    cluster.kill(next);
    let third = serving(&guards, Some(next)).await;
    let last = write(&etcd, 5).await;
    delta(&guards, third).await;
    assert_whole(&guards[third], last).await;
    for guard in guards {
        guard.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_replaced_and_votes_again() {
    let Some(mut cluster) = Cluster::start() else { return };
    let etcd = cluster.etcd();
    write(&etcd, 20).await;
    cluster.kill(2);
    std::fs::remove_dir_all(data_dir(cluster.scratch.path(), "c")).unwrap();
    assert!(is_member(&etcd, "c").await.unwrap());
    let before = cluster.listed("c").await.unwrap().id;
    remove(&etcd, "c", &Unmetered).await.unwrap();
    assert!(!is_member(&etcd, "c").await.unwrap());
    remove(&etcd, "c", &Unmetered).await.unwrap();
    let peer = [cluster.seats[2].peer.clone()];
    add_as_learner(&etcd, &peer, Tries::JOIN, &Unmetered).await.unwrap();
    add_as_learner(&etcd, &peer, Tries::JOIN, &Unmetered).await.unwrap();
    cluster.run(2, "existing");
    let guard = Running::start(&cluster.settings(2));
    let voting = wait_for("promotion", || async {
        cluster.listed("c").await.filter(|member| !member.is_learner)
    })
    .await;
    assert_ne!(voting.id, before);
    guard.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_serves_without_a_quorum() {
    let Some(mut cluster) = Cluster::start() else { return };
    let guards = cluster.guards();
    let first = serving(&guards, None).await;
    write(&cluster.etcd(), 3).await;
    for index in (0..3).filter(|index| *index != first) {
        cluster.kill(index);
    }
    wait_for("end of serving", || async {
        (!guards.iter().any(Running::is_serving)).then_some(())
    })
    .await;
    assert!(guards[first].snapshotter().full(false).await.is_err());
    for index in (0..3).filter(|index| *index != first) {
        cluster.run(index, "existing");
    }
    let again = serving(&guards, None).await;
    let last = write(&cluster.etcd(), 3).await;
    delta(&guards, again).await;
    assert_whole(&guards[again], last).await;
    for guard in guards {
        guard.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_is_defragmented() {
    let Some(cluster) = Cluster::start() else { return };
    let etcd = cluster.etcd();
    let mut last = 0;
    for round in 0..100 {
        last = etcd.put(format!("big/{}", round % 3), vec![b'x'; 100_000]).await.unwrap();
    }
    etcd.compact(last, TIMEOUT).await.unwrap();
    let sizes = async || {
        let mut sizes = Vec::new();
        for index in 0..3 {
            let member = Etcd::connect(&cluster.connection(index)).unwrap();
            sizes.push(member.status(TIMEOUT).await.ok()?.db_size);
        }
        Some(sizes)
    };
    let before = sizes().await.unwrap();
    let guards: Vec<Running> = (0..3)
        .map(|index| {
            let plan = Some("@every 2s");
            Running::start(&Settings { defragmentation: plan, ..cluster.settings(index) })
        })
        .collect();
    wait_for("members that shrank", || async {
        let now = sizes().await?;
        now.iter().zip(&before).all(|(now, before)| *now < before / 3).then_some(())
    })
    .await;
    for guard in guards {
        guard.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_urls_are_those_of_the_configuration_before_anybody_is_served() {
    let Some(alone) = Alone::start() else { return };
    let peer_urls = Some(vec!["http://127.0.0.1:45123".to_owned()]);
    let settings = Settings::new(alone.config(), alone.scratch.path());
    let mut guard = Running::start(&Settings { peer_urls: peer_urls.clone(), ..settings });
    guard.active().await;
    let [member] = alone.connect().members(TIMEOUT).await.unwrap().try_into().unwrap();
    assert_eq!(Some(member.peer_ur_ls), peer_urls);
    guard.stop().await;
}
