//! Real processes under a real host: started, lost, found again, ended. This program is both: started
//! by a host, it plays the engine or replica that its command line asks for.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "all of it is a test, which no harness says here"
)]

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tasks::Tasks;
use tokio::runtime::Runtime;
use volumes::instances::{
    EngineLaunch, Instance, Instances, Key, Launch, Options, Processes, ReplicaLaunch, Role, State,
};

/// Nothing waits for it in vain unless something is broken.
const TIMEOUT: Duration = Duration::from_mins(1);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn main() {
    if std::env::var_os("HOLDFAST_INSTANCE_RUN").is_some() {
        play(&std::env::args().collect::<Vec<_>>());
        return;
    }
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let tests: &[(&str, fn())] = &[
        ("it_starts_says_where_it_listens_and_stops", it_starts_says_where_it_listens_and_stops),
        ("it_outlives_its_manager_and_is_found_again", it_outlives_its_manager_and_is_found_again),
        ("an_end_is_told_at_once", an_end_is_told_at_once),
        ("one_that_ends_at_its_start_says_why", one_that_ends_at_its_start_says_why),
        (
            "one_that_does_not_listen_to_reason_is_killed",
            one_that_does_not_listen_to_reason_is_killed,
        ),
        (
            "another_process_of_the_same_number_is_left_alone",
            another_process_of_the_same_number_is_left_alone,
        ),
        (
            "one_whose_number_was_never_written_is_found",
            one_whose_number_was_never_written_is_found,
        ),
        ("one_that_no_record_knows_is_ended", one_that_no_record_knows_is_ended),
        (
            "while_a_record_cannot_be_read_nothing_is_ended",
            while_a_record_cannot_be_read_nothing_is_ended,
        ),
        (
            "what_ended_while_nobody_watched_is_lost_and_what_failed_stays_so",
            what_ended_while_nobody_watched_is_lost_and_what_failed_stays_so,
        ),
        ("engines_end_before_replicas", engines_end_before_replicas),
        ("ports_of_others_are_passed_over", ports_of_others_are_passed_over),
    ];
    if std::env::args().any(|word| word == "--list") {
        for (name, _) in tests {
            println!("{name}: test");
        }
        return;
    }
    for (name, test) in tests {
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}

/// What the host starts: listens where it was told, and behaves as the name of its volume says.
fn play(arguments: &[String]) {
    let after = |flag: &str| {
        let at = arguments.iter().position(|word| word == flag).unwrap();
        arguments[at + 1].clone()
    };
    let is_engine = arguments.iter().any(|word| word == "controller");
    let behaviour = if is_engine { after("controller") } else { after("--volume-name") };
    if behaviour == "fails" {
        eprintln!("no available backend");
        std::process::exit(61);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listen: SocketAddr = after("--listen").parse().unwrap();
        let _listener = tokio::net::TcpListener::bind(listen).await.unwrap();
        let kind = tokio::signal::unix::SignalKind::terminate();
        let mut terminate = tokio::signal::unix::signal(kind).unwrap();
        // A test that broke down leaves nothing behind for long.
        let forgotten = tokio::time::Instant::now() + TIMEOUT * 2;
        loop {
            if tokio::time::timeout_at(forgotten, terminate.recv()).await.is_err() {
                return;
            }
            match behaviour.as_str() {
                "stubborn" => {}
                "slow" => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    return;
                }
                _ => return,
            }
        }
    });
}

/// A manager, with the files it leaves. Dropping it is as kill -9: nothing is cleaned up.
struct Manager {
    runtime: Option<Runtime>,
    host: Processes,
}

impl Manager {
    fn open(root: &Path) -> Self {
        Self::open_with(root, options(root))
    }

    fn open_with(_root: &Path, options: Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let host = runtime.block_on(Processes::open(options, &Tasks::new())).unwrap();
        Self { runtime: Some(runtime), host }
    }

    fn start(&self, key: Key, volume: &str) {
        let role = match key.kind {
            volumes::instances::Kind::Engine => Role::Engine(EngineLaunch {
                size_bytes: 4096,
                current_size_bytes: 4096,
                ..EngineLaunch::default()
            }),
            volumes::instances::Kind::Replica => Role::Replica(ReplicaLaunch {
                dir: "/nonexistent/v-1".into(),
                size_bytes: 4096,
                ..ReplicaLaunch::default()
            }),
        };
        let launch =
            Launch { key, volume: volume.to_owned(), image: "i".into(), program: None, role };
        let _guard = self.runtime.as_ref().unwrap().enter();
        self.host.start(launch).unwrap();
    }

