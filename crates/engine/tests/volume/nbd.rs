//! Frontend `nbd` against a client of our own, also where clients misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use engine::core::Mode;
use engine::volume::Volume;
use wire::frame;
use wire::nbd::client::{Agreed, Dial, Dialing, Reply, decode_reply};
use wire::nbd::{
    Chunk, Command, CommandFlags, Errno, Extent, ExtentFlags, MAX_PAYLOAD, Request,
    TransmissionFlags, encode_request,
};

use crate::fake::{Fake, Vice, all_features};
use crate::{MIB, TIMEOUT, host, options, settings, until};

pub(crate) struct Served {
    pub(crate) volume: Volume,
    pub(crate) fake: Fake,
    pub(crate) folder: tempfile::TempDir,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::start_with(engine::NbdOptions::default()).await
    }

    pub(crate) async fn start_with(nbd: engine::NbdOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::start(4 * MIB);
        let volume = Volume::start_on("vol", settings(), host(folder.path())).unwrap();
        volume.resize(4 * MIB).await.unwrap();
        volume.attach(&fake.target(), all_features(), Mode::Rw).await.unwrap();
        let options = engine::frontend::FrontendOptions { nbd, ..options() };
        volume.start_frontend("nbd", &options).await.unwrap();
        Self { volume, fake, folder }
    }

    /// `host:port` of the server.
    pub(crate) fn address(&self) -> String {
        let endpoint = self.volume.frontend().endpoint;
        let rest = endpoint.split_once("://").unwrap().1;
        rest.split_once('/').unwrap().0.to_owned()
    }

    async fn with<T: Send + 'static>(&self, talk: impl FnOnce(&str) -> T + Send + 'static) -> T {
        let address = self.address();
        tokio::task::spawn_blocking(move || talk(&address)).await.unwrap()
    }
}

struct Client {
    stream: TcpStream,
    input: BytesMut,
    agreed: Agreed,
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

impl Client {
    fn dial(address: &str) -> Self {
        Self::dial_with(address, Dial { structured: true, allocation: true, ..Dial::default() })
    }

    fn dial_with(address: &str, wanted: Dial) -> Self {
        let mut stream = connect(address);
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let mut dialing = Dialing::new(wanted);
        loop {
            let agreed = dialing.feed(&mut input, &mut output).unwrap();
            stream.write_all(&output.split()).unwrap();
            if let Some(agreed) = agreed {
                return Self { stream, input, agreed };
            }
            assert!(fill(&mut stream, &mut input), "closed in negotiation");
        }
    }

    fn send(&mut self, cookie: u64, flags: CommandFlags, command: Command) {
        let request = Request { cookie, flags, command };
        let (head, payload) = encode_request(&request).unwrap();
        self.stream.write_all(&[&head, &payload[..]].concat()).unwrap();
    }

    fn ask_with(&mut self, flags: CommandFlags, command: Command) -> Reply {
        let len = if let Command::Read { len, .. } = command { len } else { 0 };
        self.send(1, flags, command);
        loop {
            match decode_reply(&mut self.input, MAX_PAYLOAD, |_| len).unwrap() {
                Some(reply) => return reply,
                None => assert!(fill(&mut self.stream, &mut self.input), "closed"),
            }
        }
    }

