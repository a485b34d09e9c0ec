//! Shares that are mounted: NFS and CIFS. Only root can, and only where the system has the tool;
//! otherwise the caller is told what is missing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::open::{Environment, decoded};
use super::url::TargetUrl;
use crate::error::Error;
use crate::lock::MARGIN;

/// Below which shares are mounted.
pub const MOUNTS: &str = "/var/lib/longhorn-backupstore-mounts";

const MOUNT_TIMEOUT: Duration = Duration::from_secs(5);
const NFS_VERSIONS: &[&str] = &["4.2", "4.1", "4.0"];
/// Calls are given up after 15 s: what was sent is done within 20 s, or never (docs/formats/locking.md).
const NFS_OPTIONS: &str = "actimeo=1,soft,timeo=50,retrans=2,retry=2";
/// The same: a connection is given up when nothing comes for three times that long.
const CIFS_OPTIONS: &str = "soft,echo_interval=5";
/// Where the kernel says nothing else.
const ECHO_INTERVAL_SECONDS: u64 = 60;
const TOOLS_IN: &[&str] = &["/sbin", "/usr/sbin", "/usr/local/sbin", "/bin", "/usr/bin"];

/// One share, where it is to be, and how it may be mounted.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    kind: &'static str,
    tool: &'static str,
    /// In which the tool usually comes.
    package: &'static str,
    device: String,
    at: PathBuf,
    /// Tried one after the other.
    options: Vec<String>,
}

fn nfs_share(url: &TargetUrl) -> Result<Share, Error> {
    let path = decoded(url)?;
    let host = url.authority().strip_suffix(':').unwrap_or(url.authority());
    if host.is_empty() || path.is_empty() {
        return Err(url.refuse("write it as in nfs://host:/share/path"));
    }
    let options = match url.option("nfsOptions").filter(|options| !options.is_empty()) {
        Some(given) => vec![given.to_owned()],
        None => NFS_VERSIONS.iter().map(|it| format!("nfsvers={it},{NFS_OPTIONS}")).collect(),
    };
    let device = format!("{host}:{path}");
    let at = place_of(url, host, &path)?;
    let (tool, package) = ("mount.nfs", "nfs-common or nfs-utils");
    Ok(Share { kind: "nfs4", tool, package, device, at, options })
}

fn cifs_share(url: &TargetUrl) -> Result<Share, Error> {
    let (host, path) = (url.authority(), decoded(url)?);
    if host.is_empty() || path.trim_matches('/').is_empty() {
        return Err(url.refuse("write it as in cifs://host/share/path"));
    }
    let options = url.option("cifsOptions").filter(|options| !options.is_empty());
    Ok(Share {
        kind: "cifs",
        tool: "mount.cifs",
        package: "cifs-utils",
        device: format!("//{host}{path}"),
        at: place_of(url, host, &path)?,
        options: vec![options.unwrap_or(CIFS_OPTIONS).to_owned()],
    })
}

fn place_of(url: &TargetUrl, host: &str, path: &str) -> Result<PathBuf, Error> {
    let host = host.replace('.', "_");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(plain) {
        return Err(url.refuse("its host has characters that no host has"));
    }
    Ok(Path::new(MOUNTS).join(host).join(path.trim_matches('/')))
}

pub(super) async fn nfs(url: &TargetUrl) -> Result<PathBuf, Error> {
    mount(nfs_share(url)?, &[]).await
}

pub(super) async fn cifs(url: &TargetUrl, environment: &Environment) -> Result<PathBuf, Error> {
    // By its environment, which other users cannot read, unlike its arguments.
    let names = [("CIFS_USERNAME", "USER"), ("CIFS_PASSWORD", "PASSWD")];
    let secrets: Vec<(&str, &str)> =
        names.iter().filter_map(|(ours, its)| Some((*its, environment.get(ours)?))).collect();
    mount(cifs_share(url)?, &secrets).await
}

