//! The bytes of a volume through NBD, for copies to and from images.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::nbd::client::{Agreed, Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Command, CommandFlags, DEFAULT_PORT, Request, encode_request};

/// What one request moves at most.
pub(super) const PIECE: usize = 1 << 20;

/// Where the bytes of a volume are, and whom to believe there.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    uri: String,
    authority: Option<String>,
}

impl Place {
    /// As connection info tells it.
    pub(crate) fn of(connection: &Value) -> Option<Self> {
        let text = |path: &str| connection.pointer(path).and_then(Value::as_str).map(str::to_owned);
        Some(Self { uri: text("/uri")?, authority: text("/tls/ca_certificate") })
    }
}

trait Line: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}

pub(super) struct Disk {
    stream: Box<dyn Line>,
    received: BytesMut,
    cookie: u64,
    pub(super) size_bytes: u64,
}

fn odd(what: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the volume's server does not behave: {what}"))
}

fn hopeless(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

impl Disk {
    pub(super) async fn open(place: &Place) -> io::Result<Self> {
        let uri = &place.uri;
        let parsed = url::Url::parse(uri).ok().filter(|it| ["nbd", "nbds"].contains(&it.scheme()));
        let (Some(parsed), Some(host)) = (&parsed, parsed.as_ref().and_then(|it| it.host_str()))
        else {
            return Err(hopeless(format!(
                "images are copied through NBD over TCP only, not {uri}"
            )));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, parsed.port().unwrap_or(DEFAULT_PORT))).await?;
        stream.set_nodelay(true)?;
        let export = parsed.path().trim_start_matches('/').to_owned();
        if parsed.scheme() == "nbd" {
            return Self::dial(Box::new(stream), export, BytesMut::new()).await;
        }
        let Some(authority) = &place.authority else {
            let why =
                "the volume is reached inside TLS, and --nbd-ca-file does not say whom to believe";
            return Err(hopeless(why.to_owned()));
        };
        let stream = inside_tls(stream, host, authority).await?;
        // Said before: the negotiation goes on where it was.
        Self::dial(Box::new(stream), export, BytesMut::from(GREETING)).await
    }

    /// Agrees on an export, with what the server said so far.
    async fn dial(
        mut stream: Box<dyn Line>,
        export: String,
        mut received: BytesMut,
    ) -> io::Result<Self> {
        let was_greeted = !received.is_empty();
        let mut dialing = Dialing::new(Dial { export, ..Dial::default() });
        let mut sent = BytesMut::new();
        let mut agreed = dialing.feed(&mut received, &mut sent).map_err(odd)?;
        if was_greeted {
            // So were the flags.
            sent.advance(size_of::<u32>());
        }
        let Agreed { size_bytes, .. } = loop {
            stream.write_all(&sent.split()).await?;
            stream.flush().await?;
            match agreed {
                Some(agreed) => break agreed,
                None => more(&mut stream, &mut received).await?,
            }
            agreed = dialing.feed(&mut received, &mut sent).map_err(odd)?;
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
        self.stream.flush().await?;
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

/// What a server says first, and the flags that are answered.
const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";
const FLAGS: u32 = 3;
const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const OPTION_START_TLS: u32 = 5;
const ACKNOWLEDGED: u32 = 1;
/// Magic, option, kind and length.
const ANSWER_BYTES: usize = 20;

/// Asks for TLS, and goes on inside it.
async fn inside_tls(
    mut stream: TcpStream,
    host: &str,
    authority: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        let certificate = certificate.map_err(|_| hopeless(NO_AUTHORITY.to_owned()))?;
        roots.add(certificate).map_err(|_| hopeless(NO_AUTHORITY.to_owned()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(odd)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(odd)?;
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await?;
    let mut asked = BytesMut::new();
    asked.put_u32(FLAGS);
    asked.put_slice(OPTION_MAGIC);
    asked.put_u32(OPTION_START_TLS);
    asked.put_u32(0);
    stream.write_all(&asked).await?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer).await?;
    let kind = answer.get(12..16).map(|mut it| it.get_u32());
    if kind != Some(ACKNOWLEDGED) {
        return Err(odd("it does not begin TLS"));
    }
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

const NO_AUTHORITY: &str = "what --nbd-ca-file holds is no certificate authority";

async fn more(stream: &mut Box<dyn Line>, received: &mut BytesMut) -> io::Result<()> {
    if stream.read_buf(received).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
