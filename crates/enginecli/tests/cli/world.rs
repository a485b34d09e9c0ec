//! A controller and replicas that pretend, and a command line to point at them.

use std::ffi::OsString;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use enginecli::{Console, Invocation, Manner};
use rpc::profilerrpc::profiler_server::ProfilerServer;
use rpc::ptypes::controller_service_server::ControllerServiceServer;
use rpc::ptypes::replica_service_server::ReplicaServiceServer;
use rpc::ptypes::sync_agent_service_server::SyncAgentServiceServer;
use rpc::ptypes::{
    ControllerReplica, Replica, ReplicaAddress, ReplicaGetResponse, ReplicaListReply, ReplicaMode,
    Volume,
};
use rpc::volume::volume_server::VolumeServer;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::fakes::{Call, Fake, FakeAgent, FakeController, FakeProfiler, FakeReplica, FakeVolume};

const PORT_TRIES: usize = 200;

pub(crate) struct World {
    runtime: Runtime,
    calls: Arc<Mutex<Vec<Call>>>,
    pub(crate) controller: Fake,
    controller_port: u16,
    pub(crate) replicas: Vec<Node>,
}

/// Of which kind a controller is.
#[derive(Clone, Copy)]
enum Kind {
    Ours,
    Theirs,
}

/// A replica and its agent.
pub(crate) struct Node {
    /// As the controller writes it.
    pub(crate) address: String,
    pub(crate) replica: Fake,
    pub(crate) agent: Fake,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit_code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    /// A volume of 4 MiB with as many replicas as modes are given.
    pub(crate) fn new(modes: &[ReplicaMode]) -> Self {
        Self::under(Kind::Theirs, modes)
    }

    /// The same with a controller that does more than the dialect has.
    pub(crate) fn ours(replicas: usize) -> Self {
        Self::under(Kind::Ours, &vec![ReplicaMode::Rw; replicas])
    }

    fn under(kind: Kind, modes: &[ReplicaMode]) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let calls = Arc::default();
        let controller = Fake::new("controller", &calls);
        let [listener] = listeners([0]);
        let controller_port = listener.local_addr().unwrap().port();
        let routes = Routes::new(ControllerServiceServer::new(FakeController(controller.clone())))
            .add_service(ProfilerServer::new(FakeProfiler(controller.clone())));
        let routes = match kind {
            Kind::Theirs => routes,
            Kind::Ours => routes.add_service(VolumeServer::new(FakeVolume(controller.clone()))),
        };
        let mut world = Self { runtime, calls, controller, controller_port, replicas: Vec::new() };
        world.serve(listener, routes);
        for _ in modes {
            world.add_node();
        }
        world.list(modes);
        let count = i32::try_from(modes.len()).unwrap();
        let volume =
            Volume { name: "vol".into(), size: 4 << 20, replica_count: count, ..Volume::default() };
        world.controller.on("volume_get", volume);
        world
    }

    pub(crate) fn healthy(replicas: usize) -> Self {
        Self::new(&vec![ReplicaMode::Rw; replicas])
    }

    /// One more replica, which the controller does not know of.
    pub(crate) fn add_node(&mut self) -> &Node {
        let [control, agent] = listeners([0, 2]);
        let port = control.local_addr().unwrap().port();
        let index = self.replicas.len();
        let replica = Fake::new(&format!("replica{index}"), &self.calls);
        let fake_agent = Fake::new(&format!("agent{index}"), &self.calls);
        self.serve(control, Routes::new(ReplicaServiceServer::new(FakeReplica(replica.clone()))));
        self.serve(agent, Routes::new(SyncAgentServiceServer::new(FakeAgent(fake_agent.clone()))));
        let address = format!("tcp://127.0.0.1:{port}");
        self.replicas.push(Node { address, replica, agent: fake_agent });
        &self.replicas[index]
    }

    /// What the controller lists, in the order of the nodes.
    pub(crate) fn list(&self, modes: &[ReplicaMode]) {
        let entry = |(node, mode): (&Node, &ReplicaMode)| ControllerReplica {
            address: Some(ReplicaAddress {
                address: node.address.clone(),
                instance_name: String::new(),
            }),
            mode: *mode as i32,
        };
        let replicas = self.replicas.iter().zip(modes).map(entry).collect();
        self.controller.on("replica_list", ReplicaListReply { replicas });
    }

    fn serve(&self, listener: TcpListener, routes: Routes) {
        listener.set_nonblocking(true).unwrap();
        let _entered = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let server = Server::builder()
            .add_routes(routes)
            .serve_with_incoming(TcpListenerStream::new(listener));
        self.runtime.spawn(server);
    }

    /// Runs a line; `{0}` stands for the address of the first replica, and so on.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        let url = format!("--url http://127.0.0.1:{}/v1", self.controller_port);
        run(&self.fill(&format!("{url} {line}")))
    }

    /// The same as somebody at a terminal runs it.
    pub(crate) fn run_by_hand(&self, line: &str) -> Outcome {
        let url = format!("--url http://127.0.0.1:{}/v1", self.controller_port);
        run_by_hand(&self.fill(&format!("{url} {line}")))
    }

    /// The text with the addresses in it.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut text = text.replace("{url}", &format!("127.0.0.1:{}", self.controller_port));
        for (index, node) in self.replicas.iter().enumerate() {
            text = text.replace(&format!("{{{index}}}"), &node.address);
        }
        text
    }

    /// Runs a line that must succeed and say nothing on standard error.
    pub(crate) fn ok(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{line}");
        outcome.out
    }

    /// Runs a line that must fail with nothing on standard output; the error it tells of.
    pub(crate) fn error(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!((outcome.exit_code, outcome.out.as_str()), (1, ""), "{line}");
        fatal(&outcome.err)
    }

    /// All calls so far, as `server.method`.
    pub(crate) fn called(&self) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|call| format!("{}.{}", call.server, call.method)).collect()
    }

    /// The calls of one method, in order.
    pub(crate) fn calls_of(&self, method: &str) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    pub(crate) fn forget_calls(&self) {
        self.calls.lock().unwrap().clear();
    }
}