async fn mount(share: Share, secrets: &[(&str, &str)]) -> Result<PathBuf, Error> {
    let refuse = |why: String| Error::Mount { what: share.device.clone(), why };
    if mounted().await?.contains(&share.at) {
        return Ok(share.at);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(refuse(
            "only root can mount; run it as root, or mount it yourself and use vfs:///directory"
                .into(),
        ));
    }
    if !TOOLS_IN.iter().any(|folder| Path::new(folder).join(share.tool).exists()) {
        return Err(refuse(format!(
            "{} is not installed; install it (package {}), or mount it yourself and use \
             vfs:///directory",
            share.tool, share.package
        )));
    }
    let at = share.at.clone();
    let made = tokio::task::spawn_blocking(move || std::fs::create_dir_all(at)).await;
    made.map_err(Error::Thread)?.map_err(|error| refuse(error.to_string()))?;
    let mut last = String::new();
    for options in &share.options {
        let arguments = ["-t", share.kind, "-o", options, &share.device].map(OsStr::new);
        match run("mount", &[&arguments[..], &[share.at.as_os_str()]].concat(), secrets).await {
            Ok(()) => return Ok(share.at),
            Err(why) => last = why,
        }
    }
    Err(refuse(format!(
        "{last}; check the host, what it shares with this machine, and the firewall on the way"
    )))
}

async fn run(tool: &str, arguments: &[&OsStr], secrets: &[(&str, &str)]) -> Result<(), String> {
    let mut command = Command::new(tool);
    command.args(arguments).envs(secrets.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(MOUNT_TIMEOUT, command.output()).await {
        Ok(Ok(done)) if done.status.success() => Ok(()),
        Ok(Ok(done)) => {
            Err(String::from_utf8_lossy(&done.stderr).trim().chars().take(500).collect())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{tool} did not end in {} s", MOUNT_TIMEOUT.as_secs())),
    }
}

/// Mount points below ours.
async fn mounted() -> Result<Vec<PathBuf>, Error> {
    let read =
        tokio::task::spawn_blocking(|| std::fs::read_to_string("/proc/self/mountinfo")).await;
    let text = read.map_err(Error::Thread)?.map_err(Error::Source)?;
    Ok(mount_points(&text))
}

fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|at| PathBuf::from(at.replace("\\040", " ")));
    points.filter(|at| at.starts_with(MOUNTS)).collect()
}

/// What a user should know of the mount that a directory lies on: where it holds calls back for longer than
/// others wait for them.
pub(super) fn caveat(directory: &Path) -> Option<String> {
    caveat_in(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, directory)
}

fn caveat_in(mountinfo: &str, directory: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let at = PathBuf::from(mount.split(' ').nth(4)?.replace("\\040", " "));
        let mut system = system.split(' ');
        Some((at, system.next()?, system.nth(1)?))
    });
    // Of those at the same place, the last lies above the others.
    let above = mounts.filter(|(at, ..)| directory.starts_with(at));
    let (at, kind, options) = above.max_by_key(|(at, ..)| at.components().count())?;
    let (seconds, advice) = held_back(kind, options)?;
    let held = match seconds {
        Some(seconds) if Duration::from_secs(seconds) <= MARGIN => return None,
        Some(seconds) => format!("for up to {seconds} s"),
        None => "until its server answers".to_owned(),
    };
    let (at, margin) = (at.display(), MARGIN.as_secs());
    Some(format!(
        "the mount at {at} holds calls back {held}, and others wait for {margin} s: a process that deletes, \
         is cut off and then killed may take away a block later that a backup needs{advice}"
    ))
}

/// For how many seconds a file system of this kind holds a call back whose server does not answer, if it
/// ends at all, and how that is changed. Nothing for those of this machine.
fn held_back(kind: &str, options: &str) -> Option<(Option<u64>, &'static str)> {
    let number = |name: &str| {
        let mut values = options.split(',').filter_map(|option| option.strip_prefix(name));
        values.next()?.strip_prefix('=')?.parse::<u64>().ok()
    };
    let is_soft = options.split(',').any(|option| matches!(option, "soft" | "softerr"));
    match kind {
        _ if kind.starts_with("nfs") => {
            let tenths = number("timeo").zip(number("retrans"));
            let seconds =
                tenths.map(|(timeo, more)| timeo.saturating_mul(more.saturating_add(1)) / 10);
            Some((seconds.filter(|_| is_soft), "; mount it with soft,timeo=50,retrans=2"))
        }
        "cifs" | "smb3" => {
            let seconds = number("echo_interval").unwrap_or(ECHO_INTERVAL_SECONDS);
            let seconds = Some(seconds.saturating_mul(3)).filter(|_| is_soft);
            Some((seconds, "; mount it with soft,echo_interval=5"))
        }
        "9p" | "afs" | "ceph" | "fuse" | "lustre" => Some((None, "")),
        _ => kind.starts_with("fuse.").then_some((None, "")),
    }
}

