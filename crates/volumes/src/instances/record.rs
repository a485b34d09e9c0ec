//! What is on disk of a process, so that the next manager finds it again.
//!
//! `instances/<kind>-<name>/record.json`, written before the process is started and again when its id
//! is known; `log` beside it. A record without an id is one whose writer was killed in between: the
//! process, if there is one, is found by the run in its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Key, Kind};

const MAX_RECORD_BYTES: usize = 256 * 1024;
/// The newest form of the record this build reads and writes.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) format: u32,
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) volume: String,
    pub(super) image: String,
    /// Identity of this run, also in the environment of the process.
    pub(super) run: String,
    pub(super) ports: (u16, u16),
    pub(super) salvage: bool,
    /// How many of its name it took over from, one after the other.
    #[serde(default)]
    pub(super) turn: u32,
    /// Its command line, for people.
    pub(super) arguments: Vec<String>,
    /// Absent: not started yet, or the start was not seen to its end.
    pub(super) process: Option<ProcessId>,
    /// Present: it ended by itself, and was seen to.
    pub(super) ended: Option<Ended>,
}

/// Which process of which run of the machine: a number alone comes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessId {
    pub(super) pid: u32,
    /// Ticks from the start of the machine to that of the process.
    pub(super) start_ticks: u64,
    pub(super) boot: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

impl Record {
    pub(super) fn new(key: Key, volume: String, image: String, ports: (u16, u16)) -> Self {
        Self {
            format: FORMAT,
            key,
            volume,
            image,
            run: uuid::Uuid::new_v4().to_string(),
            ports,
            salvage: false,
            turn: 0,
            arguments: Vec::new(),
            process: None,
            ended: None,
        }
    }
}

/// The directory of a process.
pub(super) fn folder(root: &Path, key: &Key) -> PathBuf {
    root.join(format!("{}-{}", key.kind.as_str(), key.name))
}

pub(super) fn log_file(root: &Path, key: &Key) -> PathBuf {
    folder(root, key).join("log")
}

fn file(root: &Path, key: &Key) -> PathBuf {
    folder(root, key).join("record.json")
}

/// Marks the second place of a process: one that takes over from another runs beside it. No resource
/// has a name with it.
const SECOND: char = '+';

/// The other of the two places of a process.
pub(super) fn other(key: &Key) -> Key {
    let name = match key.name.strip_suffix(SECOND) {
        Some(first) => first.to_owned(),
        None => format!("{}{SECOND}", key.name),
    };
    Key { kind: key.kind, name }
}

/// The name of a process, whichever place it has.
pub(super) fn first(key: &Key) -> Key {
    let name = key.name.strip_suffix(SECOND).unwrap_or(&key.name);
    Key { kind: key.kind, name: name.to_owned() }
}

/// Whether a name can be part of the name of a directory and of nothing else.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
    (1..=240).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.')
}

pub(super) fn write(root: &Path, record: &Record) -> Result<(), durable::Error> {
    durable::create_dir_private(folder(root, &record.key))?;
    let text = serde_json::to_vec_pretty(record).unwrap_or_default();
    durable::replace_private(file(root, &record.key), &text)
}

/// The record goes, the log stays.
pub(super) fn remove(root: &Path, key: &Key) -> Result<(), durable::Error> {
    match durable::remove(file(root, key)) {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// A record of a folder that cannot be used, and why.
#[derive(Debug)]
pub(super) struct Odd {
    pub(super) folder: OsString,
    pub(super) why: String,
}

/// Every record there is, and the folders whose record cannot be read.
pub(super) fn read_all(root: &Path) -> Result<(Vec<Record>, Vec<Odd>), std::io::Error> {
    let mut records = Vec::new();
    let mut odd = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let _ = durable::sweep(entry.path());
        match read(&entry.path()) {
            Ok(Some(record)) if folder(root, &record.key) == entry.path() => records.push(record),
            Ok(Some(_)) => odd.push(Odd {
                folder: entry.file_name(),
                why: "its record is of another process".to_owned(),
            }),
            // Only a log.
            Ok(None) => {}
            Err(why) => odd.push(Odd { folder: entry.file_name(), why }),
        }
    }
    Ok((records, odd))
}

fn read(folder: &Path) -> Result<Option<Record>, String> {
    let bytes = match durable::read_limited(folder.join("record.json"), MAX_RECORD_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(telemetry::Chain(&error).to_string()),
    };
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if record.format > FORMAT {
        return Err(format!("it has format {}; this build reads up to {FORMAT}", record.format));
    }
    if !is_name(&record.key.name) {
        return Err("its name is no name of a file".to_owned());
    }
    Ok(Some(record))
}

/// Folders of processes that are gone, with the key they were made for.
pub(super) fn folders(root: &Path) -> Vec<Key> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let (kind, name) = name.split_once('-')?;
            let kind = match kind {
                "engine" => Kind::Engine,
                "replica" => Kind::Replica,
                _ => return None,
            };
            Some(Key { kind, name: name.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        Record::new(Key::replica(name), "v".into(), "i".into(), (10, 17))
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = record("v-r-1");
        one.process = Some(ProcessId { pid: 7, start_ticks: 9, boot: "b".into() });
        write(dir.path(), &one).unwrap();
        let (found, odd) = read_all(dir.path()).unwrap();
        assert_eq!((found, odd.len()), (vec![one.clone()], 0));
        remove(dir.path(), &one.key).unwrap();
        remove(dir.path(), &one.key).unwrap();
        assert_eq!(read_all(dir.path()).unwrap().0, vec![]);
        assert_eq!(folders(dir.path()), vec![one.key]);
    }

    #[test]
    fn a_record_that_cannot_be_read_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &record("good")).unwrap();
        let mut newer = record("newer");
        newer.format = FORMAT + 1;
        write(dir.path(), &newer).unwrap();
        let torn = dir.path().join("engine-torn");
        durable::create_dir_private(&torn).unwrap();
        durable::replace(torn.join("record.json"), b"{\"kind\":").unwrap();
        let moved = dir.path().join("replica-moved");
        std::fs::create_dir(&moved).unwrap();
        std::fs::copy(dir.path().join("replica-good/record.json"), moved.join("record.json"))
            .unwrap();
        let (found, odd) = read_all(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(odd.len(), 3);
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for bad in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "a\0"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name("vol_1.x-r-0a1b2c3d"));
    }
}
