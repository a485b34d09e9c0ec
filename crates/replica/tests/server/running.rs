//! A replica that serves on free ports of this machine, and clients of its sockets.

use std::os::linux::net::SocketAddrExt as _;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use replica::server::{ReplicaOptions, ServerError, serve};
use rpc::ptypes::replica_service_client::ReplicaServiceClient;
use rpc::upkeep::upkeep_client::UpkeepClient;
use rpc::{Address, Deadline, Identity, Peer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::frame::{Answer, Limits, Outcome, Reply, Request, decode_reply, encode_request};

pub(crate) type Client = ReplicaServiceClient<Peer>;

pub(crate) const SIZE: i64 = 16 << 20;
pub(crate) const NOW: &str = "2026-11-15T06:25:24Z";

pub(crate) struct Running {
    pub(crate) place: TempDir,
    pub(crate) options: ReplicaOptions,
    pub(crate) control: Address,
    stop: DropGuard,
    ended: JoinHandle<Result<(), ServerError>>,
}

/// Three ports in a row.
pub(crate) fn free_ports() -> u16 {
    testkit::process::free_ports(3).unwrap()
}

pub(crate) fn options(dir: PathBuf) -> ReplicaOptions {
    ReplicaOptions {
        dir,
        volume_name: String::new(),
        instance_name: String::new(),
        listen: String::new(),
        backing_file: None,
        size_bytes: Some(SIZE),
        sync_agent: false,
        sync_agent_port_count: 0,
        revision_counter: true,
        data_unix: false,
        unmap_mark_disk_chain_removed: false,
        snapshot_max_count: 250,
        snapshot_max_size: 0,
        encrypted: false,
    }
}

impl Running {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ReplicaOptions)) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut options = options(place.path().join("replica"));
        change(&mut options);
        Self::start(place, options).await
    }

    /// On ports that are still free when it comes to it.
    async fn start(place: TempDir, mut options: ReplicaOptions) -> Self {
        loop {
            let control = Address::new("127.0.0.1", free_ports());
            options.listen = control.to_string();
            let stop = CancellationToken::new();
            let mut ended = spawn(serve(options.clone(), stop.clone()));
            loop {
                if TcpStream::connect((control.host(), control.port())).await.is_ok() {
                    return Self { place, options, control, stop: stop.drop_guard(), ended };
                }
                let soon = std::time::Duration::from_millis(5);
                match tokio::time::timeout(soon, &mut ended).await {
                    Err(_) => {}
                    Ok(Ok(Err(ServerError::Listen { .. }))) => break,
                    Ok(other) => panic!("it did not start: {other:?}"),
                }
            }
        }
    }

    /// Stops it as a crash would, without closing anything, and starts it again.
    pub(crate) async fn restart(self) -> Self {
        drop(self.stop);
        self.ended.await.unwrap().unwrap();
        Self::start(self.place, self.options).await
    }

    /// Another process, as it were, for the directory of `first`.
    pub(crate) async fn beside(first: &Self) -> Self {
        Self::start(tempfile::tempdir().unwrap(), first.options.clone()).await
    }

    /// Ends it; its directory lasts as long as what is returned.
    pub(crate) async fn stop(self) -> TempDir {
        drop(self.stop);
        self.ended.await.unwrap().unwrap();
        self.place
    }

    pub(crate) fn client(&self) -> Client {
        self.client_as(Identity::default())
    }

    pub(crate) fn client_as(&self, identity: Identity) -> Client {
        ReplicaServiceClient::new(rpc::connect(&self.control, identity, Deadline::Usual).unwrap())
    }

    pub(crate) fn upkeep(&self) -> UpkeepClient<Peer> {
        let peer = rpc::connect(&self.control, Identity::default(), Deadline::Usual).unwrap();
        UpkeepClient::new(peer)
    }

    pub(crate) async fn open(&self) {
        self.client().replica_open(rpc::ptypes::ReplicaOpenRequest::default()).await.unwrap();
    }

    pub(crate) async fn opened() -> Self {
        let running = Self::new().await;
        running.open().await;
        running
    }

    pub(crate) async fn tcp(&self) -> Data<TcpStream> {
        let data = self.control.data();
        Data::new(TcpStream::connect((data.host(), data.port())).await.unwrap())
    }

    pub(crate) fn local(&self) -> Data<UnixStream> {
        let name = rpc::local_data_socket(self.control.data().port());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        stream.set_nonblocking(true).unwrap();
        Data::new(UnixStream::from_std(stream).unwrap())
    }
}

fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "a test has no task tree")]
    tokio::spawn(work)
}

/// A client of the data port.
pub(crate) struct Data<S> {
    pub(crate) stream: S,
    input: BytesMut,
    sequence: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Data<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, input: BytesMut::new(), sequence: 100 }
    }

    /// Sends a frame with the next sequence number, which is returned.
    pub(crate) async fn send(&mut self, request: impl FnOnce(u32) -> Request) -> u32 {
        self.sequence += 1;
        let frame = encode_request(&request(self.sequence), Limits::default()).unwrap();
        let mut bytes = BytesMut::new();
        frame.put(&mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
        self.sequence
    }

    /// The next answer; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Answer> {
        match self.next_reply().await? {
            Reply::Answer(answer) => Some(answer),
            Reply::Close | Reply::CutOff { .. } => None,
        }
    }

    pub(crate) async fn next_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = decode_reply(&mut self.input, Limits::default()).unwrap() {
                return Some(reply);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn ask(&mut self, request: impl FnOnce(u32) -> Request) -> Outcome {
        let sequence = self.send(request).await;
        let answer = self.next().await.unwrap();
        assert_eq!(answer.sequence, sequence);
        answer.outcome
    }

    pub(crate) async fn write(&mut self, offset: i64, bytes: &[u8]) -> Outcome {
        let data = Bytes::copy_from_slice(bytes);
        self.ask(|sequence| Request::Write { sequence, offset, data }).await
    }

    pub(crate) async fn read(&mut self, offset: i64, size: u32) -> Outcome {
        self.ask(|sequence| Request::Read { sequence, offset, size }).await
    }

    /// Writes one sector at each offset, many at a time, and waits for all.
    pub(crate) async fn scatter(&mut self, offsets: impl Iterator<Item = i64>) {
        let offsets: Vec<i64> = offsets.collect();
        // Few enough that the answers fit into the socket while nobody reads them.
        for some in offsets.chunks(32) {
            for offset in some {
                let data = Bytes::from_static(&[1; 4096]);
                self.send(|sequence| Request::Write { sequence, offset: *offset, data }).await;
            }
            for _ in some {
                assert_eq!(self.next().await.unwrap().outcome, Outcome::Count(4096));
            }
        }
    }

    pub(crate) async fn ping(&mut self) -> Outcome {
        self.ask(|sequence| Request::Ping { sequence }).await
    }

    pub(crate) async fn flush(&mut self) -> Outcome {
        self.ask(|sequence| Request::Flush { sequence }).await
    }
}

pub(crate) fn data(bytes: &[u8]) -> Outcome {
    Outcome::Data(Bytes::copy_from_slice(bytes))
}
