//! Writes what is generated and committed: the gRPC code of crate `rpc` (`grpc`), and the table of
//! built-in Kubernetes types that crate `objects` reads: names, field numbers, types and list
//! markers, taken from the sources of k8s-pb and k8s-openapi; and what k8s-openapi says about each
//! type, compressed, for `kubectl explain`.
//!
//! What neither crate knows (which zero values mean something) is
//! kept by hand in `codegen/explicit.txt`.

mod files;
mod grpc;
mod kinds;
mod names;
mod prose;
mod prost;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kinds::KINDS;
use names::Names;
use prose::Prose;
use prost::{Field, Message, Shape};

/// Where the table goes, from the root of the workspace.
const TABLE: &str = "crates/objects/src/builtin/types.txt";

/// Where the compressed descriptions go.
const DESCRIPTIONS: &str = "crates/apiserver/src/openapi/descriptions.gz";

/// The Kubernetes version of k8s-openapi that is nearest to k8s-pb's.
const OPENAPI_VERSION: &str = "v1_35";

/// Fields whose zero value is a value when it is written out: one `message: member member …` a line.
const EXPLICIT: &str = include_str!("codegen/explicit.txt");

/// Messages whose JSON form is not an object of their fields.
const FORMS: &[(&str, &str)] = &[
    ("apiextensions.v1.Json", "json"),
    ("apiextensions.v1.JsonSchemaPropsOrArray", "schema-or-array"),
    ("apiextensions.v1.JsonSchemaPropsOrBool", "schema-or-bool"),
    ("apiextensions.v1.JsonSchemaPropsOrStringArray", "schema-or-strings"),
    ("authentication.v1.ExtraValue", "strings"),
    ("authorization.v1.ExtraValue", "strings"),
    ("certificates.v1.ExtraValue", "strings"),
    ("intstr.IntOrString", "int-or-string"),
    ("meta.v1.FieldsV1", "json"),
    ("meta.v1.MicroTime", "micro-time"),
    ("meta.v1.Time", "time"),
    ("resource.Quantity", "quantity"),
    ("runtime.RawExtension", "json"),
];

/// Writes the tables, or with `check` fails if one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let sources = Sources::locate()?;
    let messages = prost::read(&sources.package("k8s-pb")?.join("src"))?;
    let published = sources.package("k8s-openapi")?.join("src").join(OPENAPI_VERSION);
    let (names, prose) = (Names::read(&published)?, Prose::read(&published)?);
    let table = Table::new(&messages, &names, &prose)?;
    let reached = table.reached()?;
    let text = table.render(&reached)?;
    grpc::run(&sources.root, check)?;
    settle(check, &sources.root, TABLE, text.as_bytes(), |bytes| Ok(bytes.to_vec()))?;
    let words = table.describe(&reached)?;
    // Compressed texts differ between versions of the compressor; what they say must not.
    settle(check, &sources.root, DESCRIPTIONS, &compress(&words)?, decompress)
}

/// Writes a file, or with `check` compares what it says.
fn settle(
    check: bool,
    root: &Path,
    name: &str,
    made: &[u8],
    read: impl Fn(&[u8]) -> Result<Vec<u8>>,
) -> Result<()> {
    let target = root.join(name);
    if check {
        let present =
            std::fs::read(&target).with_context(|| format!("cannot read {}", target.display()))?;
        ensure!(read(&present)? == read(made)?, "{name} is out of date: run `cargo xtask codegen`");
        return Ok(());
    }
    let mut file = std::fs::File::create(&target)
        .with_context(|| format!("cannot write {}", target.display()))?;
    file.write_all(made)?;
    Ok(())
}

fn compress(text: &str) -> Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    Ok(encoder.finish()?)
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut text)?;
    Ok(text)
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
    prose: &'a Prose,
    explicit: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

impl<'a> Table<'a> {
    fn new(
        messages: &'a BTreeMap<String, Message>,
        names: &'a Names,
        prose: &'a Prose,
    ) -> Result<Self> {
        let mut explicit = BTreeMap::<_, BTreeSet<_>>::new();
        for line in EXPLICIT.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (message, members) =
                line.split_once(": ").with_context(|| format!("explicit.txt: {line}"))?;
            explicit.entry(message).or_default().extend(members.split(' '));
        }
        Ok(Self { messages, names, prose, explicit })
    }

    fn message(&self, id: &str) -> Result<&'a Message> {
        self.messages.get(id).with_context(|| format!("no message {id}"))
    }

    /// The message of each kind.
    fn kinds(&self) -> Result<Vec<(&'static str, &'static str, &'a str)>> {
        let mut found = Vec::new();
        for (api_version, module, kinds) in KINDS {
            for kind in *kinds {
                let wanted = format!("{module}.{kind}").to_ascii_lowercase();
                let id = self.messages.keys().find(|id| id.to_ascii_lowercase() == wanted);
                let id = id.with_context(|| format!("no message for {api_version} {kind}"))?;
                found.push((*api_version, *kind, id.as_str()));
            }
        }
        Ok(found)
    }

    /// Every message that some kind is made of.
    fn reached(&self) -> Result<BTreeSet<&'a str>> {
        let mut queue: Vec<&str> = self.kinds()?.into_iter().map(|(_, _, id)| id).collect();
        let mut reached = BTreeSet::new();
        while let Some(id) = queue.pop() {
            if reached.insert(id) {
                queue.extend(self.references(id)?);
            }
        }
        Ok(reached)
    }

    fn render(&self, reached: &BTreeSet<&str>) -> Result<String> {
        let mut text = String::from(
            "# Built-in Kubernetes types. Written by `cargo xtask codegen`; do not edit.\n\
             # kind APIVERSION KIND MESSAGE\n\
             # message NAME [atomic], then one line a field: NUMBER MEMBER TYPE [FLAG]...\n\
             # TYPE: [] is a list, {} a map from string; a member `-` is inlined in JSON.\n",
        );
        for (api_version, kind, id) in self.kinds()? {
            writeln!(text, "kind {api_version} {kind} {id}")?;
        }
        for id in reached {
            self.render_message(id, &mut text)?;
            self.check_covered(id)?;
        }
        self.check_explicit(reached)?;
        Ok(text)
    }

    /// What each message and each of its members is for: a line `message ID NAME "…"`, then a line
    /// `MEMBER "…"` for each.
    fn describe(&self, reached: &BTreeSet<&str>) -> Result<String> {
        let mut text = String::new();
        for id in reached {
            let Some(described) = self.prose.of(id) else { continue };
            let about = serde_json::to_string(&described.about)?;
            writeln!(text, "message {id} {} {about}", described.name)?;
            for (member, about) in &described.members {
                writeln!(text, "{member} {}", serde_json::to_string(about)?)?;
            }
        }
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
            let required = self.prose.of(id);
            if required.is_some_and(|described| described.required.contains(&member)) {
                text.push_str(" required");
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
