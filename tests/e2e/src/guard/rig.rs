//! A directory with an etcd, a store, and everything a guard is told.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::etcd::{Member, Seat, data_dir, far_schedule, program};
use testkit::process::{Scratch, poll_until};

use super::{Pki, Sidecar, TIMEOUT, etcdctl, hash_kv_by, status_by};
use crate::server::binary;

pub const MEMBER: &str = "etcd-main-0";
const NAMESPACE: &str = "ns1";
const PREFIX: &str = "etcd-main";

/// What a command came to.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug)]
pub struct Rig {
    scratch: Scratch,
    pub seat: Seat,
    member: Option<Member>,
    /// Additional environment of every guard.
    pub variables: Vec<(String, String)>,
    /// Of an etcd that serves only who shows a certificate.
    pki: Option<Pki>,
    started: u32,
}

impl Rig {
    /// With a running etcd; nothing, after having said so, where there is no etcd to run.
    pub fn new(test: &str) -> Option<Self> {
        let scratch = Self::ready(test)?;
        Some(Self::start(scratch, Seat::new(MEMBER).unwrap(), None))
    }

    /// As [`Rig::new`], with an etcd that asks its clients for certificates.
    pub fn secured(test: &str) -> Option<Self> {
        let scratch = Self::ready(test)?;
        let pki = Pki::new(scratch.path().join("pki"), &[Ipv4Addr::LOCALHOST.into()]);
        let seat = Seat::at(MEMBER, Ipv4Addr::LOCALHOST, "https").unwrap();
        Some(Self::start(scratch, seat, Some(pki)))
    }

    fn start(scratch: Scratch, seat: Seat, pki: Option<Pki>) -> Self {
        std::fs::create_dir(scratch.path().join("home")).unwrap();
        let variables = Vec::new();
        let mut rig = Self { scratch, seat, member: None, variables, pki, started: 0 };
        rig.start_etcd();
        rig.write_config();
        rig
    }

    /// A directory, where there is an etcd to run.
    fn ready(test: &str) -> Option<Scratch> {
        if let Err(why) = program("etcd").and(program("etcdctl")) {
            crate::skip(&format!("{test}: {why}"));
            return None;
        }
        Some(Scratch::new().unwrap())
    }

    pub fn start_etcd(&mut self) {
        let (listed, more) = (self.seat.listed(), self.pki.iter().flat_map(Pki::of_etcd));
        let more: Vec<String> = more.collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let mut member =
            Member::start(&self.seat, self.scratch.path(), &listed, "new", &more).unwrap();
        member.wait_until_ready().unwrap();
        self.member = Some(member);
    }

