//! Where backups go: a directory, or an S3 server on loopback that keeps its objects in one.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Result;

use super::s3;
use crate::measure::stored_bytes;
use crate::usage;

const BUCKET: &str = "bench";
const KEY: &str = "bench-key";
const SECRET: &str = "bench-secret";

pub(crate) struct Target {
    /// What is stored lies below it.
    root: PathBuf,
    server: Option<s3::Server>,
}

/// To the store or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Target {
    pub(crate) fn directory(root: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&root)?;
        Ok(Self { root, server: None })
    }

    /// Behind a server of its own.
    pub(crate) fn s3(root: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&root)?;
        let server = s3::Server::start(root.clone())?;
        Ok(Self { root, server: Some(server) })
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.server.is_some() { "S3" } else { "directory" }
    }

    pub(crate) fn is_s3(&self) -> bool {
        self.server.is_some()
    }

    /// As our commands take it.
    pub(crate) fn url(&self) -> String {
        match &self.server {
            None => format!("vfs://{}", self.root.join("holdfast").display()),
            Some(_) => format!("s3://{BUCKET}@us-east-1/holdfast"),
        }
    }

    /// As restic takes it.
    pub(crate) fn restic(&self) -> String {
        match &self.server {
            None => self.root.join("restic").display().to_string(),
            Some(server) => format!("s3:http://127.0.0.1:{}/{BUCKET}/restic", server.port()),
        }
    }

    /// As borg takes it, which knows directories only.
    pub(crate) fn borg(&self) -> PathBuf {
        self.root.join("borg")
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(server) = &self.server else { return Vec::new() };
        vec![
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINTS", format!("http://127.0.0.1:{}", server.port())),
        ]
    }

    /// Requests so far; a directory has none.
    pub(crate) fn requests(&self) -> Option<u64> {
        self.server.as_ref().map(s3::Server::requests)
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        stored_bytes(&self.root)
    }

    /// A count that grows with what is moved; `workers` read and write the directory themselves.
    pub(crate) fn traffic(&self, direction: Direction, workers: &[u32]) -> u64 {
        match (&self.server, direction) {
            (None, Direction::Up) => self.stored_bytes(),
            (None, Direction::Down) => {
                workers.iter().filter_map(|pid| usage::read_bytes(*pid)).sum()
            }
            (Some(server), Direction::Up) => server.received_bytes(),
            (Some(server), Direction::Down) => server.sent_bytes(),
        }
    }

    /// Has all that is stored in the memory of the kernel, whoever wrote it and how.
    pub(crate) fn warm(&self) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let mut file = File::open(path)?;
                while file.read(&mut buffer)? > 0 {}
            }
        }
        Ok(())
    }

    /// Empties it for the next one.
    pub(crate) fn clear(&self) -> Result<()> {
        if let Some(server) = &self.server {
            server.clear();
        }
        for entry in std::fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.is_dir() {
                std::fs::remove_dir_all(path)?;
            } else {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}
