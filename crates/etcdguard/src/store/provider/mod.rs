//! The way to a store: which one the settings name, opened again when its credentials change.

mod abs;
mod credentials;
mod gcs;
mod s3;
mod swift;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blobs::holds::{Holds, Opened};
use blobs::wrap::{Policy, Retrying, RetryingHolds};
use blobs::{Credentials, Key, LocalStore, Network, Parts, Store};
use credentials::{Fields, Print};

use super::config::{Environment, Provider, StoreConfig};
use super::encrypt::{KEY_VARIABLE, ObjectKey, StoreKey};
use super::error::StoreError;
use super::snapshot::{Layout, Snapshot};

const PART_TRIES_MAX: u32 = 6;
const PART_FIRST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Door {
    provider: Provider,
    config: StoreConfig,
    environment: Environment,
    container: String,
    opened: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    store: Arc<dyn Store>,
    holds: Arc<dyn Holds>,
    /// Of the credentials it was opened with.
    print: Print,
}

impl Current {
    fn both(&self) -> Opened {
        Opened { store: Arc::clone(&self.store), holds: Arc::clone(&self.holds) }
    }
}

/// What the settings and the environment say of a store.
struct Named<'n> {
    provider: Provider,
    container: &'n str,
    endpoint_override: Option<&'n str>,
    /// Before the names of variables.
    prefix: &'n str,
    environment: &'n Environment,
}

impl Named<'_> {
    fn fields(&self) -> Result<Option<Fields>, StoreError> {
        Fields::read(self.provider, self.prefix, self.environment)
    }

    fn need_fields(&self) -> Result<Fields, StoreError> {
        self.fields()?.ok_or_else(|| {
            let variables = credentials::variables(self.provider);
            let name = |it: &str| format!("{}{it}", self.prefix);
            let variables = variables.map(|(json, dir)| format!("{} or {}", name(dir), name(json)));
            StoreError::NoCredentials {
                provider: self.provider.name(),
                variables: variables.unwrap_or_default(),
            }
        })
    }
}

/// Where a store is, and how it is spoken to.
#[derive(Debug)]
struct Address {
    url: String,
    credentials: Credentials,
    network: Network,
}

impl Door {
    pub(super) fn open(
        config: &StoreConfig,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let provider: Provider = config.provider.parse()?;
        let container = match provider {
            Provider::Failed => String::new(),
            Provider::Local
            | Provider::S3
            | Provider::Abs
            | Provider::Gcs
            | Provider::Swift
            | Provider::Oss
            | Provider::Ecs
            | Provider::Ocs => config.container(provider, environment)?,
        };
        let door = Self {
            provider,
            config: config.clone(),
            environment: environment.clone(),
            container,
            opened: Mutex::new(None),
        };
        door.folder(Layout::V2)?;
        Ok(door)
    }

    pub(super) fn provider(&self) -> Provider {
        self.provider
    }

    /// The folder of a layout under the prefix of the settings.
    pub(super) fn folder(&self, layout: Layout) -> Result<Key, StoreError> {
        self.beside(layout.marker())
    }

    /// A folder beside those of the layouts.
    pub(super) fn beside(&self, name: &str) -> Result<Key, StoreError> {
        let parts = self.config.prefix.split('/').filter(|part| !matches!(*part, "" | "."));
        let parts: Vec<&str> = parts.chain([name]).collect();
        Key::parse(&parts.join("/")).map_err(StoreError::Prefix)
    }

    /// The prefix of a listed snapshot: for a directory, its whole path.
    pub(super) fn shown_prefix(&self, folder: &Key) -> String {
        match self.provider {
            Provider::Local => format!("{}/{folder}/", self.local_root().display()),
            Provider::S3
            | Provider::Abs
            | Provider::Gcs
            | Provider::Swift
            | Provider::Oss
            | Provider::Ecs
            | Provider::Ocs
            | Provider::Failed => format!("{folder}/"),
        }
    }

