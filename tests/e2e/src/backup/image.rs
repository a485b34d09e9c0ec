//! A backup, put together from the objects of its store alone, by the description of the format.

use std::io::Read as _;

use serde_json::Value;

use super::objects::{block_key, checksum};
use super::{BLOCK, Target, backup_key};

impl Target {
    /// The contents of a backup, or what is wrong with it.
    pub fn image(&self, volume: &str, backup: &str, size_bytes: u64) -> Result<Vec<u8>, String> {
        let bytes = self.get(&backup_key(volume, backup)).ok_or("it has no record")?;
        let record: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let method = record["CompressionMethod"].as_str().unwrap_or_default();
        let block_bytes = record["Parameters"]["backup-block-size"].as_str();
        let block_bytes = block_bytes.map_or(Ok(BLOCK), str::parse).map_err(|it| it.to_string())?;
        let mut image = vec![0; usize::try_from(size_bytes).unwrap()];
        for block in record["Blocks"].as_array().into_iter().flatten() {
            let sum = block["BlockChecksum"].as_str().ok_or("a block without a checksum")?;
            let object = self.get(&block_key(volume, sum)).ok_or(format!("{sum} is missing"))?;
            let data = unpack(method, object)?;
            if data.len() as u64 != block_bytes || checksum(&data) != sum {
                return Err(format!("{sum} holds something else"));
            }
            let at = block["Offset"].as_u64().and_then(|at| usize::try_from(at).ok());
            let place = at.and_then(|at| image.get_mut(at..)?.get_mut(..data.len()));
            place.ok_or(format!("{sum} is past the end"))?.copy_from_slice(&data);
        }
        Ok(image)
    }
}

/// A block as it was before it was packed.
pub fn unpack(method: &str, object: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    let read = match method {
        "none" => return Ok(object),
        "gzip" => flate2::read::GzDecoder::new(object.as_slice()).read_to_end(&mut data),
        "lz4" => lz4_flex::frame::FrameDecoder::new(object.as_slice()).read_to_end(&mut data),
        other => return Err(format!("packed by {other:?}")),
    };
    read.map_err(|error| error.to_string())?;
    Ok(data)
}
