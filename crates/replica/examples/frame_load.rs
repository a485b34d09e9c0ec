//! Loads a replica's data socket and prints what it bears: operations a second, and what each
//! costs the replica in processor time. Start: `frame_load [DIR] [LAYERS] [ONLY]`; it starts the
//! replica as a child process, and removes the directory it made below `DIR`. `ONLY` is a part of
//! the name of the loads to run.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use replica::server::ReplicaOptions;
use wire::frame::{Answer, Limits, Outcome, Reply, Request, decode_reply, encode_request};

const SIZE_BYTES: u64 = 1 << 30;
const PORT: u16 = 39_502;
const TIME: Duration = Duration::from_secs(3);
const TICKS_A_SECOND: f64 = 100.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [verb, dir] if verb == "serve" => serve(PathBuf::from(dir)),
        [] => load(&std::env::temp_dir(), 1, ""),
        [dir] => load(Path::new(dir), 1, ""),
        [dir, layers] => load(Path::new(dir), layers.parse()?, ""),
        [dir, layers, only, ..] => load(Path::new(dir), layers.parse()?, only),
    }
}

fn serve(dir: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let options = ReplicaOptions {
        dir,
        volume_name: String::new(),
        instance_name: String::new(),
        listen: format!("127.0.0.1:{PORT}"),
        backing_file: None,
        size_bytes: Some(i64::try_from(SIZE_BYTES)?),
        sync_agent: false,
        sync_agent_port_count: 0,
        revision_counter: true,
        data_unix: false,
        unmap_mark_disk_chain_removed: false,
        snapshot_max_count: 250,
        snapshot_max_size: 0,
        encrypted: false,
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build()?;
    Ok(runtime.block_on(replica::server::run(options))?)
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Processor time so far, in seconds, by the user and by the kernel.
    fn used(&self) -> Option<(f64, f64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / TICKS_A_SECOND);
        Some((next()?, next()?))
    }

    fn resident_mib(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.0.id())).ok()?;
        let pages: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(pages * 4096.0 / 1_048_576.0)
    }
}

#[derive(Debug, Clone, Copy)]
enum Load {
    Read { size: u32, sequential: bool },
    Write { size: u32, sequential: bool },
    FlushedWrite { size: u32 },
}

fn load(dir: &Path, layers: usize, only: &str) -> Result<(), Box<dyn std::error::Error>> {
    let place = dir.join(format!("frame-load-{}", std::process::id()));
    let child = Command::new(std::env::current_exe()?).arg("serve").arg(&place).spawn()?;
    let server = Server(child);
    let done = run_all(&server, layers, only);
    drop(server);
    std::fs::remove_dir_all(&place)?;
    done
}

fn run_all(server: &Server, layers: usize, only: &str) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stream = runtime.block_on(open())?;
    let mut buffers = Buffers::default();
    println!("load, depth: op/s, MiB/s, replica CPU us/op (user + system)");
    run(&mut stream, &mut buffers, Load::FlushedWrite { size: 4096 }, 1, Duration::ZERO)?;
    let fill = Load::Write { size: 1 << 20, sequential: true };
    for layer in 1..=layers {
        run(&mut stream, &mut buffers, fill, 8, Duration::ZERO)?;
        if layer < layers {
            runtime.block_on(snapshot(&layer.to_string()))?;
            let random = Load::Write { size: 4096, sequential: false };
            run(&mut stream, &mut buffers, random, 8, Duration::from_millis(100))?;
        }
    }
    let random = |depth| {
        [
            (Load::Read { size: 4096, sequential: false }, depth),
            (Load::Write { size: 4096, sequential: false }, depth),
        ]
    };
    let long = [
        (Load::Write { size: 1 << 20, sequential: true }, 4),
        (Load::Read { size: 1 << 20, sequential: true }, 4),
        (Load::FlushedWrite { size: 4096 }, 1),
    ];
    for (what, depth) in random(1).into_iter().chain(random(32)).chain(long) {
        let name = format!("{what:?}, {depth}");
        if !name.contains(only) {
            continue;
        }
        let before = server.used().unwrap_or_default();
        let (count, bytes, seconds) = run(&mut stream, &mut buffers, what, depth, TIME)?;
        let after = server.used().unwrap_or_default();
        let each = |used: f64| used * 1e6 / count;
        println!(
            "{name}: {:.0} op/s, {:.0} MiB/s, {:.1} + {:.1} us",
            count / seconds,
            bytes / seconds / 1_048_576.0,
            each(after.0 - before.0),
            each(after.1 - before.1),
        );
    }
    println!("resident: {:.1} MiB", server.resident_mib().unwrap_or_default());
    Ok(())
}