    /// Always below the home directory, whatever the container looks like.
    fn local_root(&self) -> PathBuf {
        let below = self.container.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        let mut root = self.environment.home();
        root.extend(below);
        root
    }

    /// The store; opened anew where its credentials changed since it was opened.
    pub(super) fn store(&self, what: &'static str) -> Result<Arc<dyn Store>, StoreError> {
        self.opened(what).map(|opened| opened.store)
    }

    /// What the service says of versions, locks and marks.
    pub(super) fn holds(&self, what: &'static str) -> Result<Arc<dyn Holds>, StoreError> {
        self.opened(what).map(|opened| opened.holds)
    }

    fn opened(&self, what: &'static str) -> Result<Opened, StoreError> {
        let print = Print::of(self.provider, &self.config.env_prefix, &self.environment);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = opened.as_ref().filter(|opened| opened.print == print) {
            return Ok(opened.both());
        }
        match (self.build(what), opened.as_ref()) {
            (Ok(Opened { store, holds }), _) => {
                let current = opened.insert(Current { store, holds, print });
                Ok(current.both())
            }
            // They may be half replaced; those we have are good until the service says otherwise.
            (Err(error), Some(opened)) => {
                tracing::warn!("The new credentials cannot be used yet: {}", error.chain());
                Ok(opened.both())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn build(&self, what: &'static str) -> Result<Opened, StoreError> {
        let endpoint = self.config.endpoint_override.as_str();
        let named = Named {
            provider: self.provider,
            container: &self.container,
            endpoint_override: Some(endpoint).filter(|endpoint| !endpoint.is_empty()),
            prefix: &self.config.env_prefix,
            environment: &self.environment,
        };
        let address = match self.provider {
            Provider::Local => {
                let store = Arc::new(LocalStore::at(self.local_root()));
                return Ok(Opened::plain(Retrying::around(store, Policy::default())));
            }
            Provider::Failed => return Err(StoreError::AlwaysFails { what }),
            Provider::Swift => swift::address(&named)?,
            Provider::S3 | Provider::Oss | Provider::Ecs | Provider::Ocs => s3::address(&named)?,
            Provider::Abs => abs::address(&named)?,
            Provider::Gcs => gcs::address(&named)?,
        };
        let Address { url, credentials, network } = address;
        let Opened { store, holds } = blobs::open_held(&url, &credentials, &network)?;
        Ok(Opened {
            store: Retrying::around(store, Policy::default()),
            holds: RetryingHolds::around(holds, Policy::default()),
        })
    }

    pub(super) fn parts(&self) -> Parts {
        Parts {
            part_bytes: usize::try_from(self.config.min_chunk_size).unwrap_or(0).max(5 << 20),
            at_once: usize::try_from(self.config.max_parallel_chunk_uploads).unwrap_or(1).max(1),
            tries_max: PART_TRIES_MAX,
            first_pause: PART_FIRST_PAUSE,
        }
    }

    fn key_variable(&self) -> String {
        format!("{}{KEY_VARIABLE}", self.config.env_prefix)
    }

    /// What opens an object that is encrypted.
    pub(super) fn secret(&self, snapshot: &Snapshot) -> Result<ObjectKey, StoreError> {
        let variable = self.key_variable();
        let path = self.environment.get(&variable).map(PathBuf::from);
        let path = path.ok_or(StoreError::NoKey { variable })?;
        Ok(StoreKey::read(&path)?.of(snapshot))
    }

    /// What seals an object that is to be saved, which then says so by its name; none where
    /// encryption is off.
    pub(super) fn sealing(&self, saved: &mut Snapshot) -> Result<Option<ObjectKey>, StoreError> {
        let is_on = self.environment.get(&self.key_variable()).is_some();
        saved.is_encrypted = is_on;
        saved.rename();
        if is_on { self.secret(saved).map(Some) } else { Ok(None) }
    }
}
