//! The Block Storage v3 dialect on Holdfast's volumes, with `backup_status` beside `status`: a
//! backup does not keep anybody from attaching, detaching or extending a volume.
//!
//! Owns: the REST dialect ([`rest`]), its rows in SQLite or `PostgreSQL` ([`sql`], [`store`]) and how
//! they move from one release to the next ([`upgrade`]), who may do what ([`auth`]), and the worker
//! that drives rows to their end through resources ([`worker`]), and copies between volumes and the
//! images of a Glance ([`images`]). Never: any other data of volumes.
//!
//! What may be done to a volume in which state is one table: [`model::operation`].

#![forbid(unsafe_code)]

pub mod auth;
pub mod cli;
mod figures;
mod images;
mod model;
mod rest;
mod serve;
pub mod sql;
mod store;
#[cfg(test)]
mod tests;
mod upgrade;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use auth::{Identity, NoAuth};
pub use figures::Figures;
pub use images::Glance;
pub use rest::Behaviour;
pub use worker::backend::Backend;
pub use worker::resources::Resources;

use sql::{Db, DbError};
use store::Store;

/// How the service is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// `sqlite:PATH` or `postgres://…`
    pub database: String,
    /// Port 0 picks a free one.
    pub listen: SocketAddr,
    pub behaviour: Behaviour,
    pub identity: Arc<dyn Identity>,
    /// Where images are, if there are any.
    pub images: Option<Glance>,
    /// Bring the schema and the rows up to date first. For a database nobody else uses.
    pub migrate: bool,
    /// Also work on rows, not only serve them.
    pub work: bool,
    pub figures: Figures,
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(
        "without an identity service every caller is an administrator: {0} is not loopback; give --auth-url, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
}

/// The running service.
#[derive(Debug)]
pub struct BlockApi {
    address: SocketAddr,
    db: Db,
}

impl BlockApi {
    /// Opens the database, checks it, and serves until the tasks are stopped. Boxed: whoever waits
    /// for it would otherwise compile the service anew.
    pub fn start(
        options: Options,
        backend: Arc<dyn Backend>,
        tasks: &tasks::Tasks,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        Box::pin(Self::open(options, backend, tasks))
    }

    async fn open(
        options: Options,
        backend: Arc<dyn Backend>,
        tasks: &tasks::Tasks,
    ) -> Result<Self, StartError> {
        if options.identity.offers_token() && !options.listen.ip().is_loopback() {
            return Err(StartError::Open(options.listen));
        }
        let listener = tokio::net::TcpListener::bind(options.listen)
            .await
            .map_err(|source| StartError::Listen { address: options.listen, source })?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::Listen { address: options.listen, source })?;
        let db = Db::open(&options.database).await?;
        let store = Store::new(db.clone());
        if options.migrate {
            db.sync(None).await?;
            upgrade::migrate_all(&store).await?;
        }
        db.require_schema().await?;
        let left = upgrade::old_rows(&store).await?;
        if left > 0 {
            tracing::warn!(
                left,
                "volumes of the release before remain; run `holdfast block-api db online-data-migrations`"
            );
        }
        store.ensure_default_type().await?;
        let behaviour = Arc::new(options.behaviour);
        let identity = options.identity;
        let images = options
            .images
            .map(|glance| Arc::new(images::Images { glance, identity: identity.clone() }));
        let service = rest::Service {
            store: store.clone(),
            identity,
            backend: backend.clone(),
            behaviour: behaviour.clone(),
            images: images.clone(),
            figures: options.figures.clone(),
        };
        let figures = options.figures;
        if options.work {
            let name = format!("{}/{}", behaviour.host, store::new_id());
            let started = jiff::Timestamp::now();
            let copies = images::Copies::new(tasks.child("block-images"));
            let worker = worker::Worker {
                store,
                backend,
                behaviour,
                name,
                started,
                images,
                copies,
                figures,
            };
            // Before the first request: whoever asks finds the services up.
            worker.report().await?;
            tasks.spawn_draining("block-worker", move |stop| worker.run(stop));
        } else {
            store.look_for_old_services().await?;
            tasks.spawn_draining("block-services", move |stop| {
                worker::watch_services(store, figures, stop)
            });
        }
        let router = service.router(tasks.clone());
        let limits = serve::Limits::default();
        tasks.spawn("block-api", serve::serve(listener, router, limits, tasks.clone()));
        Ok(Self { address, db })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the database, after the tasks have ended.
    pub async fn close(&self) {
        self.db.close().await;
    }
}