type Client = rpc::ptypes::replica_service_client::ReplicaServiceClient<rpc::Peer>;

fn client() -> Result<Client, Box<dyn std::error::Error>> {
    let control = rpc::Address::new("127.0.0.1", PORT);
    let peer = rpc::connect(&control, rpc::Identity::default(), rpc::Deadline::Usual)?;
    Ok(Client::new(peer))
}

async fn open() -> Result<UnixStream, Box<dyn std::error::Error>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while client()?.replica_open(rpc::ptypes::ReplicaOpenRequest::default()).await.is_err() {
        if Instant::now() > deadline {
            return Err("the replica does not start".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let address = SocketAddr::from_abstract_name(rpc::local_data_socket(PORT + 1))?;
    Ok(UnixStream::connect_addr(&address)?)
}

async fn snapshot(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let request = rpc::ptypes::ReplicaSnapshotRequest {
        name: name.to_owned(),
        created: "now".to_owned(),
        ..Default::default()
    };
    client()?.replica_snapshot(request).await?;
    Ok(())
}

struct Buffers {
    input: BytesMut,
    output: BytesMut,
    data: Bytes,
    random: u64,
    next: u64,
}

impl Default for Buffers {
    fn default() -> Self {
        let data = Bytes::from(vec![0x5a; 1 << 20]);
        Self { input: BytesMut::new(), output: BytesMut::new(), data, random: 1, next: 0 }
    }
}

impl Buffers {
    fn place(&mut self, size: u32, sequential: bool) -> i64 {
        let slots = SIZE_BYTES / u64::from(size);
        let slot = if sequential {
            self.next += 1;
            self.next % slots
        } else {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % slots
        };
        i64::try_from(slot * u64::from(size)).unwrap_or_default()
    }

    fn put(&mut self, load: Load, sequence: u32) -> Result<usize, Box<dyn std::error::Error>> {
        let (request, size) = match load {
            Load::Read { size, sequential } => {
                let offset = self.place(size, sequential);
                (Request::Read { sequence, offset, size }, size)
            }
            Load::Write { size, sequential } => {
                let offset = self.place(size, sequential);
                let data = self.data.slice(..size as usize);
                (Request::Write { sequence, offset, data }, size)
            }
            Load::FlushedWrite { size } => {
                let offset = self.place(size, false);
                let data = self.data.slice(..size as usize);
                let write = Request::Write { sequence: sequence + (1 << 31), offset, data };
                encode_request(&write, Limits::default())?.put(&mut self.output);
                (Request::Flush { sequence }, size)
            }
        };
        encode_request(&request, Limits::default())?.put(&mut self.output);
        Ok(size as usize)
    }
}

/// Operations, bytes and seconds. With no time given, as much as fills the volume once.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn run(
    stream: &mut UnixStream,
    buffers: &mut Buffers,
    load: Load,
    depth: usize,
    time: Duration,
) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let (mut flying, mut done, mut bytes, mut sequence) = (0usize, 0u64, 0usize, 0u32);
    loop {
        let goes_on = if time.is_zero() {
            bytes < usize::try_from(SIZE_BYTES)? && !matches!(load, Load::FlushedWrite { .. })
                || bytes == 0
        } else {
            start.elapsed() < time
        };
        while goes_on && flying < depth {
            bytes += buffers.put(load, sequence)?;
            sequence = (sequence + 1) % (1 << 31);
            flying += 1;
        }
        if flying == 0 {
            break;
        }
        stream.write_all(&buffers.output)?;
        buffers.output.clear();
        let landed = receive(stream, &mut buffers.input)?;
        flying -= landed;
        done += landed as u64;
    }
    Ok((done as f64, bytes as f64, start.elapsed().as_secs_f64()))
}

/// Replies that have come, at least one; those to writes before a flush do not count.
fn receive(
    stream: &mut UnixStream,
    input: &mut BytesMut,
) -> Result<usize, Box<dyn std::error::Error>> {
    let mut landed = 0;
    loop {
        while let Some(reply) = decode_reply(input, Limits::default())? {
            match reply {
                Reply::Answer(Answer { outcome: Outcome::Error(text), .. }) => {
                    return Err(text.into());
                }
                Reply::Answer(Answer { sequence, .. }) if sequence < 1 << 31 => landed += 1,
                Reply::Answer(_) => {}
                Reply::Close | Reply::CutOff { .. } => return Err("the replica went away".into()),
            }
        }
        if landed > 0 {
            return Ok(landed);
        }
        let have = input.len();
        input.resize(have + (1 << 18), 0);
        let place = input.get_mut(have..).unwrap_or_default();
        let read = stream.read(place)?;
        if read == 0 {
            return Err("the replica hung up".into());
        }
        input.truncate(have + read);
    }
}
