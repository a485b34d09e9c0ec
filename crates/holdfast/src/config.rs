//! Configuration: one TOML file, the environment, flags, each stronger than the one before; every
//! value remembers where it came from, and is checked before anything is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use ::cli::output::{self, Format};

/// Flags every role understands. What is not given comes from the environment, the file, or the
/// default.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::doc_markdown, reason = "these comments are the text of --help")]
pub(crate) struct Settings {
    /// Configuration file [env: HOLDFAST_CONFIG; default: holdfast.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where everything is kept [env: HOLDFAST_DATA_DIR; default: ./holdfast-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address and port of the API; port 0 picks a free one [env: HOLDFAST_LISTEN; default:
    /// 127.0.0.1:7443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Names and addresses for the server certificate, besides those of this host, separated by
    /// commas [env: HOLDFAST_TLS_SAN]
    #[arg(long, value_name = "NAMES")]
    tls_san: Option<String>,
    /// Static bearer tokens, a line each: token,user,uid,"group1,group2" [env:
    /// HOLDFAST_TOKEN_AUTH_FILE]
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<String>,
    /// Keep an audit log of writes: true or false [env: HOLDFAST_AUDIT; default: true]
    #[arg(long, value_name = "BOOL")]
    audit: Option<String>,
    /// Where services get their addresses [env: HOLDFAST_SERVICE_CLUSTER_IP_RANGE; default:
    /// 10.96.0.0/12]
    #[arg(long, value_name = "CIDR")]
    service_cluster_ip_range: Option<String>,
    /// Where services get their node ports [env: HOLDFAST_SERVICE_NODE_PORT_RANGE; default:
    /// 30000-32767]
    #[arg(long, value_name = "FIRST-LAST")]
    service_node_port_range: Option<String>,
    /// What this machine is called as a node [env: HOLDFAST_NODE_NAME; default: its host name]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Where engines and replicas of this machine listen [env: HOLDFAST_NODE_ADDRESS; default: the
    /// address of the API, or 127.0.0.1 if that is all of them]
    #[arg(long, value_name = "IP")]
    node_address: Option<String>,
    /// Address and port of the Block Storage API; port 0 picks a free one, `off` serves none [env:
    /// HOLDFAST_BLOCK_LISTEN; default: 127.0.0.1:8776]
    #[arg(long, value_name = "ADDR:PORT")]
    block_listen: Option<String>,
    /// Database of the Block Storage API in `up`, as in postgres://…; a file in the data directory
    /// by default [env: HOLDFAST_BLOCK_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    block_database_url: Option<String>,
    /// Address and port of the dashboard; port 0 picks a free one, `off` serves none. Anywhere but on
    /// loopback it is served inside TLS [env: HOLDFAST_DASHBOARD_LISTEN; default: 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR:PORT")]
    dashboard_listen: Option<String>,
    /// Certificate of volumes, which engines of this machine then serve inside TLS (PEM) [env:
    /// HOLDFAST_NBD_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    nbd_tls_cert: Option<String>,
    /// Key of that certificate (PEM) [env: HOLDFAST_NBD_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    nbd_tls_key: Option<String>,
    /// Whose clients are let in (PEM); without it, every one [env: HOLDFAST_NBD_TLS_CLIENT_CA]
    #[arg(long, value_name = "FILE")]
    nbd_tls_client_ca: Option<String>,
    /// The certificate authority of volumes that are reached inside TLS (PEM): clients of the Block
    /// Storage API get it with the address of a volume [env: HOLDFAST_NBD_CA_FILE]
    #[arg(long, value_name = "FILE")]
    nbd_ca_file: Option<String>,
    /// Whether this program executes the resources of Velero: true, false, or auto, which is true in
    /// `up` and false for a cluster [env: HOLDFAST_VELERO; default: auto]
    #[arg(long, value_name = "WHEN")]
    velero: Option<String>,
    /// Another program executes the resources of Velero; the same as --velero false
    #[arg(long, conflicts_with = "velero")]
    no_velero: bool,
    /// Namespace of the administrator's backups and restores [env: HOLDFAST_ADMIN_NAMESPACE; default:
    /// openshift-adp]
    #[arg(long, value_name = "NAME")]
    admin_namespace: Option<String>,
    /// Backups that may run at the same time [env: HOLDFAST_CONCURRENT_BACKUPS; default: 1]
    #[arg(long, value_name = "COUNT")]
    concurrent_backups: Option<String>,
    /// Bytes that backups of volumes may send in a second, together, as 10485760 or 10Mi; 0: no limit.
    /// Sets the setting backup-bytes-per-second [env: HOLDFAST_BACKUP_RATE; default: what is set]
    #[arg(long, value_name = "BYTES")]
    backup_rate: Option<String>,
    /// What to log, as in info,apiserver=debug [env: HOLDFAST_LOG; default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Form of the log: text or json [env: HOLDFAST_LOG_FORMAT; default: text]
    #[arg(long, value_name = "FORM")]
    log_format: Option<String>,
    /// Where traces are sent, OTLP over gRPC, as in http://127.0.0.1:4317; nowhere by default
    /// [env: HOLDFAST_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

impl Settings {
    /// With what a node was told about itself.
    pub(crate) fn with_node(mut self, name: Option<String>, address: Option<String>) -> Self {
        self.node_name = name.or(self.node_name);
        self.node_address = address.or(self.node_address);
        self
    }

