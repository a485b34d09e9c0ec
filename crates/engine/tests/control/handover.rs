//! Clients of an engine that is replaced keep their connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::ControllerOptions;
use engine::frontend::FrontendState;
use rpc::ptypes::ReplicaMode::Rw;
use wire::nbd::client::{Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Command, CommandFlags, MAX_PAYLOAD, Request, encode_request};

use crate::copies::Copy;
use crate::rig::{Rig, until};
use crate::whole::options;

/// Blocks of one sector that are written over and over.
const BLOCKS: u64 = 64;

struct Client {
    stream: TcpStream,
    input: BytesMut,
}

impl Client {
    fn dial(endpoint: &str) -> Self {
        let address = endpoint.split_once("://").unwrap().1.split_once('/').unwrap().0;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
        let mut dialing = Dialing::new(Dial { structured: true, ..Dial::default() });
        loop {
            let agreed = dialing.feed(&mut input, &mut output).unwrap();
            stream.write_all(&output.split()).unwrap();
            if agreed.is_some() {
                return Self { stream, input };
            }
            assert!(fill(&mut stream, &mut input), "closed in negotiation");
        }
    }

    /// Any answer but a good one fails the test.
    fn write(&mut self, cookie: u64) {
        let data = Bytes::from(vec![byte(cookie); 4096]);
        let command = Command::Write { offset: cookie % BLOCKS * 4096, data };
        let flags = if cookie % 8 == 7 { CommandFlags::FUA } else { CommandFlags::NONE };
        let (head, payload) = encode_request(&Request { cookie, flags, command }).unwrap();
        self.stream.write_all(&[&head, &payload[..]].concat()).unwrap();
        loop {
            match decode_reply(&mut self.input, MAX_PAYLOAD, |_| 0).unwrap() {
                Some(Reply::Simple { outcome: Ok(_), .. }) => return,
                Some(other) => panic!("write {cookie} was answered with {other:?}"),
                None => assert!(fill(&mut self.stream, &mut self.input), "write {cookie}: closed"),
            }
        }
    }
}

fn byte(cookie: u64) -> u8 {
    u8::try_from(cookie % 250).unwrap() + 1
}

fn fill(stream: &mut TcpStream, input: &mut BytesMut) -> bool {
    let mut chunk = vec![0; 64 << 10];
    let count = stream.read(&mut chunk).unwrap();
    input.extend_from_slice(&chunk[..count]);
    count > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_keeps_its_connection_through_a_live_upgrade() {
    let [a, b] = Copy::some::<2>(true).await;
    let served = |upgrade| ControllerOptions {
        frontend: "nbd".into(),
        upgrade,
        // Nobody is given up for being slow on a machine that is.
        replica_timeout: Duration::from_secs(30),
        ..options(&[&a, &b])
    };
    let mut rig = Rig::try_new(served(false)).await.unwrap();
    let endpoint = rig.get().await.endpoint;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, count, to) = (Arc::clone(&stop), Arc::clone(&written), endpoint.clone());
    let writing = tokio::task::spawn_blocking(move || {
        let mut client = Client::dial(&to);
        while !stopped.load(Ordering::Relaxed) {
            client.write(count.load(Ordering::Relaxed));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let more = async |wanted: u64| {
        let from = written.load(Ordering::Relaxed);
        let reached = async || (written.load(Ordering::Relaxed) >= from + wanted).then_some(());
        until("writes to go on", reached).await;
    };
    more(20).await;
    for _ in 0..2 {
        let next = Rig::try_new(served(true)).await.unwrap();
        assert_eq!(next.get().await.endpoint, endpoint, "it is found where it was");
        assert_eq!(rig.engine.volume().frontend().state, FrontendState::Down);
        // The one before ends as by SIGHUP: nobody closes the replicas.
        rig.engine.volume().stop().await;
        rig = next;
        more(20).await;
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    assert_eq!(rig.mode_list().await, [Rw, Rw]);
    let written = written.load(Ordering::Relaxed);
    for cookie in written.saturating_sub(BLOCKS)..written {
        let at = cookie % BLOCKS * 4096;
        assert_eq!(rig.read(at, 4096).await, vec![byte(cookie); 4096], "write {cookie}");
        for copy in [&a, &b] {
            let at = i64::try_from(at).unwrap();
            let equal =
                async || (copy.read(at, 4096).await == vec![byte(cookie); 4096]).then_some(());
            until("copies to be equal", equal).await;
        }
    }
}
