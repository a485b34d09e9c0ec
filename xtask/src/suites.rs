//! The end-to-end suites: the real binary, driven by real clients.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::peers::server::KubeApiServer;
use crate::steps::{Outcome, Report, Step};
use crate::test::{cargo_test, cargo_test_twice};
use crate::{peers, stores, tools, workspace};

/// What is killed in the crash loops.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum Crash {
    /// The embedded API server.
    #[default]
    Apiserver,
    /// The volume engine and its replicas.
    Engine,
    /// Those who make, restore and remove backups.
    Backup,
    /// The server with its controllers and node, engines and replicas of volumes.
    Volumes,
    /// The etcd guard, and its commands that restore and compact.
    Etcd,
    /// The controllers of tenants, and the executor of their backups.
    Tenants,
}

impl Crash {
    fn suite(self) -> &'static str {
        match self {
            Self::Apiserver => "crash",
            Self::Engine => "engine_crash",
            Self::Backup => "backup_crash",
            Self::Volumes => "volumes_crash",
            Self::Etcd => "etcd_crash",
            Self::Tenants => "tenants",
        }
    }

    /// Before the names of the variables that the suite reads.
    fn variables(self) -> &'static str {
        match self {
            Self::Apiserver | Self::Engine => "CRASH",
            Self::Backup => "BACKUP_CRASH",
            Self::Volumes => "VOLUMES_CRASH",
            Self::Etcd => "ETCD_CRASH",
            Self::Tenants => "TENANTS_CRASH",
        }
    }

    /// How often, unless told otherwise.
    fn rounds(self) -> u32 {
        match self {
            Self::Apiserver => 100,
            Self::Engine => 1000,
            Self::Backup => 200,
            Self::Volumes => 45,
            Self::Etcd | Self::Tenants => 200,
        }
    }

    fn needs(self) -> Needs {
        match self {
            Self::Apiserver | Self::Engine | Self::Backup => Needs::Nothing,
            Self::Volumes | Self::Tenants => Needs::Kubectl,
            Self::Etcd => Needs::Etcd,
        }
    }

    /// Which tests of its suite, where that has others.
    fn tests(self) -> Option<&'static str> {
        match self {
            Self::Apiserver | Self::Engine | Self::Backup | Self::Volumes | Self::Etcd => None,
            Self::Tenants => Some("crash::"),
        }
    }
}

/// Path of a script that checks any Kubernetes API server from outside.
const CONFORM_VARIABLE: &str = "HOLDFAST_CONFORM";
const CONFORM_DEFAULT: &str = "../shared/accept/kubeapi/conform.py";

const TESTS_AT_ONCE: &str = "5";

/// Suites mostly wait, for processes and for time to pass.
const SUITES_AT_ONCE: usize = 2;

/// (name of the file under `tests/e2e/tests`, what it needs)
const SUITES: &[(&str, Needs)] = &[
    ("up", Needs::Nothing),
    ("kube_rs", Needs::Nothing),
    ("kubectl", Needs::Kubectl),
    ("velero", Needs::Kubectl),
    ("python", Needs::Python),
    ("faults", Needs::Nothing),
    ("crash", Needs::Nothing),
    ("tours", Needs::Tours),
    ("engine", Needs::BlockTools),
    ("engine_crash", Needs::Nothing),
    ("volumes", Needs::Kubectl),
    ("commands", Needs::Commands),
    ("dashboard", Needs::Browser),
    ("deploy", Needs::Deployment),
    ("backup", Needs::S3),
    ("backup_crash", Needs::Nothing),
    ("volumes_backup", Needs::Kubectl),
    ("etcd", Needs::Etcd),
    ("etcd_cluster", Needs::Etcd),
    ("etcd_crash", Needs::Etcd),
    ("tenants", Needs::Kubectl),
    ("tenant_volumes", Needs::Kubectl),
    ("block_api", Needs::BlockStorage),
    ("conform", Needs::Conform),
];

/// Suites that run only when they are named: they need root, or long.
const HEAVY: &[(&str, Needs)] = &[("volumes_net", Needs::Kubectl)];

#[derive(Debug, Clone, Copy)]
enum Needs {
    Nothing,
    Kubectl,
    Python,
    Conform,
    /// etcd and its tools.
    Etcd,
    /// An etcd for the tour; without one, that is said.
    Commands,
    /// Clients of block devices; a test whose own is missing says so.
    BlockTools,
    /// What the tours of the documents use.
    Tours,
    /// The stock clients of Block Storage, and programs that read its volumes.
    BlockStorage,
    /// kubectl; without a helm that was built before, that is said.
    Deployment,
    /// A browser, and a Python that drives it; without axe-core, that is said.
    Browser,
    /// An S3 service; without one, the tests that need it say so.
    S3,
}