/// Unmounts every share that was mounted for a target, by whomever.
pub async fn unmount_all() -> Result<(), Error> {
    let mut points = mounted().await?;
    // Those inside others first.
    points.sort_by_key(|at| std::cmp::Reverse(at.components().count()));
    let mut failed = None;
    for at in points {
        if let Err(why) = run("umount", &[at.as_os_str()], &[]).await {
            failed.get_or_insert(Error::Mount { what: at.display().to_string(), why });
        }
    }
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> TargetUrl {
        TargetUrl::parse(text).unwrap()
    }

    #[test]
    fn a_share_is_mounted_where_others_look_for_it() {
        let share = nfs_share(&target("nfs://nfs.example:/a/b/")).unwrap();
        assert_eq!(share.device, "nfs.example:/a/b/");
        assert_eq!(share.at, Path::new(MOUNTS).join("nfs_example/a/b"));
        assert_eq!(
            share.options.first().unwrap(),
            "nfsvers=4.2,actimeo=1,soft,timeo=50,retrans=2,retry=2"
        );
        let share = nfs_share(&target("nfs://h:/a?nfsOptions=soft,timeo=9")).unwrap();
        assert_eq!(share.options, ["soft,timeo=9"]);
        let share = cifs_share(&target("cifs://h/s/p")).unwrap();
        assert_eq!((share.device.as_str(), share.options.len()), ("//h/s/p", 1));
        for bad in ["nfs://:/a", "nfs://h", "nfs://h:/../etc", "nfs://a b:/x"] {
            assert!(nfs_share(&target(bad)).is_err(), "{bad}");
        }
        assert!(cifs_share(&target("cifs://h/")).is_err());
    }

    #[test]
    fn a_mount_that_holds_calls_back_is_told() {
        let of = |options: &str| {
            let text = format!(
                "1 2 0:1 / / rw - ext4 /dev/a rw\n3 1 0:2 / /mnt/a\\040b rw,relatime shared:4 - nfs4 \
                 h:/a {options}\n"
            );
            caveat_in(&text, Path::new("/mnt/a b/store"))
        };
        assert_eq!(of("rw,vers=4.2,soft,proto=tcp,timeo=50,retrans=2"), None);
        let told = of("rw,vers=4.2,soft,proto=tcp,timeo=300,retrans=2").unwrap();
        assert!(told.contains("/mnt/a b") && told.contains("up to 90 s"), "{told}");
        let told = of("rw,vers=4.2,hard,proto=tcp,timeo=50,retrans=2").unwrap();
        assert!(told.contains("until its server answers"), "{told}");
        for (kind, options, expected) in [
            ("ext4", "rw", None),
            ("fuseblk", "rw", None),
            ("cifs", "rw,soft,echo_interval=5", None),
            ("cifs", "rw,soft,echo_interval=60", Some("up to 180 s")),
            ("smb3", "rw,hard,echo_interval=5", Some("until its server answers")),
            ("fuse.sshfs", "rw", Some("until its server answers")),
            ("ceph", "rw", Some("until its server answers")),
        ] {
            let text = format!("1 2 0:1 / / rw - {kind} /dev/a {options}\n");
            let told = caveat_in(&text, Path::new("/mnt"));
            let is_expected = match expected {
                None => told.is_none(),
                Some(part) => told.as_ref().is_some_and(|told| told.contains(part)),
            };
            assert!(is_expected, "{kind} {options}: {told:?}");
        }
    }

    #[test]
    fn mount_points_are_found() {
        let text = format!(
            "1 2 0:1 / /proc rw - proc proc rw\n3 2 0:2 / {MOUNTS}/h/a\\040b rw - nfs4 h:/a rw\n"
        );
        assert_eq!(mount_points(&text), [Path::new(MOUNTS).join("h/a b")]);
    }
}
