//! A disk in memory, served over NBD: the codecs against real clients.
//!
//!     cargo run -p wire --example nbd_ram -- 127.0.0.1:10809
//!     qemu-io -f raw -c 'write -P 5 0 1M' -c 'read -P 5 0 1M' nbd://127.0.0.1:10809/ram
//!     nbdinfo --map nbd://127.0.0.1:10809/ram
//!
//! With a second argument it dials that server instead, writes, reads back and shows block status.
//! For trying things out: one thread a connection, one lock around the disk, requests in order.

use bytes::{Bytes, BytesMut};
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use wire::nbd::client::{self, Dial, Dialing};
use wire::nbd::{
    BlockSize, Command, CommandFlags, Context, Errno, Export, Exports, ExtentFlags, Frame,
    MAX_EXTENTS, MAX_PAYLOAD, Negotiation, Policy, Request, Session, Step, TransmissionFlags,
    decode_request, encode_request, shape,
};

const SIZE: usize = 64 << 20;
const PAGE: usize = 4096;

/// Bytes, and which of their pages were ever written.
struct Disk {
    bytes: Vec<u8>,
    written: Vec<bool>,
}

impl Disk {
    fn pages(&mut self, offset: usize, len: usize) -> impl Iterator<Item = (usize, &mut bool)> {
        let (first, last) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        self.written.iter_mut().enumerate().take(last).skip(first)
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        if let Some(target) = self.bytes.get_mut(offset..offset + data.len()) {
            target.copy_from_slice(data);
        }
        self.pages(offset, data.len()).for_each(|(_, written)| *written = true);
    }

    /// Zeroes the range; whole pages in it become holes if they may.
    fn zero(&mut self, offset: usize, len: usize, keep_space: bool) {
        if let Some(target) = self.bytes.get_mut(offset..offset + len) {
            target.fill(0);
        }
        for (page, written) in self.pages(offset, len) {
            let inside = page * PAGE >= offset && (page + 1) * PAGE <= offset + len;
            *written = if inside { keep_space } else { *written };
        }
    }

    /// Runs of written and unwritten bytes from `offset` on.
    fn extents(&self, offset: usize) -> impl Iterator<Item = (u64, ExtentFlags)> {
        let hole = ExtentFlags::HOLE.with(ExtentFlags::ZERO);
        let into_page = offset % PAGE;
        self.written.iter().skip(offset / PAGE).enumerate().map(move |(index, written)| {
            let len = if index == 0 { PAGE - into_page } else { PAGE };
            (len as u64, if *written { ExtentFlags::NONE } else { hole })
        })
    }
}

/// One export, also the default one.
struct Ram(Export);

impl Exports for Ram {
    fn find(&self, name: &str) -> Option<Export> {
        (name.is_empty() || name == self.0.name()).then(|| self.0.clone())
    }

    fn list(&self) -> Option<Vec<Export>> {
        Some(vec![self.0.clone()])
    }
}

/// Reads what there is; `false` at the end of the stream.
fn fill(socket: &mut TcpStream, buf: &mut BytesMut) -> Result<bool> {
    let mut chunk = vec![0; 256 << 10];
    let count = socket.read(&mut chunk)?;
    buf.extend_from_slice(chunk.get(..count).unwrap_or_default());
    Ok(count > 0)
}

fn negotiate(socket: &mut TcpStream, input: &mut BytesMut, ram: &Ram) -> Result<Option<Session>> {
    let mut output = BytesMut::new();
    let mut negotiation = Negotiation::new(Policy::default(), &mut output);
    loop {
        let step = negotiation.feed(input, ram, &mut output);
        socket.write_all(&output.split())?;
        match step {
            Step::Again => {}
            Step::NeedMore if fill(socket, input)? => {}
            Step::Done(session) => return Ok(Some(session)),
            Step::NeedMore | Step::StartTls => return Ok(None),
            Step::Close(reason) => {
                eprintln!("closed: {reason}");
                return Ok(None);
            }
        }
    }
}

