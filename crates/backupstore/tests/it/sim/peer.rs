//! A v1 engine as it behaves: locks by what it reads, refreshes that may fail, records that it puts
//! whatever lies there.

use std::sync::Arc;
use std::time::Duration;

use backupstore::format::Checksum;
use blobs::{Error, Key, Prefix, Store, list_all};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::actor::{Actor, View};
use super::world::{block_key, folder, record_key};
use crate::world::{BLOCK, Volume};

const EXPIRES: SignedDuration = SignedDuration::from_secs(150);

pub(super) struct Peer {
    store: Arc<View>,
    lock: Key,
    name: String,
    kind: u64,
}

impl Peer {
    pub(super) fn new(actor: &Arc<Actor>, kind: u64) -> Self {
        let name = format!("lock-{:016x}", Checksum::of(actor.name.as_bytes()).to_string().len());
        let name = format!("{name}{}", actor.name);
        let lock = Key::parse(&format!("{}/locks/{name}.lck", folder())).unwrap();
        Self { store: Arc::new(View(Arc::clone(actor))), lock, name, kind }
    }

    async fn write_lock(&self, acquired: bool) -> Result<(), Error> {
        let text = json!({"Name": self.name, "Type": self.kind, "Acquired": acquired}).to_string();
        self.store.put(&self.lock, text.into()).await.map(drop)
    }

    /// Once, without waiting; false if another has it.
    async fn acquire(&self) -> Result<bool, Error> {
        self.write_lock(false).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let ours = self.store.head(&self.lock).await?.modified;
        let prefix = Prefix::from(Key::parse(&format!("{}/locks", folder())).unwrap());
        for meta in self.store.list_level(&prefix).await?.objects {
            let Ok(blob) = self.store.get_range(&meta.key, 0..u64::MAX).await else { continue };
            let Ok(other) = serde_json::from_slice::<Value>(&blob.bytes) else { continue };
            let is_expired = ours.duration_since(blob.meta.modified) > EXPIRES;
            let rank = |acquired: bool, at, name: &str| (!acquired, at, name.to_owned());
            let theirs = rank(
                other["Acquired"] == true,
                blob.meta.modified,
                other["Name"].as_str().unwrap_or_default(),
            );
            if other["Type"] != self.kind && !is_expired && theirs < rank(false, ours, &self.name) {
                self.store.delete(&self.lock).await?;
                return Ok(false);
            }
        }
        self.write_lock(true).await?;
        Ok(true)
    }

    /// Writes it anew every minute, and does not care whether that goes well.
    async fn refresh(&self) {
        loop {
            tokio::time::sleep(Duration::from_mins(1)).await;
            let _ = self.write_lock(true).await;
        }
    }

    async fn under_lock(&self, work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        if !self.acquire().await? {
            return Ok(());
        }
        let done = tokio::select! {
            done = work => done,
            () = self.refresh() => Ok(()),
        };
        self.store.delete(&self.lock).await?;
        done
    }

    /// `pause` passes after the blocks are there, as where a volume is large.
    pub(super) async fn back_up(
        &self,
        data: &[u8],
        backup: &str,
        pause: Duration,
    ) -> Result<(), Error> {
        let work = async {
            let key = record_key(backup);
            let begun = json!({
                "Name": backup, "VolumeName": "vol-1", "CreatedTime": "", "CompressionMethod": "none",
            });
            self.store.put(&key, begun.to_string().into()).await?;
            let mut blocks = Vec::new();
            for (index, block) in data.chunks(BLOCK as usize).enumerate() {
                if block.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let sum = Checksum::of(block).to_string();
                if let Err(error) = self.store.head(&block_key(&sum)).await {
                    if !error.is_not_found() {
                        return Err(error);
                    }
                    self.store.put(&block_key(&sum), block.to_vec().into()).await?;
                }
                blocks.push(json!({"Offset": index as u64 * BLOCK, "BlockChecksum": sum}));
            }
            tokio::time::sleep(pause).await;
            let done = json!({
                "Name": backup, "VolumeName": "vol-1", "SnapshotName": "snap-peer",
                "SnapshotCreatedAt": "2026-11-15T06:37:10Z", "CreatedTime": "2026-11-15T06:37:12Z",
                "Size": (blocks.len() as u64 * BLOCK).to_string(), "Labels": null,
                "Parameters": {"backup-block-size": BLOCK.to_string()}, "IsIncremental": false,
                "CompressionMethod": "none", "Blocks": blocks, "SingleFile": {"FilePath": ""},
            });
            self.store.put(&key, done.to_string().into()).await.map(drop)
        };
        self.under_lock(work).await
    }

    pub(super) async fn delete(&self, backup: &str) -> Result<(), Error> {
        let work = async {
            self.store.delete(&record_key(backup)).await?;
            let of =
                |part: &str| Prefix::from(Key::parse(&format!("{}/{part}", folder())).unwrap());
            let blocks = list_all(self.store.as_ref(), &of("blocks")).await?;
            let mut named = Vec::new();
            for meta in self.store.list_level(&of("backups")).await?.objects {
                let record = self.store.get_range(&meta.key, 0..u64::MAX).await?;
                let Ok(record) = serde_json::from_slice::<Value>(&record.bytes) else {
                    return Ok(());
                };
                if record["CreatedTime"].as_str().unwrap_or_default().is_empty() {
                    return Ok(());
                }
                let list = record["Blocks"].as_array().cloned().unwrap_or_default();
                named
                    .extend(list.iter().map(|it| block_key(it["BlockChecksum"].as_str().unwrap())));
            }
            for meta in blocks.iter().filter(|meta| !named.contains(&meta.key)) {
                self.store.delete(&meta.key).await?;
            }
            Ok(())
        };
        self.under_lock(work).await
    }
}

/// What the peer backs up of a volume.
pub(super) fn data(of: &Volume, index: usize) -> Vec<u8> {
    of.snapshots[index].data.clone()
}