    fn flag(&self, key: &str) -> Option<&str> {
        if key == "velero" && self.no_velero {
            return Some("false");
        }
        let given = match key {
            "data-dir" => self.data_dir.as_ref(),
            "listen" => self.listen.as_ref(),
            "tls-san" => self.tls_san.as_ref(),
            "token-auth-file" => self.token_auth_file.as_ref(),
            "audit" => self.audit.as_ref(),
            "service-cluster-ip-range" => self.service_cluster_ip_range.as_ref(),
            "service-node-port-range" => self.service_node_port_range.as_ref(),
            "node-name" => self.node_name.as_ref(),
            "node-address" => self.node_address.as_ref(),
            "block-listen" => self.block_listen.as_ref(),
            "block-database-url" => self.block_database_url.as_ref(),
            "dashboard-listen" => self.dashboard_listen.as_ref(),
            "nbd-tls-cert" => self.nbd_tls_cert.as_ref(),
            "nbd-tls-key" => self.nbd_tls_key.as_ref(),
            "nbd-tls-client-ca" => self.nbd_tls_client_ca.as_ref(),
            "nbd-ca-file" => self.nbd_ca_file.as_ref(),
            "log" => self.log.as_ref(),
            "log-format" => self.log_format.as_ref(),
            "otlp-endpoint" => self.otlp_endpoint.as_ref(),
            "velero" => self.velero.as_ref(),
            "admin-namespace" => self.admin_namespace.as_ref(),
            "concurrent-backups" => self.concurrent_backups.as_ref(),
            "backup-rate" => self.backup_rate.as_ref(),
            _ => None,
        };
        given.map(String::as_str)
    }
}

/// Every key with its default; the order is that of `config show`.
const KEYS: [(&str, &str); 23] = [
    ("data-dir", "./holdfast-data"),
    ("listen", "127.0.0.1:7443"),
    ("tls-san", ""),
    ("token-auth-file", ""),
    ("audit", "true"),
    ("service-cluster-ip-range", "10.96.0.0/12"),
    ("service-node-port-range", "30000-32767"),
    ("node-name", ""),
    ("node-address", ""),
    ("block-listen", "127.0.0.1:8776"),
    ("block-database-url", ""),
    ("dashboard-listen", "127.0.0.1:7480"),
    ("nbd-tls-cert", ""),
    ("nbd-tls-key", ""),
    ("nbd-tls-client-ca", ""),
    ("nbd-ca-file", ""),
    ("velero", "auto"),
    ("admin-namespace", "openshift-adp"),
    ("concurrent-backups", "1"),
    ("backup-rate", ""),
    ("log", "info"),
    ("log-format", "text"),
    ("otlp-endpoint", ""),
];

const DEFAULT_FILE: &str = "holdfast.toml";
const MAX_FILE_BYTES: usize = 1024 * 1024;

/// Every key with what it is unless it is set.
pub(crate) fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    KEYS.into_iter()
}

