//! Three pods: an etcd and its guard each, one store, one namespace.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::guard::{Pki, Sidecar, TIMEOUT, etcdctl, hash_kv, revision};
use e2e::server::binary;
use serde_json::Value;
use testkit::etcd::{Member, Seat, data_dir, far_schedule, program};
use testkit::process::{Scratch, free_port, poll_until};

use crate::{Api, role};

const NAMES: [&str; 3] = ["etcd-main-0", "etcd-main-1", "etcd-main-2"];
/// An address for each pod, as on a network: guards look for one another on the same port.
const HOSTS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4)];

/// What makes pods speak TLS, each on its own address.
struct Secured {
    pki: Pki,
    port: u16,
}

pub(crate) struct Pods {
    pub(crate) seats: Vec<Seat>,
    pub(crate) api: Api,
    etcds: Vec<Option<Member>>,
    sidecars: Vec<Sidecar>,
    restored: u32,
    secured: Option<Secured>,
    scratch: Scratch,
}

/// A directory, where there is an etcd to run.
fn ready(test: &str) -> Option<Scratch> {
    if let Err(why) = program("etcd").and(program("etcdctl")) {
        e2e::skip(&format!("{test}: {why}"));
        return None;
    }
    Some(Scratch::new().unwrap())
}

impl Pods {
    /// All of it running; nothing, after having said so, where there is no etcd to run.
    pub(crate) async fn start(test: &str) -> Option<Self> {
        let scratch = ready(test)?;
        let seats = NAMES.iter().map(|name| Seat::new(name).unwrap()).collect();
        Some(Self::start_in(scratch, seats, None).await)
    }

    /// As [`Pods::start`], each on an address of its own, with TLS to etcd and between guards.
    pub(crate) async fn secured(test: &str) -> Option<Self> {
        let scratch = ready(test)?;
        let pki = Pki::new(scratch.path().join("pki"), &HOSTS.map(Into::into));
        let seats = NAMES.iter().zip(HOSTS);
        let seats = seats.map(|(name, host)| Seat::at(name, host, "https").unwrap()).collect();
        let secured = Secured { pki, port: free_port().unwrap() };
        Some(Self::start_in(scratch, seats, Some(secured)).await)
    }

    async fn start_in(scratch: Scratch, seats: Vec<Seat>, secured: Option<Secured>) -> Self {
        let names: Vec<&str> = NAMES.into_iter().chain(["full-snap", "delta-snap"]).collect();
        let mut pods = Self {
            seats,
            api: Api::start(&names).await,
            etcds: vec![None, None, None],
            sidecars: Vec::new(),
            restored: 0,
            secured,
            scratch,
        };
        // A pod has its volume for itself: the guard keeps files beside the data.
        for name in NAMES {
            std::fs::create_dir(pods.scratch.path().join(name)).unwrap();
        }
        (0..3).for_each(|pod| pods.start_etcd(pod, "new"));
        for etcd in pods.etcds.iter_mut().flatten() {
            etcd.wait_until_ready().unwrap();
        }
        pods.sidecars = (0..3).map(|pod| pods.guard(pod, &[])).collect();
        pods
    }

    /// What a client of these etcds says who it is with.
    fn shown(&self) -> Vec<String> {
        self.secured.iter().flat_map(|secured| secured.pki.of_client()).collect()
    }

    #[track_caller]
    fn etcdctl(&self, seat: &Seat, arguments: &[&str]) -> String {
        let shown = self.shown();
        let all: Vec<&str> =
            shown.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        etcdctl(&seat.client, &all)
    }

    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn volume(&self, pod: usize) -> PathBuf {
        self.scratch.path().join(NAMES[pod])
    }

    pub(crate) fn data_dir(&self, pod: usize) -> PathBuf {
        data_dir(&self.volume(pod), NAMES[pod])
    }

