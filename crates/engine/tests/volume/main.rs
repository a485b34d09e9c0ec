//! The data thread and its frontends from outside: replicas that behave and that do not, clients
//! that behave and that do not.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "tests"
)]

mod fake;
mod file;
mod nbd;
mod nbd_tls;
mod nbd_tools;
mod replicas;
mod rest;
mod socket;
mod tgt;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::NbdOptions;
use engine::core::{Command, Done, Fault, Settings};
use engine::frontend::{FrontendOptions, Host, Inherited};
use engine::volume::Volume;

const MIB: u64 = 1 << 20;

/// Long enough for a machine under load; nothing waits as long when all is well.
const TIMEOUT: Duration = Duration::from_mins(2);

fn settings() -> Settings {
    Settings {
        replica_timeout: Duration::from_secs(8),
        ping_interval: Duration::from_secs(2),
        write_through: false,
    }
}

/// A machine that is all below one folder.
fn host(folder: &Path) -> Host {
    Host {
        run_dir: folder.to_owned(),
        device_dir: folder.join("dev"),
        sys_block: folder.join("sys"),
        namespaces: folder.join("no-namespaces"),
        tools: Some(folder.join("bin").into()),
        rest_listen: "localhost:0".to_owned(),
    }
}

fn options() -> FrontendOptions {
    FrontendOptions {
        volume: "vol".to_owned(),
        nbd: NbdOptions::default(),
        upgrade: false,
        replica_timeout: Duration::from_secs(8),
        inherited: Inherited::default(),
    }
}

/// Waits for `condition`, by asking again and again.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn write(volume: &Volume, offset: u64, byte: u8, len: usize) -> Result<Done, Fault> {
    let data = Bytes::from(vec![byte; len]);
    volume.submit(Command::Write { offset, data, durable: false }).await
}

async fn read(volume: &Volume, offset: u64, len: u32) -> Bytes {
    match volume.submit(Command::Read { offset, len }).await {
        Ok(Done::Data(data)) => data,
        other => panic!("data, not {other:?}"),
    }
}
