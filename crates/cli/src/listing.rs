//! Objects as tables, documents or names; once, or as they change.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, ObjectList};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{Connection, explained};
use crate::output::{self, Columns, Format};
use crate::waiting::{Stand, Wait};

/// How a kind is shown.
pub(crate) trait Row {
    const HEAD: &'static [&'static str];
    /// Columns added by `-o wide`.
    const WIDE: &'static [&'static str];

    fn cells(&self, now: Timestamp) -> Vec<String>;
    fn wide(&self, now: Timestamp) -> Vec<String>;
}

pub(crate) trait Object:
    kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static
{
}

#[derive(Debug, Clone, clap::Args)]
pub struct Form {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, clap::Args)]
pub struct List {
    #[command(flatten)]
    pub(crate) show: Form,
    /// Keep running, and print each change.
    #[arg(short, long)]
    watch: bool,
    /// Label selector, for example key=value,key2!=value.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
}

/// The arguments of a plain list.
#[derive(Debug, clap::Args)]
pub struct Ls {
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    at: Connection,
}

impl Ls {
    /// All of a kind, by name.
    pub(crate) async fn run<K>(&self) -> anyhow::Result<()>
    where
        K: Object + Row + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        list(&self.at.volumes::<K>().await?, &self.list, |_| true, by_name).await
    }
}

/// The arguments of a removal.
#[derive(Debug, clap::Args)]
pub struct Rm {
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) at: Connection,
}

impl Rm {
    /// Asks for the end of those that are named.
    pub(crate) async fn run<K>(&self) -> anyhow::Result<()>
    where
        K: Object + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        remove(&self.at.volumes::<K>().await?, &self.names, &self.wait).await
    }
}

/// Asks for the end of each, and stays for it if that is wanted.
async fn remove<K: Object>(api: &Api<K>, names: &[String], wait: &Wait) -> anyhow::Result<()> {
    let kind = K::kind(&()).to_lowercase();
    for name in names {
        api.delete(name, &DeleteParams::default())
            .await
            .map_err(|error| explained(error, &format!("delete {kind} {name}")))?;
    }
    for name in names {
        wait.until(api, name, |object| match object {
            None => Stand::Done,
            Some(_) => Stand::Going("being deleted".to_owned()),
        })
        .await?;
        let end = if wait.wait { "is deleted" } else { "is being deleted" };
        output::say(&format!("{kind} {name} {end}"))?;
    }
    Ok(())
}

/// Lists what `keep` accepts, in an order of its own; once, or until it is stopped.
pub(crate) async fn list<K: Object + Row>(
    api: &Api<K>,
    how: &List,
    keep: impl Fn(&K) -> bool,
    order: impl Fn(&K, &K) -> std::cmp::Ordering,
) -> anyhow::Result<()> {
    if how.watch {
        return follow(api, how, keep, order).await;
    }
    let plural = K::plural(&());
    let mut wanted = ListParams::default();
    if let Some(selector) = &how.selector {
        wanted = wanted.labels(selector);
    }
    let mut found: ObjectList<K> =
        api.list(&wanted).await.map_err(|error| explained(error, &format!("list {plural}")))?;
    found.items.retain(&keep);
    found.items.sort_by(order);
    print(&found.items, how.show.output)
}

/// What there is, and then a line, a document or a name for each change, until it is stopped. List and
/// changes are of one watch, so that nothing happens between them.
async fn follow<K: Object + Row>(
    api: &Api<K>,
    how: &List,
    keep: impl Fn(&K) -> bool,
    order: impl Fn(&K, &K) -> std::cmp::Ordering,
) -> anyhow::Result<()> {
    let config = watcher::Config { label_selector: how.selector.clone(), ..Default::default() };
    let mut changes = std::pin::pin!(watcher(api.clone(), config).default_backoff());
    let (mut followed, mut columns) = (Followed::default(), Columns::default());
    while let Some(event) = changes.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                interrupted::<K>(error, followed.is_listed)?;
                continue;
            }
        };
        match followed.tell(event) {
            Told::Nothing => {}
            Told::All(mut all) => {
                all.retain(&keep);
                all.sort_by(&order);
                print_in(&all, how.show.output, &mut columns)?;
            }
            Told::Changes(changes) => {
                for change in changes.into_iter().filter(|it| keep(it.object())) {
                    say_change(&change, how.show.output, &mut columns)?;
                }
            }
        }
    }
    Ok(())
}

