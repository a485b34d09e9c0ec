//! `backing-image.cfg`: the list of the blocks of a backing image.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::backup_cfg::{read_blocks, write_blocks};
use super::json::{self, Labels};
use crate::block::{BlockRef, BlockSize, Compression, Packing};
use crate::repository::ImageRecord;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BackingImageCfg {
    #[serde(default, deserialize_with = "json::text")]
    pub name: String,
    /// In bytes.
    #[serde(default, with = "json::number")]
    pub size: u64,
    #[serde(default, with = "json::number")]
    pub block_count: u64,
    #[serde(default, deserialize_with = "json::text")]
    pub checksum: String,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub compression_method: Compression,
    #[serde(default, deserialize_with = "json::text")]
    pub created_time: String,
    /// Empty: in progress.
    #[serde(default, deserialize_with = "json::text")]
    pub complete_time: String,
    #[serde(default, deserialize_with = "json::text")]
    pub secret: String,
    #[serde(default, deserialize_with = "json::text")]
    pub secret_namespace: String,
    #[serde(default)]
    pub processing_blocks: Option<Map<String, Value>>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "write_blocks",
        deserialize_with = "read_blocks"
    )]
    pub blocks: Vec<BlockRef>,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl BackingImageCfg {
    pub fn is_in_progress(&self) -> bool {
        self.complete_time.is_empty()
    }

    /// Blocks of backing images have one size.
    pub(crate) const BLOCK_SIZE: BlockSize = BlockSize::DEFAULT;

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::check_length(bytes)?;
        let cfg: Self = json::from_bytes(bytes).map_err(|error| error.to_string())?;
        let mut next_free = 0;
        for block in &cfg.blocks {
            if block.offset < next_free || block.offset % Self::BLOCK_SIZE.bytes() != 0 {
                return Err(format!("its block at {} is out of place", block.offset));
            }
            next_free = block.offset.saturating_add(Self::BLOCK_SIZE.bytes());
        }
        Ok(cfg)
    }

    /// The record of an image, begun or complete.
    pub(crate) fn of(record: ImageRecord) -> Self {
        let processing_blocks = (!record.is_in_progress()).then(Map::new);
        Self {
            name: record.name,
            size: record.size_bytes,
            block_count: u64::try_from(record.blocks.len()).unwrap_or(u64::MAX),
            checksum: record.checksum,
            labels: record.labels,
            compression_method: record.packing.compression,
            created_time: record.started,
            complete_time: record.completed,
            secret: record.secret,
            secret_namespace: record.secret_namespace,
            processing_blocks,
            blocks: record.blocks,
            others: super::succession(record.is_successor),
        }
    }

    /// What it says.
    pub(crate) fn into_record(self) -> ImageRecord {
        ImageRecord {
            packing: Packing { size: Self::BLOCK_SIZE, compression: self.compression_method },
            is_fenceable: self.others.contains_key(super::WRITER),
            is_successor: self.others.contains_key(super::SUCCESSOR),
            name: self.name,
            size_bytes: self.size,
            checksum: self.checksum,
            labels: self.labels,
            started: self.created_time,
            completed: self.complete_time,
            secret: self.secret,
            secret_namespace: self.secret_namespace,
            blocks: self.blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_byte_for_byte() {
        let text = r#"{"Name":"image","Size":"4194304","BlockCount":"1","Checksum":"abc","Labels":null,"CompressionMethod":"lz4","CreatedTime":"2026-11-15T06:37:10Z","CompleteTime":"","Secret":"","SecretNamespace":"","ProcessingBlocks":{},"Blocks":[{"Offset":2097152,"BlockChecksum":"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"}]}"#;
        let read = BackingImageCfg::parse(text.as_bytes()).unwrap();
        assert!(read.is_in_progress());
        assert_eq!(String::from_utf8(json::to_bytes(&read).unwrap()).unwrap(), text);
        assert!(BackingImageCfg::parse(text.replace("2097152", "5").as_bytes()).is_err());
    }
}
