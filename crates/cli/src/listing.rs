//! Objects as tables, documents or names; once, or as they change.

use std::fmt::Debug;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, ObjectList};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connection::{Connection, explained};
use crate::output::{self, Format};
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
    /// The form of the result.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, clap::Args)]
pub struct List {
    #[command(flatten)]
    pub(crate) show: Form,
    /// Go on and print each change.
    #[arg(short, long)]
    watch: bool,
    /// Only those with these labels, as key=value,key2!=value.
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
            .map_err(|error| explained(error, &format!("remove {kind} {name}")))?;
    }
    for name in names {
        wait.until(api, name, |object| match object {
            None => Stand::Done,
            Some(_) => Stand::Going("being removed".to_owned()),
        })
        .await?;
        let end = if wait.wait { "is gone" } else { "is being removed" };
        output::say(&format!("{kind} {name} {end}"))?;
    }
    Ok(())
}

/// Lists what `keep` accepts, in an order of its own.
pub(crate) async fn list<K: Object + Row>(
    api: &Api<K>,
    how: &List,
    keep: impl Fn(&K) -> bool,
    order: impl Fn(&K, &K) -> std::cmp::Ordering,
) -> anyhow::Result<()> {
    let plural = K::plural(&());
    let mut wanted = ListParams::default();
    if let Some(selector) = &how.selector {
        wanted = wanted.labels(selector);
    }
    let mut found: ObjectList<K> =
        api.list(&wanted).await.map_err(|error| explained(error, &format!("list {plural}")))?;
    found.items.retain(&keep);
    found.items.sort_by(order);
    print(&found.items, how.show.output)?;
    if how.watch { follow(api, how, keep).await } else { Ok(()) }
}

/// Prints a line, a document or a name for each change, until it is stopped.
async fn follow<K: Object + Row>(
    api: &Api<K>,
    how: &List,
    keep: impl Fn(&K) -> bool,
) -> anyhow::Result<()> {
    let config = watcher::Config { label_selector: how.selector.clone(), ..Default::default() };
    let mut changes = std::pin::pin!(watcher(api.clone(), config));
    while let Some(event) = changes.try_next().await? {
        match event {
            Event::Apply(object) if keep(&object) => {
                output::say(&one(&object, how.show.output, Head::Without)?)?;
            }
            Event::Delete(object) if keep(&object) => match how.show.output {
                Format::Table | Format::Wide => {
                    output::say(&format!("{} is gone", object.name_any()))?;
                }
                Format::Name | Format::Json | Format::Yaml => {}
            },
            // What was listed already.
            Event::Init | Event::InitApply(_) | Event::InitDone => {}
            Event::Apply(_) | Event::Delete(_) => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Head {
    With,
    Without,
}

fn one<K: Object + Row>(object: &K, format: Format, head: Head) -> anyhow::Result<String> {
    let text = text(std::slice::from_ref(object), format)?;
    Ok(match (head, format) {
        (Head::Without, Format::Table | Format::Wide) => {
            text.lines().skip(1).collect::<Vec<_>>().join("\n")
        }
        _ => text,
    })
}

pub(crate) fn print<K: Object + Row>(objects: &[K], format: Format) -> anyhow::Result<()> {
    if objects.is_empty() && matches!(format, Format::Table | Format::Wide) {
        eprintln!("there are no {} here", K::plural(&()));
        return Ok(());
    }
    if objects.is_empty() && format == Format::Name {
        return Ok(());
    }
    Ok(output::say(&text(objects, format)?)?)
}

/// One object by its name, as a row or a document.
pub(crate) fn print_one<K: Object + Row>(object: &K, format: Format) -> anyhow::Result<()> {
    Ok(output::say(&one(object, format, Head::With)?)?)
}

fn text<K: Object + Row>(objects: &[K], format: Format) -> anyhow::Result<String> {
    let now = Timestamp::now();
    Ok(match format {
        Format::Table => {
            let rows: Vec<_> = objects.iter().map(|object| object.cells(now)).collect();
            output::table(K::HEAD, &rows)
        }
        Format::Wide => {
            let head: Vec<_> = K::HEAD.iter().chain(K::WIDE).copied().collect();
            let rows: Vec<_> = objects
                .iter()
                .map(|object| [object.cells(now), object.wide(now)].concat())
                .collect();
            output::table(&head, &rows)
        }
        Format::Name => {
            let (plural, group) = (K::plural(&()), K::group(&()));
            let names =
                objects.iter().map(|object| format!("{plural}.{group}/{}", object.name_any()));
            names.collect::<Vec<_>>().join("\n")
        }
        Format::Json | Format::Yaml => output::machine(&objects, format)?,
    })
}

pub(crate) fn by_name<K: kube::Resource>(left: &K, right: &K) -> std::cmp::Ordering {
    left.name_any().cmp(&right.name_any())
}
