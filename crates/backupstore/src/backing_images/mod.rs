//! Backing images in the store: stored, given back, listed, looked at, removed. Their blocks are shared
//! by all of them, and so is the lock, which lies under a volume that is none.
//!
//! The order is that of backups: record in progress, blocks, lock still ours, final record in the place
//! of the very one that was begun; a deletion removes records first, and fences off writers that died.

mod create;
mod restore;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::create::{BackingImageRequest, StoredImage};
pub use self::restore::ImageRestoreOptions;
use crate::block::Compression;
use crate::control::Control;
use crate::delete::DeleteOptions;
use crate::error::Error;
use crate::lock::LockKind;
use crate::name::Name;
use crate::store::BackupStore;
use crate::subject::Subject;

/// A backing image as tools read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BackingImageInfo {
    pub name: String,
    #[serde(rename = "URL")]
    pub url: String,
    pub checksum: String,
    pub size: u64,
    pub labels: Option<BTreeMap<String, String>>,
    pub created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_method: Option<Compression>,
    pub secret: String,
    pub secret_namespace: String,
    pub messages: BTreeMap<String, String>,
}

impl BackupStore {
    pub async fn list_backing_images(&self) -> Result<Vec<Name>, Error> {
        Ok(self.repository.records(&Subject::BackingImages).await?.into_keys().collect())
    }

    pub async fn inspect_backing_image(&self, image: &Name) -> Result<BackingImageInfo, Error> {
        let record = self.repository.complete_image(image).await?;
        Ok(BackingImageInfo {
            name: record.name,
            url: self.url.backing_image_url(image),
            checksum: record.checksum,
            size: record.size_bytes,
            labels: record.labels,
            created: record.completed,
            compression_method: Some(record.packing.compression),
            secret: record.secret,
            secret_namespace: record.secret_namespace,
            messages: BTreeMap::new(),
        })
    }

    /// Removes a backing image, and the blocks that no other needs. While the record of another cannot
    /// be read, or is in progress by one who may finish it, blocks stay: they are shared, and so is the
    /// loss.
    pub async fn delete_backing_image(
        &self,
        image: &Name,
        options: &DeleteOptions,
        control: &Control,
    ) -> Result<(), Error> {
        let of = Subject::BackingImages;
        let (lock, timeout) = (self.repository.lock_name(&of)?, options.lock_timeout);
        self.with_lock(&lock, LockKind::Delete, timeout, control, async |lease, control| {
            let may_finish = self.may_finish(&of, image, &lease).await?;
            self.remove_record(&of, image, &lease, &control).await?;
            // Its writer may publish it all the same: what it would name is not removed now.
            let lease = Some(lease.as_ref()).filter(|_| !may_finish);
            self.collect(&of, options, Some(image), lease, &control).await?;
            Ok(())
        })
        .await
    }
}
