//! Many backups in a store that somebody else has made: read, and one of them deleted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::cluster::Cluster;
use super::many::idle;
use super::seen::Seen;
use super::{LONGHORN, Options, float, mebibytes};

/// Backups of each volume.
const EACH: usize = 10;
const DELETIONS: usize = 20;

pub(super) async fn measure(options: &Options) -> Result<()> {
    let volumes = options.backups.div_ceil(EACH);
    let count = volumes * EACH;
    println!("\n## {count} backups of {volumes} volumes in a directory\n");
    let cluster = Cluster::start().await?;
    let store = cluster.path().join("store");
    for number in 0..volumes {
        write(&store, number)?;
    }
    let endpoint = cluster.endpoint()?;
    let state = |backup: &Value| backup["status"]["state"].clone();
    let seen = Seen::start(&endpoint, "backups", state).await?;
    let before = cluster.used().await?;
    let began = Instant::now();
    let mut connection = endpoint.connect().await?;
    let path = format!("{LONGHORN}/backuptargets/default");
    let url = format!("vfs://{}", store.display());
    let body = json!({"spec": {"backupTargetURL": url, "pollInterval": "300s"}});
    while connection.get(&path).await?.code() != 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = connection.merge(&path, &body).await?;
    ensure!(answer.code() == 200, "{}", answer.json());
    seen.until("all backups", |all| all.len() == count && all.values().all(|it| it == "Completed"))
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    let used = cluster.used().await?.since(before);
    println!("| what | time | a second | reconciles | controllers | server |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| read from the store | {seconds:.1} s | {:.0} | {:.0} | {:.1} s | {:.1} s |",
        float(count) / seconds,
        used.passes,
        used.controllers_s,
        used.server_s
    );
    let idle = idle(&cluster, options.idle).await?;
    let (mut total, before) = (Duration::ZERO, cluster.used().await?);
    for number in 0..DELETIONS.min(volumes) {
        let name = backup(number, EACH / 2);
        let began = Instant::now();
        let answer = connection.delete(&format!("{LONGHORN}/backups/{name}")).await?;
        ensure!(answer.code() == 200, "{}", answer.json());
        seen.until("the backup to go", |all| !all.contains_key(&name)).await?;
        total += began.elapsed();
        ensure!(!record(&store, number, EACH / 2).exists(), "{name} is gone and its record is not");
    }
    let used = cluster.used().await?.since(before);
    let deletions = float(DELETIONS.min(volumes));
    println!(
        "| one deleted (mean of {deletions}) | {:.0} ms | | {:.1} | {:.1} ms | {:.1} ms |",
        total.as_secs_f64() * 1000.0 / deletions,
        used.passes / deletions,
        used.controllers_s * 1000.0 / deletions,
        used.server_s * 1000.0 / deletions
    );
    println!("\n- idle: {idle}");
    let (server, controllers) = cluster.resident_bytes()?;
    println!(
        "- memory: server {:.0} MiB, controllers {:.0} MiB",
        mebibytes(server),
        mebibytes(controllers)
    );
    Ok(())
}

fn volume(number: usize) -> String {
    format!("stored-{number:06}")
}

fn backup(number: usize, one: usize) -> String {
    format!("backup-{number:06}-{one}")
}

/// The folder of a volume, in the layout of the store.
fn folder(store: &Path, number: usize) -> std::path::PathBuf {
    let name = volume(number);
    let digest = Sha512::digest(name.as_bytes());
    let hex = |at: usize| format!("{:02x}", digest.get(at).copied().unwrap_or(0));
    store.join("backupstore/volumes").join(hex(0)).join(hex(1)).join(name)
}

fn record(store: &Path, number: usize, one: usize) -> std::path::PathBuf {
    folder(store, number).join(format!("backups/backup_{}.cfg", backup(number, one)))
}

/// A volume of zeros with its backups.
fn write(store: &Path, number: usize) -> Result<()> {
    const AT: &str = "2026-11-15T06:37:10Z";
    let dir = folder(store, number);
    fs::create_dir_all(dir.join("backups"))?;
    let none = "\"\"";
    let last = backup(number, EACH - 1);
    let text = json!({"Name": volume(number), "Size": "4194304", "Labels": {}, "CreatedTime": AT,
        "LastBackupName": last, "LastBackupAt": AT, "BlockCount": "0",
        "BackingImageName": none, "BackingImageChecksum": none, "CompressionMethod": "\"lz4\"",
        "StorageClassName": none, "DataEngine": "\"v1\""});
    e2e::write(&dir.join("volume.cfg"), &text.to_string());
    for one in 0..EACH {
        let text = json!({"Name": backup(number, one), "VolumeName": volume(number),
            "SnapshotName": format!("snap-{one}"), "SnapshotCreatedAt": AT, "CreatedTime": AT,
            "Size": "0", "Labels": {}, "Parameters": {"backup-block-size": "2097152"},
            "IsIncremental": false, "CompressionMethod": "lz4", "NewlyUploadedDataSize": "0",
            "ReUploadedDataSize": "0", "ProcessingBlocks": {}, "SingleFile": {"FilePath": ""}});
        e2e::write(&record(store, number, one), &text.to_string());
    }
    Ok(())
}