    fn ask(&mut self, command: Command) -> Reply {
        self.ask_with(CommandFlags::NONE, command)
    }
}

/// False at the end of the stream.
fn fill(stream: &mut TcpStream, input: &mut BytesMut) -> bool {
    let mut chunk = vec![0; 256 << 10];
    let count = stream.read(&mut chunk).unwrap_or(0);
    input.extend_from_slice(&chunk[..count]);
    count > 0
}

fn data(reply: Reply) -> Bytes {
    match reply {
        Reply::Chunk { chunk: Chunk::Data { data, .. }, done: true, .. } => data,
        other => panic!("data, not {other:?}"),
    }
}

fn assert_done(reply: &Reply) {
    assert!(matches!(reply, Reply::Simple { outcome: Ok(_), .. }), "{reply:?}");
}

fn errno(reply: &Reply) -> Errno {
    match reply {
        Reply::Chunk { chunk: Chunk::Error { errno, .. }, .. } => *errno,
        other => panic!("an error, not {other:?}"),
    }
}

#[tokio::test]
async fn every_command_is_served() {
    let served = Served::start().await;
    served
        .with(|address| {
            let mut client = Client::dial(address);
            assert_eq!(client.agreed.size_bytes, 4 * MIB);
            assert!(client.agreed.flags.contains(TransmissionFlags::VOLUME));
            let bytes = Bytes::from(vec![3; 8192]);
            let write = Command::Write { offset: 4096, data: bytes.clone() };
            assert_done(&client.ask(write.clone()));
            assert_done(&client.ask_with(CommandFlags::FUA, write));
            assert_eq!(data(client.ask(Command::Read { offset: 4096, len: 8192 })), bytes);
            assert_done(&client.ask(Command::Flush));
            assert_done(&client.ask(Command::Cache { offset: 0, len: 4096 }));
            assert_done(&client.ask(Command::WriteZeroes { offset: 8192, len: 4096 }));
            let none = client.ask(Command::Read { offset: 0, len: 0 });
            assert!(matches!(none, Reply::Chunk { chunk: Chunk::None, done: true, .. }));
            let status = client.ask(Command::BlockStatus { offset: 0, len: 16_384 });
            let Reply::Chunk { chunk: Chunk::BlockStatus { extents, .. }, .. } = status else {
                panic!("extents, not {status:?}");
            };
            let hole = ExtentFlags::HOLE.with(ExtentFlags::ZERO);
            let extent = |len, flags| Extent { len, flags };
            let expected =
                vec![extent(4096, hole), extent(4096, ExtentFlags::NONE), extent(8192, hole)];
            assert_eq!(extents, expected);
            let trim = Command::Trim { offset: 4096, len: 4096 };
            assert_done(&client.ask(trim.clone()));
            assert_done(&client.ask_with(CommandFlags::FUA, trim));
            let keep = CommandFlags::NO_HOLE.with(CommandFlags::FUA);
            let zeros = Command::WriteZeroes { offset: 0, len: 3 << 20 };
            assert_done(&client.ask_with(keep, zeros.clone()));
            let fast = CommandFlags::NO_HOLE.with(CommandFlags::FAST_ZERO);
            assert_eq!(errno(&client.ask_with(fast, zeros)), Errno::NotSup);
            let fast = Command::WriteZeroes { offset: 0, len: 4096 };
            assert_done(&client.ask_with(CommandFlags::FAST_ZERO, fast));
        })
        .await;
}

/// Does something that blocks with a client.
async fn on<T: Send + 'static>(
    mut client: Client,
    work: impl FnOnce(&mut Client) -> T + Send + 'static,
) -> (Client, T) {
    let work = move || {
        let done = work(&mut client);
        (client, done)
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The bytes of a write of `byte`, in two parts.
fn halves(byte: u8, offset: u64) -> (Vec<u8>, Vec<u8>) {
    let command = Command::Write { offset, data: Bytes::from(vec![byte; 8192]) };
    let request = Request { cookie: 1, flags: CommandFlags::NONE, command };
    let (head, payload) = encode_request(&request).unwrap();
    let whole = [&head, &payload[..]].concat();
    let (first, second) = whole.split_at(1000);
    (first.to_vec(), second.to_vec())
}

/// The rest of a request that was begun, and its answer.
fn finish(client: &mut Client, second: &[u8]) {
    client.stream.write_all(second).unwrap();
    loop {
        match decode_reply(&mut client.input, MAX_PAYLOAD, |_| 0).unwrap() {
            Some(reply) => return assert_done(&reply),
            None => assert!(fill(&mut client.stream, &mut client.input), "closed"),
        }
    }
}

#[tokio::test]
async fn clients_go_over_to_another_engine_in_the_middle_of_a_request() {
    let served = Served::start().await;
    let address = served.address();
    let client = tokio::task::spawn_blocking({
        let address = address.clone();
        move || Client::dial(&address)
    });
    let client = client.await.unwrap();
    let (first, second) = halves(5, 4096);
    let begin = move |client: &mut Client| client.stream.write_all(&first).unwrap();
    let (client, ()) = on(client, begin).await;

    // Nobody takes them: they go on where they were.
    let parted = served.volume.part_clients("nbd").await.unwrap();
    assert_eq!((parted.clients.len(), parted.tcp.is_some()), (1, true));
    assert!(served.volume.part_clients("socket").await.is_none(), "another frontend");
    drop(parted);
    served.volume.resume_clients().await;
    let (client, ()) = on(client, move |client| finish(client, &second)).await;

    let (first, second) = halves(6, 16_384);
    let begin = move |client: &mut Client| client.stream.write_all(&first).unwrap();
    let (client, ()) = on(client, begin).await;
    let parted = served.volume.part_clients("nbd").await.unwrap();
    let next = Volume::start_on("vol", settings(), host(served.folder.path())).unwrap();
    next.resize(4 * MIB).await.unwrap();
    next.attach(&served.fake.target(), all_features(), Mode::Rw).await.unwrap();
    served.volume.leave_clients().await;
    assert_eq!(served.volume.frontend().state, engine::frontend::FrontendState::Down);
    let inherited = engine::frontend::Inherited::new(parted);
    let options = engine::frontend::FrontendOptions { inherited, ..options() };
    next.start_frontend("nbd", &options).await.unwrap();
    assert!(next.frontend().endpoint.contains(&address), "it listens where the other did");
    served.volume.stop().await;
    let talk = move |client: &mut Client| {
        finish(client, &second);
        for (offset, byte) in [(4096, 5), (16_384, 6)] {
            let found = data(client.ask(Command::Read { offset, len: 8192 }));
            assert_eq!(found, vec![byte; 8192]);
        }
        let status = client.ask(Command::BlockStatus { offset: 0, len: 4096 });
        assert!(matches!(status, Reply::Chunk { chunk: Chunk::BlockStatus { .. }, .. }));
        assert_done(&client.ask(Command::Flush));
        assert_eq!(Client::dial(&address).agreed.size_bytes, 4 * MIB, "others find it there");
    };
    on(client, talk).await;
}

/// A volume that others may have soon acknowledges nothing, not even what it has taken.
#[tokio::test]
async fn a_frontend_that_is_cut_answers_nothing_more() {
    let served = Served::start().await;
    let address = served.address();
    let client = tokio::task::spawn_blocking(move || Client::dial(&address)).await.unwrap();
    served.fake.turn(Vice::Stall);
    let write = Command::Write { offset: 0, data: Bytes::from(vec![1; 4096]) };
    let (client, ()) = on(client, move |client| client.send(1, CommandFlags::NONE, write)).await;
    let seen = || served.fake.seen().iter().any(|it| matches!(it, frame::Request::Write { .. }));
    until("the write to be under way", seen).await;
    // A shutdown that answers first waits for the replica, and is overtaken.
    let (waiting, volume) = (served.volume.clone(), served.volume.clone());
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(async move { waiting.stop_frontend().await });
    volume.cut_frontend().await.unwrap();
    served.fake.turn(Vice::None);
    let closed = |client: &mut Client| !fill(&mut client.stream, &mut client.input);
    let (client, closed) = on(client, closed).await;
    assert!(closed && client.input.is_empty(), "it was answered");
    stopping.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(volume.frontend().state, engine::frontend::FrontendState::Down);
}

#[tokio::test]
async fn bad_requests_get_an_error_and_the_connection_goes_on() {
    let served = Served::start().await;
    served
        .with(|address| {
            let mut client = Client::dial(address);
            let end = 4 * MIB;
            let data_ = Bytes::from(vec![0; 512]);
            for (command, expected) in [
                (Command::Read { offset: end, len: 512 }, Errno::Inval),
                (Command::Read { offset: u64::MAX, len: 512 }, Errno::Inval),
                (Command::Write { offset: end, data: data_ }, Errno::NoSpc),
                (Command::Trim { offset: end, len: 512 }, Errno::Inval),
                (Command::Resize { size_bytes: 512 }, Errno::Inval),
                (Command::Unknown(77), Errno::Inval),
            ] {
                assert_eq!(errno(&client.ask(command)), expected);
            }
            assert_eq!(data(client.ask(Command::Read { offset: 0, len: 512 })), vec![0; 512]);
        })
        .await;
}

#[tokio::test]
async fn clients_without_structured_replies_are_served() {
    let served = Served::start().await;
    served
        .with(|address| {
            let mut client = Client::dial_with(address, Dial::default());
            let write = Command::Write { offset: 0, data: Bytes::from(vec![9; 512]) };
            assert_done(&client.ask(write));
            match client.ask(Command::Read { offset: 0, len: 512 }) {
                Reply::Simple { outcome: Ok(data), .. } => assert_eq!(data, vec![9; 512]),
                other => panic!("a simple reply, not {other:?}"),
            }
        })
        .await;
}

#[tokio::test]
async fn the_export_has_the_volumes_name_and_no_other() {
    let served = Served::start().await;
    assert!(served.volume.frontend().endpoint.ends_with("/vol"));
    served
        .with(|address| {
            let named = |name: &str| Dial { export: name.to_owned(), ..Dial::default() };
            assert_eq!(Client::dial_with(address, named("vol")).agreed.size_bytes, 4 * MIB);
            let mut dialing = Dialing::new(named("other"));
            let mut stream = connect(address);
            let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
            let refused = loop {
                match dialing.feed(&mut input, &mut output) {
                    Ok(agreed) => assert!(agreed.is_none()),
                    Err(error) => break error,
                }
                stream.write_all(&output.split()).unwrap();
                assert!(fill(&mut stream, &mut input));
            };
            assert!(!refused.to_string().is_empty());
        })
        .await;
}

#[tokio::test]
async fn growth_is_open_to_clients_that_are_there_and_shown_to_new_ones() {
    let served = Served::start().await;
    served.volume.resize(2 * MIB).await.unwrap();
    let mut client = served.with(Client::dial).await;
    assert_eq!(client.agreed.size_bytes, 2 * MIB);
    served.volume.resize(4 * MIB).await.unwrap();
    let far = Command::Read { offset: 3 * MIB, len: 512 };
    let got = tokio::task::spawn_blocking(move || data(client.ask(far))).await.unwrap();
    assert_eq!(got, vec![0; 512]);
    assert_eq!(served.with(Client::dial).await.agreed.size_bytes, 4 * MIB);
}

#[tokio::test]
async fn what_was_asked_before_a_disconnect_is_answered() {
    let served = Served::start().await;
    served
        .with(|address| {
            let mut client = Client::dial_with(address, Dial::default());
            for cookie in 0..32 {
                let data = Bytes::from(vec![1; 65_536]);
                let write = Command::Write { offset: cookie * 65_536, data };
                client.send(cookie, CommandFlags::NONE, write);
            }
            client.send(99, CommandFlags::NONE, Command::Disconnect);
            while fill(&mut client.stream, &mut client.input) {}
            let mut answered = 0;
            while let Some(reply) = decode_reply(&mut client.input, MAX_PAYLOAD, |_| 0).unwrap() {
                assert_done(&reply);
                answered += 1;
            }
            assert_eq!(answered, 32);
        })
        .await;
    assert_eq!(served.fake.bytes(31 * 65_536, 1), [1]);
}

#[tokio::test]
async fn hostile_clients_are_cut_off_and_others_served() {
    let served = Served::start().await;
    let mut good = served.with(Client::dial).await;
    let half_open = served
        .with(|address| {
            let cut = |bytes: &[u8]| {
                let mut stream = connect(address);
                stream.write_all(bytes).unwrap();
                let mut input = BytesMut::new();
                while fill(&mut stream, &mut input) {}
            };
            cut(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // Unknown client flags.
            cut(&[0xff; 4]);
            // An option of 4 GiB.
            let mut huge = vec![0, 0, 0, 3];
            huge.extend_from_slice(b"IHAVEOPT");
            huge.extend_from_slice(&[0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]);
            cut(&huge);
            // Good manners first, then noise, and then a write of more than is allowed.
            let mut noise = Client::dial(address);
            noise.stream.write_all(&[0x55; 64]).unwrap();
            while fill(&mut noise.stream, &mut noise.input) {}
            let mut long = Client::dial(address);
            let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
            head.extend_from_slice(&[0; 16]);
            head.extend_from_slice(&u32::MAX.to_be_bytes());
            long.stream.write_all(&head).unwrap();
            while fill(&mut long.stream, &mut long.input) {}
            // Some say nothing at all.
            (0..8).map(|_| connect(address)).collect::<Vec<_>>()
        })
        .await;
    let got =
        tokio::task::spawn_blocking(move || data(good.ask(Command::Read { offset: 0, len: 512 })));
    assert_eq!(got.await.unwrap(), vec![0; 512]);
    drop(half_open);
}

#[tokio::test]
async fn too_many_connections_are_turned_away_and_come_back_later() {
    let served = Served::start().await;
    served
        .with(|address| {
            let mut clients: Vec<Client> = (0..128).map(|_| Client::dial(address)).collect();
            let mut late = connect(address);
            assert!(!fill(&mut late, &mut BytesMut::new()), "one too many was let in");
            assert_done(&clients[127].ask(Command::Flush));
            clients.clear();
            let end = std::time::Instant::now() + TIMEOUT;
            loop {
                let mut stream = connect(address);
                if fill(&mut stream, &mut BytesMut::new()) {
                    break;
                }
                assert!(std::time::Instant::now() < end, "nobody is let in any more");
            }
        })
        .await;
}

#[tokio::test]
async fn a_unix_socket_has_its_own_kind_of_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let nbd = engine::NbdOptions { unix: Some(path.clone()), ..Default::default() };
    let served = Served::start_with(nbd).await;
    let expected = format!("nbd+unix:///vol?socket={}", path.display());
    assert_eq!(served.volume.frontend().endpoint, expected);
    assert!(path.exists());
    served.volume.stop_frontend().await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn stopping_ends_the_connections() {
    let served = Served::start().await;
    let mut client = served.with(Client::dial).await;
    served.volume.stop_frontend().await.unwrap();
    let ended = move || fill(&mut client.stream, &mut client.input);
    assert!(!tokio::task::spawn_blocking(ended).await.unwrap());
    assert!(served.folder.path().exists());
}
