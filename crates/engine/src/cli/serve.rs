//! The processes that serve: their log, their runtime, their end.

use std::error::Error as StdError;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use replica::agent::AgentOptions;
use replica::server::ReplicaOptions;
use rpc::Address;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::log;
use crate::ControllerOptions;

/// Threads beside the one that does the I/O: they serve control calls and copy files.
const REPLICA_WORKERS: usize = 2;
/// From the control port to the first one that receives files.
const RECEIVERS_STEP: u16 = 3;

pub(crate) fn controller(options: ControllerOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    // Control calls only: the volume has a thread of its own.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let ended = runtime.block_on(Box::pin(crate::control::run(options)));
    leave(runtime);
    ended.map_err(|error| Error::Server { exit_code: error.exit_code(), text: chain(&error) })
}

pub(crate) fn replica(options: ReplicaOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    let runtime = workers()?;
    let ended = runtime.block_on(async {
        if options.sync_agent {
            Box::pin(replica_and_agent(options)).await
        } else {
            Box::pin(replica::server::run(options)).await.map_err(failed)
        }
    });
    leave(runtime);
    ended
}

/// Both in one process: neither is of use without the other, so the end of one is the end of both.
async fn replica_and_agent(options: ReplicaOptions) -> Result<(), Error> {
    let agent = beside(&options)?;
    // Listens before the replica does: who finds the replica up finds its agent up.
    let listener = bind(&agent.listen)?;
    tokio::select! {
        ended = replica::server::run(options) => ended.map_err(failed),
        ended = replica::agent::serve(listener, agent, CancellationToken::new()) => {
            Err(ended.map_or_else(failed, |()| Error::Server {
                exit_code: 1,
                text: "the sync agent ended".to_owned(),
            }))
        }
    }
}

/// The agent that belongs to a replica: two ports on, its receivers behind it.
fn beside(options: &ReplicaOptions) -> Result<AgentOptions, Error> {
    let control = with_host(&options.listen).parse::<Address>()?;
    let first = control.port().checked_add(RECEIVERS_STEP);
    let last = first.and_then(|first| first.checked_add(options.sync_agent_port_count));
    let (Some(first), Some(end)) = (first, last) else {
        let count = options.sync_agent_port_count;
        let text = format!("no {count} ports for files behind port {}", control.port());
        return Err(Error::Refused(text));
    };
    let own = match control.host() {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    Ok(AgentOptions {
        dir: options.dir.clone(),
        volume_name: options.volume_name.clone(),
        instance_name: options.instance_name.clone(),
        listen: control.sync_agent().to_string(),
        replica: Address::new(own, control.port()).to_string(),
        // Without ports it is empty, and every transfer is told so.
        ports: first..=end - 1,
    })
}

/// A host that is left out means every address.
fn with_host(listen: &str) -> String {
    if listen.starts_with(':') { format!("0.0.0.0{listen}") } else { listen.to_owned() }
}

/// Of a name with several addresses an IPv4 one, as the replica chooses for itself.
fn bind(address: &str) -> Result<TcpListener, Error> {
    let bound = || {
        let mut found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        let listener = std::net::TcpListener::bind(found.as_slice())?;
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let failed = |error: io::Error| Error::Server {
        exit_code: 1,
        text: format!("cannot listen at {address}: {error}"),
    };
    bound().map_err(failed)
}

pub(crate) fn sync_agent(options: AgentOptions, debug: bool) -> Result<(), Error> {
    log::install(debug);
    let runtime = workers()?;
    let ended = runtime.block_on(Box::pin(async {
        let stop = CancellationToken::new();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
        let mut served = std::pin::pin!(replica::agent::run(options, stop.clone()));
        tokio::select! {
            _ = interrupt.recv() => stop.cancel(),
            _ = terminate.recv() => stop.cancel(),
            ended = &mut served => return ended.map_err(failed),
        }
        served.await.map_err(failed)
    }));
    leave(runtime);
    ended
}

fn workers() -> Result<Runtime, Error> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(REPLICA_WORKERS).enable_all().build().map_err(Error::Start)
}

/// Does not wait for threads that are stuck in a system call: the process ends now.
fn leave(runtime: Runtime) {
    runtime.shutdown_background();
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn failed(error: impl StdError) -> Error {
    Error::Server { exit_code: 1, text: chain(&error) }
}

/// An error with its causes, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let words = deeper.to_string();
        // Some texts have that of their cause in them.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: &str, ports: u16) -> ReplicaOptions {
        ReplicaOptions {
            dir: "/r".into(),
            volume_name: "v".into(),
            instance_name: "i".into(),
            listen: listen.into(),
            backing_file: None,
            size_bytes: None,
            sync_agent: true,
            sync_agent_port_count: ports,
            revision_counter: true,
            data_unix: false,
            unmap_mark_disk_chain_removed: false,
            snapshot_max_count: 250,
            snapshot_max_size: 0,
            encrypted: false,
        }
    }

    #[test]
    fn the_agent_and_its_receivers_follow_the_data_port() {
        let agent = beside(&options("10.0.0.1:10000", 7)).unwrap();
        assert_eq!(agent.listen, "10.0.0.1:10002");
        assert_eq!(agent.replica, "10.0.0.1:10000");
        assert_eq!(agent.ports, 10003..=10009);
        assert!(beside(&options(":10000", 0)).unwrap().ports.is_empty());
        assert_eq!(beside(&options(":10000", 1)).unwrap().replica, "127.0.0.1:10000");
        assert!(beside(&options("localhost:65530", 10)).is_err());
        assert!(beside(&options("nowhere", 10)).is_err());
    }
}
