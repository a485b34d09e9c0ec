//! `controller`, `replica` and `sync-agent`: from flags to options, and the process around them.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use engine::{Backend, ControllerOptions, DataProtocol, NbdOptions, TlsFiles};
use replica::agent::AgentOptions;
use replica::server::ReplicaOptions;

use super::error::Error;
use super::flag::Flag;
use super::parse::Line;
use super::table::{flags as f, global};
use super::{Invocation, serve, value};

/// Seconds a replica may be given to answer; anything else is the least of them.
const REPLICA_TIMEOUT_SECONDS: RangeInclusive<i64> = 8..=30;

/// How long a controller waits for its replicas, unless told otherwise.
const REPLICA_WAIT_SECONDS: u64 = 10;
const REPLICA_WAIT_MAX_SECONDS: u64 = 24 * 3600;

pub(crate) fn controller(line: &Line) -> Result<(), Error> {
    let wait = replica_wait(line)?;
    serve::controller(controller_options(line)?, wait, line.globals.switch(&global::DEBUG))
}

pub(crate) fn replica(line: &Line) -> Result<(), Error> {
    serve::replica(replica_options(line)?, line.globals.switch(&global::DEBUG))
}

pub(crate) fn sync_agent(line: &Line) -> Result<(), Error> {
    serve::sync_agent(agent_options(line)?, line.globals.switch(&global::DEBUG))
}

fn controller_options(line: &Line) -> Result<ControllerOptions, Error> {
    let flags = &line.flags;
    let volume = line.arguments.first().cloned();
    let volume = volume.ok_or_else(|| Error::refused("volume name is required"))?;
    if !value::is_volume_name(&volume) {
        return Err(Error::Refused(format!("invalid volume name {volume:?}: {NAME_RULE}")));
    }
    Ok(ControllerOptions {
        volume,
        instance_name: line.globals.text(&global::ENGINE_INSTANCE_NAME),
        listen: flags.text(&f::CONTROLLER_LISTEN),
        size_bytes: needed(line, &f::SIZE)?,
        current_size_bytes: needed(line, &f::CURRENT_SIZE)?,
        frontend: flags.text(&f::FRONTEND),
        backends: backends(&flags.list(&f::ENABLE_BACKEND))?,
        replicas: flags.list(&f::CONTROLLER_REPLICA),
        upgrade: flags.switch(&f::UPGRADE),
        claim_generation: claim_generation()?,
        revision_counter: !flags.switch(&f::DISABLE_REV_COUNTER),
        salvage: flags.switch(&f::SALVAGE_REQUESTED),
        replica_timeout: replica_timeout(flags.integer(&f::ENGINE_REPLICA_TIMEOUT)),
        data_protocol: data_protocol(line)?,
        unmap_mark_snap_chain_removed: flags.switch(&f::UNMAP_MARK_SNAP_CHAIN_REMOVED),
        file_sync_http_client_timeout: seconds(line, &f::FILE_SYNC_TIMEOUT)?,
        snapshot_max_count: count(line, &f::SNAPSHOT_MAX_COUNT)?,
        snapshot_max_size: flags.size(&f::SNAPSHOT_MAX_SIZE).unwrap_or_default(),
        rebuild_sync_concurrent_limit: positive(line, &f::REBUILD_SYNC_CONCURRENT_LIMIT)?,
        rebuild_timeout: engine::REBUILD_TIMEOUT,
        nbd: nbd_options(line)?,
    })
}

/// Not a flag: whoever starts engines of several kinds can give it to all of them.
const CLAIM_VARIABLE: &str = "HOLDFAST_CLAIM_GENERATION";

fn claim_generation() -> Result<Option<u64>, Error> {
    let Some(given) = std::env::var_os(CLAIM_VARIABLE) else { return Ok(None) };
    let number = given.to_str().and_then(|text| text.trim().parse().ok());
    let number: u64 = number.ok_or_else(|| {
        Error::Refused(format!("invalid {CLAIM_VARIABLE} {}: a number", given.display()))
    })?;
    Ok(Some(number))
}

/// A peer's scripts start their replicas first, and expect a start without one of them to be quick.
pub(super) fn replica_wait(line: &Line) -> Result<Duration, Error> {
    let text = line.flags.text(&f::REPLICA_WAIT);
    let seconds = match (text.as_str(), line.invocation) {
        ("", Invocation::Holdfast) => REPLICA_WAIT_SECONDS,
        ("", Invocation::Longhorn) => 0,
        (text, _) => {
            text.parse().ok().filter(|it| *it <= REPLICA_WAIT_MAX_SECONDS).ok_or_else(|| {
                Error::Refused(format!("invalid --replica-wait {text:?}: 0 to 86400 seconds"))
            })?
        }
    };
    Ok(Duration::from_secs(seconds))
}

const NAME_RULE: &str =
    "2 to 64 letters, digits, '_', '.' or '-', of which the first is a letter or digit";

fn needed(line: &Line, flag: &Flag) -> Result<i64, Error> {
    let given = line.flags.size(flag);
    given.ok_or_else(|| Error::Refused(format!("--{} is required", flag.name)))
}

fn backends(names: &[String]) -> Result<Vec<Backend>, Error> {
    let mut backends = Vec::new();
    for name in names {
        let backend = match name.as_str() {
            "tcp" => Backend::Tcp,
            "file" => Backend::File,
            _ => return Err(Error::Refused(format!("unknown backend {name:?}: tcp or file"))),
        };
        if !backends.contains(&backend) {
            backends.push(backend);
        }
    }
    Ok(backends)
}