/// Which suites run, and which tests of them.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// All without it.
    suite: Option<&'static str>,
    /// All whose name contains it.
    test: Option<String>,
}

impl Chosen {
    /// A name that no suite has is an error: a run of nothing must not pass for a run.
    fn parse(suite: Option<&str>, test: Option<String>) -> Result<Self> {
        let Some(wanted) = suite else { return Ok(Self { suite: None, test }) };
        let names: Vec<&str> = SUITES.iter().chain(HEAVY).map(|(name, _)| *name).collect();
        let known = names.iter().find(|name| **name == wanted);
        match known {
            Some(name) => Ok(Self { suite: Some(name), test }),
            None => bail!("there is no suite {wanted:?}; there are: {}", names.join(", ")),
        }
    }

    fn takes(&self, name: &str) -> bool {
        self.suite.is_none_or(|wanted| wanted == name)
    }
}

pub(crate) fn run(suite: Option<&str>, test: Option<String>) -> Result<ExitCode> {
    let chosen = Chosen::parse(suite, test)?;
    let mut report = Report::default();
    steps(&mut report, &chosen);
    if let Some(test) = chosen.test.filter(|_| report.tests_run() == 0) {
        report.step("choose tests", |_| bail!("no test has {test:?} in its name"));
    }
    Ok(report.finish())
}

pub(crate) fn crash(of: Crash, rounds: Option<u32>, seed: Option<u64>) -> Result<ExitCode> {
    let mut report = Report::default();
    let binary = binary()?;
    report.step(of.suite(), |report| {
        let mut command = suite(&binary, of.suite(), of.tests());
        let provided = provide(of.needs(), &mut command, report)?;
        // A long run is watched.
        command.arg("--nocapture");
        let variable = |name: &str| format!("{}_{name}", of.variables());
        command.env(variable("ROUNDS"), rounds.unwrap_or(of.rounds()).to_string());
        command.envs(seed.map(|seed| (variable("SEED"), seed.to_string())));
        let done = cargo_test(report, &mut command);
        drop(provided);
        done
    });
    Ok(report.finish())
}

/// The suite of an upstream kube-controller-manager.
pub(crate) fn controller_manager(report: &mut Report, program: &Path) -> Result<Outcome> {
    let mut command = suite(&binary()?, "controller_manager", None);
    command.env("HOLDFAST_KUBE_CONTROLLER_MANAGER", program);
    cargo_test(report, &mut command)
}

/// A real v1 engine and its replicas beside ours.
pub(crate) fn engine_peer(report: &mut Report, program: &Path) -> Result<Outcome> {
    let mut command = suite(&binary()?, "engine_peer", None);
    command.env("LONGHORN_V1_PROGRAM", program);
    cargo_test(report, &mut command)
}

/// Backups by the command line, in buckets of this service.
pub(crate) fn backups_in(report: &mut Report, service: &stores::Started) -> Result<Outcome> {
    let mut command = suite(&binary()?, "backup", Some("bucket"));
    command.env(stores::ADDRESS_VARIABLE, service.address().to_string());
    cargo_test(report, &mut command)
}

/// A real Velero and its plugin for S3 beside ours, through one S3 service; on the embedded server, and
/// on an upstream one where that can be had.
pub(crate) fn velero_peer(
    report: &mut Report,
    (velero, plugin): (&Path, &Path),
    cluster: Option<&KubeApiServer>,
) -> Result<Outcome> {
    tools::kubectl()?;
    let mut command = suite(&binary()?, "velero_peer", None);
    command.env("VELERO_PROGRAM", velero).env("VELERO_AWS_PROGRAM", plugin);
    if let Some(cluster) = cluster {
        command.env("HOLDFAST_CLUSTER", cluster.kubeconfig()?);
        command.env("HOLDFAST_CLUSTER_AUDIT", cluster.audit_log());
    }
    let server = match stores::Started::s3() {
        Ok(server) => server,
        Err(why) => return Ok(Outcome::lacking(&why)),
    };
    command.env(stores::ADDRESS_VARIABLE, server.address().to_string());
    cargo_test(report, &mut command)
}

/// The suite of kubectl, with a kubectl of a certain version.
pub(crate) fn kubectl_of(report: &mut Report, program: &Path) -> Result<Outcome> {
    let mut command = suite(&binary()?, "kubectl", None);
    command.env("HOLDFAST_KUBECTL", program);
    cargo_test(report, &mut command)
}

/// The controllers of volumes and a node on an upstream API server.
pub(crate) fn volumes_on(report: &mut Report, server: &KubeApiServer) -> Result<Outcome> {
    tools::kubectl()?;
    let mut command = suite(&binary()?, "volumes_cluster", None);
    command.env("HOLDFAST_CLUSTER", server.kubeconfig()?);
    command.env("HOLDFAST_CLUSTER_AUDIT", server.audit_log());
    cargo_test(report, &mut command)
}

