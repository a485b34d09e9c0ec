//! Frontends `tgt-iscsi` and `tgt-blockdev`: the `socket` frontend under a target of tgt, and for
//! the latter a local iSCSI session to it and a device node.
//!
//! Owns: the order of the calls. Never: the target's data; tgt reads and writes the socket. tgt
//! cannot pass a flush on, so volumes under it write through.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::{FutureExt, LocalBoxFuture};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use self::output::{disk_of_session, free_target_id, target_id};
use self::tools::{IscsiLock, Tool, Tools};
use super::socket::Socket;
use super::{Frontend, FrontendError, Site};

mod output;
mod tools;

const LUN: &str = "1";

/// Where the target of tgt listens for sessions of this machine.
const PORTAL: &str = "127.0.0.1";

/// Seconds the kernel gives one command.
const SCSI_TIMEOUT: &str = "60";

/// No write cache: what is answered is on disk.
const WRITE_CACHE_OFF: &str =
    "mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0";

/// Makes tgt open the socket again.
const RECONNECT: [&str; 6] = ["a6", "00", "00", "00", "00", "00"];

/// How far the volume is brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Up to the target; others log in.
    Iscsi,
    /// Up to a device node on this machine.
    BlockDevice,
}

pub(crate) struct Tgt {
    socket: Socket,
    tools: Tools,
    target: Target,
    iqn: String,
    run_dir: PathBuf,
    device: PathBuf,
    sys_block: PathBuf,
}

impl Tgt {
    pub(crate) async fn start(site: Site, target: Target) -> Result<Self, FrontendError> {
        let tools = Tools::new(&site.host);
        tools.require(&[Tool::Tgtadm])?;
        if target == Target::BlockDevice {
            tools.require(&[Tool::Iscsiadm])?;
        }
        let volume = &site.options.volume;
        let tgt = Self {
            socket: Socket::start(&site)?,
            tools,
            target,
            iqn: format!("iqn.2019-10.io.longhorn:{}", volume.replace('_', ":")),
            run_dir: site.host.run_dir.clone(),
            device: site.host.device_dir.join(volume),
            sys_block: site.host.sys_block.clone(),
        };
        if site.options.upgrade {
            tgt.reconnect().await?;
            return Ok(tgt);
        }
        let up = tgt.bring_up(site.hub.size_bytes(), site.options.replica_timeout).await;
        if let Err(error) = up {
            // Half a target would be in the way of the next start.
            if let Err(also) = tgt.tear_down().await {
                tracing::warn!(error = %also, "target not removed");
            }
            return Err(error);
        }
        Ok(tgt)
    }

    async fn bring_up(&self, size_bytes: u64, timeout: Duration) -> Result<(), FrontendError> {
        self.check_daemon().await?;
        self.tear_down().await?;
        self.create_target(size_bytes, timeout).await?;
        match self.target {
            Target::Iscsi => Ok(()),
            Target::BlockDevice => self.log_in().await,
        }
    }

    async fn tgtadm(&self, arguments: &[&str]) -> Result<String, FrontendError> {
        let mut all = vec!["--lld", "iscsi"];
        all.extend_from_slice(arguments);
        self.tools.run(Tool::Tgtadm, &all).await
    }

    async fn iscsiadm(&self, arguments: &[&str]) -> Result<String, FrontendError> {
        self.tools.run(Tool::Iscsiadm, arguments).await
    }

    /// The daemon runs and has the backing store that reads our socket.
    async fn check_daemon(&self) -> Result<(), FrontendError> {
        let system = self.tgtadm(&["--op", "show", "--mode", "system"]).await?;
        if system.contains(" rdwr") && system.contains(" longhorn") {
            return Ok(());
        }
        let text = "tgtd has no backing store longhorn: install a tgt that was built with it";
        Err(FrontendError::Failed(text.to_owned()))
    }

    async fn show_targets(&self) -> Result<String, FrontendError> {
        self.tgtadm(&["--op", "show", "--mode", "target"]).await
    }