/// The variables of all keys.
#[cfg(test)]
pub(crate) fn variables() -> impl Iterator<Item = String> {
    KEYS.iter().map(|(key, _)| variable(key))
}

pub(crate) fn variable(key: &str) -> String {
    format!("HOLDFAST_{}", key.replace('-', "_").to_uppercase())
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration file")]
    Read(#[from] durable::Error),
    #[error(transparent)]
    NotOwn(#[from] ::cli::found::NotOwn),
    #[error("the configuration file {} is not TOML: {text}", path.display())]
    Syntax { path: PathBuf, text: String },
    #[error("the configuration file {} has an unknown key {key:?}{}", path.display(), suggest(key))]
    UnknownKey { path: PathBuf, key: String },
    #[error("{key} (from {source_of}): {value:?} {problem}")]
    Value { key: &'static str, value: String, source_of: Source, problem: String },
}

/// Names the nearest key, if one is near.
fn suggest(key: &str) -> String {
    let near = telemetry::nearest(key, KEYS.iter().map(|(known, _)| *known));
    near.map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

/// The values as text, with their origin; not yet checked.
#[derive(Debug)]
pub(crate) struct Resolved(Vec<(&'static str, String, Source)>);

impl Resolved {
    /// Every value as text, and where it came from.
    pub(crate) fn values(&self) -> impl Iterator<Item = &(&'static str, String, Source)> {
        self.0.iter()
    }

    pub(crate) fn load(settings: &Settings) -> Result<Self, ConfigError> {
        Self::load_from(settings, |name| std::env::var(name).ok())
    }

    fn load_from(
        settings: &Settings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let named =
            settings.config.clone().or_else(|| environment("HOLDFAST_CONFIG").map(PathBuf::from));
        let beside = Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
        if let (None, Some(path)) = (&named, &beside) {
            ::cli::found::check(path, "--config")?;
        }
        let path = named.or(beside);
        let file = path.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let values = KEYS.iter().map(|(key, default)| {
            let name = variable(key);
            let (value, source) = if let Some(value) = settings.flag(key) {
                (value.to_owned(), Source::Flag((*key).to_owned()))
            } else if let Some(value) = environment(&name) {
                (value, Source::Variable(name))
            } else if let (Some(value), Some(path)) = (file.get(*key), &path) {
                (value.clone(), Source::File(path.clone()))
            } else {
                ((*default).to_owned(), Source::Default)
            };
            (*key, value, source)
        });
        Ok(Self(values.collect()))
    }

    fn parse<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let found = self.0.iter().find(|(name, _, _)| *name == key);
        let (value, source) =
            found.map_or(("", &Source::Default), |(_, value, source)| (value, source));
        parse(value).map_err(|problem| ConfigError::Value {
            key,
            value: value.to_owned(),
            source_of: source.clone(),
            problem,
        })
    }

    /// How engines serve inside TLS, if they do.
    fn nbd_tls(&self) -> Result<Option<NbdTls>, ConfigError> {
        let certificate = self.parse("nbd-tls-cert", file)?;
        let key = self.parse("nbd-tls-key", |text| match (&certificate, file(text)?) {
            (Some(_), None) => Err("is missing: a certificate needs its key".to_owned()),
            (None, Some(_)) => Err("is of no use without nbd-tls-cert".to_owned()),
            (_, key) => Ok(key),
        })?;
        let client_ca =
            self.parse("nbd-tls-client-ca", |text| match (&certificate, file(text)?) {
                (None, Some(_)) => Err("is of no use without nbd-tls-cert".to_owned()),
                (_, client_ca) => Ok(client_ca),
            })?;
        let pair = certificate.zip(key);
        Ok(pair.map(|(certificate, key)| NbdTls { certificate, key, client_ca }))
    }

    /// Every value in its type, or what is wrong with one and where it was set.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let optional = |text: &str| Ok(Some(text.to_owned()).filter(|text| !text.is_empty()));
        Ok(Config {
            data_dir: self.parse("data-dir", |text| match text {
                "" => Err("is not a directory name".to_owned()),
                text => Ok(PathBuf::from(text)),
            })?,
            listen: self.parse("listen", |text| {
                text.parse()
                    .map_err(|_| "is not an address with a port, such as 127.0.0.1:7443".to_owned())
            })?,
            tls_sans: self.parse("tls-san", |text| {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(names.map(str::to_owned).collect())
            })?,
            token_auth_file: self.parse("token-auth-file", optional)?.map(PathBuf::from),
            audit: self.parse("audit", |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err("is neither true nor false".to_owned()),
            })?,
            services: apiserver::ServiceRanges {
                addresses: self.parse("service-cluster-ip-range", str::parse)?,
                node_ports: self.parse("service-node-port-range", port_range)?,
            },
            node_name: self.parse("node-name", node_name)?,
            node_address: self.parse("node-address", node_address)?,
            block_listen: self.parse("block-listen", address_or_off)?,
            dashboard_listen: self.parse("dashboard-listen", address_or_off)?,
            database_url: self.parse("block-database-url", optional)?,
            nbd_tls: self.nbd_tls()?,
            nbd_ca_file: self.parse("nbd-ca-file", file)?,
            velero: self.parse("velero", |text| match text {
                "auto" => Ok(None),
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err("is neither true, false nor auto".to_owned()),
            })?,
            admin_namespace: self.parse("admin-namespace", |text| match text {
                "" => Err("is not the name of a namespace".to_owned()),
                text => Ok(text.to_owned()),
            })?,
            concurrent_backups: self.parse("concurrent-backups", |text| match text.parse() {
                Ok(count @ 1..=100) => Ok(count),
                _ => Err("is not a number from 1 to 100".to_owned()),
            })?,
            backup_rate: self.parse("backup-rate", byte_count)?,
            log_filter: self.parse("log", |text| Ok(text.to_owned()))?,
            log_format: self.parse("log-format", |text| match text {
                "text" => Ok(telemetry::Format::Text),
                "json" => Ok(telemetry::Format::Json),
                _ => Err("is neither text nor json".to_owned()),
            })?,
            otlp_endpoint: self.parse("otlp-endpoint", optional)?,
        })
    }
}

/// As objects are named; that of the machine if none is given.
fn node_name(text: &str) -> Result<String, String> {
    let is_plain = |each: char| matches!(each, 'a'..='z' | '0'..='9' | '-' | '.');
    if text.is_empty() {
        let name = crate::controllers::host_name().to_lowercase();
        let name: String =
            name.chars().map(|each| if is_plain(each) { each } else { '-' }).take(200).collect();
        let name = name.trim_matches(['-', '.']).to_owned();
        return Ok(if name.is_empty() { "node".to_owned() } else { name });
    }
    let is_name = text.len() <= 200
        && text.chars().all(is_plain)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.']);
    if is_name { Ok(text.to_owned()) } else { Err(NODE_NAME_RULE.to_owned()) }
}

const NODE_NAME_RULE: &str =
    "is not the name of a node: lower case letters, digits, '-' and '.', at most 200";

fn node_address(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<IpAddr>() {
        Ok(address) if !address.is_unspecified() => Ok(Some(address)),
        _ => Err("is not an address of this machine, such as 10.0.0.7".to_owned()),
    }
}

/// A file that is there, by a path that means the same in every directory.
fn file(text: &str) -> Result<Option<PathBuf>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = std::path::absolute(text).map_err(|error| error.to_string())?;
    if path.is_file() { Ok(Some(path)) } else { Err("is not a file".to_owned()) }
}

/// A number, or one of a unit.
fn byte_count(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let digits = text.trim_end_matches(|each: char| each.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits).unwrap_or_default() {
        "" => Some(1),
        "k" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "Ki" => Some(1 << 10),
        "Mi" => Some(1 << 20),
        "Gi" => Some(1 << 30),
        _ => None,
    };
    let count =
        digits.parse::<u64>().ok().zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
    // As much as a setting can hold.
    match count.filter(|it| i64::try_from(*it).is_ok()) {
        Some(count) => Ok(Some(count)),
        None => Err("is not a number of bytes, such as 10485760, 10Mi or 10M".to_owned()),
    }
}

fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            "is neither an address with a port, such as 127.0.0.1:8776, nor off".to_owned()
        }),
    }
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let numbers = text.split_once('-').map(|(first, last)| (first.parse(), last.parse()));
    match numbers {
        Some((Ok(first), Ok(last))) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("is not a range of ports such as 30000-32767".to_owned()),
    }
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, ConfigError> {
    let bytes = durable::read_limited(path, MAX_FILE_BYTES)?;
    let syntax = |text: String| ConfigError::Syntax { path: path.to_owned(), text };
    let text = String::from_utf8(bytes).map_err(|error| syntax(error.to_string()))?;
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| syntax(error.message().to_owned()))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !KEYS.iter().any(|(known, _)| *known == key) {
            return Err(ConfigError::UnknownKey { path: path.to_owned(), key });
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Array(items) => {
                let texts: Vec<&str> = items.iter().filter_map(toml::Value::as_str).collect();
                texts.join(",")
            }
            other => other.to_string(),
        };
        values.insert(key, text);
    }
    Ok(values)
}

