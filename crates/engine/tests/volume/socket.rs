//! Frontend `socket`: frames on a unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use engine::core::Mode;
use engine::frontend::{FrontendError, FrontendState};
use engine::volume::Volume;
use wire::frame::{
    self, Answer, Limits, Outcome, Reply, Request, Run, decode_reply, decode_runs, encode_request,
};

use crate::fake::{Fake, Vice, all_features};
use crate::{MIB, TIMEOUT, host, options, settings, until};

/// A client that waits for each answer.
struct Client {
    stream: UnixStream,
    input: BytesMut,
}

impl Client {
    fn dial(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, input: BytesMut::new() }
    }

    fn send(&mut self, request: &Request) {
        let mut bytes = BytesMut::new();
        encode_request(request, Limits::default()).unwrap().put(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// `None` at the end of the connection.
    fn next(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = decode_reply(&mut self.input, Limits::default()).unwrap() {
                return Some(reply);
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Outcome {
        self.send(request);
        match self.next() {
            Some(Reply::Answer(Answer { outcome, .. })) => outcome,
            other => panic!("an answer, not {other:?}"),
        }
    }
}

struct Served {
    volume: Volume,
    fake: Fake,
    folder: tempfile::TempDir,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::start(MIB);
        let volume = Volume::start_on("vol", settings(), host(folder.path())).unwrap();
        volume.resize(MIB).await.unwrap();
        volume.attach(&fake.target(), all_features(), Mode::Rw).await.unwrap();
        volume.start_frontend("socket", &options()).await.unwrap();
        Self { volume, fake, folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("longhorn-vol.sock")
    }

    /// Runs a client on a thread of its own, since it blocks.
    async fn with<T: Send + 'static>(
        &self,
        talk: impl FnOnce(&mut Client) -> T + Send + 'static,
    ) -> T {
        let path = self.path();
        tokio::task::spawn_blocking(move || talk(&mut Client::dial(&path))).await.unwrap()
    }
}

fn read(sequence: u32, offset: i64, size: u32) -> Request {
    Request::Read { sequence, offset, size }
}

fn filled(sequence: u32, offset: i64, byte: u8, len: usize) -> Request {
    Request::Write { sequence, offset, data: Bytes::from(vec![byte; len]) }
}

#[tokio::test]
async fn every_frame_is_served() {
    let served = Served::start().await;
    let status = served.volume.frontend();
    assert_eq!(status.name, "socket");
    assert_eq!(status.endpoint, served.path().display().to_string());
    assert_eq!(status.state, FrontendState::Up);
    served
        .with(|client| {
            assert_eq!(client.ask(&Request::Ping { sequence: 1 }), Outcome::Count(0));
            assert_eq!(client.ask(&filled(2, 4096, 8, 8192)), Outcome::Count(8192));
            assert_eq!(client.ask(&read(3, 8192, 4096)), Outcome::Data(vec![8; 4096].into()));
            // Sectors of 512 bytes are served too.
            assert_eq!(client.ask(&filled(4, 4608, 9, 512)), Outcome::Count(512));
            assert_eq!(client.ask(&read(5, 4608, 512)), Outcome::Data(vec![9; 512].into()));
            assert_eq!(client.ask(&Request::Flush { sequence: 6 }), Outcome::Count(0));
            let zero = Request::Zero { sequence: 7, offset: 8192, size: 4096 };
            assert_eq!(client.ask(&zero), Outcome::Count(4096));
            let status = Request::Status { sequence: 8, offset: 4096, size: 8192 };
            let Outcome::Data(runs) = client.ask(&status) else { panic!("runs") };
            let expected = vec![Run { len: 4096, hole: false }, Run { len: 4096, hole: true }];
            assert_eq!(decode_runs(runs), Some(expected));
            let unmap = Request::Unmap { sequence: 9, offset: 4096, size: 4096 };
            assert_eq!(client.ask(&unmap), Outcome::Count(4096));
        })
        .await;
    assert_eq!(served.fake.bytes(4096, 8192), vec![0; 8192]);
}

#[tokio::test]
async fn a_hundred_clients_are_served_at_once() {
    let served = Served::start().await;
    let path = served.path();
    let talk = move || {
        let mut clients: Vec<Client> = (0..100).map(|_| Client::dial(&path)).collect();
        for (number, client) in (0_u8..).zip(&mut clients) {
            client.send(&filled(1, i64::from(number) * 4096, number, 4096));
        }
        for (number, client) in (0_u8..).zip(&mut clients) {
            assert!(client.next().is_some(), "client {number} was turned away");
            let expected = Outcome::Data(Bytes::from(vec![number; 4096]));
            assert_eq!(client.ask(&read(2, i64::from(number) * 4096, 4096)), expected);
        }
    };
    tokio::task::spawn_blocking(talk).await.unwrap();
}

#[tokio::test]
async fn answers_carry_the_sequence_of_their_request() {
    let served = Served::start().await;
    served
        .with(|client| {
            for sequence in 100..164 {
                client.send(&read(sequence, i64::from(sequence) * 4096, 4096));
            }
            let mut seen: Vec<u32> = (0..64)
                .map(|_| match client.next() {
                    Some(Reply::Answer(answer)) => {
                        assert_eq!(answer.offset, i64::from(answer.sequence) * 4096);
                        answer.sequence
                    }
                    other => panic!("an answer, not {other:?}"),
                })
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, (100..164).collect::<Vec<_>>());
        })
        .await;
}

#[tokio::test]
async fn ranges_beyond_the_end_are_answered_in_words() {
    let served = Served::start().await;
    let (beyond, negative) = served
        .with(|client| (client.ask(&read(1, 1 << 20, 4096)), client.ask(&filled(2, -4096, 1, 512))))
        .await;
    let text = "EOF: Read of 4096 bytes at offset 1048576 is beyond volume size 1048576";
    assert_eq!(beyond, Outcome::Error(text.to_owned()));
    let text = "EOF: Write of 512 bytes at offset -4096 is beyond volume size 1048576";
    assert_eq!(negative, Outcome::Error(text.to_owned()));
}

#[tokio::test]
async fn a_full_volume_says_so_by_its_own_type() {
    let served = Served::start().await;
    served.fake.turn(Vice::Error(frame::NO_SPACE_TEXT));
    let full = served.with(|client| client.ask(&filled(1, 0, 1, 4096))).await;
    assert_eq!(full, Outcome::NoSpace(frame::NO_SPACE_TEXT.to_owned()));
    served.fake.turn(Vice::None);
    let written = served.with(|client| client.ask(&filled(1, 0, 1, 4096))).await;
    assert_eq!(written, Outcome::Count(4096));
}

#[tokio::test]
async fn growth_is_seen_by_clients_that_are_there() {
    let served = Served::start().await;
    served.volume.resize(MIB / 2).await.unwrap();
    let path = served.path();
    let mut client = tokio::task::spawn_blocking(move || {
        let mut client = Client::dial(&path);
        assert!(matches!(client.ask(&read(1, 1 << 19, 512)), Outcome::Error(_)));
        client
    })
    .await
    .unwrap();
    served.volume.resize(MIB).await.unwrap();
    let got = tokio::task::spawn_blocking(move || client.ask(&read(2, 1 << 19, 512)));
    assert_eq!(got.await.unwrap(), Outcome::Data(vec![0; 512].into()));
}

/// Whatever one client sends, another is served, and the first is cut off.
#[tokio::test]
async fn clients_that_talk_nonsense_are_cut_off_alone() {
    let served = Served::start().await;
    let path = served.path();
    let mut good = tokio::task::spawn_blocking(move || {
        let mut client = Client::dial(&path);
        client.ask(&filled(1, 0, 4, 4096));
        client
    })
    .await
    .unwrap();
    let huge = {
        // A write that says it carries 4 GiB.
        let mut head = [0xff; 26];
        head[..2].copy_from_slice(&0x1b01_u16.to_le_bytes());
        head[6..10].copy_from_slice(&1_u32.to_le_bytes());
        head.to_vec()
    };
    let reply = {
        let mut head = [0; 26];
        head[..2].copy_from_slice(&0x1b01_u16.to_le_bytes());
        head[6..10].copy_from_slice(&2_u32.to_le_bytes());
        head.to_vec()
    };
    for nonsense in [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), huge, reply] {
        let ended = served.with(move |client| {
            client.stream.write_all(&nonsense).unwrap();
            client.next()
        });
        assert_eq!(ended.await, None);
    }
    let got = tokio::task::spawn_blocking(move || good.ask(&read(2, 0, 4096)));
    assert_eq!(got.await.unwrap(), Outcome::Data(vec![4; 4096].into()));
}

