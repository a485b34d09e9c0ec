//! From what to start to a command line.

use std::net::{IpAddr, SocketAddr};

use super::{EngineLaunch, Launch, ReplicaLaunch, Role};

/// Ports on which a replica receives files, behind those of control, data and agent.
const FILE_PORTS: u16 = 5;
const REPLICA_PORTS: u16 = 3 + FILE_PORTS;
/// Control, and frontend `nbd`.
const ENGINE_PORTS: u16 = 2;
/// The replicas were running when the engine was asked for.
const REPLICA_WAIT_SECONDS: u32 = 5;

/// The right to its volume that an engine is given.
pub(super) const CLAIM_VARIABLE: &str = "HOLDFAST_CLAIM_GENERATION";

pub(super) fn claim(role: &Role) -> Option<i64> {
    match role {
        Role::Engine(engine) => engine.claim_generation,
        Role::Replica(_) => None,
    }
}

/// How many ports in a row it needs.
pub(super) fn port_count(role: &Role) -> u16 {
    match role {
        Role::Engine(_) => ENGINE_PORTS,
        Role::Replica(_) => REPLICA_PORTS,
    }
}

/// The arguments behind the name of the program. `is_own`: the program is this one, and the engine a
/// command of it.
pub(super) fn arguments(launch: &Launch, address: IpAddr, first: u16, is_own: bool) -> Vec<String> {
    let mut line = Line::default();
    if is_own {
        line.word(&"engine");
    }
    match &launch.role {
        Role::Engine(engine) => line.engine(launch, engine, address, first),
        Role::Replica(replica) => line.replica(launch, replica, address, first),
    }
    line.0
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn word(&mut self, word: &impl ToString) {
        self.0.push(word.to_string());
    }

    #[allow(clippy::needless_pass_by_value, reason = "calls read like the line they make")]
    fn flag<T: ToString>(&mut self, name: &str, value: T) {
        self.word(&name);
        self.word(&value);
    }

    fn maybe(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.flag(name, value);
        }
    }

    fn switch(&mut self, name: &str, on: bool) {
        if on {
            self.word(&name);
        }
    }

    fn engine(&mut self, launch: &Launch, engine: &EngineLaunch, address: IpAddr, first: u16) {
        self.flag("--engine-instance-name", &launch.key.name);
        self.word(&"controller");
        self.word(&launch.volume);
        self.flag("--size", engine.size_bytes);
        self.flag("--current-size", engine.current_size_bytes);
        self.flag("--listen", SocketAddr::new(address, first));
        if engine.frontend {
            self.flag("--frontend", "nbd");
        }
        // Also without the frontend: it may be asked for later. One that takes over from another takes its
        // listening socket as well, wherever that is: clients find the volume where it was.
        let port = if engine.upgrade { 0 } else { first.saturating_add(1) };
        self.flag("--nbd-listen", SocketAddr::new(address, port));
        self.flag("--replica-wait", REPLICA_WAIT_SECONDS);
        self.switch("--upgrade", engine.upgrade);
        self.switch("--salvageRequested", engine.salvage);
        self.switch("--disableRevCounter", true);
        self.switch("--unmap-mark-snap-chain-removed", engine.unmap_mark_snap_chain_removed);
        self.maybe("--engine-replica-timeout", engine.replica_timeout.map(|it| it.as_secs()));
        let file_sync = engine.file_sync_timeout.map(|it| it.as_secs());
        self.maybe("--file-sync-http-client-timeout", file_sync);
        self.maybe("--snapshot-max-count", engine.snapshot_max_count);
        self.maybe("--snapshot-max-size", engine.snapshot_max_size_bytes);
        self.maybe("--rebuild-sync-concurrent-limit", engine.rebuild_concurrent_sync_limit);
        for replica in &engine.replicas {
            self.flag("--replica", format!("tcp://{replica}"));
        }
    }

    fn replica(&mut self, launch: &Launch, replica: &ReplicaLaunch, address: IpAddr, first: u16) {
        self.flag("--volume-name", &launch.volume);
        self.word(&"replica");
        self.word(&replica.dir.display());
        self.flag("--size", replica.size_bytes);
        self.flag("--listen", SocketAddr::new(address, first));
        self.flag("--replica-instance-name", &launch.key.name);
        self.flag("--sync-agent-port-count", FILE_PORTS);
        self.switch("--disableRevCounter", true);
        self.switch("--unmap-mark-disk-chain-removed", replica.unmap_mark_disk_chain_removed);
        self.maybe("--snapshot-max-count", replica.snapshot_max_count);
        self.maybe("--snapshot-max-size", replica.snapshot_max_size_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::Key;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn launch(key: Key, role: Role) -> Launch {
        Launch { key, volume: "vol".into(), image: "i".into(), program: None, role }
    }

    #[test]
    fn an_engine_is_told_its_replicas_and_where_to_listen() {
        let role = Role::Engine(EngineLaunch {
            size_bytes: 4096,
            current_size_bytes: 4096,
            frontend: true,
            replicas: vec!["127.0.0.1:10".into(), "127.0.0.2:20".into()],
            snapshot_max_count: Some(250),
            ..EngineLaunch::default()
        });
        let line = arguments(&launch(Key::engine("vol-e-0"), role), HERE, 7000, true).join(" ");
        assert_eq!(
            line,
            "engine --engine-instance-name vol-e-0 controller vol --size 4096 --current-size 4096 \
             --listen 127.0.0.1:7000 --frontend nbd --nbd-listen 127.0.0.1:7001 --replica-wait 5 \
             --disableRevCounter --snapshot-max-count 250 --replica tcp://127.0.0.1:10 --replica \
             tcp://127.0.0.2:20"
        );
    }

    #[test]
    fn an_engine_that_takes_over_is_told_no_port_for_clients() {
        let role = Role::Engine(EngineLaunch { upgrade: true, ..EngineLaunch::default() });
        let line = arguments(&launch(Key::engine("vol-e-0"), role), HERE, 7000, true).join(" ");
        assert!(line.contains("--listen 127.0.0.1:7000 --nbd-listen 127.0.0.1:0 "), "{line}");
    }

    #[test]
    fn a_replica_of_another_program_has_no_command_before_its_own() {
        let role = Role::Replica(ReplicaLaunch {
            dir: "/d/replicas/vol-1".into(),
            size_bytes: 4096,
            ..ReplicaLaunch::default()
        });
        let line = arguments(&launch(Key::replica("vol-r-1"), role), HERE, 7000, false).join(" ");
        assert_eq!(
            line,
            "--volume-name vol replica /d/replicas/vol-1 --size 4096 --listen 127.0.0.1:7000 \
             --replica-instance-name vol-r-1 --sync-agent-port-count 5 --disableRevCounter"
        );
    }
}