/// What volumes are served inside TLS with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NbdTls {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl NbdTls {
    /// As an engine is told.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let flags = [
            ("--nbd-tls-cert", Some(&self.certificate)),
            ("--nbd-tls-key", Some(&self.key)),
            ("--nbd-tls-client-ca", self.client_ca.as_ref()),
        ];
        let given = flags.into_iter().filter_map(|(flag, path)| Some((flag, path?)));
        given.flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]).collect()
    }
}

/// The configuration of a process.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) tls_sans: Vec<String>,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) audit: bool,
    pub(crate) services: apiserver::ServiceRanges,
    pub(crate) node_name: String,
    /// Where processes of the node listen, if it was said.
    pub(crate) node_address: Option<IpAddr>,
    /// Nothing: not served.
    pub(crate) block_listen: Option<SocketAddr>,
    pub(crate) database_url: Option<String>,
    /// Nothing: not served.
    pub(crate) dashboard_listen: Option<SocketAddr>,
    pub(crate) nbd_tls: Option<NbdTls>,
    pub(crate) nbd_ca_file: Option<PathBuf>,
    /// Whether Velero's resources are executed here, if it is said.
    pub(crate) velero: Option<bool>,
    pub(crate) admin_namespace: String,
    pub(crate) concurrent_backups: usize,
    /// Bytes a second; 0 is no limit.
    pub(crate) backup_rate: Option<u64>,
    pub(crate) log_filter: String,
    pub(crate) log_format: telemetry::Format,
    pub(crate) otlp_endpoint: Option<String>,
}

