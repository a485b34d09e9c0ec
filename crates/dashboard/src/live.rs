//! Pages that keep themselves up to date: the server watches, through the API and as the caller, and
//! says that something changed; the page then asks for itself again.

use std::convert::Infallible;
use std::time::Duration;

use api::longhorn::{Backup, BackupTarget, Engine, Node, Replica, Snapshot, Volume};
use api::nonadmin::{NonAdminBackup, NonAdminRestore};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use http::StatusCode;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event as Happening;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event as Watched};
use kube::{Api, Client};
use people::NAMESPACE;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::pages::PageId;
use crate::read::Object;
use crate::visit::Visit;

/// Changes that come together are told once.
const GATHER: Duration = Duration::from_millis(400);
/// Ages on a page grow old, too.
const TICK: Duration = Duration::from_secs(30);
/// A stream ends after so long; the page then opens another.
const LONGEST: Duration = Duration::from_mins(30);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a watch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Something,
    /// Listing again what was known.
    Nothing,
    /// The caller may not watch this.
    Hidden,
    /// The token no longer counts.
    SignedOut,
}

pub(crate) fn changes(visit: Visit, page: PageId) -> Response {
    // One session can keep a few pages up to date, not all memory busy.
    let Ok(place) = visit.session.streams.clone().try_acquire_owned() else {
        return (StatusCode::TOO_MANY_REQUESTS, "too many pages are open").into_response();
    };
    let stream = Stream {
        watches: select_all(watches(&visit, page)),
        visit,
        until: Instant::now() + LONGEST,
        is_over: false,
        _place: place,
    };
    let events = futures::stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct Stream {
    watches: SelectAll<BoxStream<'static, Change>>,
    visit: Visit,
    until: Instant,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        if self.is_over || Instant::now() >= self.until {
            return None;
        }
        let tick = (Instant::now() + TICK).min(self.until);
        let changed = Event::default().data("changed");
        let over = Event::default().event("over").data("signed out");
        loop {
            tokio::select! {
                () = self.visit.app.stop.stopping() => return None,
                () = self.visit.session.ended.cancelled() => {
                    self.is_over = true;
                    return Some(over);
                }
                () = tokio::time::sleep_until(tick) => return Some(changed),
                Some(change) = self.watches.next() => match change {
                    Change::Something => {
                        self.gather().await;
                        return Some(changed);
                    }
                    Change::SignedOut => {
                        self.is_over = true;
                        return Some(over);
                    }
                    Change::Nothing | Change::Hidden => {}
                },
            }
        }
    }

    async fn gather(&mut self) {
        let end = Instant::now() + GATHER;
        while let Ok(Some(_)) = tokio::time::timeout_at(end, self.watches.next()).await {}
        tokio::time::sleep_until(end).await;
    }
}

/// What can change a page.
fn watches(visit: &Visit, page: PageId) -> Vec<BoxStream<'static, Change>> {
    let client = &visit.client;
    match page {
        PageId::Overview => vec![
            of_volumes::<Volume>(client),
            of_volumes::<Engine>(client),
            of_volumes::<Backup>(client),
            of_volumes::<BackupTarget>(client),
            of_volumes::<Node>(client),
        ],
        PageId::Volumes => vec![
            of_volumes::<Volume>(client),
            of_volumes::<Engine>(client),
            of_volumes::<Replica>(client),
            of_volumes::<Snapshot>(client),
            of_volumes::<Backup>(client),
        ],
        PageId::Backups => vec![of_volumes::<Backup>(client)],
        PageId::Standby => {
            let (volumes, engines) = (of_volumes::<Volume>(client), of_volumes::<Engine>(client));
            vec![volumes, engines, of_volumes::<Backup>(client)]
        }
        PageId::Tenants => {
            let (backups, restores) =
                (everywhere::<NonAdminBackup>(visit), everywhere::<NonAdminRestore>(visit));
            backups.into_iter().chain(restores).collect()
        }
        PageId::Targets => vec![of_volumes::<BackupTarget>(client)],
        PageId::Nodes => vec![of_volumes::<Node>(client)],
        PageId::Etcd => everywhere::<Lease>(visit),
        PageId::Events => everywhere::<Happening>(visit),
        // Rows are not resources: the clock alone asks for them again.
        PageId::Blocks => Vec::new(),
    }
}

fn of_volumes<K: Object>(client: &Client) -> BoxStream<'static, Change> {
    watch::<K>(Api::namespaced(client.clone(), NAMESPACE))
}

/// All namespaces, and the caller's own: one of them is seen.
fn everywhere<K: Object>(visit: &Visit) -> Vec<BoxStream<'static, Change>> {
    let mut watches = vec![watch::<K>(Api::all(visit.client.clone()))];
    for namespace in &visit.session.standing.namespaces {
        watches.push(watch::<K>(Api::namespaced(visit.client.clone(), namespace)));
    }
    watches
}

fn watch<K: Object>(api: Api<PartialObjectMeta<K>>) -> BoxStream<'static, Change> {
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .map(|event| meaning(&event))
        .take_while(|change| std::future::ready(*change != Change::Hidden))
        .boxed()
}

fn meaning<K>(event: &Result<Watched<K>, watcher::Error>) -> Change {
    match event {
        Ok(Watched::Apply(_) | Watched::Delete(_)) => Change::Something,
        Ok(Watched::Init | Watched::InitApply(_) | Watched::InitDone) => Change::Nothing,
        Err(
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error),
        ) => match error {
            kube::Error::Api(status) => of_code(status.code),
            _ => Change::Nothing,
        },
        Err(watcher::Error::WatchError(status)) => of_code(status.code),
        Err(watcher::Error::NoResourceVersion) => Change::Nothing,
    }
}

fn of_code(code: u16) -> Change {
    match code {
        401 => Change::SignedOut,
        403 | 404 => Change::Hidden,
        _ => Change::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_watched_is_given_up_and_a_lost_token_ends_all() {
        for (code, wanted) in [
            (401, Change::SignedOut),
            (403, Change::Hidden),
            (404, Change::Hidden),
            (410, Change::Nothing),
            (500, Change::Nothing),
        ] {
            assert_eq!(of_code(code), wanted);
        }
    }
}