#[tokio::test]
async fn half_open_and_impolite_clients_disturb_nobody() {
    let served = Served::start().await;
    let path = served.path();
    let kept = tokio::task::spawn_blocking(move || {
        // One that says half a header, one that asks for much and takes nothing, one that leaves
        // with requests open.
        let mut half = Client::dial(&path);
        half.stream.write_all(&[1, 0x1b, 0]).unwrap();
        let mut greedy = Client::dial(&path);
        for sequence in 0..64 {
            greedy.send(&read(sequence, 0, 1 << 20));
        }
        let mut gone = Client::dial(&path);
        gone.send(&read(1, 0, 1 << 20));
        (half, greedy)
    })
    .await
    .unwrap();
    for _ in 0..20 {
        let got = served.with(|client| client.ask(&read(1, 0, 4096))).await;
        assert_eq!(got, Outcome::Data(vec![0; 4096].into()));
    }
    drop(kept);
}

#[tokio::test]
async fn a_slow_client_gets_everything_in_the_end() {
    let served = Served::start().await;
    let answers = served.with(|client| {
        for sequence in 0..48 {
            client.send(&read(sequence, 0, 1 << 20));
        }
        (0..48).filter(|_| matches!(client.next(), Some(Reply::Answer(_)))).count()
    });
    assert_eq!(answers.await, 48);
}

