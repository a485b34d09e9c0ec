//! A replica that lies: it stands before a real one and hands on what it likes.
//!
//! Control and sync calls pass through; on the data port the answers are spoilt as told.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use e2e::engine::{Ports, Replica};

/// Bytes of a frame's header.
const HEADER: usize = 26;

/// What is done to the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    BadMagic,
    /// The answer to a question nobody asked.
    WrongSequence,
    /// Says more than it sends, and hangs up.
    Short,
    /// Says that four gigabytes follow.
    Long,
    /// A type nobody knows.
    BadType,
    /// Every answer is an error.
    Error,
    /// Half of the bytes that were asked for.
    HalfRead,
    /// Nothing at all, for ever.
    Silence,
}

#[derive(Debug)]
pub(crate) struct Liar {
    ports: Ports,
    lie: Arc<Mutex<Lie>>,
}

impl Liar {
    pub(crate) fn before(replica: &Replica) -> Self {
        let ports = Ports::claim().unwrap();
        let lie = Arc::new(Mutex::new(Lie::None));
        for step in 0..13 {
            let listener = TcpListener::bind(("127.0.0.1", ports.base() + step)).unwrap();
            let target = replica.control_port() + step;
            let lie = (step == 1).then(|| lie.clone());
            std::thread::spawn(move || accept(&listener, target, lie.as_ref()));
        }
        Self { ports, lie }
    }

    pub(crate) fn address(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.ports.base())
    }

    pub(crate) fn tell(&self, lie: Lie) {
        *self.lie.lock().unwrap() = lie;
    }
}

fn accept(listener: &TcpListener, target: u16, lie: Option<&Arc<Mutex<Lie>>>) {
    while let Ok((client, _)) = listener.accept() {
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
        let (to_server, from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || pass(from_client, to_server));
        match lie.cloned() {
            None => drop(std::thread::spawn(move || pass(server, client))),
            Some(lie) => drop(std::thread::spawn(move || spoil(server, client, &lie))),
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    // Whoever hangs up first, the other is told.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// Hands on frame by frame.
fn spoil(mut server: TcpStream, mut client: TcpStream, lie: &Mutex<Lie>) {
    let mut header = [0; HEADER];
    while server.read_exact(&mut header).is_ok() {
        let len = u32::from_le_bytes(header[22..26].try_into().unwrap());
        let mut payload = vec![0; len as usize];
        if server.read_exact(&mut payload).is_err() {
            break;
        }
        let lie = *lie.lock().unwrap();
        let (frame, go_on) = spoilt(lie, header, &payload);
        if client.write_all(&frame).is_err() || !go_on {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// What the client gets to see, and whether more follows.
fn spoilt(lie: Lie, mut header: [u8; HEADER], payload: &[u8]) -> (Vec<u8>, bool) {
    let mut set = |at: usize, value: u32| {
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    let len = u32::try_from(payload.len()).unwrap();
    let mut payload = payload.to_vec();
    let mut go_on = true;
    match lie {
        Lie::None => {}
        Lie::Silence => return (Vec::new(), true),
        Lie::BadMagic => set(0, 0xdead_beef),
        Lie::WrongSequence => set(2, 0x7fff_fff0),
        Lie::BadType => set(6, 77),
        Lie::Long => set(22, u32::MAX),
        Lie::Short => {
            set(22, len + 4096);
            go_on = false;
        }
        Lie::Error => {
            payload = b"input/output error".to_vec();
            set(6, 3);
            set(18, 18);
            set(22, 18);
        }
        Lie::HalfRead => {
            payload.truncate(payload.len() / 2);
            set(18, len / 2);
            set(22, len / 2);
        }
    }
    (header.into_iter().chain(payload).collect(), go_on)
}
