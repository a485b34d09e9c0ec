//! A backup store in a directory, with backups of plain files in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backupstore::create::CreateRequest;
use backupstore::{
    BackupStore, Control, Environment, FileSource, LockSchedule, Name, Source, TargetUrl,
};

pub(crate) struct Store {
    dir: PathBuf,
    pub(crate) target: String,
}

impl Store {
    pub(crate) fn at(dir: &Path) -> Self {
        fs::create_dir(dir).unwrap();
        Self { dir: dir.to_owned(), target: format!("vfs://{}", dir.display()) }
    }

    pub(crate) fn url(&self, volume: &str, backup: &str) -> String {
        format!("{}?backup={backup}&volume={volume}", self.target)
    }

    /// The contents of a file as a full backup.
    pub(crate) fn back_up(&self, volume: &str, backup: &str, file: &Path) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let url = TargetUrl::parse(&self.target).unwrap();
            let store = BackupStore::open(&url, &Environment::default()).await.unwrap();
            let schedule = LockSchedule { settle: Duration::ZERO, ..LockSchedule::default() };
            let store = store.with_schedule(schedule);
            let source: Arc<dyn Source> = Arc::new(FileSource::open(file).unwrap());
            let request = CreateRequest {
                backup: Some(Name::parse(backup).unwrap()),
                ..CreateRequest::new(Name::parse(volume).unwrap(), backup)
            };
            let control = Control::default();
            let begun = store.begin_backup(request, Arc::clone(&source), &control).await.unwrap();
            begun.run(source, &control).await.unwrap();
        });
    }

    /// Files of the store whose names end like that, sorted.
    pub(crate) fn files(&self, end: &str) -> Vec<PathBuf> {
        let (mut dirs, mut found) = (vec![self.dir.clone()], Vec::new());
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.to_str().unwrap().ends_with(end) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Spoils one block of a volume; its name in errors.
    pub(crate) fn damage_a_block(&self, volume: &str) -> String {
        let part = format!("/{volume}/blocks/");
        let blocks = self.files(".blk");
        let block = blocks.iter().find(|path| path.to_str().unwrap().contains(&part)).unwrap();
        let mut bytes = fs::read(block).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        durable::replace(block, &bytes).unwrap();
        block.strip_prefix(&self.dir).unwrap().to_str().unwrap().to_owned()
    }
}
