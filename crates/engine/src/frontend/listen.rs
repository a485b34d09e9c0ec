//! Listening sockets of frontends: unix ones leave no file behind and harm no file of others.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::FrontendError;
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

/// Hands every connection to `welcome`; never ends.
pub(crate) async fn accept_all<L: Accept>(listener: L, mut welcome: impl FnMut(L::Stream)) {
    loop {
        match Accept::accept(&listener).await {
            Ok(stream) => welcome(stream),
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}
