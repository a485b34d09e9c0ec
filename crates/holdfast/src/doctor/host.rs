//! Questions to this machine.

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek, statfs, statvfs};
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::Finding;
use super::verdict::{self, Port, Space};
use crate::config::Config;

const SYNCS: usize = 15;
const BLOCK: [u8; 4096] = [7; 4096];
const CERTIFICATES: [&str; 3] = ["ca", "server", "admin"];
/// Programs of others, and what they are for.
const TOOLS: [(&str, &str); 3] = [
    ("kubectl", "looking at resources"),
    ("nbd-client", "volumes as devices of this machine"),
    ("mount.nfs", "backup targets on NFS"),
];

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut found = vec![
        verdict::kernel(&rustix::system::uname().release().to_string_lossy()),
        // The soft limit is raised to the hard one at the start.
        verdict::open_files(getrlimit(Resource::Nofile).maximum),
        verdict::processes(getrlimit(Resource::Nproc).current),
        verdict::memory(available_memory()),
    ];
    found.extend(data_dir(&config.data_dir));
    found.extend(certificates(&config.data_dir.join("pki")));
    let is_running = is_held(&config.data_dir);
    let listens = [
        ("the API", Some(config.listen)),
        ("Block Storage", config.block_listen),
        ("the dashboard", config.dashboard_listen),
    ];
    for (what, address) in listens {
        let Some(address) = address.filter(|it| it.port() != 0) else { continue };
        found.push(verdict::port(what, &address.to_string(), port(address, is_running)));
    }
    let tools = TOOLS.into_iter().map(|(name, what)| verdict::tool(name, what, is_there(name)));
    found.extend(tools);
    found
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn data_dir(dir: &Path) -> Vec<Finding> {
    let shown = dir.display().to_string();
    // Before the first start: where it will be made.
    let Some(place) = dir.ancestors().find(|it| it.is_dir()).or(Some(Path::new("."))) else {
        return Vec::new();
    };
    let place = if place.as_os_str().is_empty() { Path::new(".") } else { place };
    let mut found = Vec::new();
    if dir.is_dir() {
        match std::fs::metadata(dir) {
            Ok(it) => {
                let own = it.uid() == rustix::process::geteuid().as_raw();
                found.push(verdict::rights(&shown, it.mode(), own));
            }
            Err(error) => found.push(unreadable(&shown, &error)),
        }
        found.push(verdict::clock(behind(dir)));
    } else {
        found.push(Finding::ok("data directory", format!("{shown} is made at the first start")));
    }
    match statfs(place) {
        Ok(it) => found.push(verdict::file_system(it.f_type)),
        Err(error) => found.push(unreadable(&shown, &error.into())),
    }
    match statvfs(place) {
        Ok(it) => found.push(verdict::space(Space {
            free: it.f_bavail.saturating_mul(it.f_frsize),
            all: it.f_blocks.saturating_mul(it.f_frsize),
            free_files: it.f_favail,
            all_files: it.f_files,
        })),
        Err(error) => found.push(unreadable(&shown, &error.into())),
    }
    found.push(verdict::holes(&holes(place)));
    match syncs(place) {
        Ok(took) => found.push(verdict::sync_cost(took)),
        Err(error) => found.push(Finding::fail(
            "fsync",
            format!("cannot write in {}: {error}", place.display()),
            "choose a directory you can write to with --data-dir",
        )),
    }
    found
}

fn unreadable(path: &str, error: &std::io::Error) -> Finding {
    let told = format!("cannot look at {path}: {error}");
    Finding::fail("data directory", told, "run as its owner, or name another with --data-dir")
}

/// How far the clock is behind the newest file of a directory.
fn behind(dir: &Path) -> Option<Duration> {
    let files =
        std::fs::read_dir(dir).ok()?.filter_map(|it| it.ok()?.metadata().ok()?.modified().ok());
    files.max()?.duration_since(SystemTime::now()).ok()
}

/// A file that is new: where others can write, one of that name may lead elsewhere.
fn new(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// Writes and syncs a file of its own that goes again.
fn syncs(dir: &Path) -> std::io::Result<Vec<Duration>> {
    let path = dir.join(format!(".holdfast-doctor-{}", std::process::id()));
    let measure = || -> std::io::Result<Vec<Duration>> {
        let mut file = new(&path)?;
        let mut took = Vec::new();
        for _ in 0..SYNCS {
            let began = Instant::now();
            file.write_all(&BLOCK)?;
            file.sync_data()?;
            took.push(began.elapsed());
        }
        Ok(took)
    };
    let took = measure();
    // It may not have been made.
    let _ = std::fs::remove_file(&path);
    took
}

/// Whether the file system makes room again where a hole is punched, and finds holes.
fn holes(dir: &Path) -> std::io::Result<bool> {
    const LENGTH: u64 = 1 << 20;
    let path = dir.join(format!(".holdfast-doctor-holes-{}", std::process::id()));
    let look = || -> std::io::Result<bool> {
        let mut file = new(&path)?;
        file.write_all(&vec![7; usize::try_from(LENGTH).unwrap_or_default()])?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 0, LENGTH / 2)?;
        Ok(seek(&file, SeekFrom::Hole(0))? == 0 && seek(&file, SeekFrom::Data(0))? > 0)
    };
    let found = look();
    // It may not have been made.
    let _ = std::fs::remove_file(&path);
    found
}

fn certificates(dir: &Path) -> Vec<Finding> {
    let found = CERTIFICATES.into_iter().filter_map(|name| {
        let path = dir.join(format!("{name}.crt"));
        let text = std::fs::read(&path).ok()?;
        Some(match days_left(&text) {
            Some(days) => verdict::certificate(name, days),
            None => Finding::fail(
                format!("certificate {name}"),
                format!("{} is damaged", path.display()),
                "see docs/operations/certificates.md",
            ),
        })
    });
    found.collect()
}

fn days_left(pem: &[u8]) -> Option<i64> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let end = certificate.validity().not_after.timestamp();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some((end - i64::try_from(now.as_secs()).ok()?).div_euclid(24 * 3600))
}

/// Whether a server runs on a data directory: whether the kernel knows a lock on its lock file. To
/// try the lock would be to hold it, if only for a moment, and a server that starts then would fail.
fn is_held(dir: &Path) -> bool {
    let Ok(file) = std::fs::metadata(dir.join("LOCK")) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    verdict::is_locked(&locks, file.ino())
}

fn port(address: SocketAddr, is_running: bool) -> Port {
    match TcpListener::bind(address) {
        Ok(_) => Port::Free,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_running => Port::Ours,
        Err(error) => Port::Taken(error.to_string()),
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(|dir| dir.join(program).is_file())
}