fn replica_timeout(seconds: i64) -> Duration {
    let usual = *REPLICA_TIMEOUT_SECONDS.start();
    let seconds = if REPLICA_TIMEOUT_SECONDS.contains(&seconds) { seconds } else { usual };
    Duration::from_secs(seconds.unsigned_abs())
}

fn data_protocol(line: &Line) -> Result<DataProtocol, Error> {
    let name = line.flags.text(&f::DATA_SERVER_PROTOCOL);
    match name.as_str() {
        "tcp" => Ok(DataProtocol::Tcp),
        "unix" => Ok(DataProtocol::Unix),
        _ => Err(Error::Refused(format!("unknown data server protocol {name:?}: tcp or unix"))),
    }
}

fn seconds(line: &Line, flag: &Flag) -> Result<Duration, Error> {
    Ok(Duration::from_secs(u64::from(positive(line, flag)?.unsigned_abs())))
}

fn count(line: &Line, flag: &Flag) -> Result<i32, Error> {
    let number = line.flags.integer(flag);
    i32::try_from(number).ok().filter(|number| *number >= 0).ok_or_else(|| {
        Error::Refused(format!("invalid --{} {number}: too large or negative", flag.name))
    })
}

fn positive(line: &Line, flag: &Flag) -> Result<i32, Error> {
    let number = count(line, flag)?;
    if number == 0 {
        return Err(Error::Refused(format!("invalid --{}: must be greater than 0", flag.name)));
    }
    Ok(number)
}

fn nbd_options(line: &Line) -> Result<NbdOptions, Error> {
    let path = |flag: &Flag| {
        Some(line.flags.text(flag)).filter(|text| !text.is_empty()).map(PathBuf::from)
    };
    let listen = Some(line.flags.text(&f::NBD_LISTEN)).filter(|text| !text.is_empty());
    let tls = match (path(&f::NBD_TLS_CERT), path(&f::NBD_TLS_KEY), path(&f::NBD_TLS_CLIENT_CA)) {
        (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
        (None, None, None) => None,
        (_, _, _) => {
            return Err(Error::refused(
                "TLS needs both --nbd-tls-cert and --nbd-tls-key; --nbd-tls-client-ca is optional",
            ));
        }
    };
    let listen = listen.map(|text| resolve(&text)).transpose()?;
    Ok(NbdOptions { listen, unix: path(&f::NBD_UNIX), tls })
}

/// `host:port`, or `:port` for every address.
fn resolve(text: &str) -> Result<SocketAddr, Error> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    let found = full.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| Error::Refused(format!("invalid --nbd-listen {text:?}: no host:port")))
}

fn replica_options(line: &Line) -> Result<ReplicaOptions, Error> {
    let flags = &line.flags;
    let dir = line.arguments.first().filter(|dir| !dir.is_empty());
    let dir = dir.ok_or_else(|| Error::refused("directory name is required"))?;
    let backing_file = flags.text(&f::BACKING_FILE);
    let ports = flags.integer(&f::SYNC_AGENT_PORT_COUNT);
    Ok(ReplicaOptions {
        dir: PathBuf::from(dir),
        volume_name: line.globals.text(&global::VOLUME_NAME),
        instance_name: flags.text(&f::REPLICA_INSTANCE_NAME),
        listen: flags.text(&f::REPLICA_LISTEN),
        backing_file: Some(backing_file).filter(|path| !path.is_empty()).map(PathBuf::from),
        size_bytes: flags.size(&f::SIZE),
        sync_agent: flags.switch(&f::SYNC_AGENT),
        sync_agent_port_count: u16::try_from(ports).map_err(|_| {
            Error::Refused(format!("invalid --sync-agent-port-count {ports}: ports"))
        })?,
        revision_counter: !flags.switch(&f::DISABLE_REV_COUNTER),
        data_unix: data_protocol(line)? == DataProtocol::Unix,
        unmap_mark_disk_chain_removed: flags.switch(&f::UNMAP_MARK_DISK_CHAIN_REMOVED),
        snapshot_max_count: count(line, &f::SNAPSHOT_MAX_COUNT)?,
        snapshot_max_size: flags.size(&f::SNAPSHOT_MAX_SIZE).unwrap_or_default(),
        encrypted: flags.switch(&f::ENCRYPTED),
    })
}

fn agent_options(line: &Line) -> Result<AgentOptions, Error> {
    let flags = &line.flags;
    let replica = flags.text(&f::AGENT_REPLICA);
    if replica.is_empty() {
        return Err(Error::refused("--replica is required"));
    }
    Ok(AgentOptions {
        // The replica starts its agent in its own directory.
        dir: std::env::current_dir().map_err(Error::Start)?,
        volume_name: line.globals.text(&global::VOLUME_NAME),
        instance_name: flags.text(&f::REPLICA_INSTANCE_NAME),
        listen: flags.text(&f::AGENT_LISTEN),
        replica,
        ports: port_range(&flags.text(&f::LISTEN_PORT_RANGE))?,
    })
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, Error> {
    let range = text.split_once('-').and_then(|(from, to)| {
        let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (from > 0 && from <= to).then_some(from..=to)
    });
    range.ok_or_else(|| Error::Refused(format!("invalid --listen-port-range {text:?}: FROM-TO")))
}

#[cfg(test)]
mod tests;
