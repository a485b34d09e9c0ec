//! `backup_<name>.cfg`: the complete list of the blocks of one backup.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::block::parse_size;
use super::json::{self, Labels};
use crate::block::{BlockRef, BlockSize, Checksum, Compression, Packing};
use crate::name::Name;
use crate::repository::BackupRecord;

const PARAMETER_BLOCK_SIZE: &str = "backup-block-size";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BackupCfg {
    #[serde(default, deserialize_with = "json::text")]
    pub name: String,
    #[serde(default, deserialize_with = "json::text")]
    pub volume_name: String,
    #[serde(default, deserialize_with = "json::text")]
    pub snapshot_name: String,
    /// The moment at which the backup was started.
    #[serde(default, deserialize_with = "json::text")]
    pub snapshot_created_at: String,
    /// Empty: in progress.
    #[serde(default, deserialize_with = "json::text")]
    pub created_time: String,
    /// Of all blocks, in bytes.
    #[serde(default, with = "json::number")]
    pub size: u64,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default)]
    pub parameters: Labels,
    #[serde(default, deserialize_with = "json::flag")]
    pub is_incremental: bool,
    #[serde(default)]
    pub compression_method: Compression,
    #[serde(default, with = "json::number")]
    pub newly_uploaded_data_size: u64,
    #[serde(default, with = "json::number")]
    pub re_uploaded_data_size: u64,
    /// `{}` or null; it says nothing.
    #[serde(default)]
    pub processing_blocks: Option<Map<String, Value>>,
    /// Ascending by offset.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "write_blocks",
        deserialize_with = "read_blocks"
    )]
    pub blocks: Vec<BlockRef>,
    #[serde(default)]
    pub single_file: SingleFile,
    /// Fields that a later writer added; they stay.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SingleFile {
    #[serde(default, deserialize_with = "json::text")]
    pub file_path: String,
}

impl BackupCfg {
    /// What is written before the first block.
    pub(crate) fn begun(name: &Name, volume: &Name, compression: Compression) -> Self {
        Self {
            name: name.to_string(),
            volume_name: volume.to_string(),
            snapshot_name: String::new(),
            snapshot_created_at: String::new(),
            created_time: String::new(),
            size: 0,
            labels: None,
            parameters: None,
            is_incremental: false,
            compression_method: compression,
            newly_uploaded_data_size: 0,
            re_uploaded_data_size: 0,
            processing_blocks: None,
            blocks: Vec::new(),
            single_file: SingleFile::default(),
            others: Map::new(),
        }
    }

    pub fn is_in_progress(&self) -> bool {
        self.created_time.is_empty()
    }

    pub fn block_size(&self) -> Result<BlockSize, String> {
        let stated = self.parameters.as_ref().and_then(|all| all.get(PARAMETER_BLOCK_SIZE));
        parse_size(stated.map_or("", String::as_str))
    }