    fn until(&self, key: &Key, state: State) -> Instance {
        let began = Instant::now();
        loop {
            let found = self.host.get(key);
            if let Some(found) = found.clone().filter(|it| it.state == state) {
                return found;
            }
            assert!(began.elapsed() < TIMEOUT, "{key} is {found:?}, not {state:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn shutdown(&self) {
        self.runtime.as_ref().unwrap().block_on(self.host.shutdown());
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn options(root: &Path) -> Options {
    Options {
        root: root.join("instances"),
        address: HERE,
        ports: Options::PORTS,
        program: std::env::current_exe().unwrap(),
        engine_arguments: Vec::new(),
        environment: Vec::new(),
        max: 16,
        timeout: Duration::from_secs(1),
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn record(root: &Path, key: &Key) -> PathBuf {
    root.join("instances").join(format!("{}-{}", key.kind.as_str(), key.name)).join("record.json")
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn until_gone(pid: u32) {
    let began = Instant::now();
    while lives(pid) {
        assert!(began.elapsed() < TIMEOUT, "{pid} still lives");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Changes one field of a record, as a crash at a bad moment would have left it.
fn edit(root: &Path, key: &Key, change: impl FnOnce(&mut serde_json::Value)) {
    let path = record(root, key);
    let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(value.to_string().as_bytes()).unwrap();
}

fn it_starts_says_where_it_listens_and_stops() {
    let dir = scratch();
    let manager = Manager::open(dir.path());
    let (engine, replica) = (Key::engine("v-e-0"), Key::replica("v-r-1"));
    manager.start(engine.clone(), "v");
    manager.start(replica.clone(), "v");
    let one = manager.until(&engine, State::Running);
    let two = manager.until(&replica, State::Running);
    assert!(one.ports.1 < two.ports.0 || two.ports.1 < one.ports.0);
    assert!(TcpListener::bind((HERE, one.ports.0)).is_err());
    assert!(record(dir.path(), &engine).exists());
    manager.host.stop(&engine);
    manager.until(&engine, State::Stopped);
    until_gone(one.pid.unwrap());
    assert!(!record(dir.path(), &engine).exists());
    manager.host.discard(&engine);
    assert!(!record(dir.path(), &engine).parent().unwrap().exists());
    assert_eq!(manager.host.get(&engine), None);
    manager.shutdown();
    until_gone(two.pid.unwrap());
}

fn it_outlives_its_manager_and_is_found_again() {
    let dir = scratch();
    let key = Key::engine("v-e-0");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    assert!(lives(begun.pid.unwrap()));
    let second = Manager::open(dir.path());
    // At once: one that runs is never shown as starting.
    let found = second.host.get(&key).unwrap();
    assert_eq!((found.state, found.pid, &found.run), (State::Running, begun.pid, &begun.run));
    // And it is not started twice.
    let role = Role::Engine(EngineLaunch::default());
    let again =
        Launch { key: key.clone(), volume: "v".into(), image: String::new(), program: None, role };
    assert!(second.host.start(again).is_err());
    second.host.stop(&key);
    second.until(&key, State::Stopped);
    until_gone(begun.pid.unwrap());
}

fn an_end_is_told_at_once() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    signal(begun.pid.unwrap(), Signal::KILL);
    let ended = first.until(&key, State::Failed);
    assert_eq!(ended.error.as_deref(), Some("killed by signal 9"));
    // Also of one that was found.
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    let second = Manager::open(dir.path());
    assert_eq!(second.host.get(&key).unwrap().state, State::Running);
    signal(begun.pid.unwrap(), Signal::KILL);
    second.until(&key, State::Failed);
}

fn one_that_ends_at_its_start_says_why() {
    let dir = scratch();
    let key = Key::engine("v-e-0");
    let manager = Manager::open(dir.path());
    manager.start(key.clone(), "fails");
    let failed = manager.until(&key, State::Failed);
    assert_eq!(failed.exit_code, Some(61));
    assert_eq!(failed.error.as_deref(), Some("exit status 61: no available backend"));
}

fn one_that_does_not_listen_to_reason_is_killed() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let manager = Manager::open(dir.path());
    manager.start(key.clone(), "stubborn");
    let begun = manager.until(&key, State::Running);
    manager.host.stop(&key);
    manager.until(&key, State::Stopped);
    until_gone(begun.pid.unwrap());
}

fn another_process_of_the_same_number_is_left_alone() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    signal(begun.pid.unwrap(), Signal::KILL);
    until_gone(begun.pid.unwrap());
    // The number has gone to somebody else: to this test.
    edit(dir.path(), &key, |record| record["process"]["pid"] = std::process::id().into());
    let second = Manager::open(dir.path());
    assert_eq!(second.host.get(&key).unwrap().state, State::Lost);
    second.host.stop(&key);
    second.host.forget(&key);
    assert_eq!(second.host.get(&key), None);
}

fn one_whose_number_was_never_written_is_found() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    edit(dir.path(), &key, |record| record["process"] = serde_json::Value::Null);
    let second = Manager::open(dir.path());
    let found = second.host.get(&key).unwrap();
    assert_eq!((found.state, found.pid), (State::Running, begun.pid));
    second.shutdown();
    until_gone(begun.pid.unwrap());
}

fn one_that_no_record_knows_is_ended() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    std::fs::remove_file(record(dir.path(), &key)).unwrap();
    let second = Manager::open(dir.path());
    until_gone(begun.pid.unwrap());
    assert_eq!(second.host.get(&key), None);
}

fn while_a_record_cannot_be_read_nothing_is_ended() {
    let dir = scratch();
    let key = Key::replica("v-r-1");
    let first = Manager::open(dir.path());
    first.start(key.clone(), "v");
    let begun = first.until(&key, State::Running);
    drop(first);
    // As a newer version may have written it.
    let path = record(dir.path(), &key);
    let written = std::fs::read(&path).unwrap();
    durable::replace(&path, b"{}").unwrap();
    drop(Manager::open(dir.path()));
    durable::replace(&path, &written).unwrap();
    let third = Manager::open(dir.path());
    assert_eq!(third.until(&key, State::Running).pid, begun.pid);
}

fn what_ended_while_nobody_watched_is_lost_and_what_failed_stays_so() {
    let dir = scratch();
    let (gone, failed) = (Key::replica("v-r-1"), Key::replica("v-r-2"));
    let first = Manager::open(dir.path());
    first.start(gone.clone(), "v");
    first.start(failed.clone(), "v");
    let (one, two) = (first.until(&gone, State::Running), first.until(&failed, State::Running));
    signal(two.pid.unwrap(), Signal::KILL);
    first.until(&failed, State::Failed);
    drop(first);
    signal(one.pid.unwrap(), Signal::KILL);
    until_gone(one.pid.unwrap());
    let second = Manager::open(dir.path());
    assert_eq!(second.host.get(&gone).unwrap().state, State::Lost);
    assert_eq!(second.host.get(&failed).unwrap().state, State::Failed);
}

fn engines_end_before_replicas() {
    let dir = scratch();
    let (engine, replica) = (Key::engine("v-e-0"), Key::replica("v-r-1"));
    let manager = Manager::open(dir.path());
    manager.start(engine.clone(), "slow");
    manager.start(replica.clone(), "v");
    let running = manager.until(&replica, State::Running);
    manager.until(&engine, State::Running);
    let host = manager.host.clone();
    let ended = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let began = Instant::now();
            loop {
                // In this order: what is seen of the replica was so while the engine still ran.
                let beside = host.get(&replica).unwrap();
                if host.get(&engine).is_none_or(|it| it.state.is_over()) {
                    break;
                }
                assert_eq!(beside.state, State::Running, "the replica ends before its engine");
                assert!(began.elapsed() < TIMEOUT);
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        manager.shutdown();
        watching.join()
    });
    ended.unwrap();
    until_gone(running.pid.unwrap());
    let role = Role::Engine(EngineLaunch::default());
    let late =
        Launch { key: engine, volume: "v".into(), image: String::new(), program: None, role };
    assert!(manager.host.start(late).is_err());
}

fn ports_of_others_are_passed_over() {
    let dir = scratch();
    // A range of which another program has the middle.
    let (range, _held) = (20_000..29_000)
        .step_by(20)
        .find_map(|first: u16| {
            let held = TcpListener::bind((HERE, first + 3)).ok()?;
            let free = (first..first + 12)
                .all(|port| port == first + 3 || TcpListener::bind((HERE, port)).is_ok());
            free.then_some((first..=first + 11, held))
        })
        .unwrap();
    let manager =
        Manager::open_with(dir.path(), Options { ports: range.clone(), ..options(dir.path()) });
    let key = Key::replica("v-r-1");
    manager.start(key.clone(), "v");
    let running = manager.until(&key, State::Running);
    assert_eq!(running.ports, (range.start() + 4, *range.end()));
    manager.shutdown();
}