/// A range that passed the check lies inside the disk.
fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn perform(session: &Session, disk: &Mutex<Disk>, request: &Request) -> Result<Frame> {
    let cookie = request.cookie;
    let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
    match &request.command {
        Command::Read { offset, len } => {
            let bytes = disk.bytes.get(at(*offset)..at(*offset) + *len as usize);
            session.data(cookie, *offset, Bytes::copy_from_slice(bytes.unwrap_or_default()))
        }
        Command::BlockStatus { offset, len } => {
            let one = request.flags.contains(CommandFlags::REQ_ONE);
            let most = if one { 1 } else { MAX_EXTENTS };
            let extents = shape(disk.extents(at(*offset)), *len, most);
            session.status(cookie, Context::BaseAllocation, extents)
        }
        Command::Write { offset, data } => {
            disk.write(at(*offset), data);
            Ok(session.done(cookie))
        }
        Command::Trim { offset, len } => {
            disk.zero(at(*offset), *len as usize, false);
            Ok(session.done(cookie))
        }
        Command::WriteZeroes { offset, len } => {
            let keep_space = request.flags.contains(CommandFlags::NO_HOLE);
            disk.zero(at(*offset), *len as usize, keep_space);
            Ok(session.done(cookie))
        }
        Command::Flush | Command::Cache { .. } => Ok(session.done(cookie)),
        Command::Disconnect | Command::Resize { .. } | Command::Unknown(_) => {
            Ok(session.failed(request, Errno::NotSup, "a disk in memory cannot do this"))
        }
    }
    .map_err(Error::other)
}

fn serve(mut socket: TcpStream, ram: &Ram, disk: &Mutex<Disk>) -> Result<()> {
    socket.set_nodelay(true)?;
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let Some(session) = negotiate(&mut socket, &mut input, ram)? else {
        return Ok(());
    };
    eprintln!("session: {session:?}");
    loop {
        let Some(request) = decode_request(&mut input, MAX_PAYLOAD).map_err(Error::other)? else {
            if fill(&mut socket, &mut input)? {
                continue;
            }
            return Ok(());
        };
        if request.command == Command::Disconnect {
            return Ok(());
        }
        let frame = match session.check(&request) {
            Ok(()) => perform(&session, disk, &request)?,
            Err(errno) => session.failed(&request, errno, "the request does not fit the export"),
        };
        frame.put(&mut output);
        socket.write_all(&output.split())?;
    }
}

/// Sends one command and waits for the end of its reply.
fn ask(socket: &mut TcpStream, input: &mut BytesMut, command: Command) -> Result<client::Reply> {
    let read_len = if let Command::Read { len, .. } = command { len } else { 0 };
    let request = Request { cookie: 1, flags: CommandFlags::NONE, command };
    let (head, payload) = encode_request(&request).map_err(Error::other)?;
    socket.write_all(&[head.as_slice(), &payload].concat())?;
    loop {
        let reply = client::decode_reply(input, MAX_PAYLOAD, |_| read_len);
        match reply.map_err(Error::other)? {
            Some(client::Reply::Chunk { done: false, .. }) => {}
            Some(reply) => return Ok(reply),
            None if fill(socket, input)? => {}
            None => return Err(Error::other("the server closed the connection")),
        }
    }
}

fn dial(address: &str) -> Result<()> {
    let mut socket = TcpStream::connect(address)?;
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let wanted = Dial { structured: true, allocation: true, ..Dial::default() };
    let mut dialing = Dialing::new(wanted);
    let agreed = loop {
        let agreed = dialing.feed(&mut input, &mut output).map_err(Error::other)?;
        socket.write_all(&output.split())?;
        match agreed {
            Some(agreed) => break agreed,
            None if fill(&mut socket, &mut input)? => {}
            None => return Err(Error::other("the server closed the connection")),
        }
    };
    eprintln!("agreed: {agreed:?}");
    let data = Bytes::from(vec![7; 8]);
    for command in [
        Command::Write { offset: 0, data },
        Command::Read { offset: 0, len: 8 },
        Command::BlockStatus { offset: 0, len: 1 << 20 },
        Command::Flush,
        Command::Read { offset: u64::MAX, len: 8 },
        Command::Unknown(99),
    ] {
        eprintln!("{command:?}");
        eprintln!("  {:?}", ask(&mut socket, &mut input, command)?);
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:10809".into());
    if let Some(server) = arguments.next() {
        return dial(&server);
    }
    let export = Export::new("ram", SIZE as u64, TransmissionFlags::VOLUME, BlockSize::default())
        .and_then(|export| export.described("a disk in memory"))
        .map_err(Error::other)?;
    let ram = Arc::new(Ram(export));
    let disk = Disk { bytes: vec![0; SIZE], written: vec![false; SIZE / PAGE] };
    let disk = Arc::new(Mutex::new(disk));
    for socket in TcpListener::bind(&address)?.incoming() {
        let (ram, disk, socket) = (Arc::clone(&ram), Arc::clone(&disk), socket?);
        std::thread::spawn(move || {
            if let Err(error) = serve(socket, &ram, &disk) {
                eprintln!("connection: {error}");
            }
        });
    }
    Ok(())
}
