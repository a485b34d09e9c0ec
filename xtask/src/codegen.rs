//! Writes what is generated and committed: the gRPC code of crate `rpc` (`grpc`), and the table of
//! built-in Kubernetes types that crate `objects` reads: names, field numbers, types and list
//! markers, taken from the sources of k8s-pb and k8s-openapi.
//!
//! Never takes over those crates' prose. What neither crate knows (which zero values mean something) is
//! kept by hand in `codegen/explicit.txt`.

mod files;
mod grpc;
mod names;
mod prost;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use names::Names;
use prost::{Field, Message, Shape};

/// Where the table goes, from the root of the workspace.
const TABLE: &str = "crates/objects/src/builtin/types.txt";

/// The Kubernetes version of k8s-openapi that is nearest to k8s-pb's.
const OPENAPI_VERSION: &str = "v1_35";

/// Fields whose zero value is a value when it is written out: one `message: member member …` a line.
const EXPLICIT: &str = include_str!("codegen/explicit.txt");

/// (apiVersion, module of the types, kinds)
const KINDS: &[(&str, &str, &[&str])] = &[
    (
        "v1",
        "core.v1",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("v1", "meta.v1", &["DeleteOptions", "Status"]),
    ("apiextensions.k8s.io/v1", "apiextensions.v1", &["CustomResourceDefinition"]),
    (
        "apps/v1",
        "apps.v1",
        &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    (
        "authentication.k8s.io/v1",
        "authentication.v1",
        &["SelfSubjectReview", "TokenRequest", "TokenReview"],
    ),
    (
        "authorization.k8s.io/v1",
        "authorization.v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("autoscaling/v1", "autoscaling.v1", &["Scale"]),
    ("batch/v1", "batch.v1", &["CronJob", "Job"]),
    ("coordination.k8s.io/v1", "coordination.v1", &["Lease"]),
    ("discovery.k8s.io/v1", "discovery.v1", &["EndpointSlice"]),
    ("events.k8s.io/v1", "events.v1", &["Event"]),
    ("networking.k8s.io/v1", "networking.v1", &["Ingress", "IngressClass", "NetworkPolicy"]),
    ("policy/v1", "policy.v1", &["Eviction", "PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io/v1",
        "rbac.v1",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    ("scheduling.k8s.io/v1", "scheduling.v1", &["PriorityClass"]),
    (
        "storage.k8s.io/v1",
        "storage.v1",
        &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment"],
    ),
];

/// Messages whose JSON form is not an object of their fields.
const FORMS: &[(&str, &str)] = &[
    ("apiextensions.v1.Json", "json"),
    ("apiextensions.v1.JsonSchemaPropsOrArray", "schema-or-array"),
    ("apiextensions.v1.JsonSchemaPropsOrBool", "schema-or-bool"),
    ("apiextensions.v1.JsonSchemaPropsOrStringArray", "schema-or-strings"),
    ("authentication.v1.ExtraValue", "strings"),
    ("authorization.v1.ExtraValue", "strings"),
    ("intstr.IntOrString", "int-or-string"),
    ("meta.v1.FieldsV1", "json"),
    ("meta.v1.MicroTime", "micro-time"),
    ("meta.v1.Time", "time"),
    ("resource.Quantity", "quantity"),
    ("runtime.RawExtension", "json"),
];

/// Writes the table, or with `check` fails if it is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let sources = Sources::locate()?;
    let messages = prost::read(&sources.package("k8s-pb")?.join("src"))?;
    let names = Names::read(&sources.package("k8s-openapi")?.join("src").join(OPENAPI_VERSION))?;
    let text = Table::new(&messages, &names)?.render()?;
    grpc::run(&sources.root, check)?;
    let target = sources.root.join(TABLE);
    if check {
        let present = std::fs::read_to_string(&target)
            .with_context(|| format!("cannot read {}", target.display()))?;
        ensure!(present == text, "{TABLE} is out of date: run `cargo xtask codegen`");
        return Ok(());
    }
    let mut file = std::fs::File::create(&target)
        .with_context(|| format!("cannot write {}", target.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

/// Where cargo keeps the sources of our dependencies.
struct Sources {
    root: PathBuf,
    packages: Vec<serde_json::Value>,
}

impl Sources {
    fn locate() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut whole: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let root = whole.get("workspace_root").and_then(|root| root.as_str()).map(PathBuf::from);
        let packages = whole.get_mut("packages").and_then(|all| all.as_array_mut());
        Ok(Self {
            root: root.context("no workspace root")?,
            packages: std::mem::take(packages.context("no packages")?),
        })
    }

    fn package(&self, name: &str) -> Result<PathBuf> {
        let found = self.packages.iter().find(|one| one.get("name").is_some_and(|it| it == name));
        let manifest = found
            .and_then(|one| one.get("manifest_path"))
            .and_then(|path| path.as_str())
            .with_context(|| format!("package {name} is not locked"))?;
        Ok(Path::new(manifest).parent().context("a manifest without a folder")?.to_owned())
    }
}

/// The table under construction.
struct Table<'a> {
    messages: &'a BTreeMap<String, Message>,
    names: &'a Names,
    explicit: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

impl<'a> Table<'a> {
    fn new(messages: &'a BTreeMap<String, Message>, names: &'a Names) -> Result<Self> {
        let mut explicit = BTreeMap::<_, BTreeSet<_>>::new();
        for line in EXPLICIT.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (message, members) =
                line.split_once(": ").with_context(|| format!("explicit.txt: {line}"))?;
            explicit.entry(message).or_default().extend(members.split(' '));
        }
        Ok(Self { messages, names, explicit })
    }

    fn message(&self, id: &str) -> Result<&'a Message> {
        self.messages.get(id).with_context(|| format!("no message {id}"))
    }

    fn render(&self) -> Result<String> {
        let mut text = String::from(
            "# Built-in Kubernetes types. Written by `cargo xtask codegen`; do not edit.\n\
             # kind APIVERSION KIND MESSAGE\n\
             # message NAME [atomic], then one line a field: NUMBER MEMBER TYPE [FLAG]...\n\
             # TYPE: [] is a list, {} a map from string; a member `-` is inlined in JSON.\n",
        );
        let mut queue = Vec::new();
        for (api_version, module, kinds) in KINDS {
            for kind in *kinds {
                let wanted = format!("{module}.{kind}").to_ascii_lowercase();
                let id = self.messages.keys().find(|id| id.to_ascii_lowercase() == wanted);
                let id = id.with_context(|| format!("no message for {api_version} {kind}"))?;
                writeln!(text, "kind {api_version} {kind} {id}")?;
                queue.push(id.as_str());
            }
        }
        let mut reached = BTreeSet::new();
        while let Some(id) = queue.pop() {
            if reached.insert(id) {
                queue.extend(self.references(id)?);
            }
        }
        for id in &reached {
            self.render_message(id, &mut text)?;
            self.check_covered(id)?;
        }
        self.check_explicit(&reached)?;
        Ok(text)
    }

    /// The messages the fields of this one name, less those with a form of their own.
    fn references(&self, id: &str) -> Result<Vec<&'a str>> {
        let mut found = Vec::new();
        for field in self.message(id)?.fields.iter().filter(|field| field.is_message) {
            match form(&field.of) {
                None => found.push(field.of.as_str()),
                // These carry a schema inside.
                Some(form) if form.starts_with("schema") => {
                    found.push("apiextensions.v1.JsonSchemaProps");
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    fn render_message(&self, id: &str, text: &mut String) -> Result<()> {
        let message = self.message(id)?;
        writeln!(text, "message {id}{}", if message.atomic { " atomic" } else { "" })?;
        let mut fields: Vec<&Field> = message.fields.iter().collect();
        fields.sort_by_key(|field| field.tag);
        for field in fields {
            let member = self.member(id, field)?;
            let shape = match field.shape {
                Shape::One => "",
                Shape::List => "[]",
                Shape::Map => "{}",
            };
            let of = form(&field.of).unwrap_or(&field.of);
            write!(text, "{} {member} {shape}{of}", field.tag)?;
            let explicit = self.explicit.get(id);
            let explicit = explicit.is_some_and(|members| members.contains(member.as_str()));
            if explicit {
                text.push_str(" explicit");
            }
            // `ref(…)` names a Go constant; a zero that is not explicit shows in no object.
            if let Some(value) = field.marker("default")
                && !value.starts_with("ref(")
                && (explicit || !["\"\"", "0", "false"].contains(&value))
            {
                write!(text, " default={value}")?;
            }
            flags(field, text).with_context(|| format!("field {} of {id}", field.name))?;
            text.push('\n');
        }
        Ok(())
    }

    /// The JSON name of a field; `-` if JSON shows the members of its message instead.
    fn member(&self, id: &str, field: &Field) -> Result<String> {
        if let Some(known) = self.names.of_type(id) {
            if let Some(name) = known.get(&names::folded(&field.name)) {
                return Ok(name.clone());
            }
            if field.is_message && field.shape == Shape::One {
                let inner = self.message(&field.of)?;
                if inner.fields.iter().any(|one| known.contains_key(&names::folded(&one.name))) {
                    return Ok("-".to_owned());
                }
            }
            bail!("{id} has no JSON member for {}", field.name);
        }
        // A struct Go inlines has no definition of its own: its names are those of its users.
        let name = self.names.anywhere(&field.name);
        Ok(name.map_or_else(|| camel_case(&field.name), str::to_owned))
    }

    /// Every JSON member of a type must have come from some field: a member without one could be
    /// neither pruned nor decoded rightly.
    fn check_covered(&self, id: &str) -> Result<()> {
        let members = self.members(id)?;
        let Some(known) = self.names.of_type(id) else { return Ok(()) };
        for name in known.values() {
            let in_envelope = name == "apiVersion" || name == "kind";
            ensure!(in_envelope || members.contains(name), "no field of {id} gives {name}");
        }
        Ok(())
    }

    /// The JSON members of a message, with those of inlined ones.
    fn members(&self, id: &str) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for field in &self.message(id)?.fields {
            match self.member(id, field)?.as_str() {
                "-" => all.extend(self.members(&field.of)?),
                member => all.extend([member.to_owned()]),
            }
        }
        Ok(all)
    }

    /// A misspelt line in the hand-kept list must not be silently without effect.
    fn check_explicit(&self, reached: &BTreeSet<&str>) -> Result<()> {
        for (id, members) in &self.explicit {
            ensure!(reached.contains(id), "explicit.txt names {id}, which no kind uses");
            let known = self.members(id)?;
            for member in members {
                ensure!(known.contains(*member), "explicit.txt: {id} has no member {member}");
            }
        }
        Ok(())
    }
}

fn form(id: &str) -> Option<&'static str> {
    FORMS.iter().find(|(name, _)| *name == id).map(|(_, form)| *form)
}

fn flags(field: &Field, text: &mut String) -> Result<()> {
    match field.marker("listType") {
        Some("set") => text.push_str(" list=set"),
        Some("map") => {
            let keys: Vec<&str> = field.markers("listMapKey").collect();
            ensure!(!keys.is_empty(), "a keyed list without keys");
            write!(text, " list=map:{}", keys.join(","))?;
        }
        Some("atomic") | None => {}
        Some(other) => bail!("unknown list type {other}"),
    }
    if field.marker("mapType") == Some("atomic") || field.marker("structType") == Some("atomic") {
        text.push_str(" atomic");
    }
    let key = field.marker("patchMergeKey").map(|key| format!(":{key}")).unwrap_or_default();
    match field.marker("patchStrategy") {
        Some("merge") => write!(text, " patch=merge{key}")?,
        Some("merge,retainKeys") => write!(text, " patch=merge-retain{key}")?,
        Some("retainKeys") => text.push_str(" patch=retain"),
        Some("replace") | None => {}
        Some(other) => bail!("unknown patch strategy {other}"),
    }
    Ok(())
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        whole.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        whole.push_str(letters.as_str());
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_built_in_types_is_up_to_date() {
        run(true).unwrap();
    }

    #[test]
    fn names_are_joined_in_camel_case() {
        assert_eq!(camel_case("volume_source"), "volumeSource");
        assert_eq!(camel_case("name"), "name");
    }
}