impl Node {
    /// What the replica says of itself.
    pub(crate) fn is(&self, replica: Replica) {
        self.replica.on("replica_get", ReplicaGetResponse { replica: Some(replica) });
    }
}

/// Runs words split at blanks, on no particular world, by the peer's name.
pub(crate) fn run(line: &str) -> Outcome {
    run_as(line, Invocation::Longhorn, Manner::Log)
}

/// As somebody at a terminal runs it.
pub(crate) fn run_by_hand(line: &str) -> Outcome {
    run_as(line, Invocation::Holdfast, Manner::Sentences)
}

fn run_as(line: &str, invocation: Invocation, manner: Manner) -> Outcome {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
    let mut console = Console { out: &mut out, err: &mut err, shows_progress: false, manner };
    let exit_code = enginecli::run(words, invocation, &mut console);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { exit_code, out: text(out), err: text(err) }
}

/// The error in the last line of a log, as callers find it.
pub(crate) fn fatal(err: &str) -> String {
    let last = err.lines().last().expect("a line on standard error");
    assert!(last.starts_with("time=\"") && last.contains(" level=fatal msg=\""), "{last}");
    let (_, error) = last.split_once(" error=").expect("an error in the last line");
    let bare = error.strip_prefix('"').and_then(|error| error.strip_suffix('"')).unwrap_or(error);
    bare.replace("\\\"", "\"")
}

/// Sockets at the given distances from one free port.
fn listeners<const COUNT: usize>(steps: [u16; COUNT]) -> [TcpListener; COUNT] {
    for _ in 0..PORT_TRIES {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let mut found = vec![first];
        for step in &steps[1..] {
            let next = port.checked_add(*step).map(|port| TcpListener::bind(("127.0.0.1", port)));
            found.extend(next.and_then(Result::ok));
        }
        if let Ok(all) = <[TcpListener; COUNT]>::try_from(found) {
            return all;
        }
    }
    panic!("no free ports");
}