/// A watch that cannot be begun is an error; one that breaks off is begun again, unless it may not be.
fn interrupted<K: Object>(error: watcher::Error, is_listed: bool) -> anyhow::Result<()> {
    let plural = K::plural(&());
    let cause = match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => cause,
        watcher::Error::WatchError(status) => kube::Error::Api(status),
        other @ watcher::Error::NoResourceVersion => return Err(other.into()),
    };
    let is_final = matches!(&cause, kube::Error::Api(it) if matches!(it.code, 401 | 403 | 404));
    if is_final || !is_listed {
        return Err(explained(cause, &format!("list {plural}")));
    }
    // What was missed meanwhile is too old to be told one by one: it is listed again.
    let told = telemetry::Chain(&cause).to_string();
    if !matches!(&cause, kube::Error::Api(it) if it.code == 410) {
        eprintln!("the watch broke off, and is begun again: {}", output::plain(&told));
    }
    Ok(())
}

fn say_change<K: Object + Row>(
    change: &Change<K>,
    format: Format,
    columns: &mut Columns,
) -> anyhow::Result<()> {
    match (change, format) {
        (Change::Now(it), Format::Table | Format::Wide) => {
            output::say(&columns.row(&cells_in(it, format, Timestamp::now())))?;
        }
        (Change::Now(it), _) => output::say(&text(std::slice::from_ref(it), format)?)?,
        (Change::Gone(it), Format::Table | Format::Wide) => {
            output::say(&format!("{} is deleted", it.name_any()))?;
        }
        (Change::Gone(_), Format::Name | Format::Json | Format::Yaml) => {}
    }
    Ok(())
}

/// What a watch has shown so far: whatever happens between two lists is found by comparing them.
#[derive(Debug)]
struct Followed<K> {
    is_listed: bool,
    /// By namespace and name, as they were last told.
    known: BTreeMap<Place, K>,
    /// A list that is not complete yet.
    listing: BTreeMap<Place, K>,
}

type Place = (String, String);

impl<K> Default for Followed<K> {
    fn default() -> Self {
        Self { is_listed: false, known: BTreeMap::new(), listing: BTreeMap::new() }
    }
}

#[derive(Debug)]
enum Told<K> {
    Nothing,
    /// All there is: the first list.
    All(Vec<K>),
    Changes(Vec<Change<K>>),
}

#[derive(Debug)]
enum Change<K> {
    Now(K),
    Gone(K),
}

impl<K> Change<K> {
    fn object(&self) -> &K {
        match self {
            Self::Now(it) | Self::Gone(it) => it,
        }
    }
}

impl<K: Object> Followed<K> {
    fn tell(&mut self, event: Event<K>) -> Told<K> {
        match event {
            Event::Init => {
                self.listing.clear();
                Told::Nothing
            }
            Event::InitApply(it) => {
                self.listing.insert(place(&it), it);
                Told::Nothing
            }
            Event::InitDone => self.listed(),
            Event::Apply(it) => {
                self.known.insert(place(&it), it.clone());
                Told::Changes(vec![Change::Now(it)])
            }
            Event::Delete(it) => {
                self.known.remove(&place(&it));
                Told::Changes(vec![Change::Gone(it)])
            }
        }
    }

    fn listed(&mut self) -> Told<K> {
        let listed = std::mem::take(&mut self.listing);
        let before = std::mem::replace(&mut self.known, listed);
        if !std::mem::replace(&mut self.is_listed, true) {
            return Told::All(self.known.values().cloned().collect());
        }
        let is_new = |place: &Place, it: &K| {
            before.get(place).is_none_or(|old| old.resource_version() != it.resource_version())
        };
        let now = self.known.iter().filter(|(place, it)| is_new(place, it));
        let now: Vec<Change<K>> = now.map(|(_, it)| Change::Now(it.clone())).collect();
        let gone = before.into_iter().filter(|(place, _)| !self.known.contains_key(place));
        let gone = gone.map(|(_, it)| Change::Gone(it));
        Told::Changes(now.into_iter().chain(gone).collect())
    }
}

fn place<K: ResourceExt>(object: &K) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}

pub(crate) fn print<K: Object + Row>(objects: &[K], format: Format) -> anyhow::Result<()> {
    print_in(objects, format, &mut Columns::default())
}

fn print_in<K: Object + Row>(
    objects: &[K],
    format: Format,
    columns: &mut Columns,
) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide if objects.is_empty() => {
            eprintln!("no {} found", readable(&K::plural(&())));
            Ok(())
        }
        Format::Name if objects.is_empty() => Ok(()),
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let rows: Vec<_> = objects.iter().map(|it| cells_in(it, format, now)).collect();
            Ok(output::say(&columns.table(&head_in::<K>(format), &rows))?)
        }
        Format::Name | Format::Json | Format::Yaml => Ok(output::say(&text(objects, format)?)?),
    }
}

