//! The replica as a process: killed at any moment, ended by signals, and what memory it takes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use bytes::{Bytes, BytesMut};
use rpc::{Address, Deadline, Identity, ptypes};
use rustix::process::{Pid, Signal, kill_process};
use wire::frame::{Answer, Limits, Outcome, Reply, Request, decode_reply, encode_request};

use crate::running::{Client, free_ports, options};

const DIR: &str = "REPLICA_TEST_DIR";
const LISTEN: &str = "REPLICA_TEST_LISTEN";
const SIZE: &str = "REPLICA_TEST_SIZE";

/// What the other tests start as a process.
#[test]
#[ignore = "a server for the other tests"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let mut options = options(dir.into());
    options.listen = std::env::var(LISTEN).unwrap();
    options.size_bytes = Some(std::env::var(SIZE).unwrap().parse().unwrap());
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(replica::server::run(options)).unwrap();
    // As the command line does: nothing is waited for.
    runtime.shutdown_background();
}

struct Process {
    child: Child,
    control: Address,
}

impl Process {
    fn start(dir: &Path, size: u64) -> Self {
        let control = Address::new("127.0.0.1", free_ports());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::child", "--ignored"])
            .env(DIR, dir)
            .env(LISTEN, control.to_string())
            .env(SIZE, size.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Self { child, control }
    }

    fn client(&self) -> Client {
        Client::new(rpc::connect(&self.control, Identity::default(), Deadline::Usual).unwrap())
    }

    async fn open(&self) {
        let open = async {
            while let Err(status) =
                self.client().replica_open(ptypes::ReplicaOpenRequest::default()).await
            {
                assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            }
        };
        tokio::time::timeout(std::time::Duration::from_mins(1), open).await.unwrap();
    }

    fn data(&self) -> TcpStream {
        let data = self.control.data();
        TcpStream::connect((data.host(), data.port())).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_signal_ends_it_well_and_at_once_without_marking_files_clean() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("replica");
        let mut process = Process::start(&dir, 1 << 20);
        process.open().await;
        // A connection that stays open holds up nothing.
        let _data = process.data();
        process.signal(signal);
        assert!(process.wait().success(), "{signal:?}");
        let meta = std::fs::read_to_string(dir.join("volume.meta")).unwrap();
        assert!(meta.contains(r#""Dirty":true"#), "{meta}");
    }
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const SECTORS: u64 = 256;

/// What every sector may hold, and what was sent and acknowledged in all.
struct Checker {
    settled: Vec<u8>,
    flying: std::collections::BTreeMap<u32, (u64, u8)>,
    sent: i64,
    acknowledged: i64,
}

impl Checker {
    fn acknowledge(&mut self, sequence: u32) {
        if let Some((sector, value)) = self.flying.remove(&sequence) {
            self.settled[sector as usize] = value;
            self.acknowledged += 1;
        }
    }
}

/// Writes until the connection breaks, killing the process when `kill_after` were acknowledged.
fn write_until_killed(
    process: &Process,
    numbers: &mut Numbers,
    checker: &mut Checker,
    kill_after: i64,
) {
    let mut stream = process.data();
    let mut input = BytesMut::new();
    let end = checker.acknowledged + kill_after;
    let mut sequence = 0;
    let mut is_killed = false;
    loop {
        let mut output = BytesMut::new();
        while checker.flying.len() < 16 {
            let sector = numbers.below(SECTORS);
            // One write of a sector at a time: which of two came last would be anybody's guess.
            if checker.flying.values().any(|(other, _)| *other == sector) {
                continue;
            }
            let value = numbers.below(255) as u8 + 1;
            sequence += 1;
            let data = Bytes::from(vec![value; 4096]);
            let offset = sector as i64 * 4096;
            let request = Request::Write { sequence, offset, data };
            encode_request(&request, Limits::default()).unwrap().put(&mut output);
            checker.flying.insert(sequence, (sector, value));
            checker.sent += 1;
        }
        if stream.write_all(&output).is_err() {
            return;
        }
        let mut bytes = vec![0; 65_536];
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(read) => input.extend_from_slice(&bytes[..read]),
        }
        while let Some(Reply::Answer(Answer { sequence, outcome, .. })) =
            decode_reply(&mut input, Limits::default()).unwrap()
        {
            assert_eq!(outcome, Outcome::Count(4096));
            checker.acknowledge(sequence);
        }
        if checker.acknowledged >= end && !is_killed {
            process.signal(Signal::KILL);
            is_killed = true;
        }
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_however_often_it_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("replica");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut checker = Checker {
        settled: vec![0; SECTORS as usize],
        flying: std::collections::BTreeMap::new(),
        sent: 0,
        acknowledged: 0,
    };
    for round in 0..6 {
        let mut process = Process::start(&dir, SECTORS * 4096);
        process.open().await;
        let state = process.client().replica_get(()).await.unwrap().into_inner().replica.unwrap();
        let counted = state.revision_counter;
        assert!(counted >= checker.acknowledged, "round {round}: {counted}");
        assert!(counted <= checker.sent, "round {round}: {counted} of {}", checker.sent);
        // What was on its way may be there or not; from now on it counts as it is.
        (checker.sent, checker.acknowledged) = (counted, counted);
        let contents = read_all(&process);
        for (sector, expected) in checker.settled.iter_mut().enumerate() {
            let found = &contents[sector * 4096..(sector + 1) * 4096];
            let value = found[0];
            assert!(
                found.iter().all(|byte| *byte == value),
                "round {round}: sector {sector} is torn"
            );
            let flying = checker
                .flying
                .values()
                .any(|(other, flew)| *other == sector as u64 && *flew == value);
            assert!(value == *expected || flying, "round {round}: sector {sector} lost a write");
            *expected = value;
        }
        checker.flying.clear();
        if round % 2 == 0 {
            // From here on it need not write through.
            let mut stream = process.data();
            ask(&mut stream, &Request::Flush { sequence: 1 });
        }
        let kill_after = numbers.below(300) as i64;
        write_until_killed(&process, &mut numbers, &mut checker, kill_after);
        process.wait();
    }
}

fn read_all(process: &Process) -> Bytes {
    let mut stream = process.data();
    let size = (SECTORS * 4096) as u32;
    let Outcome::Data(bytes) = ask(&mut stream, &Request::Read { sequence: 1, offset: 0, size })
    else {
        panic!("nothing was read")
    };
    bytes
}

fn ask(stream: &mut TcpStream, request: &Request) -> Outcome {
    let mut output = BytesMut::new();
    encode_request(request, Limits::default()).unwrap().put(&mut output);
    stream.write_all(&output).unwrap();
    let mut input = BytesMut::new();
    loop {
        if let Some(Reply::Answer(answer)) = decode_reply(&mut input, Limits::default()).unwrap() {
            return answer.outcome;
        }
        let mut bytes = vec![0; 1 << 20];
        let read = stream.read(&mut bytes).unwrap();
        assert_ne!(read, 0);
        input.extend_from_slice(&bytes[..read]);
    }
}

#[tokio::test]
async fn memory_does_not_grow_with_size_or_snapshots() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("replica");
    let size = 1u64 << 40;
    let process = Process::start(&dir, size);
    process.open().await;
    let mut stream = process.data();
    ask(&mut stream, &Request::Flush { sequence: 1 });
    let mut numbers = Numbers(42);
    let mut place_of = || (numbers.below(size / 4096) * 4096) as i64;
    for round in 0..60 {
        for _ in 0..20 {
            let data = Bytes::from_static(&[1; 4096]);
            let request = Request::Write { sequence: 2, offset: place_of(), data };
            assert_eq!(ask(&mut stream, &request), Outcome::Count(4096));
        }
        let request = crate::disks::snapshot(&round.to_string());
        process.client().replica_snapshot(request).await.unwrap();
    }
    for _ in 0..2000 {
        let request = Request::Read { sequence: 3, offset: place_of(), size: 4096 };
        assert!(matches!(ask(&mut stream, &request), Outcome::Data(_)));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 64 * 1024, "{kib} KiB are resident");
}
