//! The work that is measured: small custom resources, as controllers have them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Connection, Endpoint};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::load;
use super::table::{Figures, Row};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "parcels.bench.example.com";
const PARCELS: &str = "/apis/bench.example.com/v1/namespaces/default/parcels";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

const OBJECTS: u32 = 10_000;
/// Of these, done one at a time.
const ALONE: u32 = 1_000;
const IN_FLIGHT: usize = 16;
const WATCHERS: usize = 100;
const FAN_OUT_WRITES: u32 = 500;
const LEASE_UPDATES: u32 = 100_000;
const CONFLICTS: u32 = 4_000;
const LISTS: usize = 9;
const LARGE_OBJECTS: usize = 54;
const LARGE_BYTES: usize = 512 * 1024;
const UNREAD_LISTS: usize = 100;
const TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(crate) struct Work {
    endpoint: Endpoint,
}

fn path(number: u32) -> String {
    format!("{PARCELS}/parcel-{number:05}")
}

/// About 0.65 KiB when stored.
fn parcel(name: &str, number: u32) -> Value {
    json!({
        "apiVersion": "bench.example.com/v1",
        "kind": "Parcel",
        "metadata": {"name": name, "labels": {"slot": (number % 10).to_string()}},
        "spec": {"number": number, "text": "x".repeat(150)},
    })
}

