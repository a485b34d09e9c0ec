//! The small JSON files of a replica directory: exact when written, lenient when read.
//!
//! Key names, their order and their types are the peer's. A missing key or a null is the zero of
//! its type; unknown keys are skipped. Nothing here touches files or believes a number: sizes and
//! names are checked where they are used.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// The largest metadata file read; labels are the only part without a natural bound.
pub(crate) const META_MAX_BYTES: usize = 1024 * 1024;
/// The sector size of `volume.meta`, reported to callers. The unit of allocation is larger, see
/// [`crate::disk::SECTOR_BYTES`].
pub(crate) const REPORTED_SECTOR_BYTES: i64 = 512;

pub type Labels = BTreeMap<String, String>;

/// `volume.meta`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMeta {
    #[serde(deserialize_with = "nullable")]
    pub size: i64,
    #[serde(deserialize_with = "nullable")]
    pub head: String,
    #[serde(deserialize_with = "nullable")]
    pub dirty: bool,
    #[serde(deserialize_with = "nullable")]
    pub rebuilding: bool,
    /// Not empty: the copy is not to be used.
    #[serde(deserialize_with = "nullable")]
    pub error: String,
    #[serde(deserialize_with = "nullable")]
    pub parent: String,
    #[serde(deserialize_with = "nullable")]
    pub sector_size: i64,
    #[serde(deserialize_with = "nullable")]
    pub backing_file_path: String,
    #[serde(deserialize_with = "nullable")]
    pub encrypted: bool,
}

/// `*.img.meta`. The name in the file is written for the peer and never read: the file name counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DiskMeta {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub parent: String,
    #[serde(deserialize_with = "nullable")]
    pub removed: bool,
    #[serde(deserialize_with = "nullable")]
    pub user_created: bool,
    #[serde(deserialize_with = "nullable")]
    pub created: String,
    /// `None` is written as null.
    pub labels: Option<Labels>,
}

/// `*.img.checksum`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checksum {
    #[serde(deserialize_with = "nullable")]
    pub method: String,
    #[serde(deserialize_with = "nullable")]
    pub checksum: String,
    #[serde(deserialize_with = "nullable")]
    pub change_time: String,
    #[serde(deserialize_with = "nullable")]
    pub last_hashed_at: String,
    #[serde(deserialize_with = "nullable")]
    pub silently_corrupted: bool,
}

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// One line, as the peer writes it.
pub(crate) fn to_line<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line<T: Serialize>(value: &T) -> String {
        String::from_utf8(to_line(value).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_byte_for_byte_what_the_peer_writes() {
        let volume = VolumeMeta {
            size: 4_194_304,
            head: "volume-head-000.img".into(),
            sector_size: REPORTED_SECTOR_BYTES,
            ..VolumeMeta::default()
        };
        let expected = r#"{"Size":4194304,"Head":"volume-head-000.img","Dirty":false,"Rebuilding":false,"Error":"","Parent":"","SectorSize":512,"BackingFilePath":"","Encrypted":false}"#;
        assert_eq!(line(&volume), format!("{expected}\n"));
        let disk = DiskMeta {
            name: "volume-head-000.img".into(),
            created: "2026-11-15T06:25:24Z".into(),
            ..DiskMeta::default()
        };
        let expected = r#"{"Name":"volume-head-000.img","Parent":"","Removed":false,"UserCreated":false,"Created":"2026-11-15T06:25:24Z","Labels":null}"#;
        assert_eq!(line(&disk), format!("{expected}\n"));
        let sum = Checksum {
            method: "crc64".into(),
            checksum: "2e9e6d39c440513f".into(),
            change_time: "2026-11-15 06:37:08.556325018 +0000 UTC".into(),
            last_hashed_at: "2026-11-15T06:37:08Z".into(),
            silently_corrupted: false,
        };
        let expected = r#"{"method":"crc64","checksum":"2e9e6d39c440513f","change_time":"2026-11-15 06:37:08.556325018 +0000 UTC","last_hashed_at":"2026-11-15T06:37:08Z","silently_corrupted":false}"#;
        assert_eq!(line(&sum), format!("{expected}\n"));
    }

    #[test]
    fn missing_and_null_keys_are_zero_and_unknown_ones_are_skipped() {
        let disk: DiskMeta = serde_json::from_str(r#"{"Parent":""}"#).unwrap();
        assert_eq!(disk, DiskMeta::default());
        let disk: DiskMeta =
            serde_json::from_str(r#"{"Parent":null,"Later":[1],"Labels":{"a":"b"}}"#).unwrap();
        assert_eq!(disk.labels.unwrap()["a"], "b");
        assert!(serde_json::from_str::<DiskMeta>(r#"{"Removed":"yes"}"#).is_err());
        assert!(serde_json::from_str::<VolumeMeta>(r#"{"Size":1e99}"#).is_err());
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = serde_json::from_slice::<VolumeMeta>(&bytes);
            let _ = serde_json::from_slice::<DiskMeta>(&bytes);
            let _ = serde_json::from_slice::<Checksum>(&bytes);
        }

        #[test]
        fn what_was_written_reads_back(
            parent in ".{0,20}", created in ".{0,20}", removed: bool,
            labels in prop::option::of(prop::collection::btree_map(".{0,5}", ".{0,5}", 0..4)),
        ) {
            let disk = DiskMeta { parent, removed, created, labels, ..DiskMeta::default() };
            let read: DiskMeta = serde_json::from_slice(&to_line(&disk).unwrap()).unwrap();
            prop_assert_eq!(read, disk);
        }
    }
}
