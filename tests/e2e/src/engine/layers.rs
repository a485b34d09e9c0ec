//! A replica directory, read as plain files: the layers of its chain laid over each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The chain of a replica, as its metadata files tell it.
#[derive(Debug)]
pub struct Layers {
    dir: PathBuf,
    size_bytes: u64,
    /// Names of image files, the oldest first, the head last.
    chain: Vec<String>,
}

impl Layers {
    #[track_caller]
    pub fn open(dir: &Path) -> Self {
        let volume = json(&dir.join("volume.meta"));
        let mut chain = Vec::new();
        let mut next = volume["Head"].as_str().unwrap().to_owned();
        while !next.is_empty() {
            let parent = json(&dir.join(format!("{next}.meta")))["Parent"].as_str().unwrap().into();
            chain.push(std::mem::replace(&mut next, parent));
            assert!(chain.len() < 1000, "the chain is a ring: {chain:?}");
        }
        chain.reverse();
        Self { dir: dir.to_owned(), size_bytes: volume["Size"].as_u64().unwrap(), chain }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Image files, the oldest first, the head last.
    pub fn chain(&self) -> &[String] {
        &self.chain
    }

    /// Shows the volume at each snapshot of the chain, by snapshot name, the oldest first, and then
    /// at the head (`volume-head`).
    pub fn each(&self, mut look: impl FnMut(&str, &[u8])) {
        let mut contents = vec![0; usize::try_from(self.size_bytes).unwrap()];
        for layer in &self.chain {
            overlay(&self.dir.join(layer), &mut contents);
            look(snapshot_name(layer), &contents);
        }
    }

    /// The volume at each snapshot of the chain, by snapshot name, and at the head.
    pub fn states(&self) -> BTreeMap<String, Vec<u8>> {
        let mut states = BTreeMap::new();
        self.each(|name, contents| {
            states.insert(name.to_owned(), contents.to_vec());
        });
        states
    }

    /// SHA-256 of the volume at each snapshot of the chain, by snapshot name, and at the head
    /// (`volume-head`).
    pub fn sums(&self) -> BTreeMap<String, String> {
        let mut sums = BTreeMap::new();
        self.each(|name, contents| {
            sums.insert(name.to_owned(), sum(contents));
        });
        sums
    }

    /// The volume as the head shows it.
    pub fn contents(&self) -> Vec<u8> {
        let mut head = Vec::new();
        self.each(|name, contents| {
            if name == "volume-head" {
                head = contents.to_vec();
            }
        });
        head
    }
}

fn snapshot_name(layer: &str) -> &str {
    let snapshot = layer.strip_prefix("volume-snap-").and_then(|it| it.strip_suffix(".img"));
    snapshot.unwrap_or("volume-head")
}

#[track_caller]
fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Copies what is no hole.
fn overlay(path: &Path, contents: &mut [u8]) {
    let file = File::open(path).unwrap();
    let mut at = 0;
    loop {
        let begin = match seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(Errno::NXIO) => return,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        at = seek(&file, SeekFrom::Hole(begin)).unwrap();
        let len = contents.len();
        let range = usize::try_from(begin).unwrap().min(len)..usize::try_from(at).unwrap().min(len);
        file.read_exact_at(&mut contents[range], begin).unwrap();
    }
}

/// SHA-256, in hexadecimal.
pub fn sum(contents: &[u8]) -> String {
    Sha256::digest(contents).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