#[tokio::test]
async fn stopping_answers_what_was_taken_says_goodbye_and_removes_the_socket() {
    let served = Served::start().await;
    let path = served.path();
    let mut client = tokio::task::spawn_blocking(move || {
        let mut client = Client::dial(&path);
        client.ask(&filled(1, 0, 4, 4096));
        client
    })
    .await
    .unwrap();
    served.volume.stop_frontend().await.unwrap();
    let status = served.volume.frontend();
    assert_eq!((status.name.as_str(), status.state), ("socket", FrontendState::Down));
    assert!(!served.path().exists());
    let last = tokio::task::spawn_blocking(move || (client.next(), client.next())).await.unwrap();
    assert_eq!(last, (Some(Reply::Close), None));
    served.volume.start_frontend("socket", &options()).await.unwrap();
    served.with(|client| client.ask(&Request::Ping { sequence: 1 })).await;
}

/// A second engine takes over; the end of the first leaves the new socket alone.
#[tokio::test]
async fn another_engine_may_take_over_the_socket() {
    let old = Served::start().await;
    let fake = Fake::start(MIB);
    let new = Volume::start_on("vol", settings(), host(old.folder.path())).unwrap();
    new.resize(MIB).await.unwrap();
    new.attach(&fake.target(), all_features(), Mode::Rw).await.unwrap();
    let upgrade = engine::frontend::FrontendOptions { upgrade: true, ..options() };
    new.start_frontend("socket", &upgrade).await.unwrap();
    old.volume.stop().await;
    let written = old.with(|client| client.ask(&filled(1, 0, 6, 4096))).await;
    assert_eq!(written, Outcome::Count(4096));
    assert_eq!(fake.bytes(0, 1), [6]);
    assert_eq!(old.fake.bytes(0, 1), [0]);
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longhorn-vol.sock");
    std::fs::File::create(&path).unwrap();
    let volume = Volume::start_on("vol", settings(), host(folder.path())).unwrap();
    let refused = volume.start_frontend("socket", &options()).await.unwrap_err();
    assert!(refused.to_string().contains("no socket is in its place"), "{refused}");
    assert!(path.exists());
    assert_eq!(volume.frontend().state, FrontendState::None);
}

#[tokio::test]
async fn names_are_judged_in_the_words_callers_match() {
    let served = Served::start().await;
    let error = |result: Result<(), FrontendError>| result.unwrap_err().to_string();
    let started = served.volume.start_frontend("", &options()).await;
    assert_eq!(error(started), "cannot start empty frontend");
    let started = served.volume.start_frontend("floppy", &options()).await;
    let text = "failed to find frontend: floppy: unsupported frontend type: floppy";
    assert_eq!(error(started), text);
    let started = served.volume.start_frontend("nbd", &options()).await;
    assert_eq!(error(started), "frontend socket is already started, cannot be set as nbd");
    served.volume.start_frontend("socket", &options()).await.unwrap();
    until("still up", || served.volume.frontend().state == FrontendState::Up).await;
}
