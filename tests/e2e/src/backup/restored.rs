//! A volume that backups are restored to.

use serde_json::Value;
use testkit::process::poll_until;

use super::Target;
use crate::engine::{Frontend, Setup, TIMEOUT, Volume};

#[derive(Debug)]
pub struct Restored {
    pub volume: Volume,
}

impl Restored {
    /// An empty one, without a frontend.
    #[track_caller]
    pub fn fresh(replicas: usize, size_bytes: u64) -> Self {
        let frontend = Frontend::None;
        Self { volume: Volume::start(Setup { replicas, size_bytes, frontend, ..Setup::default() }) }
    }

    /// Begins; the error is what the command says on standard output.
    pub fn begin(&self, target: &Target, volume: &str, backup: &str) -> Result<(), String> {
        let url = target.backup_url(volume, backup);
        let cli = self.volume.cli().with(&target.environment());
        let ran = cli.call(&["backup", "restore", &url, "--concurrent-limit", "2"]);
        if ran.code == Some(0) {
            return Ok(());
        }
        assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
        Err(ran.stdout)
    }

    pub fn statuses(&self) -> Vec<Value> {
        let statuses = self.volume.cli().json(&["backup", "restore-status"]);
        statuses.as_object().unwrap().values().cloned().collect()
    }

    /// Until no replica restores any more.
    #[track_caller]
    pub fn wait(&self, backup: &str) -> Result<(), String> {
        let ended = poll_until(2 * TIMEOUT, || {
            let statuses = self.statuses();
            if statuses.iter().any(|status| status["isRestoring"] == true) {
                return None;
            }
            let is_done = |it: &Value| it["state"] == "complete" && it["lastRestored"] == backup;
            if statuses.iter().all(is_done) {
                return Some(Ok(()));
            }
            let errors = statuses.iter().filter_map(|it| it["error"].as_str());
            Some(Err(errors.collect::<Vec<_>>().join("; ")))
        });
        ended.unwrap_or_else(|| panic!("the restore of {backup} does not end"))
    }

    /// From its begin to its end.
    #[track_caller]
    pub fn try_restore(&self, target: &Target, volume: &str, backup: &str) -> Result<(), String> {
        self.begin(target, volume, backup)?;
        self.wait(backup)
    }

    /// Restores a backup; every replica then holds `expected`.
    #[track_caller]
    pub fn restore(&self, target: &Target, volume: &str, backup: &str, expected: &[u8]) {
        let restored = self.try_restore(target, volume, backup);
        restored.unwrap_or_else(|error| panic!("{backup}: {error}"));
        self.assert_holds(expected, backup);
    }

    #[track_caller]
    pub fn assert_holds(&self, expected: &[u8], what: &str) {
        let found = self.volume.assert_equal();
        // Printing images helps nobody.
        assert!(found == expected, "{what} is restored to something else");
    }
}
