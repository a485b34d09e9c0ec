//! Three nodes, each in a network namespace of its own; one is cut off, and comes back.
//!
//! Needs root and `ip`. Not part of the usual run: `cargo xtask e2e volumes_net`.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::engine::blocking;
use e2e::volumes::{Content, Rig};
use serde_json::json;
use testkit::process::Process;

const NODES: usize = 3;
const MEBIBYTES: u64 = 16;

/// A bridge with the API server, and a namespace for each node behind a cable of its own.
#[derive(Debug)]
struct Net {
    mark: String,
    net: String,
}

fn ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    output.is_ok_and(|it| it.status.success())
}

impl Net {
    /// None where namespaces cannot be made.
    fn start() -> Option<Self> {
        let number = std::process::id();
        let net = Self { mark: format!("hf{number}"), net: format!("10.213.{}", number % 250) };
        let (mark, first) = (&net.mark, &net.net);
        if !ip(&format!("link add {mark}b type bridge")) {
            return None;
        }
        assert!(ip(&format!("addr add {first}.1/24 dev {mark}b")));
        assert!(ip(&format!("link set {mark}b up")));
        for node in 1..=NODES {
            if !ip(&format!("netns add {mark}n{node}")) {
                return None;
            }
            let pair =
                format!("link add {mark}v{node} type veth peer name eth0 netns {mark}n{node}");
            assert!(ip(&pair));
            assert!(ip(&format!("link set {mark}v{node} master {mark}b up")));
            assert!(ip(&format!("-n {mark}n{node} addr add {}/24 dev eth0", net.address(node))));
            assert!(ip(&format!("-n {mark}n{node} link set eth0 up")));
            assert!(ip(&format!("-n {mark}n{node} link set lo up")));
        }
        Some(net)
    }

    fn address(&self, node: usize) -> String {
        format!("{}.{}", self.net, 10 + node)
    }

    fn cut(&self, node: usize) {
        assert!(ip(&format!("link set {}v{node} down", self.mark)));
    }

    fn mend(&self, node: usize) {
        assert!(ip(&format!("link set {}v{node} up", self.mark)));
    }

    /// A command that runs where the node is.
    fn at(&self, node: usize, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}n{node}", self.mark)]).arg(program);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in 1..=NODES {
            let name = format!("{}n{node}", self.mark);
            let pids = Command::new("ip").args(["netns", "pids", &name]).output();
            let pids = pids.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
            for pid in pids.unwrap_or_default().split_whitespace() {
                let _ = Command::new("kill").args(["-9", pid]).status();
            }
            ip(&format!("netns del {name}"));
        }
        ip(&format!("link del {}b", self.mark));
    }
}

#[test]
fn a_node_that_is_cut_off_serves_nothing_and_heals_when_it_returns() {
    let Some(net) = Net::start() else {
        return e2e::skip("network namespaces need root and the program ip");
    };
    let here = format!("{}.1", net.net);
    let rig = Rig::start_with(&["--listen", &format!("{here}:0"), "--node-address", &here]);
    let own = rig.node().expect("the node of the server");
    rig.patch("lhn", &own, &json!({"spec": {"allowScheduling": false}}));
    rig.patch("lhs", "replica-soft-anti-affinity", &json!({"value": "false"}));
    let scratch = rig.server.scratch();
    let _nodes: Vec<Process> = (1..=NODES)
        .map(|node| {
            let mut command = net.at(node, e2e::server::binary());
            command.args(["node", "--node-name", &format!("n{node}")]);
            command.args(["--node-address", &net.address(node)]);
            command.arg("--data-dir").arg(scratch.join(format!("n{node}")));
            command.arg("--kubeconfig").arg(rig.server.kubeconfig());
            Process::start(command, scratch, &format!("n{node}")).unwrap()
        })
        .collect();
    rig.until("all nodes are ready", || rig.ready_nodes().len() == NODES + 1);
    rig.volume("tri", MEBIBYTES, 3);
    rig.attach_at("tri", "n1");
    let mut content = Content::new();
    rig.write("tri", &mut content, 0, 8, 1);

    // The node of a copy: the volume goes on with the others, and heals.
    net.cut(3);
    let began = Instant::now();
    rig.write("tri", &mut content, 4, 8, 2);
    println!("written {} s after the cut", began.elapsed().as_secs());
    rig.until("the volume is degraded", || rig.robustness("tri") == "degraded");
    println!("degraded {} s after the cut", began.elapsed().as_secs());
    rig.holds("tri", &content, MEBIBYTES);
    net.mend(3);
    let began = Instant::now();
    rig.until("the volume is healthy again", || rig.is_healthy("tri"));
    println!("healthy {} s after the return", began.elapsed().as_secs());

    // The node of the engine: it acknowledges nothing once it is cut off, and the volume goes on elsewhere.
    let old = rig.endpoint("tri");
    let (over, acknowledged) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    net.cut(1);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let mut write = net.at(1, std::path::Path::new("timeout"));
                write.args(["20", "qemu-io", "-f", "raw", &old, "-c", "write -P 9 12M 64k"]);
                let done = write.args(["-c", "flush"]).output().unwrap();
                if done.status.success() {
                    acknowledged.lock().unwrap().push(began.elapsed().as_secs());
                }
                blocking(async {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                });
            }
        });
        rig.move_to("tri", "n2");
        rig.until("the volume is served at the other node", || {
            rig.text("lhv", "tri", "/status/currentNodeID") == "n2"
                && !rig.endpoint("tri").is_empty()
                && rig.endpoint("tri") != old
        });
        println!("served elsewhere {} s after the cut", began.elapsed().as_secs());
        rig.write("tri", &mut content, 2, 4, 3);
        blocking(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
        over.store(true, Ordering::Relaxed);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.is_empty(), "acknowledged by the cut-off engine after {acknowledged:?} s");
    rig.holds("tri", &content, MEBIBYTES);
    net.mend(1);
    let began = Instant::now();
    rig.until("the volume is whole again", || rig.is_healthy("tri"));
    println!("healthy {} s after the return", began.elapsed().as_secs());
    rig.holds("tri", &content, MEBIBYTES);
}
