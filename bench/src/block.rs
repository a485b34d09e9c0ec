//! The Block Storage API on one core, measured from where its clients stand: plain HTTP on loopback, a
//! database of many volumes, and real volumes for what is made and backed up.

mod http;
mod rows;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::Server;
use serde_json::{Value, json};
use testkit::process::Process;
use tokio::task::JoinSet;

use crate::measure::percentile;
use http::Client;
use rows::Database;

const PROJECT: &str = "aaaa0000aaaa0000aaaa0000aaaa0000";
const START_TIMEOUT: Duration = Duration::from_mins(2);
const MAKE_TIMEOUT: Duration = Duration::from_mins(5);
const POLL: Duration = Duration::from_millis(10);
/// Side by side.
const CLIENTS: usize = 16;
/// For one backup of one volume.
const RACERS: usize = 100;
/// The page of a list, in volumes.
const PAGE: usize = 100;
const DETAIL: &str = "/volumes/detail?limit=100";
/// One volume in a thousand; the same page however many there are, since what it shows has its price too.
/// The last one is the page of the oldest.
const FILTERED: &[(&str, &str)] = &[
    ("status=error", "status=error"),
    ("status=in-use", "status=in-use"),
    ("backup_status=backing-up", "backup_status=backing-up"),
    ("size=2", "size=2"),
    ("bootable=true", "bootable=true"),
    ("name=volume 7", "name=volume%207"),
    ("status=error of all projects", "status=error&all_tenants=1"),
    ("the first by name", "sort=name:asc"),
    ("metadata={'tier':'gold'}", "metadata=%7B%27tier%27:%27gold%27%7D"),
    ("the oldest", "marker=00000000-0000-4000-8000-000000000002"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Volumes in the database.
    #[arg(long, default_value_t = 10_000)]
    volumes: u32,
    /// Volumes of the larger database that a filtered page is compared with.
    #[arg(long, default_value_t = 100_000)]
    many: u32,
    /// Requests of each measurement.
    #[arg(long, default_value_t = 2_000)]
    requests: u32,
    /// Volumes that are made, one after the other.
    #[arg(long, default_value_t = 10)]
    made: u32,
    /// A `PostgreSQL` to measure as well, as in `postgres://user@localhost/db?host=/folder`.
    #[arg(long, env = "TEST_POSTGRES_URL")]
    postgres: Option<String>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = Server::start();
    let sqlite = format!("sqlite:{}", server.scratch().join("bench.db").display());
    measure("SQLite", &sqlite, &server, options).await?;
    if let Some(address) = &options.postgres {
        return measure("PostgreSQL", address, &server, options).await;
    }
    println!("PostgreSQL: not measured, --postgres names none");
    Ok(())
}

/// One process of the service.
struct Service {
    process: Process,
    address: String,
}

impl Service {
    fn start(database: &str, server: &Server) -> Result<Self> {
        // One core for the service; its clients and the volumes have the others.
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0"]).arg(e2e::server::binary());
        command.args(["block-api", "--database-url", database, "--block-listen", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(server.kubeconfig());
        command.arg("--data-dir").arg(server.scratch().join("block"));
        let mut process = Process::start(command, server.scratch(), "block-api")?;
        let line = process.wait_for_line("Block Storage API", START_TIMEOUT)?;
        let address = line.rsplit("http://").next().and_then(|it| it.split('/').next());
        let address = address.context("no address is told")?.to_owned();
        Ok(Self { process, address })
    }

    async fn client(&self) -> Result<Client> {
        Client::connect(&self.address, &format!("admin:{PROJECT}")).await
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.terminate();
        let _ = self.process.wait_for_exit(Duration::from_secs(30));
    }
}

/// Times of single requests, and of all of them side by side.
struct Figures {
    p50: Duration,
    p99: Duration,
    rate: f64,
}

fn tell(what: &str, it: &Figures) {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("| {what} | {:.2} ms | {:.2} ms | {:.0} /s |", ms(it.p50), ms(it.p99), it.rate);
}

async fn measure(engine: &str, database: &str, server: &Server, options: &Options) -> Result<()> {
    let rows = Database::open(database).await?;
    let synced = Command::new(e2e::server::binary())
        .args(["block-api", "--database-url", database, "db", "sync"])
        .output()?;
    ensure!(synced.status.success(), "the schema is not made: {synced:?}");
    println!("\n## {engine}\n\n| what | p50 | p99 | {CLIENTS} at once |\n|---|---|---|---|");
    // The default type is made at the first start, and rows need one.
    drop(Service::start(database, server)?);
    rows.grow(1_000).await?;
    let service = Service::start(database, server)?;
    let few = options.requests.min(500);
    filtered(&service, 1_000, few).await?;
    rows.grow(options.volumes).await?;
    let count = options.volumes;
    let shown = load(&service, options.requests, move |number| {
        format!("/volumes/{}", rows::id(number % count + 1))
    });
    tell(&format!("show, of {count} volumes"), &shown.await?);
    let page = load(&service, few, |_| DETAIL.to_owned());
    tell(&format!("page of {PAGE}, in detail"), &page.await?);
    make(&service, options.made).await?;
    race(&service).await?;
    rows.grow(options.many).await?;
    filtered(&service, options.many, few).await
}

async fn filtered(service: &Service, of: u32, requests: u32) -> Result<()> {
    for (what, query) in FILTERED {
        let path = format!("/volumes/detail?limit=1&{query}");
        let (_, found) = service.client().await?.get(&path).await?;
        let shown = found.pointer("/volumes").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(shown == 1, "{what} shows {shown} volumes: {found}");
        let figures = load(service, requests, move |_| path.clone()).await?;
        tell(&format!("page of {what}, of {of} volumes"), &figures);
    }
    Ok(())
}

/// The same request again and again: alone, then side by side.
async fn load(
    service: &Service,
    requests: u32,
    path: impl Fn(u32) -> String + Clone + Send + 'static,
) -> Result<Figures> {
    let mut client = service.client().await?;
    let mut times = Vec::new();
    // The first ones fill caches.
    for number in 0..requests + 20 {
        let begin = Instant::now();
        let (code, body) = client.get(&path(number)).await?;
        ensure!(code == 200, "{} is {code}: {body}", path(number));
        if number >= 20 {
            times.push(begin.elapsed());
        }
    }
    times.sort_unstable();
    let mut clients = JoinSet::new();
    let each = requests / u32::try_from(CLIENTS)? + 1;
    for lane in 0..u32::try_from(CLIENTS)? {
        let (mut client, path) = (service.client().await?, path.clone());
        clients.spawn(async move {
            for number in 0..each {
                let (code, _) = client.get(&path(lane * each + number)).await?;
                ensure!(code == 200, "{code} side by side");
            }
            anyhow::Ok(each)
        });
    }
    let begin = Instant::now();
    let done: Result<Vec<u32>> = clients.join_all().await.into_iter().collect();
    let rate = f64::from(done?.iter().sum::<u32>()) / begin.elapsed().as_secs_f64();
    Ok(Figures { p50: percentile(&times, 50), p99: percentile(&times, 99), rate })
}

/// Until a volume has a status.
async fn until(client: &mut Client, id: &str, wanted: &str) -> Result<Duration> {
    let begin = Instant::now();
    loop {
        let (_, body) = client.get(&format!("/volumes/{id}")).await?;
        let status = body.pointer("/volume/status").and_then(Value::as_str).unwrap_or("gone");
        if status == wanted {
            return Ok(begin.elapsed());
        }
        ensure!(status != "error", "a volume ended in error: {body}");
        ensure!(begin.elapsed() < MAKE_TIMEOUT, "it stays {status}");
        tokio::time::sleep(POLL).await;
    }
}

async fn new_volume(client: &mut Client) -> Result<String> {
    let quota = json!({"quota_set": {"volumes": -1, "gigabytes": -1}});
    client.send("PUT", &format!("/os-quota-sets/{PROJECT}"), Some(&quota)).await?;
    let body = json!({"volume": {"size": 1, "name": "made"}});
    let (code, made) = client.send("POST", "/volumes", Some(&body)).await?;
    ensure!(code == 202, "{code} {made}");
    let id = made.pointer("/volume/id").and_then(Value::as_str);
    Ok(id.context("a volume without an id")?.to_owned())
}

/// From the request to a volume that can be used, on real volumes.
async fn make(service: &Service, count: u32) -> Result<()> {
    let mut client = service.client().await?;
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        let id = new_volume(&mut client).await?;
        until(&mut client, &id, "available").await?;
        times.push(begin.elapsed());
        client.send("DELETE", &format!("/volumes/{id}"), None).await?;
    }
    times.sort_unstable();
    let ms = |of_hundred| percentile(&times, of_hundred).as_secs_f64() * 1000.0;
    println!("| create to available, on a real volume | {:.0} ms | {:.0} ms | - |", ms(50), ms(99));
    Ok(())
}

/// Everybody wants the one backup of one volume.
async fn race(service: &Service) -> Result<()> {
    let mut client = service.client().await?;
    let id = new_volume(&mut client).await?;
    until(&mut client, &id, "available").await?;
    let body = json!({"backup": {"volume_id": id}});
    let mut racers = JoinSet::new();
    let start = std::sync::Arc::new(tokio::sync::Barrier::new(RACERS + 1));
    for _ in 0..RACERS {
        let (mut client, body, start) = (service.client().await?, body.clone(), start.clone());
        racers.spawn(async move {
            start.wait().await;
            let begin = Instant::now();
            let (code, _) = client.send("POST", "/backups", Some(&body)).await?;
            anyhow::Ok((code, begin.elapsed()))
        });
    }
    start.wait().await;
    let begin = Instant::now();
    let ended: Result<Vec<(u16, Duration)>> = racers.join_all().await.into_iter().collect();
    let (ended, whole) = (ended?, begin.elapsed());
    let won = ended.iter().filter(|(code, _)| *code == 202).count();
    let refused = ended.iter().filter(|(code, _)| *code == 400).count();
    ensure!(won == 1 && refused == RACERS - 1, "{won} won and {refused} were refused: {ended:?}");
    let mut times: Vec<Duration> = ended.into_iter().map(|(_, time)| time).collect();
    times.sort_unstable();
    let count = u32::try_from(RACERS)?;
    let rate = f64::from(count) / whole.as_secs_f64();
    let figures = Figures { p50: percentile(&times, 50), p99: percentile(&times, 99), rate };
    tell(&format!("{RACERS} clients, one backup: 1 won"), &figures);
    Ok(())
}

/// For what is not an object.
fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or(Value::Null)
}