/// What people call the objects of a resource.
fn readable(plural: &str) -> &str {
    match plural {
        "backuptargets" => "backup targets",
        "recurringjobs" => "recurring jobs",
        "nonadminbackups" => "namespace backups",
        "nonadminrestores" => "namespace restores",
        other => other,
    }
}

/// One object by its name, as a row or a document: for programs, the object itself and no list of it.
pub(crate) fn print_one<K: Object + Row>(object: &K, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Yaml => {
            Ok(output::say(&output::machine(&document(object)?, format)?)?)
        }
        Format::Table | Format::Wide | Format::Name => print(std::slice::from_ref(object), format),
    }
}

/// An object without the records of who wrote which field, as kubectl shows it.
fn document<K: Object>(object: &K) -> anyhow::Result<serde_json::Value> {
    let mut document = serde_json::to_value(object)?;
    if let Some(metadata) = document.pointer_mut("/metadata").and_then(|it| it.as_object_mut()) {
        metadata.remove("managedFields");
    }
    Ok(document)
}

fn head_in<K: Row>(format: Format) -> Vec<&'static str> {
    let wide = if format == Format::Wide { K::WIDE } else { &[] };
    K::HEAD.iter().chain(wide).copied().collect()
}

fn cells_in<K: Row>(object: &K, format: Format, now: Timestamp) -> Vec<String> {
    let mut cells = object.cells(now);
    if format == Format::Wide {
        cells.extend(object.wide(now));
    }
    cells
}

/// Objects for programs.
fn text<K: Object>(objects: &[K], format: Format) -> anyhow::Result<String> {
    if format != Format::Name {
        let documents = objects.iter().map(document).collect::<anyhow::Result<Vec<_>>>()?;
        return output::machine(&documents, format);
    }
    let (plural, group) = (K::plural(&()), K::group(&()));
    let names = objects.iter().map(|object| format!("{plural}.{group}/{}", object.name_any()));
    Ok(names.collect::<Vec<_>>().join("\n"))
}

pub(crate) fn by_name<K: kube::Resource>(left: &K, right: &K) -> std::cmp::Ordering {
    left.name_any().cmp(&right.name_any())
}

#[cfg(test)]
mod tests {
    use api::longhorn::{Volume, VolumeSpec};

    use super::*;

    fn volume(name: &str, version: &str) -> Volume {
        let mut it = Volume::new(name, VolumeSpec::default());
        it.metadata.resource_version = Some(version.to_owned());
        it
    }

    fn shown(told: &Told<Volume>) -> String {
        let version = |it: &Volume| it.metadata.resource_version.clone().unwrap_or_default();
        match told {
            Told::Nothing => String::new(),
            Told::All(all) => {
                let all: Vec<_> = all.iter().map(|it| it.name_any() + &version(it)).collect();
                format!("all {}", all.join(" "))
            }
            Told::Changes(changes) => {
                let changes: Vec<_> = changes
                    .iter()
                    .map(|it| match it {
                        Change::Now(it) => it.name_any() + &version(it),
                        Change::Gone(it) => format!("-{}", it.name_any()),
                    })
                    .collect();
                changes.join(" ")
            }
        }
    }

    #[test]
    fn what_happens_between_two_lists_is_told() {
        let mut followed = Followed::default();
        let mut tell = |event| shown(&followed.tell(event));
        let listed = |it: Volume| Event::InitApply(it);
        assert_eq!(tell(Event::Init), "");
        assert_eq!(tell(listed(volume("a", "1"))), "");
        assert_eq!(tell(listed(volume("b", "1"))), "");
        assert_eq!(tell(Event::InitDone), "all a1 b1");
        assert_eq!(tell(Event::Apply(volume("a", "2"))), "a2");
        assert_eq!(tell(Event::Apply(volume("c", "3"))), "c3");
        assert_eq!(tell(Event::Delete(volume("c", "4"))), "-c");
        // The watch broke off: a has changed, b is gone, d is new, and nothing else is told again.
        assert_eq!(tell(Event::Init), "");
        assert_eq!(tell(listed(volume("a", "5"))), "");
        assert_eq!(tell(listed(volume("d", "6"))), "");
        assert_eq!(tell(Event::InitDone), "a5 d6 -b");
        // A list that breaks off is begun anew.
        tell(Event::Init);
        tell(listed(volume("x", "7")));
        tell(Event::Init);
        tell(listed(volume("a", "5")));
        tell(listed(volume("d", "6")));
        assert_eq!(tell(Event::InitDone), "");
    }
}
