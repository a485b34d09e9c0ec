//! Frontend `socket`: the frames of replicas on a unix socket, for any number of clients.

use futures::future::{FutureExt, LocalBoxFuture, ready};

use super::conn::converse;
use super::frames::Frames;
use super::guests::Guests;
use super::listen::{SocketFile, accept_all, bind_unix};
use super::{Frontend, FrontendError, Site};
use crate::volume::intake::Intake;

pub(crate) struct Socket {
    guests: Guests,
    file: SocketFile,
}

impl Socket {
    pub(crate) fn start(site: &Site) -> Result<Self, FrontendError> {
        let path = site.host.run_dir.join(format!("longhorn-{}.sock", site.options.volume));
        let (listener, file) = bind_unix(&path)?;
        let guests = Guests::new(&site.hub);
        let host = guests.clone();
        guests.until_stop(accept_all(listener, move |stream| {
            if !host.has_room() {
                return tracing::warn!("too many connections: one turned away");
            }
            let (reader, writer) = stream.into_split();
            let guests = host.clone();
            host.welcome(async move {
                converse(&guests, Frames, reader, writer, Intake::default()).await;
            });
        }));
        Ok(Self { guests, file })
    }

    /// False once another engine has taken over.
    pub(crate) fn is_ours(&self) -> bool {
        self.file.is_ours()
    }
}

impl Frontend for Socket {
    fn endpoint(&self) -> String {
        self.file.path.display().to_string()
    }

    /// Every request is checked against the size of the moment.
    fn resize(&self, _size_bytes: u64) -> LocalBoxFuture<'_, Result<(), FrontendError>> {
        ready(Ok(())).boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), FrontendError>> {
        async move {
            self.guests.dismiss().await;
            Ok(())
        }
        .boxed_local()
    }
}