/// Requests made up by the document of the Block Storage API.
pub(crate) fn made_up(report: &mut Report, program: &Path, examples: u32) -> Result<Outcome> {
    let mut command = suite(&binary()?, "block_api", Some("made_up"));
    command.env("HOLDFAST_SCHEMATHESIS", program);
    command.env("HOLDFAST_SCHEMATHESIS_EXAMPLES", examples.to_string());
    cargo_test(report, &mut command)
}

/// What is in `deploy/`, on an upstream API server.
pub(crate) fn deploy_on(
    report: &mut Report,
    server: &KubeApiServer,
    helm: &Path,
) -> Result<Outcome> {
    tools::kubectl()?;
    let mut command = suite(&binary()?, "deploy", None);
    command.env("HOLDFAST_CLUSTER", server.kubeconfig()?).env("HOLDFAST_HELM", helm);
    cargo_test(report, &mut command)
}

/// Builds the binary, then runs the chosen suites.
pub(crate) fn steps(report: &mut Report, chosen: &Chosen) {
    let mut built = None;
    report.step("build the binary", |_| {
        built = Some(binary()?);
        Ok(Outcome::Passed)
    });
    let Some(binary) = built else { return };
    let heavy = HEAVY.iter().filter(|(name, _)| chosen.suite == Some(*name));
    let suites = SUITES.iter().filter(|(name, _)| chosen.takes(name)).chain(heavy);
    let steps = suites.map(|(name, needs)| -> Step<'_> {
        let run = |report: &mut Report| one(report, &binary, (name, *needs), chosen);
        (format!("end to end: {name}"), Box::new(run))
    });
    report.steps_beside_each_other(SUITES_AT_ONCE, steps.collect());
}

/// Runs a suite.
fn one(
    report: &mut Report,
    binary: &Path,
    (name, needs): (&str, Needs),
    chosen: &Chosen,
) -> Result<Outcome> {
    /// Package managers want to be alone.
    static INSTALLS: Mutex<()> = Mutex::new(());
    if let Some(why) = not_here(needs) {
        return Ok(Outcome::Skipped(why));
    }
    let mut command = suite(binary, name, chosen.test.as_deref());
    let provided = {
        let _alone = INSTALLS.lock().unwrap_or_else(PoisonError::into_inner);
        provide(needs, &mut command, report)
    };
    let provided = match provided {
        Ok(provided) => provided,
        Err(why) => return Ok(Outcome::lacking(&why)),
    };
    // What a crash loop has lost once is lost: its next run makes other choices.
    let done = if name.ends_with("crash") {
        cargo_test(report, &mut command)
    } else {
        cargo_test_twice(report, &mut command)
    };
    drop(provided);
    done
}

/// Why a suite cannot be had on this machine, whatever is installed.
fn not_here(needs: Needs) -> Option<String> {
    let script = match needs {
        Needs::Conform => conform(),
        Needs::Nothing
        | Needs::Kubectl
        | Needs::Python
        | Needs::Etcd
        | Needs::Commands
        | Needs::BlockTools
        | Needs::Tours
        | Needs::BlockStorage
        | Needs::Browser
        | Needs::Deployment
        | Needs::S3 => return None,
    };
    script.is_err().then(|| format!("no {CONFORM_DEFAULT} beside this checkout"))
}

fn conform() -> std::io::Result<PathBuf> {
    let script = std::env::var_os(CONFORM_VARIABLE);
    let script = script.map_or_else(|| workspace::root().join(CONFORM_DEFAULT), PathBuf::from);
    script.canonicalize()
}

/// An etcd for those who can do without, and say so.
fn offer_etcd(command: &mut Command, report: &mut Report) {
    match tools::etcd() {
        Ok(folder) => drop(command.env("HOLDFAST_ETCD_DIR", folder)),
        Err(why) => {
            report.say(&format!("no etcd: {why:#}"));
            report.excuse(tools::is_not_offered(&why).then_some("etcd"));
        }
    }
}

