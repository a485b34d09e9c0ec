//! The configuration file of etcd as the sidecar reads it: etcd's own YAML, in which the URLs of
//! members are maps by name. From it comes the file that this member's etcd is started with.
//!
//! Never: asks the cluster. What the cluster says comes in as a value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Where the file is unless the environment says otherwise.
pub const DEFAULT_PATH: &str = "/var/etcd/config/etcd.conf.yaml";
/// The variable that says otherwise.
pub const PATH_VARIABLE: &str = "ETCD_CONF";
const MAX_BYTES: usize = 1 << 20;

const PEER_URLS: &str = "initial-advertise-peer-urls";
const CLIENT_URLS: &str = "advertise-client-urls";
const INITIAL_CLUSTER: &str = "initial-cluster";

#[derive(Debug, thiserror::Error)]
pub enum EtcdConfigError {
    #[error("cannot read the configuration of etcd")]
    Read(#[source] durable::Error),
    #[error("the configuration of etcd cannot be understood: {0}")]
    Parse(String),
    #[error("the configuration of etcd names no members: initial-cluster is {0:?}")]
    InitialCluster(String),
    #[error("the configuration of etcd has no {key} for {member}")]
    NoUrls { key: &'static str, member: String },
    #[error("the configuration of etcd cannot be written: {0}")]
    Write(String),
}

/// One member with one of its peer URLs, as the file lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    name: String,
    url: String,
}

#[derive(Debug, Clone)]
pub struct EtcdConfig {
    document: Map<String, Value>,
    listed: Vec<Listed>,
}

/// What the cluster says about its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Names of started members.
    pub names: Vec<String>,
    pub has_learner: bool,
}

impl EtcdConfig {
    pub fn read(path: &str) -> Result<Self, EtcdConfigError> {
        let bytes = durable::read_limited(path, MAX_BYTES).map_err(EtcdConfigError::Read)?;
        let text = String::from_utf8(bytes).map_err(|it| EtcdConfigError::Parse(it.to_string()))?;
        Self::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Self, EtcdConfigError> {
        let document: Map<String, Value> =
            serde_saphyr::from_str(text).map_err(|it| EtcdConfigError::Parse(it.to_string()))?;
        let cluster = document.get(INITIAL_CLUSTER).and_then(Value::as_str).unwrap_or_default();
        let listed =
            list(cluster).ok_or_else(|| EtcdConfigError::InitialCluster(cluster.to_owned()))?;
        Ok(Self { document, listed })
    }

    /// How many members the cluster is meant to have.
    pub fn cluster_size(&self) -> usize {
        self.listed.iter().map(|listed| &listed.name).collect::<BTreeSet<_>>().len()
    }

    /// The name of the member that runs in a pod.
    pub fn member_name(&self, pod_name: &str) -> String {
        match self.document.get("member-name-prefix").and_then(Value::as_str) {
            Some(prefix) if !prefix.is_empty() => format!("{prefix}-{pod_name}"),
            Some(_) | None => pod_name.to_owned(),
        }
    }

    pub fn peer_urls(&self, member: &str) -> Result<Vec<String>, EtcdConfigError> {
        self.urls(PEER_URLS, member)
    }

    /// The client URLs of all members.
    pub fn all_client_urls(&self) -> Vec<String> {
        match self.document.get(CLIENT_URLS) {
            Some(Value::Object(members)) => members.values().flat_map(texts).collect(),
            Some(value) => texts(value),
            None => Vec::new(),
        }
    }

    /// Whether members are to speak TLS to this one.
    pub fn peers_use_tls(&self, member: &str) -> Result<bool, EtcdConfigError> {
        let urls = self.peer_urls(member)?;
        Ok(urls.iter().all(|url| url.starts_with("https://")))
    }

    fn urls(&self, key: &'static str, member: &str) -> Result<Vec<String>, EtcdConfigError> {
        let urls = match self.document.get(key) {
            Some(Value::Object(members)) => members.get(member).map(texts),
            // A plain list is that of the one member there is.
            Some(value) => Some(texts(value)),
            None => None,
        };
        urls.filter(|urls| !urls.is_empty())
            .ok_or_else(|| EtcdConfigError::NoUrls { key, member: member.to_owned() })
    }

    /// The file to start the etcd of `member` with. `cluster` is what the cluster says, if it
    /// answers.
    pub fn for_member(
        &self,
        member: &str,
        cluster: Option<&ClusterView>,
    ) -> Result<String, EtcdConfigError> {
        let mut document = self.document.clone();
        let mut set = |key: &str, value: String| {
            document.insert(key.to_owned(), Value::String(value));
        };
        set("name", member.to_owned());
        set(PEER_URLS, self.urls(PEER_URLS, member)?.join(","));
        set(CLIENT_URLS, self.urls(CLIENT_URLS, member)?.join(","));
        set(INITIAL_CLUSTER, self.initial_cluster(member, cluster));
        set("initial-cluster-state", self.cluster_state(cluster).to_owned());
        // One line each: whoever reads it line by line finds whole values.
        let lines = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(&document, lines)
            .map_err(|it| EtcdConfigError::Write(it.to_string()))
    }

    /// All members of the file, or those that joined and this one.
    fn initial_cluster(&self, member: &str, cluster: Option<&ClusterView>) -> String {
        let joined = cluster.filter(|cluster| cluster.names.len() > 1);
        let wanted = |name: &String| {
            name == member || joined.is_none_or(|cluster| cluster.names.contains(name))
        };
        let kept = self.listed.iter().filter(|listed| wanted(&listed.name));
        let kept: Vec<String> = kept.map(|it| format!("{}={}", it.name, it.url)).collect();
        kept.join(",")
    }

    fn cluster_state(&self, cluster: Option<&ClusterView>) -> &'static str {
        let joins = self.cluster_size() > 1 && cluster.is_some_and(|it| it.has_learner);
        if joins { "existing" } else { "new" }
    }
}

