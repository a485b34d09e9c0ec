//! A raw file as the replica.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use engine::core::{Command, Done, Mode};
use engine::volume::{DataTarget, Volume};
use rpc::Features;
use wire::frame::Run;

use crate::{MIB, read, settings, write};

async fn volume() -> (Volume, File, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.set_len(MIB).unwrap();
    let volume = Volume::start("vol", settings()).unwrap();
    volume.resize(MIB).await.unwrap();
    volume.attach(&DataTarget::File(path), Features::NONE, Mode::Rw).await.unwrap();
    (volume, file, folder)
}

#[tokio::test]
async fn bytes_are_those_of_the_file() {
    let (volume, file, _folder) = volume().await;
    write(&volume, 12_288, 7, 8192).await.unwrap();
    assert_eq!(volume.submit(Command::Flush).await, Ok(Done::Count(0)));
    let mut found = vec![0; 8192];
    file.read_exact_at(&mut found, 12_288).unwrap();
    assert_eq!(found, vec![7; 8192]);
    assert_eq!(read(&volume, 12_288, 8192).await, found);
    assert_eq!(read(&volume, 0, 512).await, vec![0; 512]);
}

#[tokio::test]
async fn zeros_are_holes_and_holes_are_known() {
    let (volume, file, _folder) = volume().await;
    write(&volume, 0, 7, 65_536).await.unwrap();
    let before = file.metadata().unwrap().blocks();
    let zero = Command::Zero { offset: 16_384, len: 16_384, durable: true };
    assert_eq!(volume.submit(zero).await, Ok(Done::Count(16_384)));
    assert!(file.metadata().unwrap().blocks() < before);
    assert_eq!(read(&volume, 16_384, 16_384).await, vec![0; 16_384]);
    let status = volume.submit(Command::Status { offset: 0, len: 131_072 }).await;
    let run = |len, hole| Run { len, hole };
    let runs = vec![run(16_384, false), run(16_384, true), run(32_768, false), run(65_536, true)];
    assert_eq!(status, Ok(Done::Runs(runs)));
}

#[tokio::test]
async fn an_unmap_frees_whole_sectors_and_leaves_parts_of_them_alone() {
    let (volume, _file, _folder) = volume().await;
    write(&volume, 0, 7, 16_384).await.unwrap();
    let unmap = |offset, len| volume.submit(Command::Unmap { offset, len });
    unmap(512, 4096).await.unwrap();
    assert_eq!(read(&volume, 0, 8192).await, vec![7; 8192]);
    unmap(512, 8192).await.unwrap();
    let expected = [vec![7; 4096], vec![0; 4096], vec![7; 8192]].concat();
    assert_eq!(read(&volume, 0, 16_384).await, expected);
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let (volume, _file, _folder) = volume().await;
    let writes = (0..200_u64).map(|index| {
        let volume = volume.clone();
        async move { write(&volume, index * 4096, index as u8, 4096).await }
    });
    for ended in futures::future::join_all(writes).await {
        assert_eq!(ended, Ok(Done::Count(4096)));
    }
    for index in 0..200_u64 {
        assert_eq!(read(&volume, index * 4096, 1).await[0], index as u8);
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_an_error() {
    let (volume, _file, folder) = volume().await;
    let missing = DataTarget::File(folder.path().join("missing"));
    let refused = volume.attach(&missing, Features::NONE, Mode::Rw).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
}