impl Config {
    /// What `up` has left in the data directory, if it is there. A directory that nobody named, because it lies
    /// where the command was started, must be the caller's own; `option` is how to name it.
    pub(crate) fn kubeconfig(
        &self,
        option: &'static str,
    ) -> Result<Option<PathBuf>, ::cli::found::NotOwn> {
        let path = self.data_dir.join("kubeconfig");
        if !path.is_file() {
            return Ok(None);
        }
        if self.data_dir.is_relative() {
            ::cli::found::check(&path, option)?;
        }
        Ok(Some(path))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print every value and where it came from.
    Show {
        #[command(flatten)]
        settings: Box<Settings>,
        /// Form of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Print all that can be configured, as a page of the documents.
    Reference,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    key: &'a str,
    value: &'a str,
    source: String,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let (settings, output) = match command {
        Command::Show { settings, output } => (settings, output),
        Command::Reference => {
            output::say(crate::reference::configuration().trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let resolved = Resolved::load(settings)?;
    resolved.config()?;
    let shown: Vec<Shown<'_>> = resolved
        .0
        .iter()
        .map(|(key, value, source)| Shown { key, value, source: source.to_string() })
        .collect();
    let text = match output {
        Format::Table | Format::Wide => {
            let rows: Vec<Vec<String>> = shown
                .iter()
                .map(|one| vec![one.key.to_owned(), one.value.to_owned(), one.source.clone()])
                .collect();
            output::table(&["KEY", "VALUE", "FROM"], &rows)
        }
        Format::Name => shown.iter().map(|it| it.key).collect::<Vec<_>>().join("\n"),
        Format::Json | Format::Yaml => output::machine(&shown, *output)?,
    };
    output::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(resolved: &Resolved, key: &str) -> (String, Source) {
        let found = resolved.0.iter().find(|(name, _, _)| *name == key).unwrap();
        (found.1.clone(), found.2.clone())
    }

    #[test]
    fn rates_are_bytes_with_or_without_a_unit() {
        for (text, wanted) in [
            ("", Some(None)),
            ("0", Some(Some(0))),
            ("1048576", Some(Some(1 << 20))),
            ("10Mi", Some(Some(10 << 20))),
            ("10M", Some(Some(10_000_000))),
            ("10MB", None),
            ("-1", None),
            ("fast", None),
            ("99999999999Gi", None),
        ] {
            assert_eq!(byte_count(text).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn volumes_inside_tls_take_a_certificate_and_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = dir.path().join(name);
            durable::replace(&path, b"PEM").unwrap();
            path.display().to_string()
        };
        let (cert, key, ca) = (put("cert"), put("key"), put("ca"));
        let told = |given: [Option<&String>; 3]| {
            let [nbd_tls_cert, nbd_tls_key, nbd_tls_client_ca] =
                given.map(Option::<&String>::cloned);
            let settings =
                Settings { nbd_tls_cert, nbd_tls_key, nbd_tls_client_ca, ..Settings::default() };
            let config = Resolved::load_from(&settings, |_| None).unwrap().config();
            config.map(|it| it.nbd_tls).map_err(|error| error.to_string())
        };
        assert_eq!(told([None, None, None]), Ok(None));
        let engine = told([Some(&cert), Some(&key), Some(&ca)]).unwrap().unwrap().arguments();
        let wanted = ["--nbd-tls-cert", &cert, "--nbd-tls-key", &key, "--nbd-tls-client-ca", &ca];
        assert_eq!(engine, wanted);
        assert_eq!(told([Some(&cert), Some(&key), None]).unwrap().unwrap().arguments().len(), 4);
        let missing = "/no/such/file".to_owned();
        for (given, problem) in [
            ([Some(&cert), None, None], "a certificate needs its key"),
            ([None, Some(&key), None], "of no use without"),
            ([None, None, Some(&ca)], "of no use without"),
            ([Some(&missing), Some(&key), None], "is not a file"),
        ] {
            let said = told(given).unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file_which_beats_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h.toml");
        durable::replace(&path, b"listen = \"127.0.0.1:1\"\nlog = \"warn\"\naudit = false\n")
            .unwrap();
        let settings = Settings {
            config: Some(path.clone()),
            listen: Some("127.0.0.1:3".to_owned()),
            ..Settings::default()
        };
        let environment = |name: &str| match name {
            "HOLDFAST_LISTEN" => Some("127.0.0.1:2".to_owned()),
            "HOLDFAST_LOG" => Some("debug".to_owned()),
            _ => None,
        };
        let resolved = Resolved::load_from(&settings, environment).unwrap();
        assert_eq!(
            value(&resolved, "listen"),
            ("127.0.0.1:3".to_owned(), Source::Flag("listen".to_owned()))
        );
        assert_eq!(
            value(&resolved, "log"),
            ("debug".to_owned(), Source::Variable("HOLDFAST_LOG".to_owned()))
        );
        assert_eq!(value(&resolved, "audit"), ("false".to_owned(), Source::File(path)));
        assert_eq!(value(&resolved, "log-format"), ("text".to_owned(), Source::Default));
    }

    #[test]
    fn a_mistyped_key_is_refused_with_the_nearest_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h.toml");
        durable::replace(&path, b"lisen = \"127.0.0.1:1\"\n").unwrap();
        let settings = Settings { config: Some(path), ..Settings::default() };
        let error = Resolved::load_from(&settings, |_| None).unwrap_err().to_string();
        assert!(error.contains("did you mean \"listen\"?"), "{error}");
    }

    #[test]
    fn a_bad_value_names_where_it_was_set() {
        let settings = Settings { listen: Some("here".to_owned()), ..Settings::default() };
        let resolved = Resolved::load_from(&settings, |_| None).unwrap();
        let error = resolved.config().unwrap_err().to_string();
        assert!(error.contains("flag --listen") && error.contains("127.0.0.1:7443"), "{error}");
    }
}