/// `name=url,name=url`; nothing if it is not that.
fn list(text: &str) -> Option<Vec<Listed>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let listed: Option<Vec<Listed>> = parts
        .map(|part| {
            let (name, url) = part.split_once('=')?;
            url::Url::parse(url).ok()?;
            (!name.is_empty()).then(|| Listed { name: name.to_owned(), url: url.to_owned() })
        })
        .collect();
    listed.filter(|listed| !listed.is_empty())
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => {
            text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
        Value::Array(values) => {
            values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
name: etcd
data-dir: /var/etcd/data/new.etcd
metrics: basic
snapshot-count: 75000
enable-grpc-gateway: true
quota-backend-bytes: 8589934592
auto-compaction-retention: '30m'
initial-cluster: etcd-main-0=https://a.peer:2380,etcd-main-1=https://b.peer:2380,etcd-main-2=https://c.peer:2380
initial-cluster-token: etcd-cluster
initial-cluster-state: new
client-transport-security:
  cert-file: /var/etcd/ssl/tls.crt
  auto-tls: false
initial-advertise-peer-urls:
  etcd-main-0:
  - https://a.peer:2380
  etcd-main-1:
  - https://b.peer:2380
  - https://b2.peer:2380
  etcd-main-2:
  - https://c.peer:2380
advertise-client-urls:
  etcd-main-0: [https://a.client:2379]
  etcd-main-1: [https://b.client:2379]
  etcd-main-2: [https://c.client:2379]
";

    fn config() -> EtcdConfig {
        EtcdConfig::parse(FILE).unwrap()
    }

    fn written(member: &str, cluster: Option<&ClusterView>) -> Map<String, Value> {
        serde_saphyr::from_str(&config().for_member(member, cluster).unwrap()).unwrap()
    }

    #[test]
    fn a_value_is_one_line_however_long_it_is() {
        let name = |number: i32| format!("a-member-with-a-long-name-{number}");
        let listed: Vec<String> =
            (0..9).map(|it| format!("{}=https://{}.peer:2380", name(it), name(it))).collect();
        let listed = listed.join(",");
        let file = format!("{FILE}log-outputs: a text with blanks {}\n", "x ".repeat(90));
        let file = file.replace("initial-cluster: ", "was: ");
        let file = format!("{file}initial-cluster: {listed}\n");
        let text = EtcdConfig::parse(&file).unwrap().for_member("etcd-main-0", None).unwrap();
        assert!(text.lines().any(|line| line == format!("initial-cluster: {listed}")), "{text}");
        assert!(!text.contains('>') && !text.contains('|'), "{text}");
    }

    #[test]
    fn members_and_their_urls_are_found() {
        let config = config();
        assert_eq!(config.cluster_size(), 3);
        assert_eq!(config.member_name("etcd-main-1"), "etcd-main-1");
        assert_eq!(
            config.peer_urls("etcd-main-1").unwrap(),
            ["https://b.peer:2380", "https://b2.peer:2380"]
        );
        assert!(config.peers_use_tls("etcd-main-1").unwrap());
        assert!(config.peer_urls("stranger").is_err());
        assert_eq!(config.all_client_urls().len(), 3);
        let prefixed = format!("{FILE}member-name-prefix: source\n");
        let prefixed = EtcdConfig::parse(&prefixed).unwrap();
        assert_eq!(prefixed.member_name("etcd-main-0"), "source-etcd-main-0");
    }

    #[test]
    fn the_file_of_a_member_has_its_own_urls() {
        let file = written("etcd-main-1", None);
        assert_eq!(file["name"], "etcd-main-1");
        assert_eq!(file["initial-advertise-peer-urls"], "https://b.peer:2380,https://b2.peer:2380");
        assert_eq!(file["advertise-client-urls"], "https://b.client:2379");
        assert_eq!(file["initial-cluster-state"], "new");
        assert_eq!(file["initial-cluster"], config().document["initial-cluster"]);
        for key in [
            "quota-backend-bytes",
            "client-transport-security",
            "enable-grpc-gateway",
            "auto-compaction-retention",
        ] {
            assert_eq!(file[key], config().document[key], "{key} passes through");
        }
    }

    #[test]
    fn a_learner_joins_those_that_are_there() {
        let joined = ClusterView {
            names: vec!["etcd-main-0".to_owned(), "etcd-main-2".to_owned()],
            has_learner: true,
        };
        let file = written("etcd-main-1", Some(&joined));
        assert_eq!(file["initial-cluster-state"], "existing");
        assert_eq!(file["initial-cluster"], config().document["initial-cluster"]);
        let two = ClusterView {
            names: vec!["etcd-main-0".to_owned(), "etcd-main-1".to_owned()],
            has_learner: false,
        };
        let file = written("etcd-main-1", Some(&two));
        assert_eq!(file["initial-cluster-state"], "new");
        assert_eq!(
            file["initial-cluster"],
            "etcd-main-0=https://a.peer:2380,etcd-main-1=https://b.peer:2380"
        );
        let one = ClusterView { names: vec!["etcd-main-0".to_owned()], has_learner: true };
        assert_eq!(
            written("etcd-main-1", Some(&one))["initial-cluster"],
            config().document["initial-cluster"]
        );
    }

    #[test]
    fn a_file_without_members_is_refused() {
        for text in [
            "",
            "a: b",
            "initial-cluster: ''",
            "initial-cluster: a",
            "- x",
            "initial-cluster: '=x'",
        ] {
            assert!(EtcdConfig::parse(text).is_err(), "{text:?}");
        }
    }
}
