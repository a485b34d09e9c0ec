//! The connections of one frontend: how many there may be, and their end.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::parting::{Client, Parting};
use crate::volume::hub::Hub;

/// Connections at a time. What their requests may stand for in memory is limited for all together.
const MOST: usize = 128;

/// More than a connection takes for its last answers.
const MARGIN: Duration = Duration::from_secs(7);

#[derive(Clone)]
pub(crate) struct Guests {
    pub(crate) hub: Rc<Hub>,
    /// Cancelled when nothing more is to be taken from anybody.
    pub(crate) stop: CancellationToken,
    /// Cancelled when connections are to end as they are.
    cut: CancellationToken,
    tracker: TaskTracker,
    /// By which connections go over to another engine.
    pub(crate) parting: Rc<Parting>,
}

impl Guests {
    pub(crate) fn new(hub: &Rc<Hub>, cut: &CancellationToken) -> Self {
        Self {
            hub: Rc::clone(hub),
            stop: CancellationToken::new(),
            cut: cut.clone(),
            tracker: TaskTracker::new(),
            parting: Parting::new(),
        }
    }

    /// Whether one more may come. Whoever may not is turned away at once, not kept waiting.
    pub(crate) fn has_room(&self) -> bool {
        self.tracker.len() < MOST
    }

    /// Serves a connection until it ends.
    pub(crate) fn welcome(&self, serve: impl Future<Output = ()> + 'static) {
        let cut = self.cut.clone();
        let serve = async move {
            cut.run_until_cancelled_owned(serve).await;
        };
        self.hub.spawn(self.tracker.track_future(serve));
    }

    /// Runs something that is no connection until the end.
    pub(crate) fn until_stop(&self, work: impl Future<Output = ()> + 'static) {
        let stop = self.stop.clone();
        self.hub.spawn(async move {
            stop.run_until_cancelled_owned(work).await;
        });
    }

    /// Has every connection pause between two requests, but not for ever: those that can go over to
    /// another engine. `None`: they go on.
    pub(crate) async fn pause(&self) -> Option<Vec<Client>> {
        let timeout = self.hub.settings.replica_timeout.saturating_mul(2) + MARGIN;
        let paused = tokio::time::timeout(timeout, self.parting.pause()).await.ok();
        if paused.is_none() {
            self.parting.resume();
        }
        paused
    }

    /// Another engine has them: nothing of it ends but what is here.
    pub(crate) fn leave(&self) {
        self.parting.leave();
        self.stop.cancel();
        self.tracker.close();
    }

    /// Takes nothing more and waits until what was taken is answered, but not for ever: a volume
    /// that cannot answer is to end as well.
    pub(crate) async fn dismiss(&self) {
        self.stop.cancel();
        self.tracker.close();
        let timeout = self.hub.settings.replica_timeout.saturating_mul(2) + MARGIN;
        if tokio::time::timeout(timeout, self.tracker.wait()).await.is_err() {
            tracing::warn!(connections = self.tracker.len(), "connections cut with requests open");
            self.cut.cancel();
        }
    }
}
