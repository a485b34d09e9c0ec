//! Frontend `socket`: the frames of replicas on a unix socket, for any number of clients.

use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;

use futures::future::{FutureExt, LocalBoxFuture, ready};
use tokio::net::{UnixListener, UnixStream};

use super::conn::converse_plain;
use super::frames::Frames;
use super::guests::Guests;
use super::listen::{SocketFile, accept_all, adopt_unix, bind_unix};
use super::parting::{Belongings, Client};
use super::{Frontend, FrontendError, Site};
use crate::volume::intake::Intake;

pub(crate) struct Socket {
    guests: Guests,
    listener: Rc<UnixListener>,
    file: SocketFile,
}

impl Socket {
    pub(crate) fn start(site: &Site) -> Result<Self, FrontendError> {
        let path = site.host.run_dir.join(format!("longhorn-{}.sock", site.options.volume));
        let Belongings { unix, clients, .. } = site.options.inherited.take();
        let inherited = unix.filter(|(at, _)| *at == path);
        let (listener, file) = match inherited.map(|(at, listener)| (at, adopt_unix(listener))) {
            Some((at, Ok(listener))) => (listener, SocketFile::inherited(at)),
            Some((_, Err(_))) | None => bind_unix(&path)?,
        };
        let (guests, listener) = (Guests::new(&site.hub, &site.cut), Rc::new(listener));
        for client in clients {
            resume(&guests, client);
        }
        let (host, parting) = (guests.clone(), Rc::clone(&guests.parting));
        guests.until_stop(accept_all(Rc::clone(&listener), parting, move |stream| {
            if !host.has_room() {
                return tracing::warn!("too many connections: one turned away");
            }
            welcome(&host, stream, Intake::default());
        }));
        Ok(Self { guests, listener, file })
    }

    /// False once another engine has taken over.
    pub(crate) fn is_ours(&self) -> bool {
        self.file.is_ours()
    }
}

fn welcome(host: &Guests, stream: UnixStream, intake: Intake) {
    let guests = host.clone();
    host.welcome(async move { converse_plain(&guests, Frames, stream, intake).await });
}

/// Goes on with a client of another engine.
fn resume(guests: &Guests, client: Client) {
    let stream = StdStream::from(client.line);
    match stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)) {
        Ok(stream) => welcome(guests, stream, Intake::with(client.input.into())),
        Err(error) => tracing::warn!(%error, "a client is lost"),
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

    fn part(&self) -> LocalBoxFuture<'_, Option<Belongings>> {
        async move {
            let clients = self.guests.pause().await?;
            let twin =
                super::twin_of(&*self.listener).map(|line| (self.file.path.clone(), line.into()));
            Some(Belongings { unix: twin, clients, ..Belongings::default() })
        }
        .boxed_local()
    }

    fn resume(&self) {
        self.guests.parting.resume();
    }

    fn leave(mut self: Box<Self>) {
        self.file.give();
        self.guests.leave();
    }
}