    /// Ends etcd as a pod does, and waits for it.
    pub fn stop_etcd(&mut self) {
        let mut member = self.member.take().unwrap();
        member.process.terminate().unwrap();
        member.process.wait_for_exit(TIMEOUT).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    pub fn data_dir(&self) -> PathBuf {
        data_dir(self.path(), MEMBER)
    }

    pub fn endpoint(&self) -> &str {
        &self.seat.client
    }

    pub fn pki(&self) -> &Pki {
        self.pki.as_ref().unwrap()
    }

    #[track_caller]
    fn etcdctl(&self, arguments: &[&str]) -> String {
        let shown: Vec<String> = self.pki.iter().flat_map(Pki::of_client).collect();
        let all: Vec<&str> =
            shown.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        etcdctl(self.endpoint(), &all)
    }

    #[track_caller]
    pub fn put(&self, key: &str, value: &str) {
        self.etcdctl(&["put", key, value]);
    }

    #[track_caller]
    pub fn delete(&self, key: &str) {
        self.etcdctl(&["del", key]);
    }

    #[track_caller]
    pub fn revision(&self) -> i64 {
        status_by(&|arguments| self.etcdctl(arguments))["header"]["revision"].as_i64().unwrap()
    }

    #[track_caller]
    pub fn hash_kv(&self) -> u64 {
        hash_kv_by(&|arguments| self.etcdctl(arguments), 0)
    }

    /// The file of etcd's settings that the guard reads.
    fn write_config(&self) {
        let (seat, data) = (&self.seat, self.data_dir());
        let text = format!(
            "name: {MEMBER}\ndata-dir: {}\nmetrics: basic\ninitial-cluster: {}\n\
             initial-cluster-token: etcd-cluster\ninitial-cluster-state: new\n\
             advertise-client-urls:\n  {MEMBER}:\n  - {}\n\
             initial-advertise-peer-urls:\n  {MEMBER}:\n  - {}\n",
            data.display(),
            seat.listed(),
            seat.client,
            seat.peer
        );
        crate::write(&self.config_path(), &text);
    }

    pub fn config_path(&self) -> PathBuf {
        self.path().join("etcd.conf.yaml")
    }

    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Where the objects of the store lie.
    pub fn store_dir(&self) -> PathBuf {
        self.home().join("bkt").join(PREFIX).join("v2")
    }

    /// Names of objects of a kind, by what they end with.
    pub fn names(&self, kind: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.store_dir()) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(kind)).collect();
        names.sort_by_key(|name| (last_revision(name), name.clone()));
        names
    }

    #[track_caller]
    pub fn wait_for_objects(&self, kind: &str, count: usize) -> Vec<String> {
        poll_until(TIMEOUT, || {
            let names = self.names(kind);
            (names.len() >= count).then_some(names)
        })
        .unwrap_or_else(|| panic!("{count} of {kind} never came: {:?}", self.names("")))
    }

    pub fn store_arguments(&self) -> Vec<String> {
        vec![
            "--storage-provider=Local".to_owned(),
            "--store-container=bkt".to_owned(),
            format!("--store-prefix={PREFIX}"),
            format!("--snapstore-temp-directory={}", self.path().join("tmp").display()),
        ]
    }

    /// A command of the guard with its environment.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["etcd", verb]).current_dir(self.path());
        command.env("HOME", self.home());
        command.env("POD_NAME", MEMBER).env("POD_NAMESPACE", NAMESPACE);
        command.env("ETCD_CONF", self.config_path());
        command.env_remove("KUBECONFIG");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `server` beside this etcd, with the store.
    pub fn sidecar(&mut self, arguments: &[&str]) -> Sidecar {
        let store = self.store_arguments();
        let all: Vec<&str> =
            store.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        self.sidecar_without_store(&all)
    }

    pub fn sidecar_without_store(&mut self, arguments: &[&str]) -> Sidecar {
        self.started += 1;
        let mut command = self.command("server");
        command
            .arg(format!("--endpoints={}", self.endpoint()))
            .arg(format!("--data-dir={}", self.data_dir().display()))
            .arg(format!("--restoration-temp-snapshots-dir={}", self.path().join("rt").display()))
            .arg("--reelection-period=1500ms")
            .arg(format!("--schedule={}", far_schedule()))
            .args(arguments);
        Sidecar::start(command, self.path(), &format!("guard-{}", self.started))
    }

    /// Runs a command with the flags of the store to its end.
    #[track_caller]
    pub fn run(&mut self, verb: &str, arguments: &[&str]) -> Run {
        let mut command = self.command(verb);
        command.args(self.store_arguments()).args(arguments);
        let output = command.output().unwrap();
        Run {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Restores into a fresh directory; not succeeding fails the test.
    #[track_caller]
    pub fn restore(&mut self, to: &str, arguments: &[&str]) -> PathBuf {
        let target = self.path().join(to);
        let data = format!("--data-dir={}", target.display());
        let temporary =
            format!("--restoration-temp-snapshots-dir={}", self.path().join("rrt").display());
        let mut all = vec![data.as_str(), temporary.as_str()];
        all.extend(arguments);
        let run = self.run("restore", &all);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        target
    }

    /// Starts another etcd on a restored directory, named as restoring names it.
    #[track_caller]
    pub fn boot(&self, restored: &Path) -> Member {
        let seat = Seat::new("default").unwrap();
        let place = self.path().join(format!("boot-{}", restored.file_name().unwrap().display()));
        std::fs::create_dir(&place).unwrap();
        std::fs::rename(restored, data_dir(&place, "default")).unwrap();
        let mut member = Member::start(&seat, &place, &seat.listed(), "new", &[]).unwrap();
        member.wait_until_ready().unwrap();
        member
    }
}

fn last_revision(name: &str) -> i64 {
    name.split('-').nth(2).and_then(|text| text.parse().ok()).unwrap_or_default()
}