fn expect(
    answer: std::io::Result<e2e::Answer>,
    codes: &[u16],
    connection: Connection,
) -> Result<Connection> {
    let answer = answer?;
    ensure!(
        codes.contains(&answer.code()),
        "{}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(connection)
}

impl Work {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint }
    }

    /// The definition, served.
    pub(crate) async fn prepare(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
        }}});
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {
                "group": "bench.example.com",
                "scope": "Namespaced",
                "names": {"plural": "parcels", "singular": "parcel", "kind": "Parcel"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": schema}}],
            },
        });
        let made = connection.post(DEFINITIONS, &body).await?;
        ensure!([201, 409].contains(&made.code()), "the definition: {}", made.json());
        let deadline = Instant::now() + TIMEOUT;
        while connection.get(PARCELS).await?.code() != 200 {
            ensure!(Instant::now() < deadline, "the definition is never served");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) async fn create(&self, figures: &mut Figures) -> Result<()> {
        let create = |mut connection: Connection, number: u32| async move {
            let body = parcel(&format!("parcel-{number:05}"), number);
            let answer = connection.post(PARCELS, &body).await;
            expect(answer, &[201], connection)
        };
        let mut alone = load::run(&self.endpoint, 1, (0, ALONE), create).await?;
        figures.set(Row::CreateMedian, alone.median_ms()?);
        let together =
            load::run(&self.endpoint, IN_FLIGHT, (ALONE, OBJECTS - ALONE), create).await?;
        figures.set(Row::CreateRate, together.rate());
        Ok(())
    }

    pub(crate) async fn get(&self, figures: &mut Figures) -> Result<()> {
        let get = |mut connection: Connection, number: u32| async move {
            let answer = connection.get(&path(number)).await;
            expect(answer, &[200], connection)
        };
        let mut alone = load::run(&self.endpoint, 1, (0, ALONE), get).await?;
        figures.set(Row::GetMedian, alone.median_ms()?);
        let together = load::run(&self.endpoint, IN_FLIGHT, (0, OBJECTS), get).await?;
        figures.set(Row::GetRate, together.rate());
        Ok(())
    }

    pub(crate) async fn patch(&self, figures: &mut Figures) -> Result<()> {
        let patch = |mut connection: Connection, number: u32| async move {
            let body = json!({"spec": {"number": number + 1}});
            let answer = connection.merge(&path(number), &body).await;
            expect(answer, &[200], connection)
        };
        let mut alone = load::run(&self.endpoint, 1, (0, ALONE), patch).await?;
        figures.set(Row::PatchMedian, alone.median_ms()?);
        let together =
            load::run(&self.endpoint, IN_FLIGHT, (ALONE, OBJECTS - ALONE), patch).await?;
        figures.set(Row::PatchRate, together.rate());
        Ok(())
    }

    /// Everybody reads one object and puts it back changed; most lose.
    pub(crate) async fn conflict(&self, figures: &mut Figures) -> Result<()> {
        let attempt = |mut connection: Connection, number: u32| async move {
            let mut object = connection.get(&path(0)).await?.json();
            if let Some(spec) = object.get_mut("spec") {
                *spec = json!({"number": number, "text": "x".repeat(150)});
            }
            let answer = connection.put(&path(0), &object).await;
            expect(answer, &[200, 409], connection)
        };
        let before = self.generation().await?;
        let load = load::run(&self.endpoint, IN_FLIGHT, (1_000_000, CONFLICTS), attempt).await?;
        let won = self.generation().await? - before;
        figures.set(Row::ConflictRate, load.rate());
        figures.set(Row::ConflictWins, load.rate() * won / f64::from(CONFLICTS));
        Ok(())
    }

    /// How often the contended object has changed.
    async fn generation(&self) -> Result<f64> {
        let object = self.endpoint.connect().await?.get(&path(0)).await?.json();
        let generation = object.pointer("/metadata/generation").and_then(Value::as_f64);
        generation.context("no generation")
    }

    pub(crate) async fn list(&self, figures: &mut Figures) -> Result<()> {
        let all = self.time_list("", "parcel-09999").await?;
        figures.set(Row::ListAll, all);
        let tenth = self.time_list("?labelSelector=slot%3D9", "parcel-09999").await?;
        figures.set(Row::ListByLabel, tenth);
        Ok(())
    }

    async fn time_list(&self, query: &str, last: &str) -> Result<f64> {
        let mut connection = self.endpoint.connect().await?;
        let mut times = Vec::new();
        for _ in 0..LISTS {
            let start = Instant::now();
            let answer = connection.get(&format!("{PARCELS}{query}")).await?;
            times.push(start.elapsed());
            ensure!(answer.code() == 200, "list: {}", answer.status);
            let whole = answer.body.windows(last.len()).any(|part| part == last.as_bytes());
            ensure!(whole, "a list without {last}");
        }
        Ok(load::median(&mut times).context("no list")?.as_secs_f64() * 1000.0)
    }

    async fn watch(&self) -> Result<e2e::Events> {
        let mut connection = self.endpoint.connect().await?;
        let list = connection.get(&format!("{PARCELS}?limit=1")).await?;
        let path = format!("{PARCELS}?watch=true&resourceVersion={}", list.revision());
        let events = connection.watch(&path).await?;
        ensure!(events.status == http::StatusCode::OK, "watch: {}", events.status);
        Ok(events)
    }

    pub(crate) async fn latency(&self, figures: &mut Figures) -> Result<()> {
        let mut events = self.watch().await?;
        let (sender, mut receiver) = mpsc::channel(16);
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            while events.line().await.is_some() && sender.send(Instant::now()).await.is_ok() {}
        });
        let mut connection = self.endpoint.connect().await?;
        let mut times = Vec::new();
        for number in 0..ALONE {
            let body = json!({"spec": {"number": number + 7}});
            let start = Instant::now();
            ensure!(connection.merge(&path(number), &body).await?.code() == 200, "no write");
            let seen = tokio::time::timeout(TIMEOUT, receiver.recv()).await?;
            times.push(seen.context("the watch ended")?.duration_since(start));
        }
        let median = load::median(&mut times).context("no event")?;
        figures.set(Row::WatchLatency, median.as_secs_f64() * 1000.0);
        Ok(())
    }

    /// All watch, one writes; until the last watcher has seen the last write.
    pub(crate) async fn fan_out(&self, figures: &mut Figures) -> Result<()> {
        let mut watching = JoinSet::new();
        for _ in 0..WATCHERS {
            let mut events = self.watch().await?;
            watching.spawn(async move {
                for _ in 0..FAN_OUT_WRITES {
                    events.line().await.context("a watch ended early")?;
                }
                anyhow::Ok(())
            });
        }
        let start = Instant::now();
        let patch = |mut connection: Connection, number: u32| async move {
            let body = json!({"spec": {"number": number + 11}});
            let answer = connection.merge(&path(number), &body).await;
            expect(answer, &[200], connection)
        };
        load::run(&self.endpoint, IN_FLIGHT, (0, FAN_OUT_WRITES), patch).await?;
        let all = tokio::time::timeout(TIMEOUT, watching.join_all()).await?;
        let time = start.elapsed();
        all.into_iter().collect::<Result<()>>()?;
        let watchers = f64::from(u32::try_from(WATCHERS)?);
        figures.set(Row::FanOut, watchers * f64::from(FAN_OUT_WRITES) / time.as_secs_f64());
        Ok(())
    }

    pub(crate) async fn delete_all(&self, figures: &mut Figures) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        let start = Instant::now();
        let answer = connection.delete(PARCELS).await?;
        ensure!(answer.code() == 200, "deletecollection: {}", answer.status);
        figures.set(Row::DeleteAll, start.elapsed().as_secs_f64());
        let left = connection.get(PARCELS).await?.json();
        let left = left.get("items").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(left == 0, "{left} objects are left");
        Ok(())
    }

    /// Large objects, so that their list is long.
    pub(crate) async fn make_large(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        for number in 0..LARGE_OBJECTS {
            let name = format!("large-{number}");
            let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(LARGE_BYTES)}});
            ensure!(connection.post(MAPS, &body).await?.code() == 201, "no large object");
        }
        Ok(())
    }

    /// Readers that have asked for the list of the large objects and take nothing of it.
    pub(crate) async fn ask_and_not_read(&self) -> Result<Vec<e2e::Events>> {
        let mut readers = Vec::new();
        for _ in 0..UNREAD_LISTS {
            let reader = self.endpoint.connect().await?.watch(MAPS).await?;
            ensure!(reader.status == http::StatusCode::OK, "list: {}", reader.status);
            readers.push(reader);
        }
        Ok(readers)
    }

    pub(crate) async fn clear_large(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        for number in 0..LARGE_OBJECTS {
            connection.delete(&format!("{MAPS}/large-{number}")).await?;
        }
        Ok(())
    }

    /// Leaves the server as it was found.
    pub(crate) async fn clear(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        connection.delete(&format!("{DEFINITIONS}/{DEFINITION}")).await?;
        Ok(())
    }

    /// What a year of leader election does, in a minute.
    pub(crate) async fn update_leases(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        let leases = u32::try_from(IN_FLIGHT)?;
        for number in 0..leases {
            let body = json!({
                "metadata": {"name": format!("lease-{number}")},
                "spec": {"holderIdentity": "bench", "leaseDurationSeconds": 15},
            });
            ensure!(connection.post(LEASES, &body).await?.code() == 201, "no lease");
        }
        let renew = move |mut connection: Connection, number: u32| async move {
            let path = format!("{LEASES}/lease-{}", number % leases);
            let body = json!({"spec": {"leaseTransitions": number}});
            let answer = connection.merge(&path, &body).await;
            expect(answer, &[200], connection)
        };
        load::run(&self.endpoint, IN_FLIGHT, (0, LEASE_UPDATES), renew).await?;
        Ok(())
    }
}
