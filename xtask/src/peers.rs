//! The real programs of others that Holdfast must get along with, built from their Go modules.
//!
//! A peer is a row of [`PEERS`]: a module, a version, a package. What is built lies in `target/peers`
//! and is not built again. Without Go, or without a way to its modules, a peer is skipped and says so;
//! building is part of no other chore.

pub(crate) mod server;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use serde::Deserialize;

use self::server::{Audit, KubeApiServer};
use crate::steps::{Outcome, Report};
use crate::stores::Started;
use crate::test::cargo_test;
use crate::{suites, tools, workspace};

/// The version whose habits the embedded server has: what its `/version` says.
const KUBERNETES: &str = "v1.33.13";

/// A program of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    name: &'static str,
    module: &'static str,
    version: &'static str,
    /// The main package, from the root of the module.
    package: &'static str,
    /// Modules that it requires in a version which is not to be had any more, and one that is.
    instead: &'static [(&'static str, &'static str)],
    /// Files of its sources that need a C library, and what is built in their place.
    exchanged: &'static [(&'static str, &'static str)],
}

const fn kubernetes(name: &'static str, version: &'static str, package: &'static str) -> Peer {
    Peer { name, module: "k8s.io/kubernetes", version, package, instead: &[], exchanged: &[] }
}

const PEERS: &[Peer] = &[
    kubernetes("kube-apiserver", KUBERNETES, "cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", KUBERNETES, "cmd/kube-controller-manager"),
    kubernetes("kubectl", "v1.30.14", "cmd/kubectl"),
    kubernetes("kubectl", "v1.31.14", "cmd/kubectl"),
    kubernetes("kubectl", "v1.32.13", "cmd/kubectl"),
    kubernetes("kubectl", KUBERNETES, "cmd/kubectl"),
    kubernetes("kubectl", "v1.36.3", "cmd/kubectl"),
    GOOGLE,
    HELM,
    LONGHORN,
    MINIO,
    PROMTOOL,
    VELERO,
    VELERO_AWS,
    VERSITYGW,
];

/// An emulator of Google's object store.
const GOOGLE: Peer = Peer {
    name: "fake-gcs-server",
    module: "github.com/fsouza/fake-gcs-server",
    version: "v1.56.1",
    package: ".",
    instead: &[],
    exchanged: &[],
};

/// What renders and installs charts.
const HELM: Peer = Peer {
    name: "helm",
    module: "helm.sh/helm/v3",
    version: "v3.21.4",
    package: "cmd/helm",
    instead: &[],
    exchanged: &[],
};

/// The engine whose dialect ours speaks: of those versions that are to be had with all they require, the
/// newest.
const LONGHORN: Peer = Peer {
    name: "longhorn",
    module: "github.com/longhorn/longhorn-engine",
    version: "v1.8.0",
    package: ".",
    instead: &[],
    exchanged: &[("pkg/qcow/libqcow.go", include_str!("peers/noqcow.go"))],
};

/// An S3 service that is used in earnest. Its releases have no versions of modules; this is the last.
const MINIO: Peer = Peer {
    name: "minio",
    module: "github.com/minio/minio",
    version: "v0.0.0-20260212201848-7aac2a2c5b7c",
    package: ".",
    instead: &[],
    exchanged: &[],
};

/// What checks rules of Prometheus.
const PROMTOOL: Peer = Peer {
    name: "promtool",
    module: "github.com/prometheus/prometheus",
    version: "v0.313.5",
    package: "cmd/promtool",
    instead: &[],
    exchanged: &[],
};

/// Server and command line of Velero.
const VELERO: Peer = Peer {
    name: "velero",
    module: "github.com/vmware-tanzu/velero",
    version: "v1.18.3",
    package: "cmd/velero",
    instead: &[("k8s.io/cli-runtime", "v0.33.13")],
    exchanged: &[],
};

