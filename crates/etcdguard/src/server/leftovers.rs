//! Removes what was left behind, again and again while etcd is at work: a directory that was set
//! aside, what a restore that was killed began, and files that were half written.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tasks::{Stop, Tasks};

use super::initialize::{self, StatusCell};
use crate::control::{Site, Troubles};
use crate::etcd::{EtcdMonitor, MemberState, Observation};
use crate::restore;

const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// A file that is being written for longer has been given up.
const HALF_WRITTEN: Duration = Duration::from_mins(10);

#[derive(Debug, Clone)]
pub(super) struct Leftovers {
    pub(super) data_dir: PathBuf,
    /// Where files are written that replace others.
    pub(super) written: Vec<PathBuf>,
    pub(super) troubles: Troubles,
}

impl Leftovers {
    /// Whatever failed, or came since, is seen at the next look.
    pub(super) async fn run(
        self,
        monitor: EtcdMonitor,
        status: Arc<StatusCell>,
        tasks: Tasks,
        stop: Stop,
    ) {
        let mut member = monitor.subscribe("leftovers");
        let known = |seen: &Observation| seen.state != MemberState::Unknown;
        while let Some(Some(_)) = stop.or_stop(member.until(known)).await {
            // That may have been an etcd that has ended since, and what was set aside after it is
            // needed until the next one is seen: so it is looked at again.
            let before = status.runs();
            let Some(Some(seen)) = stop.or_stop(member.next()).await else { return };
            if known(&seen) && before == status.runs() && !status.is_in_progress() {
                let this = self.clone();
                let swept = tasks.blocking("sweep", move || this.sweep(SystemTime::now()));
                if let Err(error) = swept.await {
                    tracing::warn!("leftovers stay: {}", telemetry::Chain(&error));
                }
            }
            if stop.or_stop(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                return;
            }
        }
    }

    fn sweep(&self, now: SystemTime) {
        if let Err(error) = initialize::remove_old(&self.data_dir) {
            let why = telemetry::Chain(&error);
            self.stays(&format!("what was set aside was not removed: {why}"));
        }
        if let Err(error) = restore::forget(&self.data_dir) {
            let why = telemetry::Chain(&error);
            self.stays(&format!("what a restore left was not removed: {why}"));
        }
        for dir in &self.written {
            self.sweep_half_written(dir, now);
        }
    }

    fn stays(&self, why: &str) {
        tracing::warn!("{why}");
        self.troubles.tell(Site::Leftovers, why);
    }

    fn sweep_half_written(&self, dir: &Path, now: SystemTime) {
        // What is not there, or cannot be read, has nothing for us.
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for entry in entries.filter_map(Result::ok) {
            if !durable::on::is_beside(&entry.file_name()) {
                continue;
            }
            let written = entry.metadata().and_then(|it| it.modified()).unwrap_or(now);
            if now.duration_since(written).is_ok_and(|age| age > HALF_WRITTEN) {
                tracing::info!("removing {}, which was never finished", entry.path().display());
                if let Err(error) = std::fs::remove_file(entry.path()) {
                    let why = telemetry::Chain(&error);
                    self.stays(&format!("{} was not removed: {why}", entry.path().display()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::etcd::wire::ResponseHeader;
    use crate::etcd::{EtcdError, StatusResponse, StatusSource};

    /// Answers as an etcd that leads, until it has ended.
    struct Ending(AtomicBool);

    #[async_trait::async_trait]
    impl StatusSource for Ending {
        async fn status(&self, _: Duration) -> Result<StatusResponse, EtcdError> {
            if self.0.load(Ordering::Relaxed) {
                return Err(EtcdError::Setup("nobody there".to_owned()));
            }
            let header = Some(ResponseHeader { member_id: 1, ..ResponseHeader::default() });
            Ok(StatusResponse { header, leader: 1, ..StatusResponse::default() })
        }
    }

    /// Between two looks the etcd ended and its directory was restored: what was seen last is not the
    /// etcd that is to prove that the new one is good.
    #[tokio::test(start_paused = true)]
    async fn what_was_set_aside_stays_until_an_etcd_is_seen_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data.etcd");
        let old = dir.path().join("data.etcd.old");
        let source = Arc::new(Ending(AtomicBool::new(false)));
        let seldom = Duration::from_secs(1000);
        let monitor = EtcdMonitor::new(Arc::clone(&source) as _, seldom, Duration::from_secs(5));
        let swept = data_dir.clone();
        let (written, troubles) = (Vec::new(), Troubles::default());
        let leftovers = Leftovers { data_dir: swept, written, troubles };
        let (tasks, status) = (Tasks::new(), Arc::new(StatusCell::default()));
        let (polled, swept) = (monitor.clone(), (status.clone(), tasks.clone()));
        tasks.spawn_draining("leftovers", |stop| leftovers.run(monitor, swept.0, swept.1, stop));
        tasks.spawn_draining("monitor", |stop| async move { polled.run(&stop).await });
        tokio::time::sleep(Duration::from_secs(1030)).await;
        source.0.store(true, Ordering::Relaxed);
        status.begin().unwrap().end(true);
        std::fs::create_dir(&data_dir).unwrap();
        restore::set_aside(&data_dir).unwrap();
        tokio::time::sleep(Duration::from_secs(5000)).await;
        assert!(old.exists(), "no etcd was seen since");
        source.0.store(false, Ordering::Relaxed);
        while old.exists() {
            tokio::time::sleep(seldom).await;
        }
    }

    #[test]
    fn what_was_left_goes_and_what_is_being_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data.etcd");
        std::fs::create_dir_all(data_dir.join("member")).unwrap();
        restore::set_aside(&data_dir).unwrap();
        for name in ["data.etcd/member", "data.etcd.part/data"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        std::fs::File::create(dir.path().join("data.etcd.part/lock")).unwrap();
        let half = dir.path().join(".durable-17.tmp");
        for path in [half.clone(), dir.path().join("safe_guard")] {
            std::fs::File::create(path).unwrap();
        }
        let leftovers = Leftovers {
            data_dir,
            written: vec![dir.path().to_owned()],
            troubles: Troubles::default(),
        };
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        leftovers.sweep(SystemTime::now());
        assert_eq!(names(), [".durable-17.tmp", "data.etcd", "safe_guard"]);
        leftovers.sweep(SystemTime::now() + 2 * HALF_WRITTEN);
        assert_eq!(names(), ["data.etcd", "safe_guard"]);
    }
}