/// Tells the suite where its tools are; the error says why they cannot be had. What it gives back
/// must live as long as the suite.
fn provide(
    needs: Needs,
    command: &mut Command,
    report: &mut Report,
) -> Result<Option<stores::Started>> {
    match needs {
        Needs::Nothing => {}
        Needs::Kubectl => tools::kubectl()?,
        Needs::Deployment => {
            tools::kubectl()?;
            if let Some(helm) = peers::built("helm")? {
                command.env("HOLDFAST_HELM", helm);
            }
        }
        Needs::Python => {
            command.env("HOLDFAST_PYTHON", tools::python()?);
        }
        // A test whose own is missing says so.
        Needs::BlockTools => report.excuse(tools::block()),
        Needs::Tours => {
            report.excuse(tools::block());
            if let Err(why) = tools::kubectl() {
                report.say(&format!("no kubectl: {why:#}"));
                report.excuse(tools::is_not_offered(&why).then_some("kubectl"));
                // One that is there and too old is as good as none.
                command.env("HOLDFAST_WITHOUT", "kubectl");
            }
            offer_etcd(command, report);
        }
        Needs::BlockStorage => {
            report.excuse(tools::block());
            command.env("HOLDFAST_OPENSTACK_BIN", tools::openstack()?);
            match tools::schemathesis() {
                Ok(program) => drop(command.env("HOLDFAST_SCHEMATHESIS", program)),
                Err(why) => {
                    report.say(&format!("no Schemathesis: {why:#}"));
                    let name = "HOLDFAST_SCHEMATHESIS";
                    report.excuse(tools::is_not_offered(&why).then_some(name));
                }
            }
        }
        Needs::Etcd => {
            command.env("HOLDFAST_ETCD_DIR", tools::etcd()?);
        }
        Needs::Commands => offer_etcd(command, report),
        Needs::Browser => {
            command.env("HOLDFAST_PYTHON", tools::python()?);
            command.env("HOLDFAST_CHROMIUM", tools::browser()?);
            match tools::axe() {
                Ok(script) => drop(command.env("HOLDFAST_AXE", script)),
                Err(why) => report.say(&format!("no axe-core: {why:#}")),
            }
        }
        Needs::S3 => {
            // Its tests mostly wait, for locks.
            command.env("RUST_TEST_THREADS", TESTS_AT_ONCE);
            match stores::Started::s3() {
                Ok(server) => {
                    command.env(stores::ADDRESS_VARIABLE, server.address().to_string());
                    return Ok(Some(server));
                }
                // Of a port that nobody listens at.
                Err(why) => {
                    report.say(&format!("no S3 server: {why:#}"));
                    report.excuse(tools::is_not_offered(&why).then_some("moto_server"));
                    command.env(stores::ADDRESS_VARIABLE, "127.0.0.1:1");
                }
            }
        }
        Needs::Conform => {
            let script = conform().context("the conformance script")?;
            command.env(CONFORM_VARIABLE, script);
            tools::kubectl()?;
        }
    }
    Ok(None)
}

/// With the features of the unit tests, so that nothing is compiled twice: which features a
/// dependency has is decided by all packages that are chosen, not by those that are built.
fn suite(binary: &Path, name: &str, tests: Option<&str>) -> Command {
    let mut command = workspace::cargo(["test", "--quiet", "--workspace", "--test", name]);
    command.args(tests).args(["--", "--show-output"]).env("HOLDFAST_BIN", binary);
    command
}

/// With the features that tests ask for, which the dependencies have been built with already: chosen
/// together with a test, a program gets them too. That it needs none of them is a step of its own.
pub(crate) fn binary() -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--workspace", "--bin", "holdfast", "--test", "up"];
    workspace::succeed(&mut workspace::cargo(arguments))?;
    Ok(workspace::metadata()?.target_directory.join("debug/holdfast"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_chosen_by_its_whole_name() {
        let takes = |wanted: &str| -> Vec<&str> {
            let chosen = Chosen::parse(Some(wanted), None).unwrap();
            SUITES.iter().map(|(name, _)| *name).filter(|name| chosen.takes(name)).collect()
        };
        assert_eq!(takes("engine"), ["engine"]);
        assert_eq!(takes("etcd"), ["etcd"]);
        assert!(SUITES.iter().all(|(name, _)| Chosen::default().takes(name)));
    }

    /// A suite is asked for by its name among the tests of all packages.
    #[test]
    fn no_other_package_has_tests_of_the_name_of_a_suite() {
        let arguments = ["metadata", "--format-version", "1", "--no-deps"];
        let text = workspace::output(&mut workspace::cargo(arguments)).unwrap();
        let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        for (suite, _) in SUITES.iter().chain(HEAVY) {
            let has = |package: &&serde_json::Value| {
                let mut targets = package["targets"].as_array().unwrap().iter();
                targets.any(|it| it["kind"][0] == "test" && it["name"] == *suite)
            };
            let owners: Vec<_> = packages.iter().filter(has).map(|it| &it["name"]).collect();
            assert_eq!(owners, ["e2e"], "{suite}");
        }
    }

    #[test]
    fn a_name_no_suite_has_is_an_error_that_lists_the_suites() {
        let error = Chosen::parse(Some("engin"), None).unwrap_err().to_string();
        assert!(error.contains("\"engin\"") && error.contains("engine_crash"), "{error}");
    }
}