/// Its plugin for stores that speak S3.
const VELERO_AWS: Peer = Peer {
    name: "velero-plugin-for-aws",
    module: "github.com/vmware-tanzu/velero-plugin-for-aws",
    version: "v1.14.3",
    package: "velero-plugin-for-aws",
    instead: &[("k8s.io/cli-runtime", "v0.33.13")],
    exchanged: &[],
};

/// An S3 service over a directory.
const VERSITYGW: Peer = Peer {
    name: "versitygw",
    module: "github.com/versity/versitygw",
    version: "v1.8.0",
    package: "cmd/versitygw",
    instead: &[],
    exchanged: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Arguments {
    /// Name every peer.
    List,
    /// Build peers into `target/peers`, all versions of each.
    Build {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Run the stores of the etcd guard against emulators of the clouds.
    Clouds,
    /// Apply what is in `deploy/` to an upstream kube-apiserver, with a real helm; fire its alerts.
    Deploy,
    /// Run a real v1 engine with our replicas, ours with its replicas, and mixtures of both.
    Engine,
    /// Run an upstream kube-controller-manager with all its controllers on `up`.
    KubeControllerManager,
    /// Run the suite of kubectl with each version of it.
    Kubectl,
    /// Run backups on S3 services that are used in earnest, and keep conditions each in its own way.
    S3,
    /// Run a real Velero with its plugin for S3 and its command line beside the executor, on the embedded
    /// server and on an upstream kube-apiserver.
    Velero,
    /// Run the controllers of volumes and a node on an upstream kube-apiserver, with the rights of
    /// `deploy/rbac.yaml` and no other.
    Volumes,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut report = Report::default();
    match arguments {
        Arguments::List => {
            for peer in PEERS {
                println!("{} ({}/{})", peer.file_name(), peer.module, peer.package);
            }
            return Ok(ExitCode::SUCCESS);
        }
        Arguments::Clouds => report.step("emulators of clouds", clouds),
        Arguments::Build { names } => {
            for name in names {
                for peer in named(name)? {
                    report.step(&peer.file_name(), |_| with(peer, |_| Ok(Outcome::Passed)));
                }
            }
        }
        Arguments::KubeControllerManager => {
            for peer in named("kube-controller-manager")? {
                report.step(&peer.file_name(), |report| {
                    with(peer, |program| suites::controller_manager(report, program))
                });
            }
        }
        Arguments::Deploy => {
            report.step("alerts", |_| with(&PROMTOOL, alerts));
            for peer in named("kube-apiserver")? {
                report.step(&peer.file_name(), |report| {
                    with(&HELM, |helm| {
                        with(peer, |_| {
                            let server = KubeApiServer::start(Audit::Off)?;
                            suites::deploy_on(report, &server, helm)
                        })
                    })
                });
            }
        }
        Arguments::Engine => {
            report.step(&LONGHORN.file_name(), |report| {
                with(&LONGHORN, |program| suites::engine_peer(report, program))
            });
        }
        Arguments::S3 => {
            let services: [(&Peer, StartService); 2] =
                [(&MINIO, Started::minio), (&VERSITYGW, Started::versitygw)];
            for (peer, start) in services {
                report.step(&peer.file_name(), |report| {
                    with(peer, |program| s3_peer(report, peer, program, start))
                });
            }
        }
        Arguments::Velero => {
            report.step(&VELERO.file_name(), |report| {
                with(&VELERO, |velero| {
                    with(&VELERO_AWS, |plugin| velero_peer(report, (velero, plugin)))
                })
            });
        }
        Arguments::Kubectl => {
            for peer in named("kubectl")? {
                report.step(&peer.file_name(), |report| {
                    with(peer, |program| suites::kubectl_of(report, program))
                });
            }
        }
        Arguments::Volumes => {
            for peer in named("kube-apiserver")? {
                report.step(&peer.file_name(), |report| {
                    with(peer, |_| suites::volumes_on(report, &KubeApiServer::start(Audit::On)?))
                });
            }
        }
    }
    Ok(report.finish())
}

/// Velero and its plugin for S3.
pub(crate) fn velero() -> Result<(PathBuf, PathBuf)> {
    Ok((VELERO.build()?, VELERO_AWS.build()?))
}

/// Where no upstream API server can be had, the suite says what it leaves out.
fn velero_peer(report: &mut Report, programs: (&Path, &Path)) -> Result<Outcome> {
    let cluster = match KubeApiServer::start(Audit::On) {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            println!("no upstream API server: {why:#}");
            None
        }
    };
    suites::velero_peer(report, programs, cluster.as_ref())
}

type StartService = fn(&Path) -> Result<Started>;

/// The store's own tests over the service, and then the command line's, which need it at an address.
fn s3_peer(
    report: &mut Report,
    peer: &Peer,
    program: &Path,
    start: StartService,
) -> Result<Outcome> {
    let arguments = ["test", "--package", "backupstore", "--test", "it", "keep_conditions"];
    let mut command = workspace::cargo(arguments);
    command.args(["--", "--show-output"]).env(peer.name.to_uppercase(), program);
    match cargo_test(report, &mut command)? {
        Outcome::Passed => {}
        other => return Ok(other),
    }
    suites::backups_in(report, &start(program)?)
}

/// Rules are read, and fire when their tests say so.
fn alerts(promtool: &Path) -> Result<Outcome> {
    let folder = workspace::root().join("deploy/monitoring");
    for words in [["check", "rules", "rules.yaml"], ["test", "rules", "rules.test.yaml"]] {
        workspace::succeed(Command::new(promtool).current_dir(&folder).args(words))?;
    }
    Ok(Outcome::Passed)
}

/// A peer that was built before, by its name.
pub(crate) fn built(name: &str) -> Result<Option<PathBuf>> {
    let home = workspace::metadata()?.target_directory.join("peers");
    let programs = named(name)?.into_iter().map(|peer| home.join(peer.file_name()));
    Ok(programs.into_iter().find(|it| it.is_file()))
}

/// Tests whose emulator cannot be had say so.
fn clouds(report: &mut Report) -> Result<Outcome> {
    let arguments = ["test", "--package", "etcdguard", "--test", "store", "--", "--show-output"];
    let mut command = workspace::cargo(arguments);
    let programs = [
        ("FAKE_GCS_SERVER", GOOGLE.build().map_err(anyhow::Error::from)),
        ("AZURITE_BLOB", tools::azurite()),
        ("MOTO_SERVER", tools::s3_server()),
        ("RCLONE", tools::rclone()),
    ];
    for (variable, program) in programs {
        match program {
            Ok(program) => drop(command.env(variable, program)),
            Err(why) => println!("{variable} names nothing: {why:#}"),
        }
    }
    cargo_test(report, &mut command)
}

/// Every version of a peer.
pub(crate) fn named(name: &str) -> Result<Vec<&'static Peer>> {
    let found: Vec<_> = PEERS.iter().filter(|peer| peer.name == name).collect();
    ensure!(!found.is_empty(), "no peer is named {name}; `cargo xtask peers list` names them");
    Ok(found)
}

