//! Frontend `nbd` inside TLS.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use wire::nbd::client::{Dial, Dialing, Reply, decode_reply};
use wire::nbd::{Command, CommandFlags, MAX_PAYLOAD, Request, encode_request};

use crate::nbd::Served;

/// An authority, and certificates of a server and a client below it, as PEM files.
struct Papers {
    folder: tempfile::TempDir,
}

impl Papers {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let mut file = std::fs::File::create(folder.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        put("ca", &authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            put(name, &params.signed_by(&key, &authority).unwrap().pem());
            put(&format!("{name}.key"), &key.serialize_pem());
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self, client_ca: bool) -> engine::NbdOptions {
        let tls = engine::TlsFiles {
            certificate: self.path("server"),
            key: self.path("server.key"),
            client_ca: client_ca.then(|| self.path("ca")),
        };
        engine::NbdOptions { tls: Some(tls), ..Default::default() }
    }

    fn connector(&self, with_certificate: bool) -> TlsConnector {
        let certificates = |path: &Path| {
            CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&self.path("ca")));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = if with_certificate {
            let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
            builder.with_client_auth_cert(certificates(&self.path("client")), key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// Greets, asks for TLS, and gives the stream where the handshake begins.
async fn ask_for_tls(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).await.unwrap();
    let mut output = BytesMut::new();
    output.put_u32(3);
    output.put_slice(b"IHAVEOPT");
    output.put_u32(5);
    output.put_u32(0);
    stream.write_all(&output).await.unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!((&reply[12..]).get_u32(), 1, "an acknowledgement");
    stream
}

/// Negotiates as if the connection were new: greeting and flags have been said before.
async fn use_export(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> u64 {
    let mut input = BytesMut::new();
    input.put_slice(b"NBDMAGICIHAVEOPT\x00\x03");
    let mut output = BytesMut::new();
    let mut dialing = Dialing::new(Dial::default());
    let agreed = loop {
        let agreed = dialing.feed(&mut input, &mut output).unwrap();
        // The flags, which were sent before.
        if output.starts_with(&[0, 0, 0, 3]) {
            output.advance(4);
        }
        stream.write_all(&output.split()).await.unwrap();
        stream.flush().await.unwrap();
        match agreed {
            Some(agreed) => break agreed,
            None => assert!(stream.read_buf(&mut input).await.unwrap() > 0),
        }
    };
    for (command, len) in [
        (Command::Write { offset: 0, data: vec![4; 1 << 20].into() }, 0),
        (Command::Read { offset: 0, len: 1 << 20 }, 1 << 20),
    ] {
        let request = Request { cookie: 1, flags: CommandFlags::NONE, command };
        let (head, payload) = encode_request(&request).unwrap();
        stream.write_all(&head).await.unwrap();
        stream.write_all(&payload).await.unwrap();
        stream.flush().await.unwrap();
        let reply = loop {
            match decode_reply(&mut input, MAX_PAYLOAD, |_| len).unwrap() {
                Some(reply) => break reply,
                None => assert!(stream.read_buf(&mut input).await.unwrap() > 0),
            }
        };
        let Reply::Simple { outcome: Ok(data), .. } = reply else { panic!("{reply:?}") };
        assert!(data.iter().all(|byte| *byte == 4));
        assert_eq!(data.len(), len as usize);
    }
    agreed.size_bytes
}

fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

#[tokio::test]
async fn the_volume_is_served_inside_tls() {
    let papers = Papers::make();
    let served = Served::start_with(papers.server(false)).await;
    assert!(served.volume.frontend().endpoint.starts_with("nbds://127.0.0.1:"));
    let plain = ask_for_tls(&served.address()).await;
    let mut stream = papers.connector(false).connect(localhost(), plain).await.unwrap();
    assert_eq!(use_export(&mut stream).await, 4 << 20);
}

#[tokio::test]
async fn with_an_authority_only_its_clients_are_let_in() {
    let papers = Papers::make();
    let served = Served::start_with(papers.server(true)).await;
    let plain = ask_for_tls(&served.address()).await;
    let mut stream = papers.connector(true).connect(localhost(), plain).await.unwrap();
    assert_eq!(use_export(&mut stream).await, 4 << 20);
    let plain = ask_for_tls(&served.address()).await;
    let refused = async {
        let mut stream = papers.connector(false).connect(localhost(), plain).await?;
        stream.read_u8().await
    };
    assert!(refused.await.is_err());
}

#[tokio::test]
async fn without_tls_nothing_is_told() {
    let papers = Papers::make();
    let served = Served::start_with(papers.server(false)).await;
    let mut stream = TcpStream::connect(served.address()).await.unwrap();
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let mut dialing = Dialing::new(Dial::default());
    let refused = loop {
        match dialing.feed(&mut input, &mut output) {
            Ok(agreed) => assert!(agreed.is_none(), "let in without TLS"),
            Err(error) => break error,
        }
        stream.write_all(&output.split()).await.unwrap();
        assert!(stream.read_buf(&mut input).await.unwrap() > 0);
    };
    assert!(!refused.to_string().is_empty());
}

#[tokio::test]
async fn files_that_are_no_certificates_are_refused_by_name() {
    let papers = Papers::make();
    let folder = tempfile::tempdir().unwrap();
    let volume =
        engine::volume::Volume::start_on("vol", crate::settings(), crate::host(folder.path()))
            .unwrap();
    let mut nbd = papers.server(false);
    nbd.tls.as_mut().unwrap().certificate = papers.path("server.key");
    let options = engine::frontend::FrontendOptions { nbd, ..crate::options() };
    let refused = volume.start_frontend("nbd", &options).await.unwrap_err().to_string();
    assert!(refused.contains("server.key") && refused.contains("no certificate"), "{refused}");
}
