//! Listening sockets of frontends: unix ones leave no file behind and harm no file of others.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::FrontendError;
use super::parting::{Order, Parting};
use crate::volume::tune::{keep_alive, widen};

/// Pause after a failed accept: usually this process has no descriptors left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The file of a unix socket; removed when dropped, if it is still the one that was made.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Binds a unix socket in place of whatever socket is there: one left over, or one that an engine
/// still serves from which this one takes over.
pub(crate) fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), FrontendError> {
    let failed = |error: io::Error| {
        FrontendError::Failed(format!("cannot listen on socket {}: {error}", path.display()))
    };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed)?,
        Ok(_) => return Err(failed(io::Error::other("a file that is no socket is in its place"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path) };
    Ok((listener, file))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl SocketFile {
    /// That of a listener that another engine made and gave away.
    pub(crate) fn inherited(path: PathBuf) -> Self {
        let identity = identity(&path);
        Self { path, identity }
    }

    /// It goes on without us.
    pub(crate) fn give(&mut self) {
        self.identity = None;
    }

    /// False once another engine has put its own socket there.
    pub(crate) fn is_ours(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket of this runtime, of one that another engine gave away.
pub(crate) fn adopt_unix(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// [`adopt_unix`] for TCP.
pub(crate) fn adopt_tcp(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Something that hands out connections.
pub(crate) trait Accept {
    type Stream;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>>;
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.accept().await?;
        widen(&stream);
        Ok(stream)
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true)?;
        keep_alive(&stream);
        Ok(stream)
    }
}

/// Hands every connection to `welcome`, but leaves them where they are while clients pause; ends when
/// another engine has the listener.
pub(crate) async fn accept_all<L: Accept>(
    listener: Rc<L>,
    parting: Rc<Parting>,
    mut welcome: impl FnMut(L::Stream),
) {
    loop {
        if parting.over().await == Order::Leave {
            return;
        }
        let accepted = tokio::select! {
            biased;
            () = parting.asked() => continue,
            accepted = Accept::accept(&*listener) => accepted,
        };
        match accepted {
            Ok(stream) => welcome(stream),
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}
