//! `drill`: restores the newest backup aside, boots an etcd on it, compares, and reports.

mod boot;

use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;

use self::boot::{Booted, find};
use super::error::CommandError;
use super::parse::Line;
use super::scratch::Scratch;
use super::{Context, settings};
use crate::bolt::Bolt;
use crate::control::Schedule;
use crate::datadir;
use crate::restore::{self, Existing, Progress, Target};
use crate::server::config::{ConfigError, RestorationConfig};
use crate::server::controllers;
use crate::store::SnapStore;

/// How a drill went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    started_at: Timestamp,
    seconds: f64,
    succeeded: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    snapshots: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<i64>,
    #[serde(rename = "hashKV", skip_serializing_if = "Option::is_none")]
    hash_kv: Option<u32>,
    /// What an etcd says about the same data; nothing where there was none to boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd: Option<Booted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a drill is told.
struct Drill<'c> {
    store: SnapStore,
    restoration: RestorationConfig,
    etcd: Option<PathBuf>,
    scratch: Option<PathBuf>,
    context: &'c Context,
}

pub(crate) async fn run(line: &Line, context: &Context) -> Result<(), CommandError> {
    let given = &line.given;
    let store = settings::store(given, "");
    store.validate().map_err(ConfigError::Store)?;
    let drill = Drill {
        store: SnapStore::open(&store, &context.environment)?,
        restoration: settings::restoration(given),
        etcd: find(&given.text("etcd"))?,
        scratch: Some(given.text("scratch-dir")).filter(|it| !it.is_empty()).map(PathBuf::from),
        context,
    };
    if drill.etcd.is_none() {
        tracing::warn!("there is no etcd to boot: the result is only checked by ourselves");
    }
    let file = given.text("report-file");
    let schedule = given.text("drill-schedule");
    if schedule.is_empty() {
        let report = drill.run().await;
        publish(&report, &file)?;
        return if report.succeeded { Ok(()) } else { Err(CommandError::Drill) };
    }
    let schedule = controllers::schedule("drill-schedule", &schedule)?;
    loop {
        wait(&schedule).await;
        publish(&drill.run().await, &file)?;
    }
}

/// Until the next time; in pieces, as the clock may be set meanwhile.
async fn wait(schedule: &Schedule) {
    const PIECE: std::time::Duration = std::time::Duration::from_secs(30);
    let Some(next) = schedule.next(Timestamp::now()) else {
        return std::future::pending().await;
    };
    while let Ok(left) = std::time::Duration::try_from(next.duration_since(Timestamp::now())) {
        tokio::time::sleep(left.min(PIECE)).await;
        if left.is_zero() {
            return;
        }
    }
}

fn publish(report: &Report, file: &str) -> Result<(), CommandError> {
    if !file.is_empty() {
        let text =
            serde_json::to_vec(report).map_err(|error| CommandError::Output(error.into()))?;
        durable::replace(file, &text)
            .map_err(|error| CommandError::Output(std::io::Error::other(error)))?;
    }
    super::print_json(report)
}

impl Drill<'_> {
    async fn run(&self) -> Report {
        let mut report = Report {
            started_at: Timestamp::now(),
            seconds: 0.0,
            succeeded: false,
            snapshots: Vec::new(),
            revision: None,
            hash_kv: None,
            etcd: None,
            error: None,
        };
        let begun = Instant::now();
        match self.go_through(&mut report).await {
            Ok(()) => report.succeeded = true,
            Err(why) => report.error = Some(why),
        }
        report.seconds = begun.elapsed().as_secs_f64();
        report
    }

    async fn go_through(&self, report: &mut Report) -> Result<(), String> {
        let text = |error: &dyn std::error::Error| telemetry::Chain(error).to_string();
        let scratch = match &self.scratch {
            Some(path) => Scratch::at(path.clone()),
            None => Scratch::new("drill"),
        };
        let scratch = scratch.map_err(|error| text(&error))?;
        let latest = self.store.latest().await.map_err(|error| text(&error))?;
        let names = latest.full.iter().chain(&latest.deltas);
        report.snapshots = names.map(|snapshot| snapshot.snap_name.clone()).collect();
        let mut how = self.restoration.restoration(Existing::Refuse);
        how.data_dir = scratch.path().join("restored.etcd");
        how.temp_dir = scratch.path().join("fetched");
        let progress = Progress::default();
        let restored = restore::restore(&self.store, &how, Target::Newest, &progress).await;
        let restored = restored.map_err(|error| text(&error))?;
        report.revision = Some(restored.revision);
        let hash = self.check(&how.data_dir).await?;
        report.hash_kv = Some(hash);
        let Some(program) = &self.etcd else { return Ok(()) };
        let name = &self.restoration.name;
        let booted = boot::boot(program, name, &how.data_dir).await?;
        let agrees = booted.revision == restored.revision && booted.hash_kv == hash;
        report.etcd = Some(booted);
        if agrees { Ok(()) } else { Err("etcd sees other data than was restored".to_owned()) }
    }

    /// Every page, row and record; and the hash over all rows.
    async fn check(&self, dir: &Path) -> Result<u32, String> {
        let dir = dir.to_owned();
        let looked = self.context.tasks.blocking("check the drill", move || {
            let text = |error: &dyn std::error::Error| telemetry::Chain(error).to_string();
            datadir::check(&dir, datadir::Mode::Full).map_err(|error| text(&error))?;
            let bolt = Bolt::open(&dir.join(datadir::DATABASE)).map_err(|error| text(&error))?;
            let hash = datadir::hash_kv(&bolt, None).map_err(|error| text(&error))?;
            Ok(hash.hash)
        });
        looked.await.map_err(|error| error.to_string())?
    }
}