    fn initial_cluster(&self) -> String {
        self.seats.iter().map(Seat::listed).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn start_etcd(&mut self, pod: usize, state: &str) {
        let cluster = self.initial_cluster();
        let more: Vec<String> =
            self.secured.iter().flat_map(|secured| secured.pki.of_etcd()).collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let etcd = Member::start(&self.seats[pod], &self.volume(pod), &cluster, state, &more);
        self.etcds[pod] = Some(etcd.unwrap());
    }

    pub(crate) fn kill_etcd(&mut self, pod: usize) {
        self.etcds[pod].take().unwrap().process.kill().unwrap();
    }

    fn config(&self, pod: usize) -> PathBuf {
        let urls = |url: fn(&Seat) -> &String| -> String {
            let lines =
                self.seats.iter().map(|seat| format!("  {}:\n  - {}\n", seat.name, url(seat)));
            lines.collect::<Vec<_>>().concat()
        };
        let text = format!(
            "name: etcd-config\ndata-dir: {}\nmetrics: basic\ninitial-cluster: {}\n\
             initial-cluster-token: etcd-cluster\ninitial-cluster-state: new\n\
             advertise-client-urls:\n{}initial-advertise-peer-urls:\n{}",
            self.data_dir(pod).display(),
            self.initial_cluster(),
            urls(|seat| &seat.client),
            urls(|seat| &seat.peer),
        );
        let path = self.volume(pod).join("etcd.conf.yaml");
        e2e::write(&path, &text);
        path
    }

    fn command(&self, pod: usize, verb: &str) -> Command {
        let mut command = Command::new(binary());
        command
            .args(["etcd", verb])
            .current_dir(self.volume(pod))
            .env("HOME", self.scratch.path())
            .env("POD_NAME", NAMES[pod])
            .env("POD_NAMESPACE", "ns1")
            .env("ETCD_CONF", self.config(pod))
            .env("KUBECONFIG", self.api.server.kubeconfig())
            .args(["--storage-provider=Local", "--store-container=bkt", "--store-prefix=main"])
            .arg(format!("--snapstore-temp-directory={}/tmp", self.volume(pod).display()));
        command
    }

    /// What is said later in `more` counts.
    fn guard(&self, pod: usize, more: &[String]) -> Sidecar {
        let all: Vec<&str> = self.seats.iter().map(|seat| seat.client.as_str()).collect();
        let mut command = self.command(pod, "server");
        command
            .arg(format!("--endpoints={}", self.seats[pod].client))
            .arg(format!("--service-endpoints={}", all.join(",")))
            .arg(format!("--data-dir={}", self.data_dir(pod).display()))
            .arg(format!("--restoration-temp-snapshots-dir={}/rt", self.volume(pod).display()))
            .arg(format!("--schedule={}", far_schedule()))
            .arg("--delta-snapshot-period=10m")
            .args(["--reelection-period=1100ms", "--etcd-connection-timeout=10s"])
            .args(["--enable-member-lease-renewal", "--enable-snapshot-lease-renewal"])
            .args([
                "--full-snapshot-lease-name=full-snap",
                "--delta-snapshot-lease-name=delta-snap",
            ])
            .arg("--k8s-heartbeat-duration=1s")
            .args(self.shown())
            .args(more);
        match &self.secured {
            None => Sidecar::start(command, &self.volume(pod), "guard"),
            Some(Secured { pki, port }) => {
                Sidecar::start_secured(command, &self.volume(pod), pki, (HOSTS[pod], *port))
            }
        }
    }

    /// Ends a guard, and starts it with other flags.
    pub(crate) fn replace_guard(&mut self, pod: usize, more: &[String]) {
        self.sidecars[pod].process.kill().unwrap();
        self.sidecars[pod] = self.guard(pod, more);
    }

    pub(crate) fn sidecar(&self, pod: usize) -> &Sidecar {
        &self.sidecars[pod]
    }

    pub(crate) fn sidecar_mut(&mut self, pod: usize) -> &mut Sidecar {
        &mut self.sidecars[pod]
    }

    /// The one pod whose guard says it serves, other than `not`, once its snapshotter is at work.
    #[track_caller]
    pub(crate) fn serving(&self, not: Option<usize>) -> usize {
        let found = poll_until(TIMEOUT, || {
            let healthy = |pod: &usize| {
                let answer = self.sidecars[*pod].try_ask("GET", "/healthz");
                answer.is_some_and(|(status, _)| status == 200)
            };
            let serving: Vec<usize> = (0..3).filter(healthy).collect();
            let [one] = serving.as_slice() else { return None };
            let (status, _) = self.sidecars[*one].try_ask("GET", "/snapshot/delta")?;
            (Some(*one) != not && status == 200).then_some(*one)
        });
        found.unwrap_or_else(|| panic!("nobody serves:\n{}", self.sidecars[0].process.stderr()))
    }

    /// That one member's lease says it leads, and the others' that they do not.
    pub(crate) async fn wait_for_roles(&self, leader: usize) {
        for (pod, name) in NAMES.iter().enumerate() {
            let wanted = if pod == leader { "Leader" } else { "Member" };
            self.api.wait_for_holder(name, |holder| role(holder) == wanted).await;
        }
    }

    fn running(&self) -> &Seat {
        let at = self.etcds.iter().position(Option::is_some).unwrap();
        &self.seats[at]
    }

    #[track_caller]
    pub(crate) fn put(&self, key: &str, value: &str) {
        self.etcdctl(self.running(), &["put", key, value]);
    }

    #[track_caller]
    pub(crate) fn move_leader(&self, from: usize, to: usize) {
        let (id, _) = self.listed(to).unwrap();
        self.etcdctl(&self.seats[from], &["move-leader", &format!("{id:x}")]);
    }

    /// The id of a member, and whether it is a learner.
    pub(crate) fn listed(&self, pod: usize) -> Option<(u64, bool)> {
        let text = self.etcdctl(self.running(), &["member", "list", "--write-out=json"]);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let members = answer["members"].as_array()?;
        let member = members.iter().find(|member| member["name"] == NAMES[pod])?;
        Some((member["ID"].as_u64()?, member["isLearner"].as_bool().unwrap_or(false)))
    }

    /// As the program that runs an etcd asks for it before each start.
    #[track_caller]
    pub(crate) fn initialize(&self, pod: usize) {
        let sidecar = &self.sidecars[pod];
        assert_eq!(sidecar.get("/initialization/start?mode=full").0, 200);
        let ended = poll_until(TIMEOUT, || {
            let (_, status) = sidecar.get("/initialization/status");
            (status != "New" && status != "Progress").then_some(status)
        });
        assert_eq!(ended.as_deref(), Some("Successful"), "{}", sidecar.process.stderr());
    }

    /// Restores the backup beside the cluster and boots it: its revision is `newest`. Gives its
    /// hash.
    #[track_caller]
    pub(crate) fn restores_to(&mut self, newest: i64, pod: usize) -> u64 {
        self.restored += 1;
        let place = self.scratch.path().join(format!("restored-{}", self.restored));
        std::fs::create_dir(&place).unwrap();
        let mut command = self.command(pod, "restore");
        command
            .arg(format!("--data-dir={}", data_dir(&place, "default").display()))
            .arg(format!("--restoration-temp-snapshots-dir={}/rt", place.display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seat = Seat::new("default").unwrap();
        let mut etcd = Member::start(&seat, &place, &seat.listed(), "new", &[]).unwrap();
        etcd.wait_until_ready().unwrap();
        assert_eq!(revision(&seat.client), newest);
        hash_kv(&seat.client, 0)
    }
}
