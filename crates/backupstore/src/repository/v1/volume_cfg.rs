//! `volume.cfg`: what a store knows of a volume. Its last five fields are strings in a string.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json::{self, Labels};
use crate::block::Compression;
use crate::name::Name;
use crate::repository::{VolumeRecord, seconds};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeCfg {
    #[serde(default, deserialize_with = "json::text")]
    pub name: String,
    /// In bytes.
    #[serde(default, with = "json::number")]
    pub size: u64,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default, deserialize_with = "json::text")]
    pub created_time: String,
    #[serde(default, deserialize_with = "json::text")]
    pub last_backup_name: String,
    #[serde(default, deserialize_with = "json::text")]
    pub last_backup_at: String,
    #[serde(default, with = "json::number")]
    pub block_count: u64,
    #[serde(default, with = "json::quoted")]
    pub backing_image_name: String,
    #[serde(default, with = "json::quoted")]
    pub backing_image_checksum: String,
    #[serde(default, with = "compression")]
    pub compression_method: Compression,
    #[serde(default, with = "json::quoted")]
    pub storage_class_name: String,
    #[serde(default = "first_engine", with = "engine")]
    pub data_engine: String,
    /// Fields that a later writer added; they stay.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl VolumeCfg {
    pub(crate) fn new(name: &Name, size_bytes: u64, compression: Compression) -> Self {
        Self {
            name: name.to_string(),
            size: size_bytes,
            labels: None,
            created_time: seconds(Timestamp::now()),
            last_backup_name: String::new(),
            last_backup_at: String::new(),
            block_count: 0,
            backing_image_name: String::new(),
            backing_image_checksum: String::new(),
            compression_method: compression,
            storage_class_name: String::new(),
            data_engine: first_engine(),
            others: Map::new(),
        }
    }

    /// What it says.
    pub(crate) fn into_record(self) -> VolumeRecord {
        VolumeRecord {
            name: self.name,
            size_bytes: self.size,
            labels: self.labels,
            created: self.created_time,
            last_backup: self.last_backup_name,
            last_backup_at: self.last_backup_at,
            block_count: self.block_count,
            backing_image: self.backing_image_name,
            backing_image_checksum: self.backing_image_checksum,
            compression: self.compression_method,
            storage_class: self.storage_class_name,
            data_engine: self.data_engine,
        }
    }

    /// Says that from now on; what it knows beyond stays.
    pub(crate) fn change_to(&mut self, record: VolumeRecord) {
        self.name = record.name;
        self.size = record.size_bytes;
        self.labels = record.labels;
        self.created_time = record.created;
        self.last_backup_name = record.last_backup;
        self.last_backup_at = record.last_backup_at;
        self.block_count = record.block_count;
        self.backing_image_name = record.backing_image;
        self.backing_image_checksum = record.backing_image_checksum;
        self.compression_method = record.compression;
        self.storage_class_name = record.storage_class;
        self.data_engine = record.data_engine;
    }
}

fn first_engine() -> String {
    "v1".to_owned()
}

mod compression {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Compression, json};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(
        method: &Compression,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        json::write_quoted(method.as_str(), out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Compression, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        Compression::parse(&json::read_quoted(text)?).map_err(serde::de::Error::custom)
    }
}

mod engine {
    use serde::{Deserializer, Serializer};

    use super::{first_engine, json};

    pub(super) fn serialize<S: Serializer>(engine: &str, out: S) -> Result<S::Ok, S::Error> {
        json::write_quoted(engine, out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let text = json::quoted::deserialize(from)?;
        Ok(if text.is_empty() { first_engine() } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"Name":"v","Size":"4194304","Labels":{"foo":"bar"},"CreatedTime":"2026-11-15T06:37:10Z","LastBackupName":"backup-aaa","LastBackupAt":"2026-11-15T06:37:10Z","BlockCount":"2","BackingImageName":"\"\"","BackingImageChecksum":"\"\"","CompressionMethod":"\"lz4\"","StorageClassName":"\"0\"","DataEngine":"\"v1\""}"#;

    #[test]
    fn the_example_comes_back_byte_for_byte() {
        let read: VolumeCfg = json::from_bytes(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(read.storage_class_name, "0");
        assert_eq!(read.compression_method, Compression::Lz4);
        assert_eq!(json::to_bytes(&read).unwrap(), EXAMPLE.as_bytes());
        let null = EXAMPLE.replace(r#"{"foo":"bar"}"#, "null");
        let read: VolumeCfg = json::from_bytes(null.as_bytes()).unwrap();
        assert_eq!(json::to_bytes(&read).unwrap(), null.as_bytes());
    }

    #[test]
    fn what_is_missing_has_its_default_and_what_is_new_stays() {
        let read: VolumeCfg =
            json::from_bytes(br#"{"Name":"v","Size":"0","DataEngine":"","New":{"a":[1]}}"#)
                .unwrap();
        assert_eq!((read.compression_method, read.data_engine.as_str()), (Compression::Gzip, "v1"));
        let text = String::from_utf8(json::to_bytes(&read).unwrap()).unwrap();
        assert!(text.ends_with(r#""DataEngine":"\"v1\"","New":{"a":[1]}}"#), "{text}");
    }

    #[test]
    fn lies_are_refused() {
        for bad in ["", "[]", "null", "{", r#"{"Size":"-1"}"#, r#"{"Size":"x"}"#, r#"{"Size":7}"#] {
            assert!(json::from_bytes::<VolumeCfg>(bad.as_bytes()).is_err(), "{bad}");
        }
        let bad = r#"{"CompressionMethod":"\"zip\""}"#;
        assert!(json::from_bytes::<VolumeCfg>(bad.as_bytes()).is_err());
        assert!(json::from_bytes::<VolumeCfg>(br#"{"DataEngine":"\"v1"}"#).is_err());
    }
}