    /// Reads and checks everything that can be checked without the store.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::check_length(bytes)?;
        let cfg: Self = json::from_bytes(bytes).map_err(|error| error.to_string())?;
        let block_size = cfg.block_size()?.bytes();
        let mut next_free = 0;
        for block in &cfg.blocks {
            if block.offset % block_size != 0 {
                return Err(format!("its block at {} does not lie on a block", block.offset));
            }
            if block.offset < next_free {
                return Err(format!("its block at {} is out of order", block.offset));
            }
            next_free = block
                .offset
                .checked_add(block_size)
                .filter(|end| i64::try_from(*end).is_ok())
                .ok_or_else(|| format!("its block at {} lies past every end", block.offset))?;
        }
        cfg.check_sum(block_size)?;
        Ok(cfg)
    }

    /// A damaged record may still be one, of less than it was: without its list of blocks, or
    /// without the time that makes it complete. What it says twice must agree.
    fn check_sum(&self, block_bytes: u64) -> Result<(), String> {
        if self.is_in_progress() {
            let is_begun =
                self.size == 0 && self.blocks.is_empty() && self.snapshot_name.is_empty();
            return if is_begun { Ok(()) } else { Err("it is neither begun nor complete".into()) };
        }
        if !self.single_file.file_path.is_empty() {
            return Ok(());
        }
        let count = u64::try_from(self.blocks.len()).unwrap_or(u64::MAX);
        if count.checked_mul(block_bytes) != Some(self.size) {
            let size = self.size;
            return Err(format!("its {count} blocks of {block_bytes} are not its size {size}"));
        }
        Ok(())
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        json::to_bytes(self)
    }

    /// The record of a backup that is complete.
    pub(crate) fn of(record: BackupRecord) -> Self {
        let mut parameters = record.parameters.unwrap_or_default();
        let block_bytes = record.packing.size.bytes().to_string();
        parameters.insert(PARAMETER_BLOCK_SIZE.to_owned(), block_bytes);
        let mut others = super::succession(record.is_successor);
        if !record.taken.is_empty() {
            others.insert(super::TAKEN.to_owned(), Value::String(record.taken));
        }
        Self {
            name: record.name,
            volume_name: record.volume,
            snapshot_name: record.snapshot,
            snapshot_created_at: record.started,
            created_time: record.completed,
            size: record.size_bytes,
            labels: record.labels,
            parameters: Some(parameters),
            is_incremental: record.is_incremental,
            compression_method: record.packing.compression,
            newly_uploaded_data_size: record.new_bytes,
            re_uploaded_data_size: record.again_bytes,
            processing_blocks: (!record.is_incremental).then(Map::new),
            blocks: record.blocks,
            single_file: SingleFile::default(),
            others,
        }
    }

    /// What it says.
    pub(crate) fn into_record(self) -> Result<BackupRecord, String> {
        let packing = Packing { size: self.block_size()?, compression: self.compression_method };
        let taken = self.others.get(super::TAKEN).and_then(Value::as_str);
        Ok(BackupRecord {
            packing,
            taken: taken.unwrap_or_default().to_owned(),
            is_fenceable: self.others.contains_key(super::WRITER),
            is_successor: self.others.contains_key(super::SUCCESSOR),
            is_single_file: !self.single_file.file_path.is_empty(),
            name: self.name,
            volume: self.volume_name,
            snapshot: self.snapshot_name,
            started: self.snapshot_created_at,
            completed: self.created_time,
            size_bytes: self.size,
            labels: self.labels,
            parameters: self.parameters,
            is_incremental: self.is_incremental,
            new_bytes: self.newly_uploaded_data_size,
            again_bytes: self.re_uploaded_data_size,
            blocks: self.blocks,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<'t> {
    offset: i64,
    #[serde(borrow)]
    block_checksum: std::borrow::Cow<'t, str>,
}

pub(crate) fn write_blocks<S: Serializer>(blocks: &[BlockRef], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(blocks.iter().map(|block| Entry {
        offset: i64::try_from(block.offset).unwrap_or(i64::MAX),
        block_checksum: block.checksum.to_string().into(),
    }))
}

/// One at a time: the list of a large volume is read without a second copy of its text.
pub(crate) fn read_blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<BlockRef>, D::Error> {
    struct Entries;

    impl<'de> serde::de::Visitor<'de> for Entries {
        type Value = Vec<BlockRef>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("a list of blocks")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut all: A,
        ) -> Result<Self::Value, A::Error> {
            let mut blocks = Vec::new();
            while let Some(entry) = all.next_element::<Entry<'de>>()? {
                let offset = u64::try_from(entry.offset).map_err(A::Error::custom)?;
                let checksum = Checksum::parse(&entry.block_checksum)
                    .ok_or_else(|| A::Error::custom("a block has a checksum that is none"))?;
                blocks.push(BlockRef { offset, checksum });
            }
            Ok(blocks)
        }
    }

    from.deserialize_any(Entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example(blocks: &str, processing: &str) -> String {
        let size = blocks.matches("Offset").count() << 21;
        format!(
            r#"{{"Name":"backup-aaa","VolumeName":"v","SnapshotName":"snap-a","SnapshotCreatedAt":"2026-11-15T06:37:10Z","CreatedTime":"2026-11-15T06:37:12Z","Size":"{size}","Labels":{{"foo":"bar"}},"Parameters":{{"backup-block-size":"2097152"}},"IsIncremental":false,"CompressionMethod":"lz4","NewlyUploadedDataSize":"20634","ReUploadedDataSize":"0","ProcessingBlocks":{processing},{blocks}"SingleFile":{{"FilePath":""}}}}"#
        )
    }

    fn blocks(offsets: &[i64]) -> String {
        let sum = Checksum::of(b"x");
        let all: Vec<_> = offsets
            .iter()
            .map(|offset| format!(r#"{{"Offset":{offset},"BlockChecksum":"{sum}"}}"#))
            .collect();
        format!(r#""Blocks":[{}],"#, all.join(","))
    }

    #[test]
    fn the_example_comes_back_byte_for_byte() {
        for text in [
            example(&blocks(&[0, 2_097_152]), "{}"),
            example(&blocks(&[2_097_152]), "null"),
            example("", "{}"),
        ] {
            let read = BackupCfg::parse(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(read.to_bytes().unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn a_backup_that_has_only_begun_says_so() {
        let (name, volume) = (Name::parse("backup-1").unwrap(), Name::parse("vol").unwrap());
        let begun = BackupCfg::begun(&name, &volume, Compression::Lz4);
        let text = r#"{"Name":"backup-1","VolumeName":"vol","SnapshotName":"","SnapshotCreatedAt":"","CreatedTime":"","Size":"0","Labels":null,"Parameters":null,"IsIncremental":false,"CompressionMethod":"lz4","NewlyUploadedDataSize":"0","ReUploadedDataSize":"0","ProcessingBlocks":null,"SingleFile":{"FilePath":""}}"#;
        assert_eq!(String::from_utf8(begun.to_bytes().unwrap()).unwrap(), text);
        assert!(BackupCfg::parse(text.as_bytes()).unwrap().is_in_progress());
    }

    #[test]
    fn lies_are_refused() {
        for (text, part) in [
            (example(&blocks(&[1]), "{}"), "does not lie on a block"),
            (example(&blocks(&[2_097_152, 0]), "{}"), "out of order"),
            (example(&blocks(&[0, 0]), "{}"), "out of order"),
            (example(&blocks(&[-2_097_152]), "{}"), "out of range"),
            (example(&blocks(&[9_223_372_036_852_678_656]), "{}"), "past every end"),
            (example(r#""Blocks":[{"Offset":0,"BlockChecksum":"../../x"}],"#, "{}"), "checksum"),
            (example("", "{}").replace("2097152", "9999999999"), "size of blocks"),
            (example("", "{}").replace("2097152", "1"), "size of blocks"),
            (example("", "{}").replace("lz4", "zip"), "zip"),
            ("[]".to_owned(), "not an object"),
        ] {
            let error = BackupCfg::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error} for {text}");
        }
    }

    #[test]
    fn no_flipped_bit_makes_a_record_of_less() {
        let text = example(&blocks(&[0, 2_097_152, 8_388_608]), "{}").into_bytes();
        let whole = BackupCfg::parse(&text).unwrap();
        let places = |cfg: &BackupCfg| cfg.blocks.iter().map(|it| it.offset).collect::<Vec<_>>();
        let (mut refused, bits) = (0, text.len() * 8);
        for bit in 0..bits {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let Ok(read) = BackupCfg::parse(&damaged) else {
                refused += 1;
                continue;
            };
            let shown = String::from_utf8_lossy(&damaged);
            assert!(!read.is_in_progress(), "{shown}");
            assert_eq!(read.block_size(), whole.block_size(), "{shown}");
            assert_eq!(places(&read), places(&whole), "{shown}");
        }
        assert!(refused > bits / 4, "{refused} of {bits}");
    }

    #[test]
    fn what_is_missing_has_its_default() {
        let read = BackupCfg::parse(br#"{"Name":"b","Blocks":null,"Labels":null}"#).unwrap();
        assert_eq!(read.compression_method, Compression::Gzip);
        assert_eq!(read.block_size().unwrap(), BlockSize::DEFAULT);
        assert!(read.blocks.is_empty());
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in "\\PC{0,80}", at in 0_usize..400, byte: u8) {
            let _ = BackupCfg::parse(noise.as_bytes());
            let mut damaged = example(&blocks(&[0]), "{}").into_bytes();
            if let Some(place) = damaged.get_mut(at) {
                *place = byte;
            }
            let _ = BackupCfg::parse(&damaged);
            damaged.truncate(at);
            let _ = BackupCfg::parse(&damaged);
        }
    }
}