    async fn create_target(&self, size: u64, timeout: Duration) -> Result<(), FrontendError> {
        let tid = free_target_id(&self.show_targets().await?).to_string();
        let new_target = ["--op", "new", "--mode", "target", "--tid", &tid, "-T", &self.iqn];
        self.tgtadm(&new_target).await?;
        let options = format!("size={size};request_timeout={}", request_timeout(timeout));
        let socket = self.socket.endpoint();
        let unit = ["--mode", "logicalunit", "--tid", &tid, "--lun", LUN];
        let with = |op: &'static str, rest: &[&str]| {
            let words = [&["--op", op], &unit[..], rest].concat();
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let backing = ["--bstype", "longhorn", "--bsopts", &options, "-b", &socket];
        for words in [
            with("new", &backing),
            with("update", &["--params", "thin_provisioning=1"]),
            with("update", &["--params", WRITE_CACHE_OFF]),
        ] {
            self.tgtadm(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        }
        let bind = ["--op", "bind", "--mode", "target", "--tid", &tid, "-I", "ALL"];
        self.tgtadm(&bind).await.map(|_| ())
    }

    async fn log_in(&self) -> Result<(), FrontendError> {
        let _lock = IscsiLock::take(&self.run_dir).await?;
        self.iscsiadm(&["-m", "discovery", "-t", "sendtargets", "-p", PORTAL]).await?;
        let node = ["-m", "node", "-T", &self.iqn, "-p", PORTAL];
        let abort = ["-o", "update", "-n", "node.session.err_timeo.abort_timeout", "-v", "15"];
        self.iscsiadm(&[&node[..], &abort[..]].concat()).await?;
        self.iscsiadm(&[&node[..], &["--login"]].concat()).await?;
        let disk = self.find_disk().await?;
        self.set_scsi_timeout(&disk);
        self.make_node(&disk)
    }

    /// The disk that the session's login made. The kernel may take a moment to attach it.
    async fn find_disk(&self) -> Result<String, FrontendError> {
        const TRIES: u32 = 50;
        for _ in 0..TRIES {
            let sessions = self.iscsiadm(&["-m", "session", "-P", "3"]).await?;
            if let Some(disk) = disk_of_session(&sessions, &self.iqn, LUN) {
                return Ok(disk);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(FrontendError::Failed(format!("no disk of target {} appeared", self.iqn)))
    }

    fn set_scsi_timeout(&self, disk: &str) {
        let file = self.sys_block.join(disk).join("device/timeout");
        let write = || {
            use std::io::Write;
            std::fs::File::options().write(true).open(&file)?.write_all(SCSI_TIMEOUT.as_bytes())
        };
        if let Err(error) = write() {
            tracing::warn!(file = %file.display(), %error, "SCSI timeout not set");
        }
    }

    fn make_node(&self, disk: &str) -> Result<(), FrontendError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            FrontendError::Failed(format!("{}: {what}: {error}", self.device.display()))
        };
        let numbers = std::fs::read_to_string(self.sys_block.join(disk).join("dev"))
            .map_err(|error| failed("no device number", &error))?;
        let (major, minor) = output::device_number(&numbers)
            .ok_or_else(|| failed("no device number", &numbers.trim()))?;
        if let Some(folder) = self.device.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed("no folder", &error))?;
        }
        self.remove_node();
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        let number = rustix::fs::makedev(major, minor);
        mknodat(CWD, &self.device, FileType::BlockDevice, mode, number)
            .map_err(|error| failed("cannot make device node", &error))
    }

    /// Also what else is there: the path is this volume's, and a tool that wrote to it while there was
    /// no device has left a plain file.
    fn remove_node(&self) {
        if let Ok(found) = std::fs::symlink_metadata(&self.device)
            && !found.is_dir()
        {
            let _ = std::fs::remove_file(&self.device);
        }
    }

    /// The new engine has put its socket in place of the old one's: tgt is to use it.
    async fn reconnect(&self) -> Result<(), FrontendError> {
        if self.target == Target::Iscsi {
            tracing::warn!("tgt takes the new socket when its old connection ends");
            return Ok(());
        }
        let device = self.device.display().to_string();
        let mut arguments = vec![device.as_str()];
        arguments.extend(RECONNECT);
        self.tools.run(Tool::SgRaw, &arguments).await.map(|_| ())
    }

    /// Removes session and target, as far as there are any.
    async fn tear_down(&self) -> Result<(), FrontendError> {
        if self.target == Target::BlockDevice {
            self.remove_node();
            self.log_out().await?;
        }
        let Some(tid) = target_id(&self.show_targets().await?, &self.iqn) else { return Ok(()) };
        let tid = tid.to_string();
        let unbind = ["--op", "unbind", "--mode", "target", "--tid", &tid, "-I", "ALL"];
        if let Err(error) = self.tgtadm(&unbind).await {
            tracing::debug!(%error, "target was not bound");
        }
        let unit = ["--op", "delete", "--mode", "logicalunit", "--tid", &tid, "--lun", LUN];
        if let Err(error) = self.tgtadm(&unit).await {
            tracing::debug!(%error, "target had no unit");
        }
        let target = ["--op", "delete", "--mode", "target", "--force", "--tid", &tid];
        self.tgtadm(&target).await.map(|_| ())
    }

    async fn log_out(&self) -> Result<(), FrontendError> {
        let _lock = IscsiLock::take(&self.run_dir).await?;
        // Fails where there is no session at all, which is as good as one less.
        let sessions = self.iscsiadm(&["-m", "session", "-P", "3"]).await.unwrap_or_default();
        if !output::has_session(&sessions, &self.iqn) {
            return Ok(());
        }
        let node = ["-m", "node", "-T", &self.iqn, "-p", PORTAL];
        self.iscsiadm(&[&node[..], &["--logout"]].concat()).await?;
        self.iscsiadm(&["-m", "node", "-o", "delete", "-T", &self.iqn]).await.map(|_| ())
    }

    async fn grow(&self, size_bytes: u64) -> Result<(), FrontendError> {
        let missing = || FrontendError::Failed(format!("tgt has no target {}", self.iqn));
        let tid = target_id(&self.show_targets().await?, &self.iqn).ok_or_else(missing)?;
        let (tid, size) = (tid.to_string(), format!("bsopts=size={size_bytes}"));
        let unit = ["--op", "update", "--mode", "logicalunit", "--tid", &tid, "--lun", LUN];
        self.tgtadm(&[&unit[..], &["--params", &size]].concat()).await?;
        if self.target == Target::BlockDevice {
            let _lock = IscsiLock::take(&self.run_dir).await?;
            self.iscsiadm(&["-m", "node", "-T", &self.iqn, "-p", PORTAL, "-R"]).await?;
        }
        Ok(())
    }
}

/// Seconds tgt waits for an answer: the queue of a session, each at the last replica's timeout.
fn request_timeout(replica_timeout: Duration) -> u64 {
    replica_timeout.as_secs().saturating_mul(2 * 32).saturating_add(30)
}

impl Frontend for Tgt {
    fn endpoint(&self) -> String {
        match self.target {
            Target::Iscsi => self.iqn.clone(),
            Target::BlockDevice => self.device.display().to_string(),
        }
    }

    fn resize(&self, size_bytes: u64) -> LocalBoxFuture<'_, Result<(), FrontendError>> {
        self.grow(size_bytes).boxed_local()
    }

    fn stop(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), FrontendError>> {
        async move {
            // An engine that took over uses the same target.
            let down = if self.socket.is_ours() { self.tear_down().await } else { Ok(()) };
            Box::new(self.socket).stop().await?;
            down
        }
        .boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tgt_waits_as_long_as_a_full_queue_may_take() {
        assert_eq!(request_timeout(Duration::from_secs(8)), 542);
    }
}