/// Builds a peer if need be and runs something with it; skipped if it cannot be had.
fn with(peer: &Peer, run: impl FnOnce(&Path) -> Result<Outcome>) -> Result<Outcome> {
    match peer.build() {
        Ok(program) => run(&program),
        Err(Missing::Here(why)) => Ok(Outcome::Skipped(format!("{why:#}"))),
        Err(Missing::Broken(why)) => Err(why),
    }
}

/// Why a peer is not there.
#[derive(Debug)]
pub(crate) enum Missing {
    /// No Go, or no way to the module.
    Here(anyhow::Error),
    /// It was fetched, and does not build.
    Broken(anyhow::Error),
}

impl From<Missing> for anyhow::Error {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Here(why) | Missing::Broken(why) => why,
        }
    }
}

impl Peer {
    fn file_name(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The program, built unless it is there.
    pub(crate) fn build(&self) -> Result<PathBuf, Missing> {
        let home = workspace::metadata().map_err(Missing::Broken)?.target_directory.join("peers");
        let program = home.join(self.file_name());
        if program.is_file() {
            return Ok(program);
        }
        let (upstream, sources) = self.download().map_err(Missing::Here)?;
        if self.exchanged.is_empty() {
            self.build_in(&home, &upstream).map_err(Missing::Broken)?;
        } else {
            self.build_copy(&home, &sources).map_err(Missing::Broken)?;
        }
        Ok(program)
    }

    /// What its go.mod says, and where its sources are.
    fn download(&self) -> Result<(GoMod, PathBuf)> {
        let wanted = format!("{}@{}", self.module, self.version);
        let mut command = Command::new("go");
        // Anywhere but in a module of somebody else's.
        command.current_dir("/").args(["mod", "download", "-json", &wanted]);
        let told = workspace::output(&mut command).context("no Go, or no way to its modules")?;
        let downloaded: Downloaded = serde_json::from_str(&told)?;
        let mut command = Command::new("go");
        command.args(["mod", "edit", "-json"]).arg(&downloaded.go_mod);
        let go_mod = serde_json::from_str(&workspace::output(&mut command)?)
            .context("cannot read its go.mod")?;
        Ok((go_mod, downloaded.dir))
    }

    /// Builds a copy of its sources with some files exchanged, and without C.
    fn build_copy(&self, home: &Path, sources: &Path) -> Result<()> {
        let copy = home.join("src").join(self.file_name());
        if copy.exists() {
            std::fs::remove_dir_all(&copy)?;
        }
        std::fs::create_dir_all(home.join("src"))?;
        let mut command = Command::new("cp");
        // What Go downloads nobody may write.
        command.args(["--recursive", "--no-preserve=mode"]).arg(sources).arg(&copy);
        workspace::output(&mut command)?;
        for (file, text) in self.exchanged {
            ensure!(copy.join(file).is_file(), "{} has no {file}", self.module);
            write(&copy.join(file), text)?;
        }
        let package = match self.package {
            "." => ".".to_owned(),
            package => format!("./{package}"),
        };
        self.go_build(
            home,
            Command::new("nice").env("CGO_ENABLED", "0").current_dir(&copy),
            &package,
        )
    }

    fn build_in(&self, home: &Path, upstream: &GoMod) -> Result<()> {
        let sources = home.join("src").join(self.file_name());
        std::fs::create_dir_all(&sources)?;
        write(&sources.join("go.mod"), &self.go_mod(upstream)?)?;
        let package = match self.package {
            "." => self.module.to_owned(),
            package => format!("{}/{package}", self.module),
        };
        self.go_build(home, Command::new("nice").current_dir(&sources), &package)
    }

    /// `nice` is told where and with what to run.
    fn go_build(&self, home: &Path, nice: &mut Command, package: &str) -> Result<()> {
        let program = home.join(self.file_name());
        let unfinished = program.with_extension("building");
        // Minutes of somebody's machine: after everything else that runs on it.
        nice.args(["-n", "5", "go", "build", "-mod=mod"]);
        nice.args(["-ldflags", &self.stamp(), "-o"]).arg(&unfinished).arg(package);
        workspace::output(nice)?;
        std::fs::rename(&unfinished, &program)?;
        Ok(())
    }

    /// A module of ours that requires theirs. What their own go.mod replaces counts only for
    /// themselves, so it is replaced here again; what they keep in one tree is published with a
    /// version of its own, `v0.33.1` for `v1.33.1`.
    fn go_mod(&self, upstream: &GoMod) -> Result<String> {
        let mut text = format!("module peers.invalid/{}\n\ngo {}\n\n", self.name, upstream.go);
        writeln!(text, "require {} {}", self.module, self.version)?;
        for Replace { old, new } in upstream.replace.iter().flatten() {
            let with = match &new.version {
                Some(version) => format!("{} {version}", new.path),
                None => format!("{} {}", old.path, self.staged_version()?),
            };
            let what = [Some(old.path.as_str()), old.version.as_deref()];
            let what: Vec<&str> = what.into_iter().flatten().collect();
            writeln!(text, "replace {} => {with}", what.join(" "))?;
        }
        for (module, version) in self.instead {
            writeln!(text, "replace {module} => {module} {version}")?;
        }
        Ok(text)
    }

    fn staged_version(&self) -> Result<String> {
        match self.version.strip_prefix("v1.") {
            Some(rest) if self.module == "k8s.io/kubernetes" => Ok(format!("v0.{rest}")),
            _ => bail!("{} replaces a module by a folder of its own tree", self.module),
        }
    }

    /// What the program says its version is.
    fn stamp(&self) -> String {
        let mut words = vec!["-s".to_owned(), "-w".to_owned()];
        let mut parts = self.version.trim_start_matches('v').split('.');
        for (name, value) in [
            ("gitVersion", Some(self.version)),
            ("gitMajor", parts.next()),
            ("gitMinor", parts.next()),
        ] {
            let value = value.unwrap_or_default();
            words.push(format!("-X k8s.io/component-base/version.{name}={value}"));
        }
        words.push(format!("-X {}/pkg/buildinfo.Version={}", self.module, self.version));
        words.push(format!("-X main.Version={}", self.version));
        words.join(" ")
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    std::fs::File::create(path)?.write_all(text.as_bytes())?;
    Ok(())
}

/// What `go mod download -json` tells.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    go_mod: PathBuf,
    /// Its sources.
    dir: PathBuf,
}

/// What `go mod edit -json` tells of a go.mod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoMod {
    go: String,
    replace: Option<Vec<Replace>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Replace {
    old: Module,
    new: Module,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    path: String,
    /// None: a folder.
    version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(replace: &str) -> GoMod {
        serde_json::from_str(&format!(r#"{{"Go": "1.24.0", "Replace": [{replace}]}}"#)).unwrap()
    }

    #[test]
    fn what_upstream_replaces_is_replaced_again_and_folders_become_versions() {
        let staged =
            r#"{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}}"#;
        let fork = r#"{"Old": {"Path": "a.b/c", "Version": "v1.0.0"}, "New": {"Path": "d.e/c", "Version": "v1.0.1"}}"#;
        let peer = kubernetes("kubectl", "v1.30.14", "cmd/kubectl");
        let text = peer.go_mod(&upstream(&format!("{staged},{fork}"))).unwrap();
        assert!(text.contains("require k8s.io/kubernetes v1.30.14\n"), "{text}");
        assert!(text.contains("replace k8s.io/api => k8s.io/api v0.30.14\n"), "{text}");
        assert!(text.contains("replace a.b/c v1.0.0 => d.e/c v1.0.1\n"), "{text}");
    }

    #[test]
    fn a_folder_of_an_unknown_tree_is_an_error_not_a_guess() {
        let staged = r#"{"Old": {"Path": "x.y/z"}, "New": {"Path": "./z"}}"#;
        let peer =
            Peer { name: "p", module: "x.y/p", version: "v1.2.3", package: "cmd/p", ..LONGHORN };
        assert!(peer.go_mod(&upstream(staged)).is_err());
    }

    #[test]
    fn the_version_is_stamped_in_full_and_in_parts() {
        let stamp = kubernetes("kubectl", "v1.30.14", "cmd/kubectl").stamp();
        assert!(stamp.contains("version.gitVersion=v1.30.14"), "{stamp}");
        assert!(stamp.contains("version.gitMinor=30"), "{stamp}");
    }
}
