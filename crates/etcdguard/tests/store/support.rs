//! Stores in temporary directories, and bytes in and out of them.

use std::path::Path;

use etcdguard::store::gc::{Inspect, Look};
use etcdguard::store::{Environment, SnapStore, Snapshot, StoreConfig};
use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) fn environment(home: &Path) -> Environment {
    [("HOME", home.to_str().unwrap())].into_iter().collect()
}

pub(crate) fn local(home: &Path, prefix: &str) -> SnapStore {
    let config = StoreConfig {
        provider: "Local".to_owned(),
        container: "bkt".to_owned(),
        prefix: prefix.to_owned(),
        ..StoreConfig::default()
    };
    SnapStore::open(&config, &environment(home)).unwrap()
}

pub(crate) async fn read(mut source: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

pub(crate) async fn save(store: &SnapStore, snapshot: &Snapshot, bytes: &[u8]) -> Snapshot {
    store.save(snapshot, std::io::Cursor::new(bytes.to_vec())).await.unwrap()
}

pub(crate) fn names(snapshots: &[Snapshot]) -> Vec<&str> {
    snapshots.iter().map(|snapshot| snapshot.snap_name.as_str()).collect()
}

/// A long body that ends in a failure.
pub(crate) fn broken() -> impl AsyncRead + Send + Unpin + 'static {
    let pieces = (0..12).map(|_| Ok(bytes::Bytes::from(vec![1; 1 << 20])));
    let gone = Err(std::io::Error::other("the other side is gone"));
    let body = futures::stream::iter(pieces.chain([gone]).collect::<Vec<_>>());
    Box::pin(tokio_util::io::StreamReader::new(body))
}

/// Believes every name: what is in a snapshot is not what these tests are about.
pub(crate) struct Believes;

#[async_trait::async_trait]
impl Inspect for Believes {
    async fn inspect(&self, _: &SnapStore, _: &Snapshot) -> Look {
        Look::Good
    }
}
