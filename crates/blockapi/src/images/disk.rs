//! The bytes of a volume through NBD, for copies to and from images.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::nbd::client::{Agreed, Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Command, CommandFlags, Request, encode_request};

/// What one request moves at most.
pub(super) const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Disk {
    stream: TcpStream,
    received: BytesMut,
    cookie: u64,
    pub(super) size_bytes: u64,
}

fn odd(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the volume's server does not behave: {what}"))
}

impl Disk {
    /// By the URI of connection info. Volumes inside TLS are for clients that have the keys.
    pub(super) async fn open(uri: &str) -> io::Result<Self> {
        let Some((address, export)) = uri.strip_prefix("nbd://").and_then(|it| it.split_once('/'))
        else {
            let why = format!("images are copied through plain NBD over TCP only, not {uri}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut dialing = Dialing::new(Dial { export: export.to_owned(), ..Dial::default() });
        let (mut received, mut sent) = (BytesMut::new(), BytesMut::new());
        let Agreed { size_bytes, .. } = loop {
            let agreed = dialing.feed(&mut received, &mut sent).map_err(odd)?;
            stream.write_all(&sent.split()).await?;
            match agreed {
                Some(agreed) => break agreed,
                None => more(&mut stream, &mut received).await?,
            }
        };
        Ok(Self { stream, received, cookie: 0, size_bytes })
    }

    pub(super) async fn write(&mut self, offset: u64, data: Bytes) -> io::Result<()> {
        self.call(Command::Write { offset, data }, 0).await.map(drop)
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.call(Command::Flush, 0).await.map(drop)
    }

    pub(super) async fn read(&mut self, offset: u64, len: u32) -> io::Result<Bytes> {
        self.call(Command::Read { offset, len }, len).await
    }

    async fn call(&mut self, command: Command, answered: u32) -> io::Result<Bytes> {
        self.cookie += 1;
        let cookie = self.cookie;
        let request = Request { cookie, flags: CommandFlags::NONE, command };
        let (head, payload) = encode_request(&request).map_err(odd)?;
        self.stream.write_all(head.as_slice()).await?;
        self.stream.write_all(&payload).await?;
        loop {
            let reply = decode_reply(&mut self.received, answered, |_| answered).map_err(odd)?;
            match reply {
                None => more(&mut self.stream, &mut self.received).await?,
                Some(Reply::Simple { cookie: of, outcome: Ok(data) }) if of == cookie => {
                    return Ok(data);
                }
                Some(Reply::Simple { outcome: Err(errno), .. }) => {
                    return Err(io::Error::other(format!("the volume answered {errno:?}")));
                }
                Some(other) => return Err(odd(format!("{other:?}"))),
            }
        }
    }
}

async fn more(stream: &mut TcpStream, received: &mut BytesMut) -> io::Result<()> {
    if stream.read_buf(received).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
